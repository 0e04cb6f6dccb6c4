"""What to try if the residuals refute a fit: another noise model, a range of delays, or another model.

Noise models have one fixed order, and advice only moves up in it: a model that was tried, and all that come before it,
are never advised again. A range of delays only gets narrower. So the advice comes to an end, whatever the data are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import special

from bayesfit.diagnose.rules import LEAST_P
from bayesfit.modelling.noise import CORRELATED, NOISES, SPECKLE

ORDER = ("photons", "stated", "scaled", "inferred", "smooth", "robust", "speckle", "correlated", "covariance")
# The noise model for each failed check; for correlated residuals there are two.
SINGLE = {"p_chi2": "scaled", "p_trend": "smooth", "p_tails": "robust"}
CORRELATIONS = (SPECKLE.name, CORRELATED.name)
# Faults that no noise model describes.
ALTERNATING, RISING, EXACT, ONE_SHAPE = "alternating", "rising", "exact", "one_shape"
REMEDIES = {
    "p_chi2": "another model",
    "p_trend": "a range of delays or another model",
    "p_tails": "a range of delays without that point, or another model",
    "p_correlation": "another model or a range of delays",
    ALTERNATING: "a model of fewer parameters",
    RISING: "another model or a range of delays",
    ONE_SHAPE: "another model, or a range of delays without what disturbs all bins alike",
}

FEWEST_BINS = 5
CLEAR = 3.0  # standard errors
IN_MOST = 0.5  # share of the bins that must have a fault for it to be the dataset's
POOLED = {
    "p_tails": "points lie far off too often",
    "p_trend": "the residuals' size changes with the delay",
    "p_chi2": "the residuals are not of the stated size",
}


@dataclass(frozen=True)
class Advice:
    """What to try, in `words`, "" if nothing is wrong; and at most one of `noise`, the noise model to try, else "", and
    `tau_min`, the smallest delay to keep in s, else 0."""

    words: str = ""
    noise: str = ""
    tau_min: float = 0.0


NOTHING = Advice()


def without_first(tau_min: float, where: str = "") -> Advice:
    """The advice to leave out the delays below `tau_min`; `where` says in how many bins."""
    return Advice(f"the first delays alone are off{where}: leave them out, --set tau_min={tau_min:.12g}", "", tau_min)


def advise(faults: Mapping[str, float], noise: str, log_ratio: float, delays: bool, tau_min: float = 0.0) -> Advice:
    """What to try against the most serious fault for which there is a remedy.

    Args:
        faults: the p-value of each check that failed, by name; `ALTERNATING`, `RISING` or `EXACT` may be among them.
        noise: the noise model in use.
        log_ratio: log likelihood of the residuals with the correlations of "speckle", minus that with those of
            "correlated".
        delays: whether the data are of delays.
        tau_min: from which delay on the curve fits, where only the first delays are off; else 0.
    """
    if not faults:
        return NOTHING
    if EXACT in faults:
        return Advice("fit measured data, or add noise to these")
    if tau_min > 0:
        return without_first(tau_min)
    # p_chi2 comes first: "scaled" and all noise models after it infer a scale.
    gravest = sorted(faults, key=lambda fault: (fault != "p_chi2", faults[fault]))
    for fault in gravest:
        if cure := _cure(fault, noise, log_ratio, delays):
            return Advice(f"try noise '{cure}' or another model", cure)
    remedy = REMEDIES[gravest[0]]
    return Advice(f"no noise model here describes that{_beside(gravest[0], noise)}: try {remedy}")


def _cure(fault: str, noise: str, log_ratio: float, delays: bool) -> str:
    """The noise model that describes a fault, if it stands above the one in use; else ""."""
    likelier = CORRELATIONS[0] if log_ratio >= 0 else CORRELATIONS[1]
    cure = likelier if fault == "p_correlation" else SINGLE.get(fault, "")
    above = ORDER[ORDER.index(noise) + 1 :] if noise in ORDER else ()
    return cure if cure in above and (delays or not NOISES[cure].delays) else ""


def _beside(fault: str, noise: str) -> str:
    """In words, that there is a noise model for this fault, but that it lacks what the one in use describes; "" if that
    is not so."""
    own = CORRELATIONS if fault == "p_correlation" else (SINGLE.get(fault, ""),)
    return "" if noise in own or not any(own) else f" beside what '{noise}' has"


def advise_dataset(diagnostics: xr.Dataset, noise: str = "scaled", delays: bool = True) -> tuple[str, Advice]:
    """What the residuals of all bins together refute, in words, and what to try; "" where they refute nothing.

    A fault too small for any one bin shows in the mean over all bins of the neighbours' correlation, whose standard
    error is one over the root of the number of points, or in the p-values of all bins together (see `_below`). If the
    first delays are off in most of the bins, the instrument is the cause, and they are taken to be off in all of them.
    Residuals that correlate with one shape in all bins (see `one_shape`) are no noise of the bins, but a wrong curve.
    """
    words, faults = _pooled(diagnostics)
    asking = diagnostics.tau_min_to_try.values > 0
    judged = int((diagnostics.points > 0).sum())
    if asking.any() and asking.sum() >= IN_MOST * judged:
        return words, without_first(float(diagnostics.tau_min_to_try.max()), f" in {asking.sum()} of {judged} bins")
    return words, advise(faults, noise, float(diagnostics.speckle_log_ratio.sum()), delays)


def _pooled(diagnostics: xr.Dataset) -> tuple[str, dict[str, float]]:
    """The first fault that all bins together have, in words and by name; "" where there is none."""
    done = diagnostics.p_correlation.notnull().values
    if done.sum() < FEWEST_BINS:
        return "", {}
    points = diagnostics.points.values[done]
    correlation = np.sum(points * diagnostics.residual_correlation.values[done]) / np.sum(points)
    sd = 1.0 / np.sqrt(np.sum(points))
    if abs(correlation) > CLEAR * sd:
        words = f"over all bins, neighbouring residuals correlate ({correlation:.3f} ± {sd:.1g})"
        if correlation > 0 and (p := diagnostics.attrs.get("p_one_shape", np.nan)) < LEAST_P:
            return f"{words}, with one shape in all bins (p {p:.1g})", {ONE_SHAPE: 0.0}
        return words, {"p_correlation" if correlation > 0 else ALTERNATING: 0.0}
    for name, words in POOLED.items():
        if _below(diagnostics[name].values[done]) > CLEAR:
            return f"over all bins, {words}", {name: 0.0}
    return "", {}


def _below(p: Float[np.ndarray, " bin"]) -> float:
    """How far below uniform p-values these are, in standard errors: by the sum of their normal scores (Stouffer 1949),
    of which those above 1/2 count alike. Where draws are far apart, so are their residuals, and hardly any p-value of a
    statistic with two sides is close to 1; small ones are no more frequent than uniform ones."""
    scores, mean = np.maximum(-special.ndtri(np.clip(p, 1e-12, 1.0)), 0.0), 1.0 / np.sqrt(2.0 * np.pi)
    return float(np.sum(scores - mean) / np.sqrt(p.size * (0.5 - mean**2)))

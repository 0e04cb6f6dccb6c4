"""The verdict on a calibration: have its chains converged, does the pattern fit, do the photons narrow the priors?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from scipy import special

from bayesfit.diagnose.contraction import contraction, prior_quantiles
from bayesfit.diagnose.rules import LEAST_P, Case, weigh
from bayesfit.sample.convergence import worst

LEAST_EXPECTED = 1.0  # photons: a cell with fewer says little about the fit
TILTS = ("rot1", "rot2")  # which small angles hardly show; what is not known of them is in the draws


class CalibrationVerdict(NamedTuple):
    """The verdict (see `rules.RULES`), its reason, numbers by name, and the contraction of each parameter's prior."""

    name: str
    reason: str
    numbers: dict[str, float]
    contractions: dict[str, float]


def judge(
    samples: Mapping[str, Float[np.ndarray, "chain draw"]],
    stats: Mapping[str, Shaped[np.ndarray, "chain draw"]],
    prior: Mapping[str, Float[np.ndarray, " draw"]],
    cells: tuple[Float[np.ndarray, " cell"], Float[np.ndarray, " cell"]],
) -> CalibrationVerdict:
    """The verdict on draws of scalars, from draws of their `prior`, and photons counted and expected in `cells`."""
    r_hat, ess_bulk, ess_tail = worst(np.stack(list(samples.values())))
    chi2, used, p = fit_of(*cells)
    misfit = (
        f"chi2 {chi2:.0f} in {used} cells (p {p:.0g}): rings are uneven, of another shape, or no photons are counted"
    )
    contractions = {name: contraction(samples[name], prior_quantiles(prior[name])) for name in samples}
    case = Case(
        r_hat=r_hat,
        ess_bulk=ess_bulk,
        ess_tail=ess_tail,
        transitions=stats["diverging"].size,
        divergences=int(stats["diverging"].sum()),
        misfits=(misfit,) if p < LEAST_P else (),
        contractions={name: value for name, value in contractions.items() if name not in TILTS},
    )
    numbers = {"r_hat": r_hat, "ess_bulk": ess_bulk, "ess_tail": ess_tail, "divergences": case.divergences}
    return CalibrationVerdict(*weigh(case), numbers | {"chi2": chi2, "cells": used, "p_chi2": p}, contractions)


def fit_of(counts: Float[np.ndarray, " cell"], expected: Float[np.ndarray, " cell"]) -> tuple[float, int, float]:
    """Pearson's chi-square of the cells that expect a photon or more, their number, and the p-value. Of a Poisson
    number with mean m, a term has mean 1 and variance 2 + 1 / m."""
    used = expected >= LEAST_EXPECTED
    terms = (counts[used] - expected[used]) ** 2 / expected[used]
    sd = np.sqrt(np.sum(2.0 + 1.0 / expected[used]))
    excess = (terms.sum() - used.sum()) / sd if used.any() else 0.0
    return float(terms.sum()), int(used.sum()), float(special.ndtr(-excess))

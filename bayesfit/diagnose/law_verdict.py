"""Is a law in q to be believed: did its chains mix, do the bins follow it, did they say more than its prior?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from bayesfit.diagnose.residual_checks import numbers_of, refuted
from bayesfit.diagnose.verdict import LEAST_CONTRACTION, contraction
from bayesfit.modelling.law import law_refuted
from bayesfit.modelling.laws import Law
from bayesfit.posterior.bin_likelihood import Bins, Likelihood, log_likelihood
from bayesfit.sample.convergence import worst
from bayesfit.sample.draws import LARGEST_DIVERGENT_SHARE, LARGEST_RHAT, LEAST_ESS

REACH, POINTS = 8.0, 2001  # of the search for a bin's best value: sd of its likelihood, and places on that line
QUANTILES = 65

Array = np.ndarray
Found = list[tuple[str, str]]  # verdicts with their reasons


class Residuals(NamedTuple):
    """Of the used bins (bin,): distances from the law, `alone` in sd of each bin's likelihood, `checked` with the
    scatter about the law allowed for, where there is one."""

    alone: Array
    checked: Array


class Fitted(NamedTuple):
    """A law's draws: the `law` of this `parameter`, the `bins`, the names of the law's own sampled parameters, `sites`;
    `samples` (chain, draw) of all that was inferred and `scatter` among them, if there is any (the draws of a fixed one
    are all alike); the sampler's `stats` (chain, draw); `prior` draws (draw,) of the sampled; and the law's `values`
    (chain, draw, q) at the used bins and, after them, over a grid."""

    law: Law
    parameter: str
    bins: Bins
    sites: tuple[str, ...]
    samples: dict[str, Array]
    scatter: Array | None
    stats: dict[str, Array]
    prior: Mapping[str, Any]
    values: Array

    @property
    def at_bins(self) -> Array:
        """The law at the used bins (chain, draw, bin)."""
        return self.values[..., : self.bins.used.sum()]

    @property
    def over_grid(self) -> Array:
        """The law over the grid (chain, draw, point)."""
        return self.values[..., self.bins.used.sum() :]


class LawVerdict(NamedTuple):
    """The verdict on a law, the first that applies of poor_mixing, misfit, not_identified, ok; `reason`: all that
    apply; `numbers`: convergence, and those of `residual_checks.NUMBERS`."""

    name: str
    reason: str
    numbers: dict[str, float]


def residuals_of(fitted: Fitted) -> Residuals:
    """The bins' distances from the law. Call it with x64 on.

    A distance is the signed root of a likelihood ratio, as in a joint fit (see `profile_likelihood`), of all that the
    bin's likelihood L allows: r^2 = 2 (max log L(x) - max [log L(x) - (x - f)^2 / (2 s^2)]), f the law's mean, s the
    mean of the scatter. Without scatter the second term is log L(f). Of normal likelihoods of width w, r is the
    distance over sqrt(w^2 + s^2).
    """
    bins, law = fitted.bins, fitted.at_bins
    at = (np.log(law) if bins.logarithmic else law).mean(axis=(0, 1))
    best, highest = _best(bins.likelihood)

    def root(held: Array) -> Array:
        return np.sign(best - at) * np.sqrt(2.0 * np.maximum(highest - held, 0.0))

    alone = root(_log_at(at[:, None], bins.likelihood)[:, 0])
    if fitted.scatter is None:
        return Residuals(alone, alone)
    x = at[:, None] + (best - at)[:, None] * np.linspace(0.0, 1.0, POINTS)
    penalty = 0.5 * ((x - at[:, None]) / np.mean(fitted.scatter)) ** 2
    return Residuals(alone, root(np.max(_log_at(x, bins.likelihood) - penalty, axis=1)))


def _best(likelihood: Likelihood) -> tuple[Array, Array]:
    """Where each bin's likelihood is highest, and its logarithm there."""
    x = likelihood.centre[:, None] + likelihood.width[:, None] * np.linspace(-REACH, REACH, POINTS)
    logs = _log_at(x, likelihood)
    place = np.argmax(logs, axis=1)[:, None]
    return np.take_along_axis(x, place, 1)[:, 0], np.take_along_axis(logs, place, 1)[:, 0]


def _log_at(x: Array, likelihood: Likelihood) -> Array:
    """Log likelihood of each bin at its own points (bin, point)."""
    return np.asarray(jax.vmap(jax.vmap(log_likelihood, (0, None)))(x, likelihood))


def judge(fitted: Fitted, residuals: Residuals) -> LawVerdict:
    """The verdict on the law."""
    bins, residual = fitted.bins, residuals.checked
    mixing, convergence = _mixing(fitted)
    numbers = numbers_of(residual, len(fitted.sites) + ("scatter" in fitted.samples), bins.q[bins.used])
    words, remedy = law_refuted(fitted.parameter, fitted.law.name, fitted.scatter is not None)
    misfit = refuted(words, remedy, numbers, residual, bins.labels[bins.used])
    found = [*mixing, *([("misfit", misfit)] if misfit else []), *_identification(fitted)]
    fine = f"R-hat {convergence['r_hat']:.3f}, ESS {min(convergence['ess_bulk'], convergence['ess_tail']):.0f}"
    reasons = [text for _, text in found] or [fine]
    if fitted.scatter is not None:
        reasons.append(_scatter_in_words(fitted.scatter, bins))
    return LawVerdict(found[0][0] if found else "ok", "; ".join(reasons), convergence | numbers)


def _mixing(fitted: Fitted) -> tuple[Found, dict[str, float]]:
    """What speaks against the chains, and the numbers that say so."""
    sampled, diverging = [array for array in fitted.samples.values() if np.ptp(array) > 0], fitted.stats["diverging"]
    r_hat, ess_bulk, ess_tail = worst(np.stack(sampled))
    divergences = int(diverging.sum())
    found: Found = []
    if not r_hat <= LARGEST_RHAT:
        found.append(("poor_mixing", f"R-hat {r_hat:.3f} > {LARGEST_RHAT}"))
    if not min(ess_bulk, ess_tail) >= LEAST_ESS:
        found.append(("poor_mixing", f"ESS {min(ess_bulk, ess_tail):.0f} < {LEAST_ESS:.0f}"))
    if divergences > LARGEST_DIVERGENT_SHARE * diverging.size:
        found.append(("poor_mixing", f"{divergences} divergences"))
    return found, {"r_hat": r_hat, "ess_bulk": ess_bulk, "ess_tail": ess_tail, "divergences": divergences}


def _identification(fitted: Fitted) -> Found:
    """The law's parameters of which the bins say hardly more than the prior."""
    levels, low = (np.arange(QUANTILES) + 0.5) / QUANTILES, []
    for name in fitted.sites:
        narrowed = contraction(fitted.samples[name], np.quantile(np.asarray(fitted.prior[name]), levels))
        if narrowed < LEAST_CONTRACTION:
            low.append(f"{name} (contraction {narrowed:.2f})")
    return [("not_identified", f"the bins hardly narrow the prior: {', '.join(low)}")] if low else []


def _scatter_in_words(scatter: Array, bins: Bins) -> str:
    """How far bins scatter about the law: as a share where they do so in the logarithm, and in their own widths."""
    low, middle, high = np.quantile(scatter, [0.025, 0.5, 0.975])
    factor, unit = (100.0, " %") if bins.logarithmic else (1.0, "")
    size = f"{factor * middle:.2g}{unit} ({factor * low:.2g} to {factor * high:.2g})"
    times = middle / float(np.median(bins.likelihood.width))
    return f"bins scatter about the law by {size}, {times:.2g} times their own widths"

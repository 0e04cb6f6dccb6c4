"""The verdict on a law in q: have its chains converged, do the bins follow it, and do they narrow its priors?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Shaped

from bayesfit.data.dependence import Dependence
from bayesfit.diagnose.contraction import contraction, prior_quantiles
from bayesfit.diagnose.interval import central_interval
from bayesfit.diagnose.residual_checks import numbers_of, refuted
from bayesfit.diagnose.rules import Case, weigh
from bayesfit.modelling.law import law_refuted
from bayesfit.modelling.laws import Law
from bayesfit.posterior.bin_likelihood import Bins, Likelihood, log_likelihood
from bayesfit.sample.convergence import worst

REACH, POINTS = 8.0, 2001  # range of the search for a bin's best value, in sd of its likelihood, and number of places

OfBins = Float[np.ndarray, " bin"]
OfDraws = Float[np.ndarray, "chain draw"]


class Residuals(NamedTuple):
    """The distances of the used bins from the law: `alone`, in sd of each bin's likelihood; `checked`, with the scatter
    about the law allowed for, where there is one."""

    alone: OfBins
    checked: OfBins


class LawFit(NamedTuple):
    """A law and its draws.

    The `law` of this `parameter`; the `bins`; the names of the law's own sampled parameters, `sites`; `samples` of all
    that was inferred; the `scatter`, if there is any (constant where it is fixed); the sampler's `stats`; `prior` draws
    of what was sampled; and the law's `values` at the used bins and, after them, over a grid.
    """

    law: Law
    parameter: str
    bins: Bins
    sites: tuple[str, ...]
    samples: dict[str, OfDraws]
    scatter: OfDraws | None
    stats: dict[str, Shaped[np.ndarray, "chain draw"]]
    prior: Mapping[str, Float[np.ndarray, " draw"]]
    values: Float[np.ndarray, "chain draw q"]

    @property
    def at_bins(self) -> Float[np.ndarray, "chain draw bin"]:
        """The law at the used bins."""
        return self.values[..., : self.bins.used.sum()]

    @property
    def over_grid(self) -> Float[np.ndarray, "chain draw point"]:
        """The law over the grid."""
        return self.values[..., self.bins.used.sum() :]


class LawVerdict(NamedTuple):
    """The verdict on a law (see `rules.RULES`), its `reason`, and `numbers`: convergence, and those of
    `residual_checks.NUMBERS`."""

    name: str
    reason: str
    numbers: dict[str, float]


def residuals_of(fit: LawFit) -> Residuals:
    """The bins' distances from the law. Call it with x64 on.

    A distance is the signed root of a likelihood ratio, as in a joint fit (see `profile_likelihood`), with the bin's
    likelihood L: r^2 = 2 (max log L(x) - max [log L(x) - (x - f)^2 / (2 s^2)]), where f is the law's mean and s the
    mean of the scatter. Without scatter the second term is log L(f). Of normal likelihoods of width w, r is the
    distance over sqrt(w^2 + s^2).
    """
    bins, law = fit.bins, fit.at_bins
    at = (np.log(law) if bins.logarithmic else law).mean(axis=(0, 1))
    best, highest = _best(bins.likelihood)

    def root(at_law: OfBins) -> OfBins:
        return np.sign(best - at) * np.sqrt(2.0 * np.maximum(highest - at_law, 0.0))

    alone = root(_log_at(at[:, None], bins.likelihood)[:, 0])
    if fit.scatter is None:
        return Residuals(alone, alone)
    x = at[:, None] + (best - at)[:, None] * np.linspace(0.0, 1.0, POINTS)
    penalty = 0.5 * ((x - at[:, None]) / np.mean(fit.scatter)) ** 2
    return Residuals(alone, root(np.max(_log_at(x, bins.likelihood) - penalty, axis=1)))


def _best(likelihood: Likelihood) -> tuple[OfBins, OfBins]:
    """Where each bin's likelihood is highest, and its logarithm there."""
    x = likelihood.centre[:, None] + likelihood.width[:, None] * np.linspace(-REACH, REACH, POINTS)
    logs = _log_at(x, likelihood)
    place = np.argmax(logs, axis=1)[:, None]
    return np.take_along_axis(x, place, 1)[:, 0], np.take_along_axis(logs, place, 1)[:, 0]


def _log_at(x: Float[np.ndarray, "bin point"], likelihood: Likelihood) -> Float[np.ndarray, "bin point"]:
    """Log likelihood of each bin at its own points."""
    return np.asarray(jax.vmap(jax.vmap(log_likelihood, (0, None)))(x, likelihood))


def judge(fit: LawFit, residuals: Residuals, dependence: Dependence) -> LawVerdict:
    """The verdict on the law; `dependence` says which bins are not independent of each other."""
    bins, residual = fit.bins, residuals.checked
    convergence = _convergence(fit)
    numbers = numbers_of(residual, len(fit.sites) + ("scatter" in fit.samples), bins.q[bins.used])
    words, remedy = law_refuted(fit.parameter, fit.law.name, fit.scatter is not None)
    misfit = refuted(words, remedy, numbers, residual, bins.labels[bins.used])
    contractions = {
        name: contraction(fit.samples[name], prior_quantiles(np.asarray(fit.prior[name]))) for name in fit.sites
    }
    case = Case(
        r_hat=convergence["r_hat"],
        ess_bulk=convergence["ess_bulk"],
        ess_tail=convergence["ess_tail"],
        transitions=fit.stats["diverging"].size,
        divergences=int(convergence["divergences"]),
        misfits=(misfit,) if misfit else (),
        contractions=contractions,
        dependent=dependence.words,
        too_narrow=dependence.too_narrow,
    )
    name, reason = weigh(case)
    if fit.scatter is not None:
        reason += f"; {_scatter_in_words(fit.scatter, bins)}"
    return LawVerdict(name, reason, convergence | numbers)


def _convergence(fit: LawFit) -> dict[str, float]:
    """Worst R-hat and effective sample sizes of all that was sampled, and how many transitions diverged."""
    r_hat, ess_bulk, ess_tail = worst(np.stack([array for array in fit.samples.values() if np.ptp(array) > 0]))
    divergences = int(fit.stats["diverging"].sum())
    return {"r_hat": r_hat, "ess_bulk": ess_bulk, "ess_tail": ess_tail, "divergences": divergences}


def _scatter_in_words(scatter: OfDraws, bins: Bins) -> str:
    """How far bins scatter about the law: in % where the law is of the logarithm, and in their own widths."""
    low, middle, high = central_interval(scatter)
    factor, unit = (100.0, " %") if bins.logarithmic else (1.0, "")
    size = f"{factor * middle:.2g}{unit} ({factor * low:.2g} to {factor * high:.2g})"
    times = middle / float(np.median(bins.likelihood.width))
    return f"bins scatter about the law by {size}, {times:.2g} times their own widths"

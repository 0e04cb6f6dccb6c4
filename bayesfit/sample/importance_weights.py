"""Adaptive importance sampling of a bin's posterior, on the host: weighted points, and what is computed from them.

1. The weights of the first stage's points (`importance_sampling`) are the posterior density over the density of the
   mixture of all distributions that they were drawn from (deterministic-mixture weights: Owen & Zhou, J. Am. Stat.
   Assoc. 95, 135 (2000)).
2. Where there are constrained modes, more points are drawn from a mixture fitted to the weighted ones, again and again
   until the effective sample size suffices. All points are weighted again, now with the mixture of all distributions
   used so far (adaptive multiple importance sampling: Cornuet, Marin, Mira & Robert, Scand. J. Stat. 39, 798 (2012)).
   While few points have any weight, mixtures are fitted to a root of the weights (Koblents & Miguez, Stat.
   Comput. 25, 407 (2015)).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from bayesfit.compute.devices import gather, give
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.importance_sampling import FirstStage, evaluations
from bayesfit.sample.mixture import (
    COMPONENTS,
    FITTED_TO,
    FITTING_STEPS,
    Components,
    draw_points,
    fit_components,
    inverses,
    log_densities,
    outwards,
)
from bayesfit.sample.modes import Modes, profiled

MORE_POINTS, STAGES = 1024, 12  # points per later stage, and how many such stages at most
WANTED_ESS = 2000.0
QUICK_STEPS = 10  # of the fit of a stage's mixture
ESS_FOR_MOMENTS, ESS_FOR_MIXTURE = 15.0, 50.0  # effective sample size per coordinate
MOST_ROOTS = 12  # square roots taken of the weights, at most

Points = Float[np.ndarray, "point param"]
Numbers = Float[np.ndarray, " point"]


class WeightedPoints(NamedTuple):
    """The importance sample of one bin: points, the potential there, the log density of the mixture that they were
    drawn from, `log_proposal`, and the importance weights, which sum to 1."""

    points: Points
    potentials: Numbers
    log_proposal: Numbers
    weights: Numbers

    @classmethod
    def of(cls, points: Points, potentials: Numbers, log_proposal: Numbers) -> WeightedPoints:
        """Points with their weights, exp(-potential) over the density of the proposal."""
        log_weights = _log_weights(potentials, log_proposal)
        weights = np.exp(log_weights - np.max(log_weights))
        return cls(points, potentials, log_proposal, weights / np.sum(weights))

    @property
    def ess(self) -> float:
        """The effective sample size, 1 / sum w^2."""
        return _ess(self.weights)

    @property
    def enough_for_moments(self) -> bool:
        """Whether the effective sample size suffices for a mean and a covariance."""
        return bool(self.ess > ESS_FOR_MOMENTS * (self.points.shape[1] + 1))

    @property
    def enough_for_mixture(self) -> bool:
        """Whether it suffices for the mixture that independence proposals come from."""
        return bool(self.ess > ESS_FOR_MIXTURE * (self.points.shape[1] + 1))

    @property
    def tempered(self) -> Numbers:
        """The weights. If their effective sample size does not suffice for moments, the first of their square root,
        fourth root and so on for which it does."""
        weights, log_weights = self.weights, _log_weights(self.potentials, self.log_proposal)
        for root in range(1, MOST_ROOTS + 1):
            if _ess(weights) > ESS_FOR_MOMENTS * (self.points.shape[1] + 1):
                break
            weights = special.softmax(log_weights * 0.5**root)
        return weights


def _log_weights(potentials: Numbers, log_proposal: Numbers) -> Numbers:
    log_weights = -potentials - log_proposal
    return np.where(np.isfinite(log_weights), log_weights, -np.inf)


def _ess(weights: Numbers) -> float:
    return 1.0 / np.sum(weights**2)


def weighted(first: FirstStage) -> WeightedPoints:
    """The points of a first stage with their weights."""
    return WeightedPoints.of(first.points, first.potentials, first.log_proposal)


class Batch(NamedTuple):
    """Bins whose points are evaluated together on a number of `devices`, with their modes and prior draws."""

    bins: Bin
    modes: Modes
    prior_draws: Float[np.ndarray, "bin draw param"]
    devices: int


def adapted(
    posterior: Posterior, batch: Batch, first: list[FirstStage], randoms: list[np.random.Generator]
) -> list[WeightedPoints]:
    """The weighted points of the first bins of a batch, one for each first stage. While the effective sample size does
    not suffice, more points are drawn from fitted mixtures."""
    samples = [weighted(stage) for stage in first]
    size = len(profiled(posterior))
    mixtures: list[list[Components]] = [[] for _ in first]
    points = np.zeros((len(batch.prior_draws), MORE_POINTS, batch.prior_draws.shape[-1]))
    for _ in range(STAGES):
        poor = [i for i, sample in enumerate(samples) if not sample.ess >= WANTED_ESS]
        if not poor:
            break
        for i in poor:
            mixtures[i].append(fitted_components(first[i].modes, samples[i], size, QUICK_STEPS))
            points[i] = draw_points(randoms[i], mixtures[i][-1], MORE_POINTS)
        arguments = (give(each, batch.devices) for each in (batch.bins, batch.modes, batch.prior_draws, points))
        potentials, by_first = gather(evaluations(posterior)(*arguments))
        for i in poor:
            samples[i] = _joined(samples[i], mixtures[i], (points[i], potentials[i], by_first[i]))
    return samples


def _joined(
    sample: WeightedPoints, mixtures: list[Components], more: tuple[Points, Numbers, Numbers]
) -> WeightedPoints:
    """A sample extended by `more` points, their potentials, and the log density there of what the first stage draws
    from. They were drawn from the last of the mixtures; each of these has given the same number of points."""
    points, potentials, by_first = more
    rows = [by_first, *(log_densities(points, each) for each in mixtures)]
    first = len(sample.points) - MORE_POINTS * (len(mixtures) - 1)
    counts = np.array([first, *[MORE_POINTS] * len(mixtures)])
    there = special.logsumexp(rows, axis=0, b=(counts / counts.sum())[:, None])
    share = MORE_POINTS / counts.sum()
    before = np.logaddexp(
        sample.log_proposal + math.log(1.0 - share), log_densities(sample.points, mixtures[-1]) + math.log(share)
    )
    log_proposal, potentials = np.concatenate([before, there]), np.concatenate([sample.potentials, potentials])
    return WeightedPoints.of(np.concatenate([sample.points, points]), potentials, log_proposal)


def location_and_factor(modes: Modes, sample: WeightedPoints) -> tuple[np.ndarray, np.ndarray]:
    """The preconditioner's location and lower triangular factor. If the effective sample size suffices, they are the
    mean of the weighted points and the Cholesky factor of their covariance, else the best mode and the factor there."""
    top = np.argmin(modes.potential)
    if not sample.enough_for_moments:
        return modes.z[top], modes.factor[top]
    try:
        return _moments(sample.points, sample.weights)
    except np.linalg.LinAlgError:
        return modes.z[top], modes.factor[top]


def _moments(points: Points, weights: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Mean, and Cholesky factor of the covariance, of weighted points."""
    mean = weights @ points
    rest = points - mean
    return mean, np.linalg.cholesky((rest * weights[:, None]).T @ rest)


def fitted_components(modes: Modes, sample: WeightedPoints, size: int, steps: int = FITTING_STEPS) -> Components:
    """Components, in z, fitted to the weighted points, with responsibilities that use only the first `size`
    coordinates, those of the shape; components at the modes if no point has any weight."""
    weights = sample.tempered
    try:
        location, factor = _moments(sample.points, weights)
    except np.linalg.LinAlgError:
        return components_at(modes)
    chosen = sample.points[systematic(0.5, weights, FITTED_TO)]
    found = fit_components(outwards((chosen - location) @ inverses(factor[None])[0].T), steps, size)
    return Components(location + found.locations @ factor.T, factor @ found.factors, found.log_masses)


def components_at(modes: Modes) -> Components:
    """Components, in z, at the modes, with masses by Laplace's approximation; if there are too many modes, only those
    of the largest mass."""
    masses: Any = np.sum(np.log(np.diagonal(modes.factor, axis1=1, axis2=2)), axis=1) - modes.potential
    best = np.argsort(-masses, kind="stable")[:COMPONENTS] if masses.size > COMPONENTS else slice(None)
    return Components(modes.z[best], modes.factor[best], masses[best])


def systematic(offset: float, weights: Numbers, count: int) -> Int[np.ndarray, " count"]:
    """The indices of `count` points by systematic resampling: those at which the cumulative weight reaches
    (k + offset) / count, k = 0 to count - 1."""
    grid = (np.arange(count) + offset) / count
    index = np.searchsorted(np.cumsum(weights), grid * (1 - 1e-12))
    return np.minimum(index, weights.size - 1)

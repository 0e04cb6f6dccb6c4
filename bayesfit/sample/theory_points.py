"""Noise "photons": points of a bin's posterior, weighted with the errors that theory gives at each of them.

The sampler keeps theory's errors as they are at an estimate. Where the decay is slow or hardly seen, they differ much
within the posterior, and so does the likelihood. There, some points are drawn about the posterior with errors kept, and
are weighted by the likelihood with errors of their own; errors that are kept next are those of these points together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, UInt32

from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import Spread, named, take
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.photon_noise import UNCHANGED, Cloud, distance, layouts_at, of_bins, values_at
from bayesfit.posterior.prepare import Problem
from bayesfit.sample.mixture import Components, draw_points, log_densities
from bayesfit.sample.starts import Estimate

Keys = UInt32[np.ndarray, "bin 2"]

SURVEYED = 8  # draws, of which the farthest tells whether theory's errors differ
AWAY = 2.0  # factor by which they are moved away from the mean
NOTICEABLE = 2.0  # difference of the log likelihood
LOOKED_AT = 16  # draws, by which it is told whether errors are far off
FAR_OFF = 0.8  # sd of the difference with errors kept, above which half of the draws would be left, or fewer
POINTS = 24  # that are weighted
LEAST_POINTS = 4.0  # effective number of weighted points
LEAST_ESS = 10.0  # of the importance sample, below which nothing is known of the posterior
SUSPECT = 2.5  # dispersion, above which theory's errors are likely to be those of a wrong decay
SMALLEST_POWER, SHORTER = 1e-3, 0.8  # of weights, and by what it is tried
CENTRES, WIDTH = 16, 0.7  # of the distribution they come from: draws of the posterior, and kernels about them


class Weighted(NamedTuple):
    """Points of each bin: every parameter by name, and logarithms of importance weights, each (bin, point)."""

    values: Mapping[str, Float[np.ndarray, "bin point"]]
    log_weights: Float[np.ndarray, "bin point"]

    def and_(self, more: Weighted) -> Weighted:
        """These points, and more."""
        return jax.tree.map(lambda *both: np.concatenate(both, axis=1), self, more)

    @property
    def cloud(self) -> Cloud:
        """The points with their weights, which are made more equal until their effective number is LEAST_POINTS."""
        return Cloud(self.values, np.stack([evened(row, LEAST_POINTS) for row in self.log_weights]))


def evened(log_weights: Float[np.ndarray, " point"], least: float) -> Float[np.ndarray, " point"]:
    """Weights of sum 1, raised to the highest power up to 1 at which so many points count at least; equal ones where
    none is finite."""
    if not np.isfinite(log_weights).any():
        return np.full(log_weights.size, 1.0 / log_weights.size)
    weights = np.exp(power_for(log_weights, least) * _relative(log_weights))
    return weights / weights.sum()


def power_for(log_weights: Float[np.ndarray, " point"], least: float, most: float = 1.0) -> float:
    """The highest power of weights, up to this one, at which so many points count at least, as long as it is not too
    small."""
    relative, power = _relative(log_weights), most
    while effective(np.exp(power * relative)) < least and power > SMALLEST_POWER:
        power *= SHORTER
    return power


def _relative(log_weights: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    finite = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    return finite - finite.max()


def effective(weights: Float[np.ndarray, " point"]) -> float:
    """The effective number of weighted points."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def suspect(problem: Problem, found: Estimate) -> Bool[np.ndarray, " bin"]:
    """The bins of whose posterior nothing is known, or whose errors are those of a wrong decay: with these, residuals
    are so much larger than expected that dispersion or the sampler cannot follow."""
    dispersion = values_at(problem, found.location)["dispersion"]
    return ~(found.importance_ess >= LEAST_ESS) | ~(dispersion <= SUSPECT)


def errors_differ(problem: Problem, before: Values, found: Estimate) -> Bool[np.ndarray, " bin"]:
    """The bins in and about whose posterior theory's errors differ so much that the likelihood does: at that one of
    some points whose signal is farthest from the one at the values before. These are draws, moved away from the mean,
    since errors that are too small make the posterior too narrow."""
    draws = np.stack([_z(found, AWAY * u) for u in np.moveaxis(_draws(found, SURVEYED), 1, 0)])
    apart = np.stack([distance(problem, before, values_at(problem, z)) for z in draws])
    farthest = draws[np.argmax(apart, axis=0), np.arange(apart.shape[1])]
    differ = apart.max(axis=0) >= UNCHANGED
    places = np.flatnonzero(differ)
    if places.size:
        own = problem.of_bins(places)
        values = values_at(own, farthest[places])
        differ[places] = ~(np.abs(change_at(own, values)) < NOTICEABLE)
    return differ


class Survey(NamedTuple):
    """Some draws of the posterior of each bin with errors kept: every parameter by name (bin, draw), the layouts with
    errors that theory gives there, and whether the likelihood differs so much by these that few draws with errors kept
    would be those with errors of their own."""

    values: Mapping[str, Float[np.ndarray, "bin draw"]]
    layouts: Float[np.ndarray, "bin draw tau column"]
    far_off: Bool[np.ndarray, " bin"]


def surveyed(problem: Problem, found: Estimate) -> Survey:
    """The survey of bins; in those whose posterior is not known, errors are not far off."""
    z = np.stack([_z(found, u) for u in np.moveaxis(_draws(found, LOOKED_AT), 1, 0)], axis=1)
    all_draws = problem.of_bins(np.repeat(np.arange(len(z)), LOOKED_AT))
    values = values_at(all_draws, z.reshape(-1, z.shape[-1]))
    layouts = layouts_at(all_draws, values)
    changes = _change(all_draws, values, layouts).reshape(-1, LOOKED_AT)
    far_off = (found.importance_ess >= LEAST_ESS) & (np.std(changes, axis=1) > FAR_OFF)
    of_bins = {name: value.reshape(-1, LOOKED_AT) for name, value in values.items()}
    return Survey(of_bins, layouts.reshape(-1, LOOKED_AT, *layouts.shape[1:]), far_off)


def change_at(problem: Problem, values: Values) -> Float[np.ndarray, " bin"]:
    """How the log likelihood at these values changes if theory's errors are those of these values."""
    return _change(problem, values, layouts_at(problem, values))


def _change(problem: Problem, values: Values, layouts: Any) -> Float[np.ndarray, " bin"]:
    """How the log likelihood at these values changes if theory's errors are those of these layouts."""
    own = _log_likelihood(problem.posterior, problem.bins._replace(layout=layouts), values)
    return own - _log_likelihood(problem.posterior, problem.bins, values)


def prior_points(problem: Problem, keys: Keys, wanted: Bool[np.ndarray, " bin"]) -> Weighted:
    """Draws from the prior of each bin, weighted by the likelihood with theory's errors of their own where these are
    wanted; elsewhere they have no weight."""
    drawn = [
        np.random.default_rng((*key, _keys.WITH_THEORY)).integers(2**32, size=(POINTS, 2), dtype=np.uint32)
        for key in keys
    ]
    all_points = problem.of_bins(np.repeat(np.arange(len(keys)), POINTS))
    values = of_bins(_prior(problem.posterior), all_points.bins, np.concatenate(drawn))
    own, places = np.full(len(keys) * POINTS, -np.inf), np.flatnonzero(np.repeat(wanted, POINTS))
    if places.size:
        own[places] = _own_log_likelihood(all_points.of_bins(places), take(values, places))
    return Weighted({name: value.reshape(-1, POINTS) for name, value in values.items()}, own.reshape(-1, POINTS))


def posterior_points(problem: Problem, found: Estimate, keys: Keys, round: int) -> Weighted:
    """Points of the posterior of each bin, weighted by that with theory's errors of their own."""
    drawn = [
        _about(centres, np.random.default_rng((*key, _keys.WITH_THEORY, round)))
        for key, centres in zip(keys, _draws(found, CENTRES), strict=True)
    ]
    u, log_proposal, amplitude_keys = (np.stack(each) for each in zip(*drawn, strict=True))
    count = u.shape[0] * POINTS
    all_points = problem.of_bins(np.repeat(np.arange(u.shape[0]), POINTS))
    z = np.concatenate([_z(found, u[:, point])[:, None] for point in range(POINTS)], axis=1)
    at = all_points.bins, z.reshape(count, -1), amplitude_keys.reshape(count, 2)
    values, potential, approximate = of_bins(_points(problem.posterior), *at)
    own = _own_log_likelihood(all_points, values)
    log_weights = (own - approximate - potential).reshape(-1, POINTS) - log_proposal + _log_volume(found)[:, None]
    return Weighted({name: value.reshape(-1, POINTS) for name, value in values.items()}, log_weights)


def _about(centres: Float[np.ndarray, "draw param"], random: np.random.Generator) -> tuple[Any, Any, Any]:
    """Points about draws of a posterior of unit covariance, their log density, and a key for each."""
    size = centres.shape[1]
    kernels = Components(centres, np.full((len(centres), size, size), WIDTH * np.eye(size)), np.zeros(len(centres)))
    u = draw_points(random, kernels, POINTS)
    return u, log_densities(u, kernels), random.integers(2**32, size=(POINTS, 2), dtype=np.uint32)


def _draws(found: Estimate, count: int) -> Float[np.ndarray, "bin draw param"]:
    """Some draws of the posterior, preconditioned."""
    kernels = np.moveaxis(found.mixture.kernels, -1, 1)
    return kernels[:, np.linspace(0, kernels.shape[1] - 1, count).astype(int)]


def _log_volume(found: Estimate) -> Float[np.ndarray, " bin"]:
    """Logarithm of the volume of coordinates that a unit of preconditioned ones has."""
    return np.sum(np.log(np.abs(np.diagonal(found.factor, axis1=1, axis2=2))), axis=1)


def _z(found: Estimate, u: Float[np.ndarray, "bin param"]) -> Float[np.ndarray, "bin param"]:
    """Coordinates of preconditioned points."""
    return found.location + np.einsum("bij,bj->bi", found.factor, u)


def _own_log_likelihood(problem: Problem, values: Values) -> Float[np.ndarray, " bin"]:
    """With theory's errors at these values."""
    own = problem.bins._replace(layout=layouts_at(problem, values))
    return _log_likelihood(problem.posterior, own, values)


def _log_likelihood(posterior: Posterior, bins: Bin, values: Values) -> Float[np.ndarray, " bin"]:
    return of_bins(_likelihoods(posterior), bins, values)


@lru_cache(maxsize=32)
def _likelihoods(posterior: Posterior) -> Spread:
    """The program of the log likelihood of a bin at parameters by name."""
    return Spread(
        lambda bin, values: posterior.log_likelihood(values, bin), named("log likelihood", posterior.identity)
    )


@lru_cache(maxsize=32)
def _prior(posterior: Posterior) -> Spread:
    """The program of a draw from the prior of a bin."""
    return Spread(
        lambda bin, key: posterior.draw_full_prior(jax.random.wrap_key_data(key), bin),
        named("full prior", posterior.identity),
    )


@lru_cache(maxsize=32)
def _points(posterior: Posterior) -> Spread:
    """The program of the parameters of a bin at a point, with a draw of the amplitudes, and of the potential and the
    log likelihood of the normal approximation there."""

    def program(bin: Bin, z: Any, key: Any) -> tuple[Values, Any, Any]:
        values, correction = posterior.corrected(z, bin, jax.random.wrap_key_data(key))
        return values, posterior.potential(z, bin), posterior.log_likelihood(values, bin) - correction

    return Spread(program, named("points", posterior.identity))

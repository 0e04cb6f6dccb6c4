"""What the sampler needs for each bin: a preconditioner, starting points, and the mixture that independence proposals
are drawn from. They are computed from the bin's importance sample, and again from its draws if it is readapted. The
importance weights put starting points into every mode in the right proportion, and give a covariance of the whole
posterior."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from bayesfit.compute import keys as _keys
from bayesfit.compute.batches import FEW, Batches, computed, devices_for
from bayesfit.compute.devices import place, take
from bayesfit.compute.journal import resumable
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.importance_sampling import FirstStage, count_and_size, evaluations, first_stages
from bayesfit.sample.importance_weights import (
    MORE_POINTS,
    Batch,
    WeightedPoints,
    adapted,
    components_at,
    fitted_components,
    location_and_factor,
    systematic,
    weighted,
)
from bayesfit.sample.least_squares import PointEstimate, filled
from bayesfit.sample.mixture import FREEDOM, KERNELS, Components, Mixture, fit_components, inverses, mixture, outwards
from bayesfit.sample.modes import Modes, profiled
from bayesfit.sample.target import BinTargets

BINS = 16  # side by side on each device
REMEMBERED = 1024  # points of the importance sample that are remembered where there are constrained modes
SMALLEST_PIVOT = 1e-4
REFITTED = 6  # steps of the mixture's fit to draws; more make it no better
BESIDE_MODES, BESIDE_FITTED = 0.6, 0.2  # the kernels' share, beside components at modes or fitted ones


class Estimate(NamedTuple):
    """What the sampler and the verdict need to know of one bin; with a leading axis, of many.

    `mode_potential` is the lowest potential seen. `location` and the lower triangular `factor` are the preconditioner:
    in u, with z = location + factor @ u, the posterior has mean 0 and unit covariance. All others are in u: `starts`,
    the chains' starting points; `mixture`, from which independence proposals come; `remembered`, points resampled from
    the importance sample, none if there are no constrained modes. `importance_ess` is the effective sample size of the
    importance sample, and `mixture_fitted` says whether the mixture is fitted to it.
    """

    mode_potential: Float[Any, ""]
    location: Float[Any, " param"]
    factor: Float[Any, "param param"]
    starts: Float[Any, "chain param"]
    mixture: Mixture
    remembered: Float[Any, "point param"]
    importance_ess: Float[Any, ""]
    mixture_fitted: Bool[Any, ""]


def start_compiling(posterior: Posterior, bins: Bin, points: PointEstimate) -> None:
    """Begin to compile in the background, for point estimates of these shapes."""
    devices = devices_for(len(bins.y), FEW)
    index = next(Batches(1, BINS, devices).indices())
    given = points.starts, points.prior_draws
    starts, prior_draws = (np.zeros((index.size, *shape.shape[1:]), shape.dtype) for shape in given)
    modes, count, size = count_and_size(posterior, points)
    some, u, more = take(bins, index), np.zeros((index.size, count, size)), np.zeros((index.size, MORE_POINTS, size))
    first_stages(posterior).start(*(place(argument, devices) for argument in (some, starts, prior_draws, u)))
    if profiled(posterior):
        at = Modes(*(np.zeros((index.size, modes, *own)) for own in ((size,), (size, size), ())))
        evaluations(posterior).start(*(place(argument, devices) for argument in (some, at, prior_draws, more)))


def shapes(posterior: Posterior, points: PointEstimate, chains: int) -> Estimate:
    """An estimate of one bin, filled with NaN, whose arrays have the shapes that follow from these point estimates."""
    modes, count, size = count_and_size(posterior, points)
    parts = (modes, size), (modes, size, size), (modes,), (count, size), (count,), (count,)
    nans = [np.full(shape, np.nan) for shape in parts]
    blank = FirstStage(Modes(*nans[:3]), *nans[3:])
    with np.errstate(all="ignore"):
        return estimate(blank.modes, weighted(blank), np.random.default_rng(0), chains, len(profiled(posterior)))


def estimate_bins(bins: BinTargets, points: PointEstimate, chains: int, report: Report, stop: Stop) -> Estimate:
    """Estimates of all bins (leading axis), as NumPy arrays; NaN for bins that were not reached before a stop."""
    devices = devices_for(bins.count, FEW)
    _, *sizes = count_and_size(bins.posterior, points)
    size = len(profiled(bins.posterior))

    def chosen(index: Int[np.ndarray, " bin"]) -> tuple[Any, ...]:
        u = np.stack([_random(bins.keys[bin], _keys.NEAR_MODES).standard_t(FREEDOM, sizes) for bin in index])
        return take(bins.data, index), points.starts[index], points.prior_draws[index], u

    batches, program = Batches(bins.count, BINS, devices), first_stages(bins.posterior)

    def made(first_batch: int) -> Iterator[Estimate]:
        parts = computed(program, batches, chosen, stop, first_batch)
        for index, part in zip(batches.indices(first_batch), parts, strict=False):
            keys = bins.keys[np.unique(index)]
            first = [jax.tree.map(lambda array, row=row: array[row], part) for row in range(len(keys))]
            with np.errstate(all="ignore"):
                batch = Batch(take(bins.data, index), part.modes, points.prior_draws[index], devices)
                samples = zip(keys, first, _samples(bins.posterior, batch, first, keys), strict=True)
                found = [estimate(f.modes, s, _random(key, _keys.RESAMPLING), chains, size) for key, f, s in samples]
            yield jax.tree.map(lambda *arrays: np.stack(arrays), *found)

    like = shapes(bins.posterior, points, chains)
    parts, done = list[Estimate](), 0
    report(Progress("estimate", bins.count))
    for part in resumable(made, lambda: jax.tree.structure(like)):
        parts.append(part)
        done += len(part.location)
        report(Progress("estimate", bins.count, done))
    none = jax.tree.map(lambda array: np.asarray(array)[None][:0], like)
    return filled(parts or [none], bins.count)  # a stop may come before the first batch


def _samples(
    posterior: Posterior, batch: Batch, first: list[FirstStage], keys: UInt32[np.ndarray, "bin 2"]
) -> list[WeightedPoints]:
    """The importance sample of each bin; further stages follow the first one if there are constrained modes."""
    if not profiled(posterior):
        return [weighted(stage) for stage in first]
    return adapted(posterior, batch, first, [_random(key, _keys.MIXTURE_DRAWS) for key in keys])


def _random(key: UInt32[np.ndarray, " 2"], use: int) -> np.random.Generator:
    """The host's random numbers for one use in a bin, from the data of the bin's key."""
    return np.random.default_rng((*key, use))


def estimate(modes: Modes, sample: WeightedPoints, random: np.random.Generator, chains: int, size: int) -> Estimate:
    """The estimate of one bin from its modes and its importance sample. If there are constrained modes, along `size`
    coordinates, some points are remembered, and the mixture is fitted to the sample if its effective sample size
    suffices."""
    location, factor = location_and_factor(modes, sample)
    to_u = inverses(factor[None])[0]
    counts = (chains, KERNELS, REMEMBERED if size else 0)
    chosen = np.concatenate([systematic(random.random(), sample.weights, count) for count in counts])
    starts, kernels, remembered = np.split((sample.points[chosen] - location) @ to_u.T, np.cumsum(counts)[:-1])
    fitted = size > 0 and sample.enough_for_mixture
    found = fitted_components(modes, sample, size) if fitted else components_at(modes)
    components = Components((found.locations - location) @ to_u.T, to_u @ found.factors, found.log_masses)
    return Estimate(
        mode_potential=np.minimum(np.min(modes.potential), np.min(sample.potentials)),
        location=location,
        factor=factor,
        starts=starts,
        mixture=mixture(kernels, components, BESIDE_FITTED if fitted else BESIDE_MODES),
        remembered=remembered,
        importance_ess=sample.ess,
        mixture_fitted=fitted,
    )


def readapt(
    old: Estimate, u: Float[np.ndarray, "chain draw param"], before: Float[np.ndarray, "any param"], size: int = 0
) -> Estimate:
    """The estimate of one bin with preconditioner, starting points and mixture computed from its draws u. The draws are
    pooled over its chains and with earlier points and draws, `before`, so that nothing that was once seen is forgotten.
    Responsibilities use only the first `size` coordinates, or all if it is 0. Returns the old estimate if the draws do
    not span the space."""
    flat = np.concatenate([before, u.reshape(-1, u.shape[-1])])
    mean, covariance = flat.mean(axis=0), np.atleast_2d(np.cov(flat.T))
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return old
    if np.min(np.diagonal(factor) / np.sqrt(np.diagonal(covariance))) < SMALLEST_PIVOT:
        return old
    to_new = np.linalg.inv(factor)
    new = (flat - mean) @ to_new.T
    if before.size:
        new = outwards(new)
    kernels = new[np.linspace(0, len(new) - 1, KERNELS).astype(int)]
    return old._replace(
        location=old.location + old.factor @ mean,
        factor=old.factor @ factor,
        starts=(u[:, -1] - mean) @ to_new.T,
        mixture=mixture(kernels, fit_components(new, REFITTED, size or None), BESIDE_FITTED),
    )

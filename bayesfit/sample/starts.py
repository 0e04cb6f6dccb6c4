"""From a survey of the posterior to what the sampler needs: frame, starts, and global moves; and these made anew from
draws. The weights of the survey give starts in every mode in the right proportion, and a covariance that knows the
whole posterior."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import FEW, batches, devices_for, place, stream, take
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.importance_sampling import (
    FREEDOM,
    MORE,
    Sample,
    Survey,
    about_modes,
    count_and_size,
    ellipses_of,
    enlarged,
    frame_of,
    looking,
    surveying,
    systematic,
    weighed,
)
from bayesfit.sample.independence import CENTERS, Ellipses, Mixture, fit_ellipses, inverses, mixture, outwards
from bayesfit.sample.least_squares import PointEstimate, filled
from bayesfit.sample.modes import held

BINS = 16
RECALLED = 1024  # points of the survey that are kept of a shape that has ridges
SMALLEST_PIVOT = 1e-4
SURVEYED, ADAPTED = 0.6, 0.2  # the kernels' share in the global moves: beside ellipses about modes, beside fitted ones


class Estimate(NamedTuple):
    """What the sampler and the verdict need of one bin; with a leading axis, of many.

    `mode_potential`: the lowest potential seen; `center` (param,), `frame` (param, param): z = center + frame @ u
    whitens the posterior; `starts` (chain, param): starts of the chains, as u; `proposals`: the mixture for global
    moves, in u; `seen` (any, param): draws from the survey, as u, where there are ridges; `importance_ess`: effective
    number of the importance draws; `known`: whether the moves are fitted to a survey that tells the whole.
    """

    mode_potential: Any
    center: Any
    frame: Any
    starts: Any
    proposals: Mixture
    seen: Any
    importance_ess: Any
    known: Any


def start_compiling(posterior: Posterior, bins: Bin, points: PointEstimate) -> None:
    """Begin to compile in the background, for point estimates of these shapes."""
    devices = devices_for(len(bins.y), FEW)
    index = next(batches(1, BINS, devices))
    starts, scouts = (np.zeros((index.size, *shape.shape[1:]), shape.dtype) for shape in (points.starts, points.scouts))
    _, count, size = count_and_size(posterior, points)
    some, u, more = take(bins, index), np.zeros((index.size, count, size)), np.zeros((index.size, MORE, size))
    surveying(posterior).start(*(place(argument, devices) for argument in (some, starts, scouts, u)))
    if held(posterior):
        looking(posterior).start(*(place(argument, devices) for argument in (some, scouts, more)))


def shapes(posterior: Posterior, points: PointEstimate, chains: int) -> Estimate:
    """An estimate of one bin, made of NaN, for point estimates of these shapes."""
    modes, count, size = count_and_size(posterior, points)
    parts = (modes, size), (modes, size, size), (modes,), (count, size), (count,), (count,)
    blank = Survey(*(np.full(shape, np.nan) for shape in parts))
    with np.errstate(all="ignore"):
        return estimate(blank, weighed(blank), np.random.default_rng(0), chains, len(held(posterior)))


def estimate_bins(
    posterior: Posterior, bins: Bin, points: PointEstimate, keys: np.ndarray, chains: int, report: Report, stop: Stop
) -> Estimate:
    """Estimates of all bins (leading axis), as NumPy arrays; NaN for those that a stop came before."""
    count = len(bins.y)
    devices = devices_for(count, FEW)
    _, *sizes = count_and_size(posterior, points)

    def chosen(index: np.ndarray) -> tuple[Any, ...]:
        u = np.stack([_random(keys[bin], _keys.NEAR_MODES).standard_t(FREEDOM, sizes) for bin in index])
        return take(bins, index), points.starts[index], points.scouts[index], u

    found: list[Estimate] = []
    for index, part in stream(surveying(posterior), count, BINS, devices, chosen, stop):
        new = index[: count - len(found)]
        surveys = [jax.tree.map(lambda array, row=row: array[row], part) for row in range(new.size)]
        with np.errstate(all="ignore"):
            if shape := len(held(posterior)):
                randoms = [_random(keys[bin], _keys.COMPONENTS) for bin in new]
                samples = enlarged(posterior, take(bins, index), points.scouts[index], surveys, randoms, devices)
            else:
                samples = [weighed(survey) for survey in surveys]
            for bin, survey, sample in zip(new, surveys, samples, strict=True):
                found.append(estimate(survey, sample, _random(keys[bin], _keys.STARTS), chains, shape))
        report(Progress("estimate", count, len(found)))
    return filled([jax.tree.map(lambda *arrays: np.stack(arrays), *found)] if found else [], count)


def _random(key: np.ndarray, use: int) -> np.random.Generator:
    """The host's random numbers for one use in a bin, from the data of the bin's key."""
    return np.random.default_rng((*key, use))


def estimate(found: Survey, sample: Sample, random: np.random.Generator, chains: int, shape: int) -> Estimate:
    """Frame, starts and global moves of one bin from its survey and its points, in NumPy; where there are ridges, some
    of the points are kept as `seen`, and ellipses are fitted to them."""
    center, frame = frame_of(found, sample)
    to_u = inverses(frame[None])[0]
    counts = (chains, CENTERS, RECALLED if shape else 0)
    chosen = np.concatenate([systematic(random.random(), sample.weights, count) for count in counts])
    starts, centers, seen = np.split((sample.points[chosen] - center) @ to_u.T, np.cumsum(counts)[:-1])
    known = shape > 0 and sample.tells_the_whole
    ellipses = ellipses_of(found, sample, shape) if known else about_modes(found)
    ellipses = Ellipses((ellipses.middles - center) @ to_u.T, to_u @ ellipses.frames, ellipses.log_masses)
    return Estimate(
        mode_potential=np.minimum(np.min(found.potentials), np.min(sample.heights)),
        center=center,
        frame=frame,
        starts=starts,
        proposals=mixture(centers, ellipses, ADAPTED if known else SURVEYED),
        seen=seen,
        importance_ess=sample.ess,
        known=known,
    )


def readapt(old: Estimate, u: np.ndarray, before: np.ndarray, shape: int = 0) -> Estimate:
    """The estimate of one bin with frame, starts and proposals made anew from its draws u (chain, draw, param), pooled
    over its chains and with those of `before` (any, param), so that nothing that was once seen is forgotten; as it was
    where these do not span the space."""
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
    return old._replace(
        center=old.center + old.frame @ mean,
        frame=old.frame @ factor,
        starts=(u[:, -1] - mean) @ to_new.T,
        proposals=mixture(
            new[np.linspace(0, len(new) - 1, CENTERS).astype(int)], fit_ellipses(new, first=shape or None), ADAPTED
        ),
    )

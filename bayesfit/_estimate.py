"""From a point estimate to a start: modes, and the frame in which a bin is sampled.

1. Posterior modes, and ridges between them (`_modes`).
2. Importance sampling over a mixture of prior draws, each with a draw of the noise about its own guess, and Student-t
   clouds about the modes: its weights give starts in every mode in the right proportion and a covariance that knows the
   whole posterior (Owen & Zhou 2000, the deterministic-mixture weights).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from bayesfit import _keys
from bayesfit._devices import FEW, Spread, batches, devices_for, named, place, stream, take
from bayesfit._jump import CENTERS, ELLIPSES, Ellipses, Mixture, fit_ellipses, inverses, mixture, outwards
from bayesfit._modes import held, how_many, modes_and_ridges, noise_guess, noise_information
from bayesfit._point import PointEstimate, filled
from bayesfit._posterior import Bin, Posterior
from bayesfit._work import Progress, Report, Stop

BINS = 16
CLOUD = 96
FREEDOM = 4.0  # of the Student-t clouds
WIDENED = 1.5  # the noise's proposals over its standard error
AT_ONCE = 32  # points looked at together, so that the processor's cache holds what is made of them
RECALLED = 512  # points of the survey that are kept of a shape that has ridges
LEAST_ESS_PER_PARAMETER = 15.0
SMALLEST_PIVOT = 1e-4
SURVEYED, ADAPTED = 0.6, 0.2  # the kernels' share in the global moves: from a survey, from draws


class Estimate(NamedTuple):
    """What the sampler and the verdict need of one bin; with a leading axis, of many.

    `mode_potential`: the lowest potential seen; `center` (param,), `frame` (param, param): z = center + frame @ u
    whitens the posterior; `starts` (chain, param): starts of the chains, as u; `proposals`: the mixture for global
    moves, in u; `seen` (any, param): draws from the survey, as u, where there are ridges; `importance_ess`: effective
    number of the importance draws.
    """

    mode_potential: Any
    center: Any
    frame: Any
    starts: Any
    proposals: Mixture
    seen: Any
    importance_ess: Any


class Survey(NamedTuple):
    """What the devices find out about one bin: `modes` (mode, param), ridges among them, with `frames` (mode, param,
    param) and `potentials` (mode,) there; `points` (point, param), of which the first were drawn from the prior and the
    others about the modes, with `heights` (point,), the potential, and `prior_densities` (point,), the log density with
    which the former are drawn."""

    modes: Any
    frames: Any
    potentials: Any
    points: Any
    heights: Any
    prior_densities: Any


@lru_cache(maxsize=32)
def _surveying(posterior: Posterior) -> Spread:
    return Spread(
        lambda bin, places, scouts, u: survey(posterior, bin, places, scouts, u), named("survey", posterior.identity)
    )


def start_compiling(posterior: Posterior, bins: Bin, points: PointEstimate) -> None:
    """Begin to compile in the background, for point estimates of these shapes."""
    devices = devices_for(len(bins.y), FEW)
    index = next(batches(1, BINS, devices))
    blank = [np.zeros((index.size, *shape.shape[1:]), shape.dtype) for shape in (points.starts, points.scouts)]
    arguments = take(bins, index), *blank, np.zeros((index.size, *_count_and_size(posterior, points)[1:]))
    _surveying(posterior).start(*(place(argument, devices) for argument in arguments))


def shapes(posterior: Posterior, points: PointEstimate, chains: int) -> Estimate:
    """An estimate of one bin, made of NaN, for point estimates of these shapes."""
    modes, count, size = _count_and_size(posterior, points)
    parts = (modes, size), (modes, size, size), (modes,), (count, size), (count,), (count,)
    blank = Survey(*(np.full(shape, np.nan) for shape in parts))
    return estimate(blank, np.random.default_rng(0), chains, _recalled(posterior))


def _count_and_size(posterior: Posterior, points: PointEstimate) -> tuple[int, int, int]:
    """How many modes and importance points there are, and how many coordinates each has."""
    scouts, size = points.scouts.shape[1:]
    modes = how_many(posterior, points.starts.shape[1])
    return modes, scouts + modes * CLOUD, size


def _recalled(posterior: Posterior) -> int:
    """How many points of a survey are kept."""
    return RECALLED if held(posterior) else 0


def estimate_bins(
    posterior: Posterior, bins: Bin, points: PointEstimate, keys: np.ndarray, chains: int, report: Report, stop: Stop
) -> Estimate:
    """Estimates of all bins (leading axis), as NumPy arrays; NaN for those that a stop came before."""
    count = len(bins.y)
    devices = devices_for(count, FEW)
    _, *shape = _count_and_size(posterior, points)

    def chosen(index: np.ndarray) -> tuple[Any, ...]:
        u = np.stack([_random(keys[bin], _keys.CLOUDS).standard_t(FREEDOM, shape) for bin in index])
        return take(bins, index), points.starts[index], points.scouts[index], u

    found: list[Estimate] = []
    for index, part in stream(_surveying(posterior), count, BINS, devices, chosen, stop):
        for row, bin in enumerate(index[: count - len(found)]):
            one = jax.tree.map(lambda array, row=row: array[row], part)
            found.append(estimate(one, _random(keys[bin], _keys.STARTS), chains, _recalled(posterior)))
        report(Progress("estimate", count, len(found)))
    return filled([jax.tree.map(lambda *arrays: np.stack(arrays), *found)] if found else [], count)


def _random(key: np.ndarray, use: int) -> np.random.Generator:
    """The host's random numbers for one use in a bin, from the data of the bin's key."""
    return np.random.default_rng((*key, use))


def survey(posterior: Posterior, bin: Bin, places: Any, scouts: Any, u: Any) -> Survey:
    """Modes and points of one bin, from places (start, param) of the curve, scouts (scout, param) of the prior and
    Student-t draws u (point, param). Never raises under vmap: what fails is NaN."""
    modes, frames, potentials = modes_and_ridges(posterior, bin, places, scouts)
    return Survey(modes, frames, potentials, *_points(posterior, bin, u, scouts, modes, frames))


def estimate(found: Survey, random: np.random.Generator, chains: int, recalled: int) -> Estimate:
    """Frame, starts and global moves of one bin from its survey, in NumPy; so many points are kept as `seen`."""
    with np.errstate(all="ignore"):
        weights = _weights(found)
        ess = 1.0 / np.sum(weights**2)
        top = np.argmin(found.potentials)
        center, frame = _frame(found.points, weights, ess, found.modes[top], found.frames[top])
        to_u = inverses(frame[None])[0]
        counts = (chains, CENTERS, recalled)
        chosen = np.concatenate([_systematic(random.random(), weights, count) for count in counts])
        starts, centers, seen = np.split((found.points[chosen] - center) @ to_u.T, np.cumsum(counts)[:-1])
        told = recalled and _tells_the_whole(ess, center.size)
        ellipses = fit_ellipses(outwards(seen)) if told else _about_modes(found, center, to_u)
        return Estimate(
            mode_potential=np.minimum(np.min(found.potentials), np.min(found.heights)),
            center=center,
            frame=frame,
            starts=starts,
            proposals=mixture(centers, ellipses, SURVEYED),
            seen=seen,
            importance_ess=ess,
        )


def _about_modes(found: Survey, center: np.ndarray, to_u: np.ndarray) -> Ellipses:
    """The modes as ellipses, in u, with Laplace's masses; those of most mass, where there are too many."""
    masses = np.sum(np.log(np.diagonal(found.frames, axis1=1, axis2=2)), axis=1) - found.potentials
    best = np.argsort(-masses, kind="stable")[:ELLIPSES] if masses.size > ELLIPSES else slice(None)
    return Ellipses((found.modes[best] - center) @ to_u.T, to_u @ found.frames[best], masses[best])


def _points(posterior: Posterior, bin: Bin, u: Any, scouts: Any, modes: Any, frames: Any) -> tuple[Any, Any, Any]:
    """Points (point, param), the scouts and then a cloud about each mode; the potential and the log density of the
    scouts at each (point,)."""
    count, size = modes.shape
    split = len(posterior.curve_names)
    clouds = modes[:, None] + jnp.einsum("kij,knj->kni", frames, u[len(scouts) :].reshape(count, CLOUD, size))
    points = jnp.concatenate([scouts, clouds.reshape(-1, size)])
    prior_sd = jnp.std(scouts[:, split:], axis=0)
    from_prior = jnp.arange(len(points)) < len(scouts)

    def at(point: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """The point itself, a scout's noise drawn about its guess; potential; log density of the scouts there."""
        z, u, from_prior = point
        curve, noise = z[:split], z[split:]
        guess = noise_guess(posterior, bin, curve)
        width = WIDENED * jnp.diagonal(noise_information(posterior, bin, guess, prior_sd)) ** -0.5
        noise = jnp.where(from_prior, guess + width * u[split:], noise)
        log_density = posterior.curve(curve, bin)[2] + _log_t((noise - guess) / width, jnp) - jnp.sum(jnp.log(width))
        z = jnp.concatenate([curve, noise])
        return z, posterior.potential(z, bin), log_density

    return jax.lax.map(at, (points, u, from_prior), batch_size=AT_ONCE)


def _weights(found: Survey) -> np.ndarray:
    """Importance weights (point,) of the posterior over the mixture that the points were drawn from."""
    count = len(found.modes)
    to_u = inverses(found.frames)
    rest = (found.points - found.modes[:, None]) @ np.swapaxes(to_u, 1, 2)
    clouds = _log_t(rest, np) + np.sum(np.log(np.diagonal(to_u, axis1=1, axis2=2)), axis=1)[:, None]
    scouts = len(found.points) - CLOUD * count
    shares = np.log([scouts, *[CLOUD] * count]) - math.log(len(found.points))
    drawn_with = special.logsumexp(np.vstack([found.prior_densities, clouds]) + shares[:, None], axis=0)
    log_weights = -found.heights - drawn_with
    log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    weights = np.exp(log_weights - np.max(log_weights))
    return weights / np.sum(weights)


def _log_t(u: Any, numpy: Any) -> Any:
    """Log density of independent standard Student-t variables with 4 degrees of freedom, summed over the last axis."""
    return numpy.sum(math.log(0.375) - 2.5 * numpy.log1p(u**2 / FREEDOM), axis=-1)


def _frame(
    points: np.ndarray, weights: np.ndarray, ess: float, mode: np.ndarray, mode_frame: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Center and frame from the weighted points where enough of them count, else from the curvature at the mode."""
    if not _tells_the_whole(ess, points.shape[1]):
        return mode, mode_frame
    mean = weights @ points
    rest = points - mean
    try:
        return mean, np.linalg.cholesky((rest * weights[:, None]).T @ rest)
    except np.linalg.LinAlgError:
        return mode, mode_frame


def _tells_the_whole(ess: float, size: int) -> bool:
    """Whether so many effective points say enough of a posterior of so many coordinates."""
    return bool(ess > LEAST_ESS_PER_PARAMETER * (size + 1))


def _systematic(offset: float, weights: np.ndarray, count: int) -> np.ndarray:
    """Indices of `count` points by systematic resampling."""
    grid = (np.arange(count) + offset) / count
    index = np.searchsorted(np.cumsum(weights), grid * (1 - 1e-12))
    return np.minimum(index, weights.size - 1)


def readapt(old: Estimate, u: np.ndarray, before: np.ndarray) -> Estimate:
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
        proposals=mixture(new[np.linspace(0, len(new) - 1, CENTERS).astype(int)], fit_ellipses(new), ADAPTED),
    )

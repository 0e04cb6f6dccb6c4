"""What importance sampling says of a bin's posterior before it is sampled.

1. Points: prior draws, each with a draw of the noise about its own guess and of amplitudes that are sampled about
   their regression, and Student-t clouds about modes and ridges (`modes`). Their weights are the posterior over the
   mixture that all were drawn from (Owen & Zhou 2000, the deterministic-mixture weights).
2. Where there are ridges, more points, from ellipses fitted to the weighted ones, again and again until enough points
   count. All are weighed over all that they were drawn from (adaptive multiple importance sampling: Cornuet, Marin,
   Mira & Robert, Scand. J. Stat. 39, 798 (2012)); while few count, ellipses are fitted to a root of the weights
   (Koblents & Miguez, Stat. Comput. 25, 407 (2015)).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from bayesfit.compute.devices import Spread, gather, named, place
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.independence import (
    ELLIPSES,
    FITTED_TO,
    FITTING_STEPS,
    Ellipses,
    drawn,
    fit_ellipses,
    inverses,
    log_densities,
    outwards,
)
from bayesfit.sample.least_squares import PointEstimate
from bayesfit.sample.modes import held, how_many, modes_and_ridges, noise_guess, noise_information

CLOUD = 96
FREEDOM = 4.0  # of the Student-t clouds
WIDENED = 1.5  # the noise's proposals over its standard error
AT_ONCE = 32  # points looked at together, so that the processor's cache holds what is made of them
MORE, ROUNDS = 1024, 12  # points from fitted ellipses, and how often at most
WANTED_ESS = 2000.0
QUICK_STEPS = 10  # of fitting what they are drawn from
LEAST_ESS_PER_PARAMETER = 15.0
KNOWN_ESS_PER_PARAMETER = 50.0
MOST_ROOTS = 12  # square roots of weights that are taken


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


class Sample(NamedTuple):
    """Points (point, param) of one bin, the potential there, the log density of the mixture that they were drawn from,
    and the importance weights, which sum to 1 (each (point,)); NumPy arrays."""

    points: np.ndarray
    heights: np.ndarray
    log_drawn: np.ndarray
    weights: np.ndarray

    @property
    def ess(self) -> Any:
        """Effective number of the points."""
        return _ess(self.weights)

    @property
    def enough(self) -> bool:
        """Whether so many effective points are enough for a center and a frame."""
        return bool(self.ess > LEAST_ESS_PER_PARAMETER * (self.points.shape[1] + 1))

    @property
    def tells_the_whole(self) -> bool:
        """Whether they are enough for global moves."""
        return bool(self.ess > KNOWN_ESS_PER_PARAMETER * (self.points.shape[1] + 1))

    @property
    def tempered(self) -> np.ndarray:
        """The weights or, where these leave too few effective points, the first of their square root, the root of that
        and so on that does not."""
        weights, log_weights = self.weights, _log_weights(self.heights, self.log_drawn)
        for root in range(1, MOST_ROOTS + 1):
            if _ess(weights) > LEAST_ESS_PER_PARAMETER * (self.points.shape[1] + 1):
                break
            weights = special.softmax(log_weights * 0.5**root)
        return weights


@lru_cache(maxsize=32)
def surveying(posterior: Posterior) -> Spread:
    """The program that surveys bins, from what `survey` takes."""
    return Spread(
        lambda bin, places, scouts, u: survey(posterior, bin, places, scouts, u), named("survey", posterior.identity)
    )


@lru_cache(maxsize=32)
def looking(posterior: Posterior) -> Spread:
    """The program that looks at more points of bins, from what `look` takes."""
    return Spread(lambda bin, scouts, points: look(posterior, bin, scouts, points), named("look", posterior.identity))


def count_and_size(posterior: Posterior, points: PointEstimate) -> tuple[int, int, int]:
    """How many modes and points a survey has, and how many coordinates each."""
    scouts, size = points.scouts.shape[1:]
    modes = how_many(posterior, points.starts.shape[1])
    return modes, scouts + modes * CLOUD, size


def survey(posterior: Posterior, bin: Bin, places: Any, scouts: Any, u: Any) -> Survey:
    """Modes and points of one bin, from places (start, param) of the curve, scouts (scout, param) of the prior and
    Student-t draws u (point, param). Never raises under vmap: what fails is NaN."""
    modes, frames, potentials = modes_and_ridges(posterior, bin, places, scouts)
    return Survey(modes, frames, potentials, *_points(posterior, bin, u, scouts, modes, frames))


def _points(posterior: Posterior, bin: Bin, u: Any, scouts: Any, modes: Any, frames: Any) -> tuple[Any, Any, Any]:
    """Points (point, param), the scouts and then a cloud about each mode; the potential and the log density of the
    scouts at each (point,)."""
    count, size = modes.shape
    split = posterior.shape_size
    clouds = modes[:, None] + jnp.einsum("kij,knj->kni", frames, u[len(scouts) :].reshape(count, CLOUD, size))
    points = jnp.concatenate([scouts, clouds.reshape(-1, size)])
    prior_sd = jnp.std(scouts[:, split:], axis=0)
    from_prior = jnp.arange(len(points)) < len(scouts)

    def at(point: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """The point itself, a scout's noise drawn about its guess; potential; log density of the scouts there."""
        z, u, from_prior = point
        shape, rest = z[:split], z[split:]
        guess, width = _proposal(posterior, bin, shape, prior_sd)
        rest = jnp.where(from_prior, guess + width * u[split:], rest)
        z = jnp.concatenate([shape, rest])
        log_shape = posterior.log_prior_of_shape(z, bin)
        log_density = log_shape + _log_t((rest - guess) / width, jnp) - jnp.sum(jnp.log(width))
        return z, posterior.potential(z, bin), log_density

    return jax.lax.map(at, (points, u, from_prior), batch_size=AT_ONCE)


def look(posterior: Posterior, bin: Bin, scouts: Any, points: Any) -> tuple[Any, Any]:
    """The potential and the log density of the scouts (scout, param) at points (point, param) of one bin."""
    split = posterior.shape_size
    prior_sd = jnp.std(scouts[:, split:], axis=0)

    def at(z: Any) -> tuple[Any, Any]:
        guess, width = _proposal(posterior, bin, z[:split], prior_sd)
        log_rest = _log_t((z[split:] - guess) / width, jnp) - jnp.sum(jnp.log(width))
        return posterior.potential(z, bin), posterior.log_prior_of_shape(z, bin) + log_rest

    return jax.lax.map(at, points, batch_size=AT_ONCE)


def _proposal(posterior: Posterior, bin: Bin, shape: Any, prior_sd: Any) -> tuple[Any, Any]:
    """Middle and width (param,) with which a scout's amplitudes, as far as they are sampled about their regression, and
    its noise are drawn, where the shape is this one."""
    regression = jnp.zeros(len(posterior.relative))
    guess = noise_guess(posterior, bin, jnp.concatenate([shape, regression]))
    information = noise_information(posterior, bin, guess, prior_sd[regression.size :])
    width = jnp.concatenate([jnp.ones_like(regression), jnp.diagonal(information) ** -0.5])
    return jnp.concatenate([regression, guess]), WIDENED * width


def weighed(found: Survey) -> Sample:
    """The points of a survey with their weights."""
    log_drawn = _surveyed_with(found, found.points, found.prior_densities)
    return Sample(found.points, found.heights, log_drawn, _weights(found.heights, log_drawn))


def _surveyed_with(found: Survey, points: np.ndarray, prior_densities: np.ndarray) -> np.ndarray:
    """Log density (point,) of what a survey draws from, at any points (point, param)."""
    count = len(found.modes)
    to_u = inverses(found.frames)
    rest = (points - found.modes[:, None]) @ np.swapaxes(to_u, 1, 2)
    clouds = _log_t(rest, np) + np.sum(np.log(np.diagonal(to_u, axis1=1, axis2=2)), axis=1)[:, None]
    scouts = len(found.points) - CLOUD * count
    shares = np.log([scouts, *[CLOUD] * count]) - math.log(len(found.points))
    return special.logsumexp(np.vstack([prior_densities, clouds]) + shares[:, None], axis=0)


def _weights(heights: np.ndarray, log_drawn: np.ndarray) -> np.ndarray:
    """Importance weights (point,) of the posterior over the mixture that points were drawn from."""
    log_weights = _log_weights(heights, log_drawn)
    weights = np.exp(log_weights - np.max(log_weights))
    return weights / np.sum(weights)


def _log_weights(heights: np.ndarray, log_drawn: np.ndarray) -> np.ndarray:
    log_weights = -heights - log_drawn
    return np.where(np.isfinite(log_weights), log_weights, -np.inf)


def _ess(weights: np.ndarray) -> Any:
    return 1.0 / np.sum(weights**2)


def _log_t(u: Any, numpy: Any) -> Any:
    """Log density of independent standard Student-t variables with 4 degrees of freedom, summed over the last axis."""
    return numpy.sum(math.log(0.375) - 2.5 * numpy.log1p(u**2 / FREEDOM), axis=-1)


def enlarged(
    posterior: Posterior,
    bins: Bin,
    scouts: np.ndarray,
    surveys: list[Survey],
    randoms: list[np.random.Generator],
    devices: int,
) -> list[Sample]:
    """The sample of each survey, with more points from fitted ellipses as long as too few count. `bins` and `scouts`
    are those of the whole batch, of which the first have a survey each."""
    samples = [weighed(found) for found in surveys]
    shape = len(held(posterior))
    mixtures: list[list[Ellipses]] = [[] for _ in surveys]
    points = np.zeros((len(scouts), MORE, scouts.shape[-1]))
    for _ in range(ROUNDS):
        poor = [i for i, sample in enumerate(samples) if not sample.ess >= WANTED_ESS]
        if not poor:
            break
        for i in poor:
            mixtures[i].append(ellipses_of(surveys[i], samples[i], shape, QUICK_STEPS))
            points[i] = drawn(randoms[i], mixtures[i][-1], MORE)
        parts = looking(posterior)(place(bins, devices), place(scouts, devices), place(points, devices))
        heights, prior_densities = gather(parts)
        for i in poor:
            samples[i] = _joined(samples[i], surveys[i], mixtures[i], (points[i], heights[i], prior_densities[i]))
    return samples


def _joined(sample: Sample, found: Survey, mixtures: list[Ellipses], more: tuple[Any, Any, Any]) -> Sample:
    """The sample of a survey with more points from the last of the mixtures, each of which gave some."""
    points, heights, prior_densities = more
    rows = [_surveyed_with(found, points, prior_densities), *(log_densities(points, each) for each in mixtures)]
    counts = np.array([len(found.points), *[MORE] * len(mixtures)])
    there = special.logsumexp(rows, axis=0, b=(counts / counts.sum())[:, None])
    share = MORE / counts.sum()
    before = np.logaddexp(
        sample.log_drawn + math.log(1.0 - share), log_densities(sample.points, mixtures[-1]) + math.log(share)
    )
    log_drawn, heights = np.concatenate([before, there]), np.concatenate([sample.heights, heights])
    return Sample(np.concatenate([sample.points, points]), heights, log_drawn, _weights(heights, log_drawn))


def frame_of(found: Survey, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Center and frame from the weighted points where enough of them count, else from the curvature at the mode."""
    top = np.argmin(found.potentials)
    if not sample.enough:
        return found.modes[top], found.frames[top]
    try:
        return _moments(sample.points, sample.weights)
    except np.linalg.LinAlgError:
        return found.modes[top], found.frames[top]


def _moments(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean, and the Cholesky factor of the covariance, of weighted points."""
    mean = weights @ points
    rest = points - mean
    return mean, np.linalg.cholesky((rest * weights[:, None]).T @ rest)


def ellipses_of(found: Survey, sample: Sample, shape: int, steps: int = FITTING_STEPS) -> Ellipses:
    """Ellipses, in z, fitted to the weighted points, told apart by the coordinates of the shape, the first ones; those
    about the modes where all points are nothing."""
    weights = sample.tempered
    try:
        center, frame = _moments(sample.points, weights)
    except np.linalg.LinAlgError:
        return about_modes(found)
    chosen = sample.points[systematic(0.5, weights, FITTED_TO)]
    ellipses = fit_ellipses(outwards((chosen - center) @ inverses(frame[None])[0].T), steps, shape)
    return Ellipses(center + ellipses.middles @ frame.T, frame @ ellipses.frames, ellipses.log_masses)


def about_modes(found: Survey) -> Ellipses:
    """The modes as ellipses, in z, with Laplace's masses; those of most mass, where there are too many."""
    masses = np.sum(np.log(np.diagonal(found.frames, axis1=1, axis2=2)), axis=1) - found.potentials
    best = np.argsort(-masses, kind="stable")[:ELLIPSES] if masses.size > ELLIPSES else slice(None)
    return Ellipses(found.modes[best], found.frames[best], masses[best])


def systematic(offset: float, weights: np.ndarray, count: int) -> np.ndarray:
    """Indices of `count` points by systematic resampling."""
    grid = (np.arange(count) + offset) / count
    index = np.searchsorted(np.cumsum(weights), grid * (1 - 1e-12))
    return np.minimum(index, weights.size - 1)

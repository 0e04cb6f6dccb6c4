"""From a point estimate to a start: modes, and the frame in which a bin is sampled.

1. Posterior modes, by Fisher scoring from the least-squares solutions and from the best prior draws: the curvature of
   least squares and of the prior is at hand. Where a shape has three coordinates or more, also its ridges: the lowest
   potential with one coordinate held, in each quantile of that coordinate's prior. They reach what has a share in the
   posterior without being a mode, as a decay that may be too fast to be seen.
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
from bayesfit._model import AMPLITUDES
from bayesfit._point import PointEstimate, best_in_quantiles, chi2_at, filled
from bayesfit._posterior import Bin, Posterior
from bayesfit._work import Progress, Report, Stop

BINS = 16
CLOUD = 96
FREEDOM = 4.0  # of the Student-t clouds
WIDENED = 1.5  # the noise's proposals over its standard error
AT_ONCE = 32  # points looked at together, so that the processor's cache holds what is made of them
SCORING_STEPS = 12
QUANTILES = 12  # of each coordinate, in which there is a ridge
FEWEST_HELD = 3  # coordinates of a shape that has ridges
HELD = 1e-6  # standard deviation of a coordinate that is held
RECALLED = 512  # points of the survey of such a shape that are kept
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
    modes = points.starts.shape[1] + QUANTILES * len(_held(posterior))
    return modes, scouts + modes * CLOUD, size


def _held(posterior: Posterior) -> list[int]:
    """The coordinates along which ridges are looked for."""
    shape = [i for i, name in enumerate(posterior.curve_names) if name not in AMPLITUDES]
    return [] if posterior.model.starts or len(shape) < FEWEST_HELD else shape


def _recalled(posterior: Posterior) -> int:
    """How many points of a survey are kept."""
    return RECALLED if _held(posterior) else 0


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
    found = _modes(posterior, bin, places, scouts)
    if _held(posterior):
        found = jax.tree.map(lambda *arrays: jnp.concatenate(arrays), found, _ridges(posterior, bin, scouts))
    modes, frames, potentials = found
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


def _modes(posterior: Posterior, bin: Bin, places: Any, scouts: Any) -> tuple[Any, Any, Any]:
    """Mode, frame and potential from each place, held within the prior draws where it has run away."""
    low, high = jnp.min(scouts, axis=0), jnp.max(scouts, axis=0)
    count = len(posterior.curve_names)
    starts = jax.vmap(lambda z: _with_noise(posterior, bin, z))(jnp.clip(places, low[:count], high[:count]))
    return jax.vmap(lambda z: _mode(posterior, bin, z, jnp.std(scouts, axis=0)))(starts)


def _ridges(posterior: Posterior, bin: Bin, scouts: Any) -> tuple[Any, Any, Any]:
    """Place, frame and potential where the potential is lowest with one coordinate held, from the best scout in each
    quantile of each coordinate of the shape."""
    places, prior_sd = scouts[:, : len(posterior.curve_names)], jnp.std(scouts, axis=0)
    chi2, held = chi2_at(posterior, bin, places), _held(posterior)
    starts = jnp.concatenate([best_in_quantiles(places, chi2, QUANTILES, along) for along in held])

    def ridge(place: Any, along: Any) -> tuple[Any, Any, Any]:
        start = _with_noise(posterior, bin, place)
        z, _, value = _mode(posterior, bin, start, prior_sd.at[along].set(HELD))
        return z, _whitener(posterior, bin, z, prior_sd), value

    return jax.vmap(ridge)(starts, jnp.repeat(jnp.array(held), QUANTILES))


def _with_noise(posterior: Posterior, bin: Bin, z: Any) -> Any:
    """The curve's coordinates with the noise's put behind them, at the noise's own guess from the residuals there."""
    return jnp.concatenate([z, _noise_guess(posterior, bin, z)])


def _noise_guess(posterior: Posterior, bin: Bin, z: Any) -> Any:
    rms = jnp.sqrt(jnp.mean(posterior.residual(z, bin) ** 2, where=bin.valid))
    return posterior.unconstrain_noise({**posterior.noise.start(rms, bin), **bin.fixed}, bin)


def _noise_information(posterior: Posterior, bin: Bin, z: Any, prior_sd: Any) -> Any:
    """Fisher information (param, param) on the noise's coordinates, with the prior's precision on its diagonal.

    A normal's log scale has 2 for each point, the correlation r of two neighbours (1 + r^2) / (1 - r^2)^2; that on
    other numbers, a Student-t's degrees of freedom among them, is left to the prior.
    """

    def moments(z: Any) -> tuple[Any, Any]:
        scatter, _, _ = posterior.scatter(z, bin)
        log_scale = jnp.log(scatter.scale * (1.0 if scatter.relative is None else scatter.relative))
        neighbours = None if scatter.chain is None else scatter.chain.neighbours()
        return jnp.broadcast_to(log_scale, bin.valid.shape), neighbours

    slopes, correlation_slopes = jax.jacfwd(moments)(z)
    slopes = jnp.where(bin.valid[:, None], slopes, 0.0)
    information = 2.0 * slopes.T @ slopes + jnp.diag(jnp.maximum(prior_sd, jnp.finfo(prior_sd.dtype).eps) ** -2)
    if correlation_slopes is not None:
        square = jnp.minimum(moments(z)[1] ** 2, 1.0 - 1e-6)
        information += (correlation_slopes.T * (1.0 + square) / (1.0 - square) ** 2) @ correlation_slopes
    return information


def _mode(posterior: Posterior, bin: Bin, start: Any, prior_sd: Any) -> tuple[Any, Any, Any]:
    """Mode near a start, a frame there, and its potential: Fisher scoring with the best of a few step lengths, so that
    the potential never rises. The first step only looks at the start."""
    lengths = jnp.array([0.03, 0.3, 1.0, 1.8])
    potential = jax.vmap(jax.value_and_grad(lambda z: posterior.potential(z, bin)))

    def step(state: tuple[Any, Any, Any, Any], _: None) -> tuple[tuple[Any, Any, Any, Any], None]:
        z, here, gradient, _ = state
        frame = _whitener(posterior, bin, z, prior_sd)
        tries = z - lengths[:, None] * (frame @ (frame.T @ gradient))
        values, gradients = potential(tries)
        best = jnp.argmin(values)
        lower = values[best] < here
        gradient = jnp.where(lower, jnp.nan_to_num(gradients[best], posinf=0.0, neginf=0.0), gradient)
        return (jnp.where(lower, tries[best], z), jnp.where(lower, values[best], here), gradient, frame), None

    first = start, jnp.array(jnp.inf), jnp.zeros_like(start), jnp.eye(start.size)
    (z, value, _, frame), _ = jax.lax.scan(step, first, None, length=SCORING_STEPS + 1)
    return z, frame, value


def _whitener(posterior: Posterior, bin: Bin, z: Any, prior_sd: Any) -> Any:
    """A lower triangular frame at z: the inverse Cholesky factor of the curvature there.

    The curve's block is Gauss-Newton's, J^T J of the profiled residuals in units of the noise, plus the prior's
    precision, so it is positive definite everywhere; the noise's is its Fisher information.
    """
    count = len(posterior.curve_names)
    precision = 1.0 / jnp.maximum(prior_sd, jnp.finfo(prior_sd.dtype).eps) ** 2
    scatter, _, _ = posterior.scatter(z[count:], bin)
    jacobian = jax.jacfwd(lambda c: posterior.residual(c, bin, scatter) / scatter.scale)(z[:count])
    curve = jnp.nan_to_num(jacobian.T @ jacobian, posinf=0.0) + jnp.diag(precision[:count])
    noise = _noise_information(posterior, bin, z[count:], prior_sd[count:])
    return jax.scipy.linalg.block_diag(_inverse_root(curve), _inverse_root(noise))


def _inverse_root(precision: Any) -> Any:
    """Lower triangular L with L L^T = precision^-1, computed in units of the diagonal."""
    unit = jnp.diagonal(precision) ** -0.5
    upper = jnp.linalg.cholesky((precision * unit[:, None] * unit)[::-1, ::-1])[::-1, ::-1]
    return unit[:, None] * _inverse(upper.T) if precision.size else precision


def _inverse(frame: Any) -> Any:
    """Inverse of a lower triangular matrix."""
    return jax.scipy.linalg.solve_triangular(frame, jnp.eye(len(frame)), lower=True)


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
        guess = _noise_guess(posterior, bin, curve)
        width = WIDENED * jnp.diagonal(_noise_information(posterior, bin, guess, prior_sd)) ** -0.5
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

"""From data alone to a start: point estimate, modes, and the frame in which a bin is sampled.

1. Scout: prior draws, ranked by the residual sum of squares with the amplitudes profiled out. The best of each
   quantile of the first parameter (the rate, in most models) is a start, so that every part of the delay window is
   looked at.
2. Least squares (optimistix, Levenberg-Marquardt) from each start: the best is the classical point estimate.
3. Posterior mode from each of these, by Fisher scoring: the curvature of least squares and of the prior is at hand.
4. Importance sampling over a mixture of prior draws and Student-t clouds about the modes: its weights give starts in
   every mode in the right proportion and a covariance that knows the whole posterior (Owen & Zhou 2000, the
   deterministic-mixture weights).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.scipy.special import logsumexp

from bayesfit._devices import Spread, batches, gather, named, place, take
from bayesfit._jump import CENTERS, Mixture, mixture
from bayesfit._posterior import Bin, Posterior
from bayesfit._programs import record
from bayesfit._work import Progress, Report, Stop

BINS = 16
FEW_BINS = 128  # up to here one device makes the estimates: a second one would cost more to compile than it saves

SCOUTS = 1024
STARTS = 6
CLOUD = 128
ROLE = 2**31  # of a bin's keys, that of the estimate; the chains' are numbered from 0
AT_ONCE = 128  # points looked at together, so that the processor's cache holds what is made of them
SCORING_STEPS = 15
QUANTILES = 65
LEAST_ESS_PER_PARAMETER = 15.0
SMALLEST_PIVOT = 1e-4


@record
class Estimate(NamedTuple):
    """What the sampler and the verdict need of one bin; with a leading axis, of many.

    `least_squares`, `least_squares_sd`: the classical fit, parameter name to value and to standard error for errors
    as stated; `chi2`: its residual sum of squares; `converged`: True where the solver says so; `mode_potential`: the
    lowest potential seen; `center` (param,), `frame` (param, param): z = center + frame @ u whitens the posterior;
    `starts` (chain, param): starts of the chains, as u; `proposals`: the mixture for global moves, in u;
    `importance_ess`: effective number of the importance draws; `prior_quantiles`: parameter name to `QUANTILES` evenly
    spaced quantiles of its prior.
    """

    least_squares: Any
    least_squares_sd: Any
    chi2: Any
    converged: Any
    mode_potential: Any
    center: Any
    frame: Any
    starts: Any
    proposals: Mixture
    importance_ess: Any
    prior_quantiles: Any


@lru_cache(maxsize=32)
def _estimator(posterior: Posterior, chains: int) -> Spread:
    return Spread(
        lambda bin, words: estimate(posterior, bin, jax.random.wrap_key_data(words), chains),
        named(f"estimate {chains}", posterior.identity),
    )


def _devices(count: int) -> int:
    return 1 if count <= FEW_BINS else jax.local_device_count()


def start_compiling(posterior: Posterior, bins: Bin, chains: int) -> Estimate:
    """Begin to compile the estimator in the background; returns the shapes of what it makes of one batch."""
    devices = _devices(len(bins.y))
    index = next(batches(1, BINS, devices))
    words = np.zeros((index.size, 2), np.uint32)
    arguments = place(take(bins, index), devices), place(words, devices)
    return _estimator(posterior, chains).start(*arguments).shapes(*arguments)[0]


def estimate_bins(posterior: Posterior, bins: Bin, keys: Any, chains: int, report: Report, stop: Stop) -> Estimate:
    """Estimates of all bins (leading axis), as NumPy arrays; NaN for those that a stop came before."""
    run = _estimator(posterior, chains)
    count = len(bins.y)
    devices = _devices(count)
    words = np.asarray(jax.random.key_data(keys))
    parts = []
    for index in batches(count, BINS, devices):
        if stop.asked:
            break
        parts.append(gather(run(place(take(bins, index), devices), place(words[index], devices))))
        report(Progress("estimate", count, min(count, len(parts) * index.size)))
    if not parts:
        raise KeyboardInterrupt
    return jax.tree.map(lambda *arrays: _filled(np.concatenate(arrays)[:count], count), *parts)


def _filled(array: np.ndarray, count: int) -> np.ndarray:
    """An array made longer, to `count` items, by NaN or False."""
    missing = np.full((count - len(array), *array.shape[1:]), False if array.dtype == bool else np.nan)
    return np.concatenate([array, missing.astype(array.dtype)])


def estimate(posterior: Posterior, bin: Bin, key: Any, chains: int) -> Estimate:
    """Point estimate, modes, and frame of one bin. Never raises under vmap: what fails is NaN or not converged."""
    key_scout, key_cloud, key_choice = jax.random.split(jax.random.fold_in(key, ROLE), 3)
    scouts, prior_values = jax.vmap(lambda k: posterior.draw_prior(k, bin))(jax.random.split(key_scout, SCOUTS))
    fits, chi2, converged = _least_squares(posterior, bin, scouts[:, : len(posterior.curve_names)])
    best = jnp.argmin(jnp.nan_to_num(chi2, nan=jnp.inf))
    point, point_sd = posterior.least_squares(fits[best], bin)
    modes, frames, potentials = _modes(posterior, bin, fits, scouts)
    points, log_weights, lowest = _importance(posterior, bin, key_cloud, scouts, modes, frames)
    weights = jnp.exp(log_weights - logsumexp(log_weights))
    ess = 1.0 / jnp.sum(weights**2)
    top = jnp.argmin(potentials)
    center, frame = _frame(points, weights, ess, modes[top], frames[top])

    def to_u(columns: Any) -> Any:
        return jax.scipy.linalg.solve_triangular(frame, columns, lower=True)

    drawn = to_u((points[_systematic(key_choice, weights, chains + CENTERS)] - center).T).T
    masses = jnp.sum(jnp.log(jnp.diagonal(frames, axis1=1, axis2=2)), axis=1) - potentials
    return Estimate(
        least_squares=point,
        least_squares_sd=point_sd,
        chi2=chi2[best],
        converged=converged[best],
        mode_potential=jnp.minimum(jnp.min(potentials), lowest),
        center=center,
        frame=frame,
        starts=drawn[:chains],
        proposals=mixture(drawn[chains:], to_u((modes - center).T).T, jax.vmap(to_u)(frames), masses),
        importance_ess=ess,
        prior_quantiles=_prior_quantiles(posterior, bin, prior_values),
    )


def _modes(posterior: Posterior, bin: Bin, fits: Any, scouts: Any) -> tuple[Any, Any, Any]:
    """Mode, frame and potential from each least-squares fit, held within the prior draws where it has run away."""
    low, high = jnp.min(scouts, axis=0), jnp.max(scouts, axis=0)
    count = len(posterior.curve_names)
    starts = jax.vmap(lambda z: _with_noise(posterior, bin, z))(jnp.clip(fits, low[:count], high[:count]))
    return jax.vmap(lambda z: _mode(posterior, bin, z, jnp.std(scouts, axis=0)))(starts)


def _prior_quantiles(posterior: Posterior, bin: Bin, values: dict[str, Any]) -> dict[str, Any]:
    levels = (jnp.arange(QUANTILES) + 0.5) / QUANTILES
    sampled = {name: jnp.quantile(values[name], levels) for name in posterior.curve_names}
    return sampled | {name: posterior.amplitude_prior_quantile(name, levels, bin) for name in posterior.marginal}


def _least_squares(posterior: Posterior, bin: Bin, scouts: Any) -> tuple[Any, Any, Any]:
    """Solutions (start, param) of the curve's parameters, their chi-square, and whether each converged."""
    count = len(posterior.curve_names)
    starts = _starts(posterior, bin, scouts)
    if count == 0:
        chi2 = jnp.sum(posterior.residual(jnp.zeros(0), bin) ** 2)
        return starts, jnp.full(starts.shape[0], chi2), jnp.ones(starts.shape[0], bool)
    solver: Any = optx.LevenbergMarquardt(rtol=1e-10, atol=1e-10)

    steps = 2000 if posterior.model.starts else 400

    def solve(z: Any) -> tuple[Any, Any, Any]:
        solution: Any = optx.least_squares(
            lambda z, bin: posterior.residual(z, bin), solver, z, args=bin, max_steps=steps, throw=False
        )
        chi2 = jnp.sum(posterior.residual(solution.value, bin) ** 2)
        return solution.value, chi2, solution.result == optx.RESULTS.successful

    return jax.vmap(solve)(starts)


def _starts(posterior: Posterior, bin: Bin, scouts: Any) -> Any:
    """The model's own starts, or the best scout in each quantile of the first coordinate; (start, param)."""
    if posterior.model.starts:
        given = [posterior.unconstrain_curve({**start, **bin.fixed}, bin) for start in posterior.model.starts]
        return jnp.stack(given)
    if not posterior.curve_names:
        return jnp.zeros((STARTS, 0))
    chi2 = jax.vmap(lambda z: jnp.sum(posterior.residual(z, bin) ** 2))(scouts)
    order = jnp.argsort(scouts[:, 0])[: SCOUTS // STARTS * STARTS].reshape(STARTS, -1)
    best = jnp.argmin(jnp.nan_to_num(chi2, nan=jnp.inf)[order], axis=1)
    return scouts[jnp.take_along_axis(order, best[:, None], axis=1)[:, 0]]


def _with_noise(posterior: Posterior, bin: Bin, z: Any) -> Any:
    """The curve's coordinates with the noise's put behind them, at the noise's own guess from the residuals there."""
    return jnp.concatenate([z, _noise_guess(posterior, bin, z)])


def _noise_guess(posterior: Posterior, bin: Bin, z: Any) -> Any:
    rms = jnp.sqrt(jnp.mean(posterior.residual(z, bin) ** 2, where=bin.valid))
    return posterior.unconstrain_noise({**posterior.noise.start(rms), **bin.fixed}, bin)


def _noise_width(posterior: Posterior, bin: Bin, z: Any) -> Any:
    """Standard errors of the noise's coordinates: the information on a normal's log scale is 2 for each point."""
    slope = jax.jacfwd(lambda v: jnp.log(posterior.scale(v, bin)[0]))(z)
    return 1.0 / (jnp.sqrt(2.0 * jnp.sum(bin.valid)) * jnp.maximum(jnp.abs(slope), 1e-6))


def _mode(posterior: Posterior, bin: Bin, start: Any, prior_sd: Any) -> tuple[Any, Any, Any]:
    """Mode near a start, a frame there, and its potential: Fisher scoring with the best of a few step lengths, so that
    the potential never rises."""
    lengths = jnp.array([0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.8])

    def step(state: tuple[Any, Any, Any], _: None) -> tuple[tuple[Any, Any, Any], None]:
        z, _, _ = state
        frame = _whitener(posterior, bin, z, prior_sd)
        gradient = jnp.nan_to_num(jax.grad(posterior.potential)(z, bin), posinf=0.0, neginf=0.0)
        tries = z - lengths[:, None] * (frame @ (frame.T @ gradient))
        potentials = jax.vmap(lambda z: posterior.potential(z, bin))(tries)
        best = jnp.argmin(potentials)
        return (tries[best], frame, potentials[best]), None

    first = (start, jnp.eye(start.size), jnp.array(jnp.inf))
    return jax.lax.scan(step, first, None, length=SCORING_STEPS)[0]


def _whitener(posterior: Posterior, bin: Bin, z: Any, prior_sd: Any) -> Any:
    """A lower triangular frame at z: the inverse Cholesky factor of the curvature there.

    The curve's block is Gauss-Newton's, J^T J of the profiled residuals in units of the noise, plus the prior's
    precision, so it is positive definite everywhere; the noise's is the Fisher information of a normal's scale.
    """
    count = len(posterior.curve_names)
    precision = 1.0 / jnp.maximum(prior_sd, jnp.finfo(prior_sd.dtype).eps) ** 2
    scale, _, _ = posterior.scale(z[count:], bin)
    jacobian = jax.jacfwd(lambda c: posterior.residual(c, bin) / scale)(z[:count])
    curve = jnp.nan_to_num(jacobian.T @ jacobian, posinf=0.0) + jnp.diag(precision[:count])
    return jax.scipy.linalg.block_diag(_inverse_root(curve), jnp.diag(_noise_width(posterior, bin, z[count:])))


def _inverse_root(precision: Any) -> Any:
    """Lower triangular L with L L^T = precision^-1, computed in units of the diagonal."""
    unit = jnp.diagonal(precision) ** -0.5
    upper = jnp.linalg.cholesky((precision * unit[:, None] * unit)[::-1, ::-1])[::-1, ::-1]
    return unit[:, None] * jnp.linalg.inv(upper).T if precision.size else precision


def _importance(posterior: Posterior, bin: Bin, key: Any, scouts: Any, modes: Any, frames: Any) -> tuple[Any, ...]:
    """Points (point, param), their log importance weights, and the lowest potential among them."""
    modes_count, size = modes.shape
    curve_count = len(posterior.curve_names)
    u = _draw_t(key, (SCOUTS + modes_count * CLOUD, size))
    clouds = modes[:, None] + jnp.einsum("kij,knj->kni", frames, u[SCOUTS:].reshape(modes_count, CLOUD, size))
    defence = jax.vmap(lambda z: _with_noise(posterior, bin, z))(scouts[:, :curve_count])
    width = jax.vmap(lambda z: 1.5 * _noise_width(posterior, bin, z))(defence[:, curve_count:])
    wide = defence.at[:, curve_count:].add(width * u[:SCOUTS, curve_count:])
    points = jnp.concatenate([wide, clouds.reshape(-1, size)])
    counts = jnp.array([SCOUTS] + [CLOUD] * modes_count) / (SCOUTS + CLOUD * modes_count)
    inverses = jnp.linalg.inv(frames)
    volumes = jnp.sum(jnp.log(jnp.diagonal(frames, axis1=1, axis2=2)), axis=1)

    def log_weight(z: Any) -> tuple[Any, Any]:
        inner = _log_t(jnp.einsum("kij,kj->ki", inverses, z - modes)) - volumes
        guess = _noise_guess(posterior, bin, z[:curve_count])
        _, _, log_prior = posterior.curve(z[:curve_count], bin)
        width = 1.5 * _noise_width(posterior, bin, guess)
        outer = log_prior + _log_t((z[curve_count:] - guess) / width) - jnp.sum(jnp.log(width))
        proposal = logsumexp(jnp.concatenate([outer[None], inner]), b=counts)
        potential = posterior.potential(z, bin)
        weight = -potential - proposal
        return jnp.where(jnp.isfinite(weight), weight, -jnp.inf), potential

    log_weights, potentials = jax.lax.map(log_weight, points, batch_size=AT_ONCE)
    return points, log_weights, jnp.min(potentials)


def _draw_t(key: Any, shape: tuple[int, ...]) -> Any:
    """Standard Student-t draws with 4 degrees of freedom: a normal over the root of a mean of exponentials."""
    key_normal, key_uniform = jax.random.split(key)
    uniform = jax.random.uniform(key_uniform, (2, *shape), minval=jnp.finfo(jnp.result_type(float)).tiny)
    return jax.random.normal(key_normal, shape) / jnp.sqrt(-0.5 * jnp.sum(jnp.log(uniform), axis=0))


def _log_t(u: Any) -> Any:
    """Log density of independent standard Student-t variables with 4 degrees of freedom, summed over the last axis."""
    return jnp.sum(math.log(0.375) - 2.5 * jnp.log1p(u**2 / 4.0), axis=-1)


def _frame(points: Any, weights: Any, ess: Any, mode: Any, mode_frame: Any) -> tuple[Any, Any]:
    """Center and frame from the weighted points where enough of them count, else from the curvature at the mode."""
    size = points.shape[1]
    mean = weights @ points
    rest = points - mean
    covariance = (rest * weights[:, None]).T @ rest
    factor = jnp.linalg.cholesky(covariance)
    enough = (ess > LEAST_ESS_PER_PARAMETER * (size + 1)) & jnp.all(jnp.isfinite(factor))
    return jnp.where(enough, mean, mode), jnp.where(enough, factor, mode_frame)


def _systematic(key: Any, weights: Any, count: int) -> Any:
    """Indices of `count` points by systematic resampling, in random order."""
    key_offset, key_order = jax.random.split(key)
    grid = (jnp.arange(count) + jax.random.uniform(key_offset)) / count
    index = jnp.searchsorted(jnp.cumsum(weights), grid * (1 - 1e-12))
    return jax.random.permutation(key_order, jnp.minimum(index, weights.size - 1))


def readapt(old: Estimate, u: np.ndarray) -> Estimate:
    """The estimate of one bin with frame, starts and proposals made anew from its draws u (chain, draw, param), pooled
    over its chains; as it was where these do not span the space."""
    size = u.shape[-1]
    flat = u.reshape(-1, size)
    mean, covariance = flat.mean(axis=0), np.atleast_2d(np.cov(flat.T))
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return old
    if np.min(np.diagonal(factor) / np.sqrt(np.diagonal(covariance))) < SMALLEST_PIVOT:
        return old
    to_new = np.linalg.inv(factor)
    centers = flat[np.linspace(0, len(flat) - 1, CENTERS).astype(int)]
    masses = np.diff(old.proposals.edges[CENTERS - 1 :])
    return old._replace(
        center=old.center + old.frame @ mean,
        frame=old.frame @ factor,
        starts=(u[:, -1] - mean) @ to_new.T,
        proposals=mixture(
            (centers - mean) @ to_new.T,
            (old.proposals.modes - mean) @ to_new.T,
            to_new @ old.proposals.frames,
            np.log(np.maximum(masses, np.finfo(float).tiny)),
        ),
    )

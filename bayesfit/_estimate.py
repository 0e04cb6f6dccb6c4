"""From data alone to a start: point estimate, modes, and the frame in which a bin is sampled.

1. Scout: prior draws, ranked by the residual sum of squares with the amplitudes profiled out. The best of each
   quantile of the first parameter (the rate, in most models) is a start, so that every part of the delay window is
   looked at.
2. Least squares (optimistix, Levenberg-Marquardt) from each start: the best is the classical point estimate.
3. Posterior mode (optimistix, BFGS) from each of these, whitened by the Hessian there.
4. Importance sampling over a mixture of prior draws and Student-t clouds about the modes: its weights give starts in
   every mode in the right proportion and a covariance that knows the whole posterior (Owen & Zhou 2000, the
   deterministic-mixture weights).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optimistix as optx
from jax.scipy.special import gammaln, logsumexp

from bayesfit._posterior import Bin, Posterior

SCOUTS = 1024
STARTS = 6
CLOUD = 128
CLOUD_DF = 5.0
QUANTILES = 65
LEAST_ESS_PER_PARAMETER = 15.0


class Estimate(NamedTuple):
    """What the sampler and the verdict need of one bin; with a leading axis, of many.

    `least_squares`, `least_squares_sd`: the classical fit, parameter name to value and to standard error for errors
    as stated; `chi2`: its residual sum of squares; `converged`: True where the solver says so; `mode_potential`: the
    lowest potential seen; `center` (param,), `frame` (param, param): z = center + frame @ u whitens the posterior;
    `starts` (chain, param): starts of the chains, as u; `importance_ess`: effective number of the importance draws;
    `prior_quantiles`: parameter name to `QUANTILES` evenly spaced quantiles of its prior.
    """

    least_squares: Any
    least_squares_sd: Any
    chi2: Any
    converged: Any
    mode_potential: Any
    center: Any
    frame: Any
    starts: Any
    importance_ess: Any
    prior_quantiles: Any


def estimate(posterior: Posterior, bin: Bin, key: Any, chains: int) -> Estimate:
    """Point estimate, modes, and frame of one bin. Never raises under vmap: what fails is NaN or not converged."""
    key_scout, key_cloud, key_choice, key_prior = jax.random.split(key, 4)
    scouts = jax.vmap(lambda k: posterior.draw_prior(k, bin))(jax.random.split(key_scout, SCOUTS))
    curve_count = len(posterior.curve_names)
    fits, chi2, converged = _least_squares(posterior, bin, scouts[:, :curve_count])
    best = jnp.argmin(jnp.nan_to_num(chi2, nan=jnp.inf))
    prior_sd = jnp.std(scouts, axis=0)
    low, high = jnp.min(scouts, axis=0), jnp.max(scouts, axis=0)
    starts = jax.vmap(lambda z: _with_noise(posterior, bin, z))(jnp.clip(fits, low[:curve_count], high[:curve_count]))
    modes, frames, potentials = jax.vmap(lambda z: _mode(posterior, bin, z, prior_sd))(starts)
    defence = jax.vmap(lambda z: _with_noise(posterior, bin, z))(scouts[:, :curve_count])
    points, log_weights, values = _importance(posterior, bin, key_cloud, defence, modes, frames)
    weights = jnp.exp(log_weights - logsumexp(log_weights))
    ess = 1.0 / jnp.sum(weights**2)
    top = jnp.argmin(potentials)
    center, frame = _frame(points, weights, ess, modes[top], frames[top])
    chosen = points[_systematic(key_choice, weights, chains)]
    point, point_sd = posterior.least_squares(fits[best], bin)
    return Estimate(
        least_squares=point,
        least_squares_sd=point_sd,
        chi2=chi2[best],
        converged=converged[best],
        mode_potential=jnp.minimum(jnp.min(potentials), jnp.min(values)),
        center=center,
        frame=frame,
        starts=jax.scipy.linalg.solve_triangular(frame, (chosen - center).T, lower=True).T,
        importance_ess=ess,
        prior_quantiles=_prior_quantiles(posterior, bin, scouts, key_prior),
    )


def _prior_quantiles(posterior: Posterior, bin: Bin, scouts: Any, key: Any) -> dict[str, Any]:
    curve_count = len(posterior.curve_names)
    draws = jax.vmap(lambda z: posterior.curve(z[:curve_count], bin)[1])(scouts)
    keys = jax.random.split(key, 2)
    for name, amplitude_key in zip(posterior.marginal, keys, strict=False):
        draws[name] = posterior.draw_amplitude_prior(amplitude_key, name, SCOUTS, bin)
    levels = jnp.linspace(0.0, 1.0, QUANTILES)
    return {name: jnp.quantile(draws[name], levels) for name in (*posterior.curve_names, *posterior.marginal)}


def _least_squares(posterior: Posterior, bin: Bin, scouts: Any) -> tuple[Any, Any, Any]:
    """Solutions (start, param) of the curve's parameters, their chi-square, and whether each converged."""
    count = len(posterior.curve_names)
    starts = _starts(posterior, bin, scouts)
    if count == 0:
        chi2 = jnp.sum(posterior.residual(jnp.zeros(0), bin) ** 2)
        return starts, jnp.full(starts.shape[0], chi2), jnp.ones(starts.shape[0], bool)
    solver = optx.LevenbergMarquardt(rtol=1e-12, atol=1e-12)

    def solve(z: Any) -> tuple[Any, Any, Any]:
        solution = optx.least_squares(
            lambda z, bin: posterior.residual(z, bin), solver, z, args=bin, max_steps=400, throw=False
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


def _mode(posterior: Posterior, bin: Bin, start: Any, prior_sd: Any) -> tuple[Any, Any, Any]:
    """Mode near a start, a frame there (Cholesky factor of the inverse Hessian), and its potential."""
    if start.size == 0:
        return start, jnp.zeros((0, 0)), posterior.potential(start, bin)
    frame = _whitener(posterior, bin, start, prior_sd)
    solution = optx.minimise(
        lambda u, args: posterior.potential(start + frame @ u, bin),
        optx.BFGS(rtol=1e-4, atol=1e-4),
        jnp.zeros_like(start),
        max_steps=200,
        throw=False,
    )
    mode = start + frame @ solution.value
    better = posterior.potential(mode, bin) < posterior.potential(start, bin)
    mode = jnp.where(better, mode, start)
    return mode, _whitener(posterior, bin, mode, prior_sd), posterior.potential(mode, bin)


def _whitener(posterior: Posterior, bin: Bin, z: Any, prior_sd: Any) -> Any:
    """Lower Cholesky factor of the inverse Hessian. Taken in units of the prior's sd, where a posterior is no wider
    than about 1, so that eigenvalues below that (flat, or a saddle) are lifted to it."""
    sd = jnp.maximum(prior_sd, jnp.finfo(prior_sd.dtype).tiny)
    hessian = jax.jacfwd(jax.grad(lambda v: posterior.potential(z + sd * v, bin)))(jnp.zeros_like(z))
    hessian = jnp.where(jnp.all(jnp.isfinite(hessian)), hessian, jnp.eye(z.size))
    values, vectors = jnp.linalg.eigh((hessian + hessian.T) / 2)
    root = vectors * jnp.maximum(values, 0.5) ** -0.5
    _, upper = jnp.linalg.qr(root.T)
    lower = upper.T * jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0)
    return sd[:, None] * lower


def _importance(posterior: Posterior, bin: Bin, key: Any, defence: Any, modes: Any, frames: Any) -> tuple[Any, ...]:
    """Points (point, param), their log importance weights, and their potentials."""
    modes_count, size = modes.shape
    key_cloud, key_noise = jax.random.split(key)
    u = jax.random.t(key_cloud, CLOUD_DF, (modes_count, CLOUD, size))
    clouds = modes[:, None] + jnp.einsum("kij,knj->kni", frames, u)
    curve_count = len(posterior.curve_names)
    width = 2.0 / jnp.sqrt(jnp.sum(bin.valid))
    jitter = width * jax.random.t(key_noise, CLOUD_DF, (SCOUTS, size - curve_count))
    wide = jnp.concatenate([defence[:, :curve_count], defence[:, curve_count:] + jitter], axis=1)
    points = jnp.concatenate([wide, clouds.reshape(-1, size)])

    def log_weight(z: Any) -> tuple[Any, Any]:
        inner = [_log_t(jax.scipy.linalg.solve_triangular(f, z - m, lower=True)) - jnp.sum(jnp.log(jnp.diagonal(f)))
                 for m, f in zip(modes, frames, strict=True)]
        guess = _noise_guess(posterior, bin, z[:curve_count])
        _, _, log_prior = posterior.curve(z[:curve_count], bin)
        outer = log_prior + _log_t((z[curve_count:] - guess) / width) - (size - curve_count) * jnp.log(width)
        counts = jnp.array([SCOUTS] + [CLOUD] * modes_count) / (SCOUTS + CLOUD * modes_count)
        proposal = logsumexp(jnp.stack([outer, *inner]), b=counts)
        potential = posterior.potential(z, bin)
        weight = -potential - proposal
        return jnp.where(jnp.isfinite(weight), weight, -jnp.inf), potential

    log_weights, potentials = jax.vmap(log_weight)(points)
    return points, log_weights, potentials


def _log_t(u: Any) -> Any:
    """Log density of independent standard Student-t variables, summed."""
    half = (CLOUD_DF + 1) / 2
    constant = gammaln(half) - gammaln(CLOUD_DF / 2) - 0.5 * jnp.log(CLOUD_DF * jnp.pi)
    return jnp.sum(constant - half * jnp.log1p(u**2 / CLOUD_DF))


def _frame(points: Any, weights: Any, ess: Any, mode: Any, hessian_frame: Any) -> tuple[Any, Any]:
    """Center and frame from the weighted points where enough of them count, else from the Hessian at the mode."""
    size = points.shape[1]
    mean = weights @ points
    rest = points - mean
    covariance = (rest * weights[:, None]).T @ rest
    factor = jnp.linalg.cholesky(covariance)
    enough = (ess > LEAST_ESS_PER_PARAMETER * (size + 1)) & jnp.all(jnp.isfinite(factor))
    return jnp.where(enough, mean, mode), jnp.where(enough, factor, hessian_frame)


def _systematic(key: Any, weights: Any, count: int) -> Any:
    """Indices of `count` points by systematic resampling, in random order."""
    key_offset, key_order = jax.random.split(key)
    grid = (jnp.arange(count) + jax.random.uniform(key_offset)) / count
    index = jnp.searchsorted(jnp.cumsum(weights), grid * (1 - 1e-12))
    return jax.random.permutation(key_order, jnp.minimum(index, weights.size - 1))

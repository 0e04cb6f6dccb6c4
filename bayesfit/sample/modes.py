"""Modes and ridges of one bin's posterior, each with a frame in which the posterior is round there.

Fisher scoring from the least-squares solutions and from the best prior draws: the curvature of least squares and of the
prior is at hand. A ridge is the lowest potential with one coordinate held, in each quantile of that coordinate's prior.
Where a shape has three coordinates or more, ridges reach what has a share in the posterior without being a mode, as a
decay that may be too fast to be seen.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bayesfit.modelling.model import AMPLITUDES
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.curve_coordinates import INTRICATE
from bayesfit.posterior.density import Posterior
from bayesfit.sample.least_squares import best_in_quantiles, chi2_at

SCORING_STEPS = 12
QUANTILES = 12  # of each coordinate, in which there is a ridge
ENDS = 3  # ridges at either end of it
RIDGES = QUANTILES + 2 * ENDS
HELD = 1e-6  # standard deviation of a coordinate that is held


def held(posterior: Posterior) -> list[int]:
    """The coordinates along which ridges are looked for."""
    shape = [i for i, name in enumerate(posterior.curve_names) if name not in AMPLITUDES]
    return [] if posterior.model.starts or len(shape) < INTRICATE else shape


def modes_and_ridges(posterior: Posterior, bin: Bin, places: Any, scouts: Any) -> tuple[Any, Any, Any]:
    """Where they are (mode, param), with frames (mode, param, param) and potentials (mode,) there, from places (start,
    param) of the curve and scouts (scout, param) of the prior. Never raises under vmap: what fails is NaN."""
    found = _modes(posterior, bin, places, scouts)
    if not held(posterior):
        return found
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), found, _ridges(posterior, bin, scouts))


def how_many(posterior: Posterior, places: int) -> int:
    """How many modes and ridges there are from so many places."""
    return places + RIDGES * len(held(posterior))


def _modes(posterior: Posterior, bin: Bin, places: Any, scouts: Any) -> tuple[Any, Any, Any]:
    """Mode, frame and potential from each place, held within the prior draws where it has run away."""
    low, high = jnp.min(scouts, axis=0), jnp.max(scouts, axis=0)
    count = len(posterior.curve_names)
    starts = jax.vmap(lambda z: _with_noise(posterior, bin, z))(jnp.clip(places, low[:count], high[:count]))
    return jax.vmap(lambda z: _mode(posterior, bin, z, jnp.std(scouts, axis=0)))(starts)


def _ridges(posterior: Posterior, bin: Bin, scouts: Any) -> tuple[Any, Any, Any]:
    """Place, frame and potential where the potential is lowest with one coordinate held, from the best scout in each
    quantile of each coordinate of the shape."""
    places = posterior.with_regression(scouts[:, : len(posterior.curve_names)])
    prior_sd = jnp.std(scouts, axis=0)
    chi2, coordinates = chi2_at(posterior, bin, places), held(posterior)
    starts = jnp.concatenate([_along(posterior, bin, places, chi2, along) for along in coordinates])

    def ridge(place: Any, along: Any) -> tuple[Any, Any, Any]:
        start = _with_noise(posterior, bin, place)
        z, _, value = _mode(posterior, bin, start, prior_sd.at[along].set(HELD))
        return z, _whitener(posterior, bin, z, prior_sd), value

    return jax.vmap(ridge)(starts, jnp.repeat(jnp.array(coordinates), RIDGES))


def _along(posterior: Posterior, bin: Bin, places: Any, chi2: Any, along: int) -> Any:
    """Where ridges begin (RIDGES, param) along one coordinate: in each of its quantiles, and at both ends of all."""
    found = [best_in_quantiles(places, chi2, QUANTILES, along)]
    for end in (jnp.min, jnp.max):
        there = end(places[:, along])
        moved = chi2_at(posterior, bin, places.at[:, along].set(there))
        found.append(best_in_quantiles(places, moved, ENDS, along).at[:, along].set(there))
    return jnp.concatenate(found)


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


def _with_noise(posterior: Posterior, bin: Bin, z: Any) -> Any:
    """The curve's coordinates with the noise's put behind them, at the noise's own guess from the residuals there."""
    return jnp.concatenate([z, noise_guess(posterior, bin, z)])


def noise_guess(posterior: Posterior, bin: Bin, z: Any) -> Any:
    """Where the noise's coordinates start, from the residuals about the curve at z (param,)."""
    rms = jnp.sqrt(jnp.mean(posterior.residual(z, bin) ** 2, where=bin.valid))
    return posterior.unconstrain_noise({**posterior.noise.start(rms, bin), **bin.fixed}, bin)


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
    noise = noise_information(posterior, bin, z[count:], prior_sd[count:])
    return jax.scipy.linalg.block_diag(_inverse_root(curve), _inverse_root(noise))


def noise_information(posterior: Posterior, bin: Bin, z: Any, prior_sd: Any) -> Any:
    """Fisher information (param, param) on the noise's coordinates, with the prior's precision on its diagonal.

    A normal's log scale has 2 for each point, the correlation r of two neighbours (1 + r^2) / (1 - r^2)^2; that on
    other numbers, a Student-t's degrees of freedom among them, is left to the prior.
    """

    def moments(z: Any) -> tuple[Any, Any]:
        scatter, _, _ = posterior.scatter(z, bin)
        log_scale = jnp.log(scatter.scale * (1.0 if scatter.relative is None else scatter.relative))
        neighbours = None if scatter.correlation is None else scatter.correlation.neighbours()
        return jnp.broadcast_to(log_scale, bin.valid.shape), neighbours

    slopes, correlation_slopes = jax.jacfwd(moments)(z)
    slopes = jnp.where(bin.valid[:, None], slopes, 0.0)
    information = 2.0 * slopes.T @ slopes + jnp.diag(jnp.maximum(prior_sd, jnp.finfo(prior_sd.dtype).eps) ** -2)
    if correlation_slopes is not None:
        square = jnp.minimum(moments(z)[1] ** 2, 1.0 - 1e-6)
        information += (correlation_slopes.T * (1.0 + square) / (1.0 - square) ** 2) @ correlation_slopes
    return information


def _inverse_root(precision: Any) -> Any:
    """Lower triangular L with L L^T = precision^-1, computed in units of the diagonal."""
    unit = jnp.diagonal(precision) ** -0.5
    upper = jnp.linalg.cholesky((precision * unit[:, None] * unit)[::-1, ::-1])[::-1, ::-1]
    return unit[:, None] * _inverse(upper.T) if precision.size else precision


def _inverse(frame: Any) -> Any:
    """Inverse of a lower triangular matrix."""
    return jax.scipy.linalg.solve_triangular(frame, jnp.eye(len(frame)), lower=True)

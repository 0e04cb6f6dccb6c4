"""Modes and constrained modes of one bin's posterior, each with a preconditioner that makes the posterior round there.

They are found by Fisher scoring from the least-squares solutions and from the best prior draws; it needs no second
derivatives beyond the curvature of the least squares and of the prior. A constrained mode is the lowest potential with
one coordinate fixed at a given value. Those along a coordinate, one in each quantile of its prior and a few at both
ends, trace its profile. If a shape has three coordinates or more, constrained modes reach regions that have a share of
the posterior without holding a mode, such as a decay that may be too fast to be seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayesfit.modelling.model import AMPLITUDES
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.least_squares import Points, Vector, best_in_quantiles, chi2_at

INTRICATE = 3  # coordinates from which on a shape may hide modes
SCORING_STEPS = 12
STEP_LENGTHS = 0.03, 0.3, 1.0, 1.8  # relative to a step of Fisher scoring; the best of them is taken
QUANTILES = 12  # of each coordinate's prior, with one constrained mode in each
ENDS = 3  # constrained modes at either end of a coordinate's range
PER_PROFILE = QUANTILES + 2 * ENDS
FIXED_SD = 1e-6  # prior standard deviation that keeps a coordinate where it is

Factor = Float[Array, "param param"]
Number = Float[Array, ""]
State = tuple[Vector, Number, Vector, Factor]  # of Fisher scoring: position, potential, gradient, preconditioner


class Modes(NamedTuple):
    """Modes, or constrained modes, with the lower triangular factors of their preconditioners and the potentials; or,
    without the leading axis, one of these."""

    z: Float[Any, "mode param"]
    factor: Float[Any, "mode param param"]
    potential: Float[Any, " mode"]


def profiled(posterior: Posterior) -> list[int]:
    """The coordinates along which constrained modes are searched for. Those of parameters that are not judged have
    their priors near to normal, and hide no modes."""
    aside = {*AMPLITUDES, *(parameter.name for parameter in posterior.model.parameters if not parameter.judged)}
    shape = [i for i, name in enumerate(posterior.curve_names) if name not in aside]
    return [] if posterior.model.starts or len(shape) < INTRICATE else shape


def find_modes(posterior: Posterior, bin: Bin, starts: Points, prior_draws: Points) -> Modes:
    """The modes reached from starts of the curve's coordinates, and after them the constrained modes. Never raises
    under vmap: what fails is NaN."""
    found = _free_modes(posterior, bin, starts, prior_draws)
    if not profiled(posterior):
        return found
    constrained = _constrained_modes(posterior, bin, prior_draws)
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), found, constrained)


def how_many(posterior: Posterior, starts: int) -> int:
    """The number of modes and constrained modes that are found from this number of starts."""
    return starts + PER_PROFILE * len(profiled(posterior))


def _free_modes(posterior: Posterior, bin: Bin, starts: Points, prior_draws: Points) -> Modes:
    """The mode reached from each start; a start outside the range of the prior draws is moved to its edge."""
    low, high = jnp.min(prior_draws, axis=0), jnp.max(prior_draws, axis=0)
    count = len(posterior.curve_names)
    begin = jax.vmap(lambda z: _with_noise(posterior, bin, z))(jnp.clip(starts, low[:count], high[:count]))
    return jax.vmap(lambda z: _mode(posterior, bin, z, jnp.std(prior_draws, axis=0)))(begin)


def _constrained_modes(posterior: Posterior, bin: Bin, prior_draws: Points) -> Modes:
    """The constrained modes along each coordinate of the shape, searched for from the best prior draw in each of its
    quantiles and at both ends of its range."""
    points = posterior.with_regression(prior_draws[:, : len(posterior.curve_names)])
    prior_sd = jnp.std(prior_draws, axis=0)
    chi2, coordinates = chi2_at(posterior, bin, points), profiled(posterior)
    starts = jnp.concatenate([_profile_starts(posterior, bin, points, chi2, along) for along in coordinates])

    def constrained(start: Vector, along: Array) -> Modes:
        found = _mode(posterior, bin, _with_noise(posterior, bin, start), prior_sd.at[along].set(FIXED_SD))
        return found._replace(factor=_factor(posterior, bin, found.z, prior_sd))

    return jax.vmap(constrained)(starts, jnp.repeat(jnp.array(coordinates), PER_PROFILE))


def _profile_starts(posterior: Posterior, bin: Bin, points: Points, chi2: Float[Array, " point"], along: int) -> Points:
    """Where the constrained modes along one coordinate begin (PER_PROFILE, param): in each of its quantiles, and at
    both ends of its range."""
    found = [best_in_quantiles(points, chi2, QUANTILES, along)]
    for end in (jnp.min, jnp.max):
        there = end(points[:, along])
        moved = chi2_at(posterior, bin, points.at[:, along].set(there))
        found.append(best_in_quantiles(points, moved, ENDS, along).at[:, along].set(there))
    return jnp.concatenate(found)


def _mode(posterior: Posterior, bin: Bin, start: Vector, prior_sd: Vector) -> Modes:
    """The mode near one start: Fisher scoring with the best of a few step lengths, so that the potential never rises.
    The first step only evaluates the start."""
    lengths = jnp.array(STEP_LENGTHS)
    potential = jax.vmap(jax.value_and_grad(lambda z: posterior.potential(z, bin)))

    def step(state: State, _: None) -> tuple[State, None]:
        z, here, gradient = state[:3]
        factor = _factor(posterior, bin, z, prior_sd)
        tries = z - lengths[:, None] * (factor @ (factor.T @ gradient))
        values, gradients = potential(tries)
        best = jnp.argmin(values)
        lower = values[best] < here
        gradient = jnp.where(lower, jnp.nan_to_num(gradients[best], posinf=0.0, neginf=0.0), gradient)
        return (jnp.where(lower, tries[best], z), jnp.where(lower, values[best], here), gradient, factor), None

    first = start, jnp.array(jnp.inf), jnp.zeros_like(start), jnp.eye(start.size)
    (z, value, _, factor), _ = jax.lax.scan(step, first, None, length=SCORING_STEPS + 1)
    return Modes(z, factor, value)


def _with_noise(posterior: Posterior, bin: Bin, z: Vector) -> Vector:
    """The curve's coordinates followed by the noise's, as the noise model guesses them from the residuals there."""
    return jnp.concatenate([z, noise_guess(posterior, bin, z)])


def noise_guess(posterior: Posterior, bin: Bin, z: Vector) -> Vector:
    """The noise's coordinates, as the noise model guesses them from the residuals about the curve at z."""
    rms = jnp.sqrt(jnp.mean(posterior.residual(z, bin) ** 2, where=bin.valid))
    return posterior.unconstrain_noise({**posterior.noise.start(rms, bin), **bin.fixed}, bin)


def _factor(posterior: Posterior, bin: Bin, z: Vector, prior_sd: Vector) -> Factor:
    """The lower triangular factor of the preconditioner at z: L with L L^T the inverse of the curvature there.

    The curve's block of the curvature is Gauss-Newton's, J^T J of the profiled residuals in units of the noise, plus
    the prior's precision, and therefore positive definite everywhere; the noise's block is its Fisher information.
    """
    count = len(posterior.curve_names)
    precision = 1.0 / jnp.maximum(prior_sd, jnp.finfo(prior_sd.dtype).eps) ** 2
    scatter, _, _ = posterior.scatter(z[count:], bin)
    jacobian = jax.jacfwd(lambda c: posterior.residual(c, bin, scatter) / scatter.scale)(z[:count])
    curve = jnp.nan_to_num(jacobian.T @ jacobian, posinf=0.0) + jnp.diag(precision[:count])
    noise = noise_information(posterior, bin, z[count:], prior_sd[count:])
    return jax.scipy.linalg.block_diag(_inverse_root(curve), _inverse_root(noise))


def noise_information(posterior: Posterior, bin: Bin, z: Vector, prior_sd: Vector) -> Factor:
    """Fisher information on the noise's coordinates z, with the prior's precision added to its diagonal.

    A normal distribution's log scale has an information of 2 per point, the correlation r of two neighbours (1 + r^2) /
    (1 - r^2)^2; for other parameters, such as a Student-t distribution's degrees of freedom, only the prior counts.
    """

    def moments(z: Vector) -> tuple[Float[Array, "*tau"], Any]:
        scatter, _, _ = posterior.scatter(z, bin)
        log_scale = jnp.log(scatter.scale * (1.0 if scatter.relative is None else scatter.relative))
        neighbours = None if scatter.correlation is None else scatter.correlation.neighbours()
        return log_scale, neighbours

    slopes, correlation_slopes = jax.jacfwd(moments)(z)
    information = _of_points(slopes, bin) + jnp.diag(jnp.maximum(prior_sd, jnp.finfo(prior_sd.dtype).eps) ** -2)
    if correlation_slopes is not None:
        square = jnp.minimum(moments(z)[1] ** 2, 1.0 - 1e-6)
        information += (correlation_slopes.T * (1.0 + square) / (1.0 - square) ** 2) @ correlation_slopes
    return information


def _of_points(slopes: Float[Array, "*tau param"], bin: Bin) -> Factor:
    """The information of all points, whose log scales have these slopes; of one slope, all have the same."""
    if slopes.ndim == 1:
        return 2.0 * jnp.sum(bin.valid) * slopes[:, None] * slopes
    valid = jnp.where(bin.valid[:, None], slopes, 0.0)
    return 2.0 * valid.T @ valid


def _inverse_root(precision: Factor) -> Factor:
    """Lower triangular L with L L^T = precision^-1, computed after scaling the precision to a unit diagonal."""
    scale = jnp.diagonal(precision) ** -0.5
    upper = jnp.linalg.cholesky((precision * scale[:, None] * scale)[::-1, ::-1])[::-1, ::-1]
    return scale[:, None] * inverse(upper.T) if precision.size else precision


def inverse(factor: Factor) -> Factor:
    """The inverse of a lower triangular matrix."""
    return jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(factor)), lower=True)

"""Adaptive importance sampling of one bin's posterior, before any chain runs: the parts that run on the devices.

The first stage finds the modes and evaluates the potential at two kinds of points. The first kind are prior draws of
the shape, with the noise's coordinates drawn around the noise model's own guess, and any sampled amplitudes around
their regression. The second kind are Student-t draws around the modes and constrained modes (`modes`). Later stages
evaluate the potential at more points, which `importance_weights` draws from mixtures fitted to the weighted points.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesfit.compute.devices import Spread, named
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.least_squares import PointEstimate, Points, Vector
from bayesfit.sample.mixture import FREEDOM
from bayesfit.sample.modes import Modes, find_modes, how_many, inverse, noise_guess, noise_information

CLOUD = 96  # points about each mode
WIDENED = 1.5  # sd of the noise's proposal over its standard error
AT_ONCE = 32  # points evaluated together, so that intermediate results stay in the processor's cache


class FirstStage(NamedTuple):
    """The first stage of one bin: its `modes`, constrained ones among them; the `points`, of which the first are prior
    draws and the others lie around the modes; the `potentials` there; and `log_proposal`, at every point the log
    density of the mixture of all distributions that they come from."""

    modes: Modes
    points: Float[Any, "point param"]
    potentials: Float[Any, " point"]
    log_proposal: Float[Any, " point"]


class Mixed(NamedTuple):
    """What a first stage draws from: so many `prior_draws`, and clouds about modes, at `z` with factors whose inverses
    are `to_u`, and the logarithms of their volumes."""

    prior_draws: int
    z: Float[Array, "mode param"]
    to_u: Float[Array, "mode param param"]
    log_volume: Float[Array, " mode"]

    @classmethod
    def of(cls, modes: Modes, prior_draws: int) -> Mixed:
        """The mixture of prior draws with clouds about these modes."""
        diagonals = jnp.diagonal(modes.factor, axis1=1, axis2=2)
        return cls(prior_draws, modes.z, jax.vmap(inverse)(modes.factor), jnp.sum(jnp.log(diagonals), axis=1))

    def log_density(self, z: Vector, log_prior: Array) -> Float[Array, ""]:
        """The log density at a point where that of the prior draws is `log_prior`. It is written out over the few
        coordinates, so that every operation is one of all modes."""
        apart = [z[j] - self.z[:, j] for j in range(z.size)]
        u = [sum(self.to_u[:, i, j] * apart[j] for j in range(i + 1)) for i in range(z.size)]
        clouds = log_student_t(jnp.stack(u, axis=-1)) - self.log_volume
        numbers = np.array([self.prior_draws, *[CLOUD] * len(self.z)])
        return jax.scipy.special.logsumexp(jnp.append(log_prior, clouds), b=numbers / numbers.sum())


@lru_cache(maxsize=32)
def first_stages(posterior: Posterior) -> Spread:
    """The program that runs `first_stage` for many bins."""
    return Spread(
        lambda bin, starts, prior_draws, u: first_stage(posterior, bin, starts, prior_draws, u),
        named("first stage", posterior.identity),
    )


@lru_cache(maxsize=32)
def evaluations(posterior: Posterior) -> Spread:
    """The program that runs `evaluate` for many bins."""
    return Spread(
        lambda bin, modes, prior_draws, points: evaluate(posterior, bin, modes, prior_draws, points),
        named("evaluate", posterior.identity),
    )


def count_and_size(posterior: Posterior, points: PointEstimate) -> tuple[int, int, int]:
    """The number of modes and the number of points of a first stage, and the number of coordinates."""
    prior_draws, size = points.prior_draws.shape[1:]
    modes = how_many(posterior, points.starts.shape[1])
    return modes, prior_draws + modes * CLOUD, size


def first_stage(posterior: Posterior, bin: Bin, starts: Points, prior_draws: Points, u: Points) -> FirstStage:
    """Modes and points of one bin, from starts of the curve's coordinates, prior draws of all coordinates, and as many
    independent Student-t variables u as there are points. Never raises under vmap: what fails is NaN."""
    modes = find_modes(posterior, bin, starts, prior_draws)
    count, size = modes.z.shape
    about_modes = u[len(prior_draws) :].reshape(count, CLOUD, size)
    clouds = modes.z[:, None] + jnp.einsum("kij,knj->kni", modes.factor, about_modes)
    points = jnp.concatenate([prior_draws, clouds.reshape(-1, size)])
    split = posterior.shape_size
    prior_sd = jnp.std(prior_draws[:, split:], axis=0)
    is_prior_draw = jnp.arange(len(points)) < len(prior_draws)
    mixed = Mixed.of(modes, len(prior_draws))

    def at(point: tuple[Vector, Vector, Array]) -> tuple[Vector, Array, Array]:
        """The point, with the other coordinates of a prior draw redrawn; its potential; and the proposal's density."""
        z, u, is_prior_draw = point
        shape, rest = z[:split], z[split:]
        guess, width = _proposal_of_rest(posterior, bin, shape, prior_sd)
        rest = jnp.where(is_prior_draw, guess + width * u[split:], rest)
        z = jnp.concatenate([shape, rest])
        log_prior = posterior.log_prior_of_shape(z, bin) + _log_density_of_rest(rest, guess, width)
        return z, posterior.potential(z, bin), mixed.log_density(z, log_prior)

    return FirstStage(modes, *jax.lax.map(at, (points, u, is_prior_draw), batch_size=AT_ONCE))


def evaluate(
    posterior: Posterior, bin: Bin, modes: Modes, prior_draws: Points, points: Points
) -> tuple[Float[Array, " point"], Float[Array, " point"]]:
    """The potential, and the log density of the mixture that a first stage's points come from, at any points of one
    bin."""
    split = posterior.shape_size
    prior_sd = jnp.std(prior_draws[:, split:], axis=0)
    mixed = Mixed.of(modes, len(prior_draws))

    def at(z: Vector) -> tuple[Array, Array]:
        proposal = _proposal_of_rest(posterior, bin, z[:split], prior_sd)
        log_prior = posterior.log_prior_of_shape(z, bin) + _log_density_of_rest(z[split:], *proposal)
        return posterior.potential(z, bin), mixed.log_density(z, log_prior)

    return jax.lax.map(at, points, batch_size=AT_ONCE)


def _proposal_of_rest(posterior: Posterior, bin: Bin, shape: Vector, prior_sd: Vector) -> tuple[Vector, Vector]:
    """Location and width of the distribution of a prior draw's other coordinates, given those of its shape. These are
    the amplitudes that are sampled about their regression, and the noise."""
    regression = jnp.zeros(len(posterior.relative))
    guess = noise_guess(posterior, bin, jnp.concatenate([shape, regression]))
    information = noise_information(posterior, bin, guess, prior_sd[regression.size :])
    width = jnp.concatenate([jnp.ones_like(regression), jnp.diagonal(information) ** -0.5])
    return jnp.concatenate([regression, guess]), WIDENED * width


def _log_density_of_rest(rest: Vector, guess: Vector, width: Vector) -> Float[Array, ""]:
    return log_student_t((rest - guess) / width) - jnp.sum(jnp.log(width))


def log_student_t(u: Float[Array, "*any param"]) -> Float[Array, " *any"]:
    """Log density of independent standard Student-t variables with 4 degrees of freedom, summed over the last axis. The
    density of one is 3/8 (1 + u^2 / 4)^(-5/2)."""
    return jnp.sum(math.log(0.375) - 2.5 * jnp.log1p(u**2 / FREEDOM), axis=-1)

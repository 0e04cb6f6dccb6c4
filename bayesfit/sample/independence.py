"""The independence Metropolis-Hastings step, whose proposals come from a mixture that is fitted before sampling.

NUTS moves within a mode, but the posterior of a real bin can have two modes (a decay before the delay window, or after
it), be curved, or have narrow branches in several directions (one decay described as two). After each NUTS transition
one proposal is drawn from a mixture that covers the whole posterior, which moves chains between modes and branches. The
Metropolis-Hastings ratio keeps the target exact whatever the mixture is (Tierney, Ann. Stat. 22, 1701 (1994)).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from bayesfit.sample.mixture import COMPONENTS, FREEDOM, KERNELS, Mixture
from bayesfit.sample.nuts import Number, Point, Vector, choose


class Proposal(NamedTuple):
    """A proposed position, its log density under the mixture, and the logarithm of the uniform number that decides
    whether it is accepted."""

    u: Vector
    log_density: Number
    log_uniform: Number


def propose(key: Key[Array, ""], mixture: Mixture) -> Proposal:
    """One proposal."""
    key_propose, key_accept = jax.random.split(key)
    u = draw(key_propose, mixture)
    return Proposal(u, log_density(u, mixture), jnp.log(jax.random.uniform(key_accept)))


def draw(key: Key[Array, ""], mixture: Mixture) -> Vector:
    """A draw from the mixture.

    A Student-t variable with 4 degrees of freedom is a normal one divided by sqrt(x / 4), where x, being chi-square
    distributed, is -2 times the sum of the logarithms of two uniform numbers.
    """
    key_component, key_normal, key_uniform = jax.random.split(key, 3)
    uniform = jax.random.uniform(key_uniform, (FREEDOM // 2,), minval=jnp.finfo(jnp.result_type(float)).tiny)
    stretch = jnp.sqrt(-2.0 * jnp.sum(jnp.log(uniform)) / FREEDOM)
    step = jax.random.normal(key_normal, mixture.locations.shape[1:]) / stretch
    chosen = jnp.sum(mixture.cumulative < jax.random.uniform(key_component))
    kernel = jnp.minimum(chosen, KERNELS - 1)
    component = jnp.clip(chosen - KERNELS, 0, COMPONENTS - 1)
    from_kernel = mixture.kernels[:, kernel] + mixture.width * step
    from_component = mixture.locations[component] + mixture.factors[component] @ step
    return jnp.where(chosen < KERNELS, from_kernel, from_component)


def log_density(u: Vector, mixture: Mixture) -> Float[Array, ""]:
    """The log density of the mixture, up to a constant that depends only on the dimension.

    It is written out over the few coordinates, so that every operation is one of all kernels or components.
    """
    places = range(u.size)
    to_kernels = sum((u[i] - mixture.kernels[i]) ** 2 for i in places) / mixture.width**2
    apart = [u[j] - mixture.locations[:, j] for j in places]
    rest = (sum(mixture.inverses[:, i, j] * apart[j] for j in range(i + 1)) for i in places)  # inverses are triangular
    to_components = sum(each**2 for each in rest)
    of_kernels, of_components = jnp.split(mixture.peaks, [KERNELS])
    density = jnp.sum(of_kernels * _below_peak(to_kernels, u.size))
    return jnp.log(density + jnp.sum(of_components * _below_peak(to_components, u.size)))


def _below_peak(squares: Float[Array, " component"], size: int) -> Float[Array, " component"]:
    """The density over that at the peak: (1 + r^2 / 4)^(-(4 + d) / 2) at a distance r from a component, in units of its
    factor."""
    x, power = 1.0 + squares / FREEDOM, FREEDOM + size
    return x ** -(power // 2) * (jax.lax.rsqrt(x) if power % 2 else 1.0)


def accept_or_reject(
    point: Point, proposal: Proposal, proposed: Point, mixture: Mixture
) -> tuple[Point, Bool[Array, ""]]:
    """One Metropolis-Hastings step from a point to the proposed one: the point after it, which keeps its momentum, and
    whether the proposal was accepted."""
    log_ratio = point.potential - proposed.potential + log_density(point.u, mixture) - proposal.log_density
    finite = jnp.isfinite(proposed.potential) & jnp.all(jnp.isfinite(proposed.gradient))
    accepted = finite & (proposal.log_uniform < log_ratio)
    return choose(accepted, proposed._replace(momentum=point.momentum), point), accepted

"""Global moves: an independence Metropolis step whose proposals come from a mixture fitted before sampling.

NUTS moves within a mode; posteriors of real bins can have two (a decay before the window, or after it) or be bent. One
proposal after each NUTS transition, from a mixture that has seen the whole posterior, carries chains between them, and
the Metropolis-Hastings ratio keeps the target exact whatever the mixture (Tierney, Ann. Stat. 22, 1701 (1994)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

CENTERS = 64
SHARE_OF_CENTERS = 0.6
FREEDOM = 4


class Mixture(NamedTuple):
    """Multivariate Student-t components with 4 degrees of freedom.

    `means` (component, param), `frames` and `inverses` (component, param, param), `weights` (component,):
    probabilities, `heights` (component,): weight over volume.
    """

    means: Any
    frames: Any
    inverses: Any
    weights: Any
    heights: Any


def mixture(centers: Any, modes: Any, frames: Any, log_masses: Any) -> Mixture:
    """A kernel density estimate about `centers` (CENTERS, param), draws from a posterior whitened to unit covariance,
    joined by one component at each of the `modes` (mode, param), with `frames` and unnormalised log masses.

    The kernels' width is Silverman's: h = (4 / ((d + 2) n))^(1 / (d + 4)).
    """
    size = centers.shape[1]
    width = (4.0 / ((size + 2.0) * CENTERS)) ** (1.0 / (size + 4.0))
    kernels = jnp.broadcast_to(width * jnp.eye(size), (CENTERS, size, size))
    all_frames = jnp.concatenate([kernels, frames])
    masses = jax.nn.softmax(jnp.where(jnp.isfinite(log_masses), log_masses, -jnp.inf))
    masses = jnp.where(jnp.isfinite(masses), masses, 1.0 / masses.size)
    weights = jnp.concatenate([jnp.full(CENTERS, SHARE_OF_CENTERS / CENTERS), (1.0 - SHARE_OF_CENTERS) * masses])
    volumes = jnp.prod(jnp.diagonal(all_frames, axis1=1, axis2=2), axis=1)
    inverses = jnp.concatenate([jnp.broadcast_to(jnp.eye(size) / width, kernels.shape), jnp.linalg.inv(frames)])
    return Mixture(jnp.concatenate([centers, modes]), all_frames, inverses, weights, weights / volumes)


def propose(key: Any, proposals: Mixture) -> Any:
    """A draw (param,) from the mixture."""
    key_component, key_normal, key_uniform = jax.random.split(key, 3)
    component = jnp.searchsorted(jnp.cumsum(proposals.weights), jax.random.uniform(key_component))
    component = jnp.minimum(component, proposals.weights.size - 1)
    uniform = jax.random.uniform(key_uniform, (FREEDOM // 2,), minval=jnp.finfo(jnp.result_type(float)).tiny)
    stretch = jnp.sqrt(-2.0 * jnp.sum(jnp.log(uniform)) / FREEDOM)
    normal = jax.random.normal(key_normal, proposals.means.shape[1:])
    return proposals.means[component] + proposals.frames[component] @ (normal / stretch)


def log_density(u: Any, proposals: Mixture) -> Any:
    """Log density of the mixture at u (param,), up to a constant that depends on the dimension alone."""
    r = jnp.einsum("kij,kj->ki", proposals.inverses, u - proposals.means)
    x = 1.0 + jnp.sum(r**2, axis=1) / FREEDOM
    power = FREEDOM + u.size
    heights = x ** -(power // 2) * (x**-0.5 if power % 2 else 1.0)
    return jnp.log(jnp.sum(proposals.heights * heights))


def jump(key: Any, state: Any, proposals: Mixture, potential: Any) -> tuple[Any, Any]:
    """One Metropolis-Hastings step on a NumPyro `HMCState`: the state after it, and whether it moved."""
    key_propose, key_accept = jax.random.split(key)
    u = propose(key_propose, proposals)
    energy, gradient = jax.value_and_grad(potential)(u)
    log_ratio = state.potential_energy - energy + log_density(state.z, proposals) - log_density(u, proposals)
    finite = jnp.isfinite(energy) & jnp.all(jnp.isfinite(gradient))
    moved = finite & (jnp.log(jax.random.uniform(key_accept)) < log_ratio)
    keep = lambda new, old: jnp.where(moved, new, old)  # noqa: E731
    after = state._replace(
        z=keep(u, state.z),
        z_grad=keep(gradient, state.z_grad),
        potential_energy=keep(energy, state.potential_energy),
    )
    return after, moved

"""Global moves: an independence Metropolis step whose proposals come from a mixture fitted before sampling.

NUTS moves within a mode; posteriors of real bins can have two (a decay before the window, or after it) or be bent. One
proposal after each NUTS transition, from a mixture that has seen the whole posterior, carries chains between them, and
the Metropolis-Hastings ratio keeps the target exact whatever the mixture (Tierney, Ann. Stat. 22, 1701 (1994)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfit._nuts import Point, choose

CENTERS = 64
SHARE_OF_CENTERS = 0.6
FREEDOM = 4


class Mixture(NamedTuple):
    """Multivariate Student-t components with 4 degrees of freedom: alike kernels, and one for each mode.

    `centers` (param, CENTERS) and `width` () are the kernels'; `modes` (mode, param), `frames` and `inverses` (mode,
    param, param) the modes'. Of all components, kernels first: `edges` (component,), cumulative probabilities, and
    `heights` (component,), probability over volume.
    """

    centers: Any
    width: Any
    modes: Any
    frames: Any
    inverses: Any
    edges: Any
    heights: Any


class Offer(NamedTuple):
    """A proposed position u (param,), its log density under the mixture, and the coin that decides on it, as a log."""

    u: Any
    log_density: Any
    log_coin: Any


def mixture(centers: np.ndarray, modes: np.ndarray, frames: np.ndarray, log_masses: np.ndarray) -> Mixture:
    """A kernel density estimate about `centers` (CENTERS, param), draws from a posterior whitened to unit covariance,
    joined by one component at each of the `modes` (mode, param), with `frames` and unnormalised log masses; in NumPy.

    The kernels' width is Silverman's: h = (4 / ((d + 2) n))^(1 / (d + 4)).
    """
    size = centers.shape[1]
    width = (4.0 / ((size + 2.0) * CENTERS)) ** (1.0 / (size + 4.0))
    log_masses = np.where(np.isfinite(log_masses), log_masses, -np.inf)
    masses = np.full(len(modes), 1.0 / len(modes))
    if np.isfinite(log_masses).any():
        masses = np.exp(log_masses - np.max(log_masses))
        masses = masses / np.sum(masses)
    weights = np.concatenate([np.full(CENTERS, SHARE_OF_CENTERS / CENTERS), (1.0 - SHARE_OF_CENTERS) * masses])
    volumes = np.concatenate([np.full(CENTERS, width**size), np.prod(np.diagonal(frames, axis1=1, axis2=2), axis=1)])
    return Mixture(centers.T, np.array(width), modes, frames, inverses(frames), np.cumsum(weights), weights / volumes)


def inverses(frames: np.ndarray) -> np.ndarray:
    """Inverses of lower triangular matrices (any, param, param), NaN where there is none; in NumPy."""
    regular = np.all(np.diagonal(frames, axis1=1, axis2=2) != 0.0, axis=1)
    inverse = np.full(frames.shape, np.nan)
    inverse[regular] = np.linalg.inv(frames[regular])
    return inverse


def propose(key: Any, proposals: Mixture) -> Any:
    """A draw (param,) from the mixture."""
    key_component, key_normal, key_uniform = jax.random.split(key, 3)
    uniform = jax.random.uniform(key_uniform, (FREEDOM // 2,), minval=jnp.finfo(jnp.result_type(float)).tiny)
    stretch = jnp.sqrt(-2.0 * jnp.sum(jnp.log(uniform)) / FREEDOM)
    step = jax.random.normal(key_normal, proposals.modes.shape[1:]) / stretch
    component = jnp.sum(proposals.edges < jax.random.uniform(key_component))
    kernel = jnp.minimum(component, CENTERS - 1)
    mode = jnp.clip(component - CENTERS, 0, len(proposals.modes) - 1)
    near = proposals.centers[:, kernel] + proposals.width * step
    far = proposals.modes[mode] + proposals.frames[mode] @ step
    return jnp.where(component < CENTERS, near, far)


def log_density(u: Any, proposals: Mixture) -> Any:
    """Log density of the mixture at u (param,), up to a constant that depends on the dimension alone."""
    near = jnp.sum((u[:, None] - proposals.centers) ** 2, axis=0) / proposals.width**2
    far = jnp.sum(jnp.sum(proposals.inverses * (u - proposals.modes)[:, None, :], axis=2) ** 2, axis=1)
    x = 1.0 + jnp.concatenate([near, far]) / FREEDOM
    power = FREEDOM + u.size
    heights = x ** -(power // 2) * (jax.lax.rsqrt(x) if power % 2 else 1.0)
    return jnp.log(jnp.sum(proposals.heights * heights))


def offer(key: Any, proposals: Mixture) -> Offer:
    """What one global move is made of."""
    key_propose, key_accept = jax.random.split(key)
    u = propose(key_propose, proposals)
    return Offer(u, log_density(u, proposals), jnp.log(jax.random.uniform(key_accept)))


def jump(point: Point, offer: Offer, value: Any, gradient: Any, proposals: Mixture) -> tuple[Point, Any]:
    """One Metropolis-Hastings step from a point: the point after it, and whether it moved; `value` and `gradient`
    (param,) are those of the potential at the offered position."""
    log_ratio = point.potential - value + log_density(point.u, proposals) - offer.log_density
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
    moved = finite & (offer.log_coin < log_ratio)
    return choose(moved, Point(offer.u, point.momentum, value, gradient), point), moved

"""Global moves: an independence Metropolis step whose proposals come from a mixture fitted before sampling.

NUTS moves within a mode; posteriors of real bins can have two (a decay before the window, or after it), be bent, or
have thin arms in several directions (one decay seen as two). One proposal after each NUTS transition, from a mixture
that has seen the whole posterior, carries chains between them, and the Metropolis-Hastings ratio keeps the target exact
whatever the mixture (Tierney, Ann. Stat. 22, 1701 (1994)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from bayesfit.sample.nuts import Point, choose

CENTERS, ELLIPSES = 64, 16
FREEDOM = 4
FITTED_TO = 2_000  # draws, at most
DRAWS_PER_NUMBER = 10  # of a component's center
FITTING_STEPS = 30
SMALLEST_VARIANCE = 1e-6


class Mixture(NamedTuple):
    """Multivariate Student-t components with 4 degrees of freedom: alike kernels, and ellipses.

    `centers` (param, CENTERS) and `width` () are the kernels'; `middles` (ELLIPSES, param), `frames` and `inverses`
    (ELLIPSES, param, param) the ellipses'. Of all components, kernels first: `edges` (component,), cumulative
    probabilities, and `heights` (component,), probability over volume.
    """

    centers: Any
    width: Any
    middles: Any
    frames: Any
    inverses: Any
    edges: Any
    heights: Any


class Offer(NamedTuple):
    """A proposed position u (param,), its log density under the mixture, and the coin that decides on it, as a log."""

    u: Any
    log_density: Any
    log_coin: Any


class Ellipses(NamedTuple):
    """Components of a mixture, at most ELLIPSES: `middles` (ellipse, param), `frames` (ellipse, param, param), lower
    triangular, and unnormalised `log_masses` (ellipse,); NumPy arrays."""

    middles: np.ndarray
    frames: np.ndarray
    log_masses: np.ndarray


def mixture(centers: np.ndarray, ellipses: Ellipses, share: float) -> Mixture:
    """A kernel density estimate about `centers` (CENTERS, param), draws from a posterior whitened to unit covariance,
    which has this share of the whole, joined by ellipses; in NumPy.

    The kernels' width is Silverman's: h = (4 / ((d + 2) n))^(1 / (d + 4)).
    """
    size = centers.shape[1]
    width = (4.0 / ((size + 2.0) * CENTERS)) ** (1.0 / (size + 4.0))
    middles, frames, masses = _all_ellipses(ellipses)
    share = share if masses.any() else 1.0
    weights = np.concatenate([np.full(CENTERS, share / CENTERS), (1.0 - share) * masses])
    volumes = np.concatenate([np.full(CENTERS, width**size), np.prod(np.diagonal(frames, axis1=1, axis2=2), axis=1)])
    return Mixture(centers.T, np.array(width), middles, frames, inverses(frames), np.cumsum(weights), weights / volumes)


def _all_ellipses(some: Ellipses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middles, frames and masses of ELLIPSES components. Those that are missing, or not numbers, have no mass."""
    size, missing = some.middles.shape[1], ELLIPSES - len(some.middles)
    sound = np.isfinite(some.log_masses) & np.isfinite(some.middles).all(axis=1) & np.isfinite(some.frames).all((1, 2))
    middles, frames = np.zeros((ELLIPSES, size)), np.full((ELLIPSES, size, size), np.eye(size))
    there = np.pad(sound, (0, missing))
    middles[there], frames[there] = some.middles[sound], some.frames[sound]
    masses = np.zeros(ELLIPSES)
    if sound.any():
        masses[there] = special.softmax(some.log_masses[sound])
    return middles, frames, masses


def fit_ellipses(u: np.ndarray, steps: int = FITTING_STEPS, first: int | None = None) -> Ellipses:
    """Normal components fitted to draws u (draw, param) of a posterior whitened to unit covariance, by expectation
    maximisation (Dempster, Laird & Rubin, J. R. Stat. Soc. B 39, 1 (1977)), in NumPy. It begins at evenly spaced draws
    and takes no random numbers. Whose a draw is, is told by so many of its `first` coordinates alone (of None, all), so
    that none of the components is spent on the others, which are alike everywhere."""
    size = u.shape[1]
    u = u[np.linspace(0, len(u) - 1, min(len(u), FITTED_TO)).astype(int)]
    seen, rest = np.split(u, [size if first is None else first], axis=1)
    count = int(np.clip(len(u) // (DRAWS_PER_NUMBER * max(size, 1)), 1, ELLIPSES))
    begin = np.linspace(0, len(u) - 1, count).astype(int)
    found = Ellipses(seen[begin], _equal_frames(count, seen.shape[1]), np.zeros(count))
    for _ in range(steps - 1):
        found = _maximised(seen, found, _shares(seen, found))
    middles = np.concatenate([found.middles, rest[begin]], axis=1)
    return _maximised(u, found._replace(middles=middles), _shares(seen, found))


def _equal_frames(count: int, size: int) -> np.ndarray:
    """Round frames (count, size, size) that together fill the unit ball's volume."""
    return np.full((count, size, size), np.eye(size) * count ** (-1.0 / size))


def drawn(random: np.random.Generator, ellipses: Ellipses, count: int) -> np.ndarray:
    """So many draws (count, param) from Student-t components at these ellipses, in NumPy."""
    middles, frames, masses = _proper(ellipses)
    which = random.choice(ELLIPSES, count, p=masses)
    stretch = np.sqrt(random.chisquare(FREEDOM, (count, 1)) / FREEDOM)
    step = random.standard_normal((count, middles.shape[1])) / stretch
    return middles[which] + np.einsum("nij,nj->ni", frames[which], step)


def log_densities(u: np.ndarray, ellipses: Ellipses) -> np.ndarray:
    """Log density (draw,) of what `drawn` draws from, at u (draw, param), in NumPy."""
    middles, frames, masses = _proper(ellipses)
    size = u.shape[1]
    to_standard = inverses(frames)
    x = 1.0 + np.sum((to_standard @ (u - middles[:, None]).swapaxes(1, 2)) ** 2, axis=1) / FREEDOM
    power = (FREEDOM + size) / 2.0
    constant = special.gammaln(power) - special.gammaln(FREEDOM / 2.0) - 0.5 * size * np.log(FREEDOM * np.pi)
    heights = masses * np.prod(np.diagonal(to_standard, axis1=1, axis2=2), axis=1)
    return constant + special.logsumexp(-power * np.log(x), axis=0, b=heights[:, None])


def _proper(ellipses: Ellipses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middles, frames and masses of ELLIPSES components, alike where none is made of numbers."""
    middles, frames, masses = _all_ellipses(ellipses)
    return middles, frames, masses if masses.any() else np.full(ELLIPSES, 1.0 / ELLIPSES)


def outwards(u: np.ndarray) -> np.ndarray:
    """The same draws (draw, param) by their distance from 0, so that evenly spaced ones are far out in proportion."""
    return u[np.argsort(np.sum(u**2, axis=1), kind="stable")]


def _shares(u: np.ndarray, ellipses: Ellipses) -> np.ndarray:
    """The share (ellipse, draw) of each component in each draw."""
    rest = inverses(ellipses.frames) @ (u - ellipses.middles[:, None]).swapaxes(1, 2)
    volumes = np.sum(np.log(np.diagonal(ellipses.frames, axis1=1, axis2=2)), axis=1)
    logs = (ellipses.log_masses - volumes)[:, None] - 0.5 * np.sum(rest**2, axis=1)
    return special.softmax(logs, axis=0)


def _maximised(u: np.ndarray, before: Ellipses, shares: np.ndarray) -> Ellipses:
    """The components of the greatest likelihood where each has these shares in the draws; one that has none stays where
    it was."""
    least = 1e-3
    counts = np.sum(shares, axis=1) + least
    middles = (shares @ u + least * before.middles) / counts[:, None]
    apart = u - middles[:, None]
    covariances = (shares[..., None] * apart).swapaxes(1, 2) @ apart / counts[:, None, None]
    frames = np.linalg.cholesky(covariances + SMALLEST_VARIANCE * np.eye(u.shape[1]))
    return Ellipses(middles, frames, np.log(counts))


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
    step = jax.random.normal(key_normal, proposals.middles.shape[1:]) / stretch
    component = jnp.sum(proposals.edges < jax.random.uniform(key_component))
    kernel = jnp.minimum(component, CENTERS - 1)
    ellipse = jnp.clip(component - CENTERS, 0, ELLIPSES - 1)
    near = proposals.centers[:, kernel] + proposals.width * step
    far = proposals.middles[ellipse] + proposals.frames[ellipse] @ step
    return jnp.where(component < CENTERS, near, far)


def log_density(u: Any, proposals: Mixture) -> Any:
    """Log density of the mixture at u (param,), up to a constant that depends on the dimension alone."""
    near = jnp.sum((u[:, None] - proposals.centers) ** 2, axis=0) / proposals.width**2
    far = jnp.sum(jnp.sum(proposals.inverses * (u - proposals.middles)[:, None, :], axis=2) ** 2, axis=1)
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

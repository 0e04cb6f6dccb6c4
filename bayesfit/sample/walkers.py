"""Differential evolution: walkers that step along differences of other walkers, for densities that are not worth a
gradient, or whose bins are few. Every other step is a jump to a draw from a mixture, where there is one.

C. J. F. ter Braak, Stat. Comput. 16, 239 (2006). Half of the walkers move at a time, by those of the other half, so
that all of a half are moved at once and the density stays invariant (Foreman-Mackey et al., PASP 125, 306 (2013)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bayesfit.sample.independence import draw, log_density
from bayesfit.sample.mixture import Mixture

WHOLE = 10  # every so many steps are whole differences, from one mode to another
SPREAD = 1e-4  # of a step about its difference, in standard deviations
AT_ONCE = 50  # densities, of which the numbers of walkers are multiples
LENGTH = 2.38  # of a step, times the difference over the root of twice the dimension

Density = Callable[[Float[Array, " param"]], Float[Array, ""]]
Halves = tuple["Walkers", "Walkers"]


class Jumps(NamedTuple):
    """Where jumps lead: to z = location + factor @ u, where u is drawn from a mixture; `to_u` is the factor's
    inverse."""

    location: Float[Any, " param"]
    factor: Float[Any, "param param"]
    to_u: Float[Any, "param param"]
    mixture: Mixture

    def drawn(self, keys: Key[Array, " walker"]) -> Float[Array, "walker param"]:
        """A draw for each key."""
        return self.location + jax.vmap(draw, (0, None))(keys, self.mixture) @ self.factor.T

    def log_density(self, z: Float[Array, "walker param"]) -> Float[Array, " walker"]:
        """Log density of the draws, up to a constant."""
        return jax.vmap(log_density, (0, None))((z - self.location) @ self.to_u.T, self.mixture)


class Walkers(NamedTuple):
    """An even number of walkers, or half of them, and the log density at each."""

    z: Float[Any, "*chain walker param"]
    log_density: Float[Any, "*chain walker"]

    @property
    def halves(self) -> tuple[Walkers, Walkers]:
        """The two halves, of which one moves at a time."""
        middle = len(self.z) // 2
        return Walkers(self.z[:middle], self.log_density[:middle]), Walkers(self.z[middle:], self.log_density[middle:])


def walked(
    density: Density, walkers: Walkers, key: Any, between: tuple[Any, Any], jumps: Jumps | None = None
) -> Walkers:
    """The walkers after steps, by a log density up to a constant.

    Args:
        density: what is not a number is no density.
        walkers: where they are, and the density there (`of_all`).
        key: the data of a random key.
        between: numbers of the first step and of that after the last.
        jumps: where every other step leads to, if anywhere.
    """
    densities = of_all(density)
    length = LENGTH / np.sqrt(2.0 * walkers.z.shape[1])

    def by_differences(halves: Halves, keys: Key[Array, " 2"], number: Int[Array, ""]) -> Halves:
        times = jnp.where(number % WHOLE == 0, 1.0, length)
        first = _moved(keys[0], halves[0], times * _differences(keys[0], halves[1].z), densities)
        return first, _moved(keys[1], halves[1], times * _differences(keys[1], first.z), densities)

    def step(number: Int[Array, ""], halves: Halves) -> Halves:
        keys = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), number))
        if jumps is None:
            return by_differences(halves, keys, number)

        def by_jumps(halves: Halves, keys: Key[Array, " 2"], number: Int[Array, ""]) -> Halves:
            return _jumped(keys[0], halves[0], jumps, densities), _jumped(keys[1], halves[1], jumps, densities)

        return jax.lax.cond(number % 2 == 1, by_jumps, by_differences, halves, keys, number)

    first, second = jax.lax.fori_loop(*between, step, walkers.halves)
    return jax.tree.map(lambda *both: jnp.concatenate(both), first, second)


def of_all(density: Density) -> Callable[[Float[Array, "walker param"]], Float[Array, " walker"]]:
    """The log density at each of many points; none where it is not a number."""

    def densities(z: Float[Array, "walker param"]) -> Float[Array, " walker"]:
        found = jax.lax.map(density, z, batch_size=AT_ONCE)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    return densities


def _jumped(key: Key[Array, ""], half: Walkers, jumps: Jumps, densities: Any) -> Walkers:
    """Half of the walkers after a jump each, which is accepted or rejected (Metropolis-Hastings)."""
    key_draw, key_accept = jax.random.split(key)
    z = jumps.drawn(jax.random.split(key_draw, len(half.z)))
    new = densities(z)
    gain = (new - jumps.log_density(z)) - (half.log_density - jumps.log_density(half.z))
    accepted = (jnp.log(jax.random.uniform(key_accept, new.shape)) < gain) & jnp.isfinite(new)
    return Walkers(jnp.where(accepted[:, None], z, half.z), jnp.where(accepted, new, half.log_density))


def _differences(key: Key[Array, ""], others: Float[Array, "walker param"]) -> Float[Array, "walker param"]:
    """A difference of two different ones of these for each."""
    key_first, key_second = jax.random.split(jax.random.fold_in(key, 0))
    first = jax.random.randint(key_first, (len(others),), 0, len(others))
    second = (first + jax.random.randint(key_second, (len(others),), 1, len(others))) % len(others)
    return others[first] - others[second]


def _moved(key: Key[Array, ""], half: Walkers, steps: Float[Array, "walker param"], densities: Any) -> Walkers:
    """Half of the walkers after these steps, each of which is accepted or rejected (Metropolis)."""
    key_spread, key_accept = jax.random.split(jax.random.fold_in(key, 1))
    spread = SPREAD * jnp.std(steps, axis=0) * jax.random.normal(key_spread, steps.shape)
    z = half.z + steps + spread
    new = densities(z)
    accepted = jnp.log(jax.random.uniform(key_accept, new.shape)) < new - half.log_density
    return Walkers(jnp.where(accepted[:, None], z, half.z), jnp.where(accepted, new, half.log_density))

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
LENGTH = 2.38  # of a step, times the difference over the root of twice the dimension

Density = Callable[[Float[Array, " param"]], Float[Array, ""]]


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


class Half(NamedTuple):
    """Half of the walkers, or all, and the log density at each."""

    z: Float[Array, "walker param"]
    log_density: Float[Array, " walker"]


def walked(
    density: Density,
    z: Float[Array, "walker param"],
    key: Any,
    steps: Int[Array, " step"],
    jumps: Jumps | None = None,
) -> Half:
    """An even number of walkers after these steps, by a log density up to a constant; `key` is the data of a key. What
    is not a number has no density."""
    densities = of_all(density)

    def by_differences(halves: tuple[Half, Half], keys: Key[Array, " 2"], number: Int[Array, ""]) -> tuple[Half, Half]:
        length = jnp.where(number % WHOLE == 0, 1.0, LENGTH / np.sqrt(2.0 * z.shape[1]))
        first = _moved(keys[0], halves[0], length * _differences(keys[0], halves[1].z), densities)
        return first, _moved(keys[1], halves[1], length * _differences(keys[1], first.z), densities)

    def step(halves: tuple[Half, Half], number: Int[Array, ""]) -> tuple[tuple[Half, Half], None]:
        keys = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), number))
        if jumps is None:
            return by_differences(halves, keys, number), None

        def by_jumps(halves: tuple[Half, Half], keys: Key[Array, " 2"], number: Int[Array, ""]) -> tuple[Half, Half]:
            return _jumped(keys[0], halves[0], jumps, densities), _jumped(keys[1], halves[1], jumps, densities)

        return jax.lax.cond(number % 2 == 1, by_jumps, by_differences, halves, keys, number), None

    middle = len(z) // 2
    halves = Half(z[:middle], densities(z[:middle])), Half(z[middle:], densities(z[middle:]))
    (first, second), _ = jax.lax.scan(step, halves, steps)
    return jax.tree.map(lambda *both: jnp.concatenate(both), first, second)


def of_all(density: Density) -> Callable[[Float[Array, "walker param"]], Float[Array, " walker"]]:
    """The log density at each of many points; none where it is not a number."""

    def densities(z: Float[Array, "walker param"]) -> Float[Array, " walker"]:
        found = jax.vmap(density)(z)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    return densities


def _jumped(key: Key[Array, ""], half: Half, jumps: Jumps, densities: Any) -> Half:
    """Half of the walkers after a jump each, which is accepted or rejected (Metropolis-Hastings)."""
    key_draw, key_accept = jax.random.split(key)
    z = jumps.drawn(jax.random.split(key_draw, len(half.z)))
    new = densities(z)
    gain = (new - jumps.log_density(z)) - (half.log_density - jumps.log_density(half.z))
    accepted = (jnp.log(jax.random.uniform(key_accept, new.shape)) < gain) & jnp.isfinite(new)
    return Half(jnp.where(accepted[:, None], z, half.z), jnp.where(accepted, new, half.log_density))


def _differences(key: Key[Array, ""], others: Float[Array, "walker param"]) -> Float[Array, "walker param"]:
    """A difference of two different ones of these for each."""
    key_first, key_second = jax.random.split(jax.random.fold_in(key, 0))
    first = jax.random.randint(key_first, (len(others),), 0, len(others))
    second = (first + jax.random.randint(key_second, (len(others),), 1, len(others))) % len(others)
    return others[first] - others[second]


def _moved(key: Key[Array, ""], half: Half, steps: Float[Array, "walker param"], densities: Any) -> Half:
    """Half of the walkers after these steps, each of which is accepted or rejected (Metropolis)."""
    key_spread, key_accept = jax.random.split(jax.random.fold_in(key, 1))
    spread = SPREAD * jnp.std(steps, axis=0) * jax.random.normal(key_spread, steps.shape)
    z = half.z + steps + spread
    new = densities(z)
    accepted = jnp.log(jax.random.uniform(key_accept, new.shape)) < new - half.log_density
    return Half(jnp.where(accepted[:, None], z, half.z), jnp.where(accepted, new, half.log_density))

"""Errors that correlate exponentially along the delays, whitened by a Kalman filter in O(tau).

The error of a point is sqrt(f) x + sqrt(1 - f) e, where x is an Ornstein-Uhlenbeck process of unit variance along the
delays, whose correlation falls exponentially, e is independent standard normal noise, and f is the share of the
point's variance that is correlated. The process is a Markov chain: given its value at one delay, what follows does not
depend on what came before, so that one pass along the delays is enough (Hartikainen & Sarkka, IEEE MLSP (2010)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

OfDelays = Float[Array, " tau"]


class OrnsteinUhlenbeck(NamedTuple):
    """The correlated errors of one curve, with the gains of their Kalman filter.

    `loading` is the square root of the share of a point's variance that is correlated; `memory` the correlation of the
    process with what it was at the delay before; `gain` how far the estimate of the process moves per unit by which a
    point differs from its prediction; `innovation` the variance of a point given all before it.
    """

    loading: OfDelays
    memory: OfDelays
    gain: OfDelays
    innovation: OfDelays

    def whiten(self, columns: Float[Array, "tau column"]) -> Float[Array, "tau column"]:
        """Columns in coordinates where the noise is independent and of unit variance."""

        def step(means: Array, point: tuple[Array, ...]) -> tuple[Array, Array]:
            value, loading, memory, gain = point
            off = value - loading * memory * means
            return memory * means + gain * off, off

        start = jnp.zeros_like(columns[0])
        _, off = jax.lax.scan(step, start, (columns, self.loading, self.memory, self.gain))
        return off * self.innovation[:, None] ** -0.5

    def whiten_each(self, bin: Any, columns: tuple[OfDelays, ...]) -> tuple[OfDelays, ...]:
        """The same for a few columns, in one pass; 0 where points are not valid."""
        white = jnp.where(bin.valid[:, None], self.whiten(jnp.stack(columns, axis=-1)), 0.0)
        return tuple(white[:, place] for place in range(len(columns)))

    def log_volume(self, bin: Any) -> Float[Array, ""]:
        """Log determinant of the map from white residuals to the correlated ones of the valid points."""
        return 0.5 * jnp.sum(jnp.where(bin.valid, jnp.log(self.innovation), 0.0))

    def color(self, white: OfDelays) -> OfDelays:
        """The column that `whiten` turns into this white one."""

        def step(mean: Array, point: tuple[Array, ...]) -> tuple[Array, Array]:
            off, loading, memory, gain = point
            return memory * mean + gain * off, loading * memory * mean + off

        off = white * jnp.sqrt(self.innovation)
        _, column = jax.lax.scan(step, jnp.zeros_like(white[0]), (off, self.loading, self.memory, self.gain))
        return column

    def neighbours(self) -> OfDelays:
        """Correlation of each point with the one before."""
        before = jnp.concatenate([self.loading[:1], self.loading[:-1]])
        return self.loading * before * self.memory


def ornstein_uhlenbeck(share: OfDelays, memory: OfDelays, valid: Bool[Array, " tau"]) -> OrnsteinUhlenbeck:
    """Run the Kalman filter once, from the share of each point's variance that is correlated and the correlation of the
    process with the delay before; points that are not `valid` carry no information."""
    loading = jnp.sqrt(share)

    def step(variance: Array, point: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        share, loading, memory, valid = point
        variance = memory**2 * variance + (1.0 - memory) * (1.0 + memory)
        total = share * variance + 1.0 - share
        gain = jnp.where(valid, loading * variance / total, 0.0)
        return (1.0 - gain * loading) * variance, (gain, total)

    _, (gain, innovation) = jax.lax.scan(step, jnp.ones_like(share[0]), (share, loading, memory, valid))
    return OrnsteinUhlenbeck(loading, memory, gain, innovation)

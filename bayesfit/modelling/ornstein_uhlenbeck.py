"""Correlated noise as a Markov chain along the delays, whitened by a Kalman filter in O(tau).

Each point is `load` times a process of unit variance plus independent noise of variance 1 - load^2. The process has
correlation `memory` with what it was at the delay before, and goes on from there regardless of what was further back:
an Ornstein-Uhlenbeck process, whose correlation falls exponentially (Hartikainen & Sarkka, IEEE MLSP (2010)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Chain(NamedTuple):
    """All (tau,). `load`: root of the share of a point's variance that is correlated; `memory`; `gain`: what a point
    off its expectation adds to that of the process; `innovation`: variance of a point given all before."""

    load: Any
    memory: Any
    gain: Any
    innovation: Any

    def whiten(self, columns: Any) -> Any:
        """Columns (tau, column) in coordinates where the noise is independent and of unit variance."""

        def step(means: Any, point: tuple[Any, ...]) -> tuple[Any, Any]:
            value, load, memory, gain = point
            off = value - load * memory * means
            return memory * means + gain * off, off

        start = jnp.zeros_like(columns[0])
        _, off = jax.lax.scan(step, start, (columns, self.load, self.memory, self.gain))
        return off * self.innovation[:, None] ** -0.5

    def color(self, white: Any) -> Any:
        """What `whiten` turns into this column (tau,)."""

        def step(mean: Any, point: tuple[Any, ...]) -> tuple[Any, Any]:
            off, load, memory, gain = point
            return memory * mean + gain * off, load * memory * mean + off

        off = white * jnp.sqrt(self.innovation)
        _, column = jax.lax.scan(step, jnp.zeros_like(white[0]), (off, self.load, self.memory, self.gain))
        return column

    def neighbours(self) -> Any:
        """Correlation (tau,) of each point with the one before."""
        before = jnp.concatenate([self.load[:1], self.load[:-1]])
        return self.load * before * self.memory


def chain(share: Any, memory: Any, valid: Any) -> Chain:
    """Filter a chain once, from the share (tau,) of each point's variance that is correlated; points that are not
    `valid` tell nothing."""
    load = jnp.sqrt(share)

    def step(variance: Any, point: tuple[Any, ...]) -> tuple[Any, tuple[Any, Any]]:
        share, load, memory, valid = point
        variance = memory**2 * variance + (1.0 - memory) * (1.0 + memory)
        total = share * variance + 1.0 - share
        gain = jnp.where(valid, load * variance / total, 0.0)
        return (1.0 - gain * load) * variance, (gain, total)

    _, (gain, innovation) = jax.lax.scan(step, jnp.ones_like(share[0]), (share, load, memory, valid))
    return Chain(load, memory, gain, innovation)

"""Waiting for the compiler, whose threads can sleep although there is work.

XLA hands parts of a program to a pool of threads, and waits for them. On a starved machine, two compilations side by
side were seen to wait for ever, while every thread of the pool slept: the call that should have woken one was lost.
What is handed over next wakes them all the same, and they then do what was left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp

EVERY = 60.0  # seconds without a result, after which the compiler is woken


def patiently(future: Future[Any], wake: Callable[[], Any], every: float = EVERY) -> Any:
    """The result of a compilation; whatever else may come of it, too. Each time that so many seconds pass, the compiler
    is woken."""
    while True:
        try:
            return future.result(every)
        except TimeoutError:
            if future.done():  # with a result by now, or with an error of its own of this kind
                return future.result()
            wake()


def small_program() -> Any:
    """A lowered program that no cache holds; to compile it takes some milliseconds."""
    new = float(time.time_ns() % 10**9)
    return jax.jit(lambda x: jnp.sum(jnp.sin(x) * new) + jnp.cos(x)).lower(jax.ShapeDtypeStruct((16,), jnp.float32))

"""Threads in which programs of one device run side by side (see `compute/hardware.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import jax


def side_by_side[Made](calls: Sequence[Callable[[], Made]]) -> list[Made]:
    """What each of these calls returns, each called by the thread of a worker."""
    double = jax.config.jax_enable_x64

    def called(call: Callable[[], Made]) -> Made:
        with jax.enable_x64(double):
            return call()

    return [made.result() for made in [_thread(place).submit(called, call) for place, call in enumerate(calls)]]


@cache
def _thread(worker: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, f"bayesfit worker {worker}")

"""What runs side by side: every local device; or every core, where JAX has left the processor one device, as it does
for whoever calls bayesfit from Python.

A CPU runs the programs that one thread sends to it one after the other, and those of several threads side by side. So
each core is a worker with a thread of its own. All workers of a device run the same compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import jax

from bayesfit.compute.hardware import cores


def workers() -> list[jax.Device]:
    """The device of each worker."""
    devices = jax.local_devices()
    return devices * _cores() if len(devices) == 1 and devices[0].platform == "cpu" else devices


@cache
def _cores() -> int:
    """The number of cores that this process might use at first, since batches are divided by it."""
    return cores()


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

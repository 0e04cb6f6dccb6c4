"""Runs a function written for one item over many, at one fixed width on each local device.

XLA's bits depend on the compiled width and on nothing else, so the width is a constant: short batches are filled up
with copies of their first item, and every device runs the same program. Data that are laid out over the devices are a
list, one part a device.

Tracing happens in the caller's thread and under one lock, since NumPyro keeps its handlers in a global; compilation
runs in the background.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from bayesfit._programs import kept

Parts = list[Any]
CPU_OPTIONS = {"xla_backend_optimization_level": 1}  # compiles in two thirds of the time, and runs as fast (measured)
TRACING = threading.RLock()


class Spread:
    """A function compiled over the leading axis of its arguments; takes and returns parts laid out over the devices.

    `identity` says in words what the function is made of, beside the package's own files; None where that is not known.
    """

    def __init__(self, function: Callable[..., Any], identity: str | None = None) -> None:
        self.jitted, self.identity = jax.jit(jax.vmap(function)), identity
        self.options = CPU_OPTIONS if jax.default_backend() == "cpu" else None
        self.compiled: dict[Any, Future[Any]] = {}
        self.made: dict[Any, Any] = {}

    def start(self, *arguments: Parts) -> Spread:
        """Begin to compile for arguments of these shapes, on the devices that they lie on; returns at once."""
        missing = [share for share in zip(*arguments, strict=True) if _signature(share) not in self.compiled]
        if missing:
            with TRACING:
                program = jax.jit(kept(self.jitted, self.identity, missing[0]), compiler_options=self.options)
                traced = [program.trace(*share) for share in missing]
                lowered = [one.lower() for one in traced]
            pool = ThreadPoolExecutor(len(lowered))
            for share, before, after in zip(missing, traced, lowered, strict=True):
                self.compiled[_signature(share)] = pool.submit(after.compile)
                self.made[_signature(share)] = before.out_info
            pool.shutdown(wait=False)
        return self

    def shapes(self, *arguments: Parts) -> Parts:
        """Shapes and types of what a call with these arguments returns; `start` it first."""
        return [self.made[_signature(share)] for share in zip(*arguments, strict=True)]

    def __call__(self, *arguments: Parts) -> Parts:
        self.start(*arguments)
        return [self.compiled[_signature(share)].result()(*share) for share in zip(*arguments, strict=True)]


def named(role: str, identity: str | None) -> str | None:
    """The identity of a program that plays this role for something of this identity."""
    return None if identity is None else f"{role}: {identity}"


def _signature(share: Any) -> Any:
    """What a compiled program depends on: shapes, types and the device of every array, in their places."""
    leaves, structure = jax.tree.flatten(share)
    return structure, tuple((leaf.shape, leaf.dtype, frozenset(leaf.sharding.device_set)) for leaf in leaves)


def place(tree: Any, count: int | None = None) -> Parts:
    """Copies of arrays, laid out over the local devices, or the first `count` of them, along their leading axis.

    Without the copy, a device that shares the host's memory would see what the host writes there afterwards.
    """
    devices = jax.local_devices()[:count]

    def share(array: Any, part: int) -> Any:
        width = len(array) // len(devices)
        return np.array(array[part * width : (part + 1) * width])

    parts = [jax.tree.map(lambda array, part=part: share(array, part), tree) for part in range(len(devices))]
    return [jax.device_put(part, device) for part, device in zip(parts, devices, strict=True)]


def gather(parts: Parts) -> Any:
    """Parts put together again along the leading axis, as NumPy arrays; waits for the devices."""
    return jax.tree.map(lambda *arrays: np.concatenate([np.asarray(array) for array in arrays]), *parts)


def batches(count: int, width: int, devices: int | None = None) -> Iterator[np.ndarray]:
    """Indices of each batch of `width` a device; the last is filled up with its own first index."""
    total = width * (devices or jax.local_device_count())
    for start in range(0, count, total):
        index = np.arange(start, min(start + total, count))
        yield np.concatenate([index, np.repeat(index[:1], total - index.size)])


def take(tree: Any, index: np.ndarray) -> Any:
    """The items at these indices of the leading axis of every array."""
    return jax.tree.map(lambda array: np.asarray(array)[index], tree)

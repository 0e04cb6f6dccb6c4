"""Runs a function written for one item over many, at one fixed width on each local device.

XLA's bits depend on the compiled width and on nothing else, so the width is a constant: short batches are filled up with
copies of their first item, and every device runs the same program. Data that are laid out over the devices are a list,
one part a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

Parts = list[Any]


def spread(function: Callable[..., Any]) -> Callable[..., Parts]:
    """`function` compiled over the leading axis of its arguments; takes and returns parts laid out over the devices.

    XLA compiles once for each device; the first call does so in parallel.
    """
    run = jax.jit(jax.vmap(function))
    compiled = False

    def on_device(arguments: tuple[Any, ...]) -> Any:
        with jax.enable_x64(True):
            return run(*arguments)

    def over_devices(*arguments: Parts) -> Parts:
        nonlocal compiled
        shares = list(zip(*arguments, strict=True))
        if compiled or len(shares) == 1:
            return [on_device(share) for share in shares]
        with ThreadPoolExecutor(len(shares)) as pool:
            results = list(pool.map(on_device, shares))
        compiled = True
        return results

    return over_devices


def place(tree: Any) -> Parts:
    """Arrays laid out over the local devices along their leading axis."""
    devices = jax.local_devices()

    def share(array: Any, part: int) -> Any:
        width = len(array) // len(devices)
        return array[part * width : (part + 1) * width]

    parts = [jax.tree.map(lambda array, part=part: share(array, part), tree) for part in range(len(devices))]
    return [jax.device_put(part, device) for part, device in zip(parts, devices, strict=True)]


def gather(parts: Parts) -> Any:
    """Parts put together again along the leading axis, as NumPy arrays; waits for the devices."""
    return jax.tree.map(lambda *arrays: np.concatenate([np.asarray(array) for array in arrays]), *parts)


def batches(count: int, width: int) -> Iterator[np.ndarray]:
    """Indices of each batch of `width` a device; the last is filled up with its own first index."""
    total = width * jax.local_device_count()
    for start in range(0, count, total):
        index = np.arange(start, min(start + total, count))
        yield np.concatenate([index, np.repeat(index[:1], total - index.size)])


def take(tree: Any, index: np.ndarray) -> Any:
    """The items at these indices of the leading axis of every array."""
    return jax.tree.map(lambda array: np.asarray(array)[index], tree)

"""Many items, such as bins, passed through a program in batches of a fixed width (see `compute/devices.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int, PyTree

from bayesfit.compute.devices import Spread, gather, give
from bayesfit.compute.hardware import workers
from bayesfit.compute.journal import leave, resumable
from bayesfit.compute.work import Stop

FEW = 64  # items that one worker computes faster than another device loads the program


def devices_for(count: int, width: int) -> int:
    """The number of workers that hold `count` items with `width` for each, at most all of them."""
    return max(1, min(len(workers()), -(-count // width)))


class Batches(NamedTuple):
    """The division of a number of `items` into batches of `width` per device."""

    items: int
    width: int
    devices: int

    def indices(self, first: int = 0) -> Iterator[Int[np.ndarray, " batch"]]:
        """Indices of each batch from the `first` on; the last is filled up with its own first index."""
        total = self.width * self.devices
        for start in range(first * total, self.items, total):
            index = np.arange(start, min(start + total, self.items))
            yield np.concatenate([index, np.repeat(index[:1], total - index.size)])


Arguments = Callable[[Int[np.ndarray, " batch"]], tuple[PyTree, ...]]


def stream(
    program: Spread, batches: Batches, arguments: Arguments, stop: Stop | None = None
) -> Iterator[tuple[Int[np.ndarray, " batch"], PyTree]]:
    """For each batch, its indices and what the program returns for their `arguments`, as NumPy arrays. The devices are
    kept one batch ahead. It ends early if the user asks to stop. Where a journal is kept, it is a stage of its own."""

    def structure() -> PyTree:
        given = [give(argument, batches.devices) for argument in arguments(next(batches.indices()))]
        return jax.tree.structure(program.start(*given).shapes(*given))

    parts = resumable(lambda first: computed(program, batches, arguments, stop, first), structure)
    yield from zip(batches.indices(), parts, strict=False)


def computed(
    program: Spread, batches: Batches, arguments: Arguments, stop: Stop | None = None, first: int = 0
) -> Iterator[PyTree]:
    """What the program returns for each batch from the `first` on, as `stream` does, but past the journal."""
    ahead = None
    for index in batches.indices(first):
        if stop is not None and stop.asked:
            leave(stop)
            break
        made = program(*(give(argument, batches.devices) for argument in arguments(index)))
        if ahead is not None:
            yield gather(ahead)
        ahead = made
    if ahead is not None:
        yield gather(ahead)

"""Products of a series with itself at some delays, summed over pixels and time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bayesfit.backends.choice import NUMPY
from bayesfit.backends.protocol import BackendProtocol
from bayesfit.correlation import compiled, compiled_lags

CHUNK, FEWEST = 64, 16  # frames that are multiplied at a time, single ones and sums of many
EXACT = 2**24  # whole numbers below this one are exact in single precision

Multiply = Callable[[np.ndarray], np.ndarray]


@lru_cache
def of_pixels(backend: BackendProtocol, first: int, window: int) -> Multiply:
    """A function of frames (window + new, pixel): the products of each new frame with those `first` to `window` frames
    before it, summed over the new frames, (pixel, delay). It is written once, for NumPy and JAX.

    In single precision they are exact while they are whole numbers below 2^24.
    """
    xp: Any = backend.xp

    def compute(frames: Any) -> Any:
        late, new = frames[window:, :], frames.shape[0] - window
        early = (frames[window - delay : window - delay + new, :] for delay in range(first, window + 1))
        return xp.stack([xp.sum(each * late, axis=0, dtype=frames.dtype) for each in early])

    if backend.name == NUMPY and compiled.available:
        return partial(_compiled, first, window)
    run = backend.jit(compute)
    return lambda frames: np.asarray(run(frames)).T


def _compiled(first: int, window: int, frames: np.ndarray) -> np.ndarray:
    found = np.zeros((window + 1 - first, frames.shape[1]), frames.dtype)
    compiled_lags.lag_products(frames, first, window, found)
    return found.T


def of_means(starts: Int[np.ndarray, " bin"] | None, first: int, window: int) -> Multiply:
    """A function of sums over blocks (window + new, block + 1), of which the last column is w, how many frames each sum
    is of. It gives (4, block + 1, delay), sums over pairs of frames of

        S w',  w S',  S T' + T S'  and  S S',

    S being the early and S' the late sum over a block, and T that over its static bin; the last column is a block of
    its own, so that the first holds w w' there. The blocks of a static bin follow each other, from `starts` on; without
    these, the last two are left at 0.
    """

    def multiply(sums: Float[np.ndarray, "frame block"]) -> Float[np.ndarray, "4 block delay"]:
        found = np.zeros((4, sums.shape[1], window + 1 - first))
        sums = sums[: window + len(np.trim_zeros(sums[window:, -1], "b"))]  # without what is not filled yet
        found[:2] = np.moveaxis(_with_frames(sums, first, window), 1, 2)
        if starts is not None and compiled.available:
            compiled.bin_products(sums, np.append(starts, sums.shape[1]), first, window, found[2:])
        elif starts is not None:
            late = np.arange(window, len(sums))
            early = late - np.arange(first, window + 1)[:, None]
            size = np.diff(starts, append=sums.shape[1])
            whole = np.repeat(np.add.reduceat(sums, starts, axis=1), size, axis=1)
            found[2] = np.einsum("dtb,tb->bd", sums[early], whole[late])
            found[2] += np.einsum("dtb,tb->bd", whole[early], sums[late])
            found[3] = np.einsum("dtb,tb->bd", sums[early], sums[late])
        return found

    return multiply


def _with_frames(sums: Float[np.ndarray, "frame block"], first: int, window: int) -> Float[np.ndarray, "2 delay block"]:
    """The first two of what `of_means` gives: by what each delay adds and takes away, as if all sums were of as many
    frames as the most of them, and less what is missing where sums are of fewer."""
    weight, late = sums[:, -1], sums[window:].sum(axis=0)
    early = late + np.cumsum(sums[:window][::-1] - sums[-window:][::-1], axis=0)[first - 1 :]
    most = weight.max()
    found = most * np.stack([early, np.broadcast_to(late, early.shape)])
    for place in np.flatnonzero(weight != most):
        delays = np.arange(first, window + 1)
        if place >= window:
            found[0] -= (most - weight[place]) * sums[place - delays]
        delays = delays[(place + delays >= window) & (place + delays < len(sums))]
        found[1, delays - first] -= (most - weight[place]) * sums[place + delays]
    return found

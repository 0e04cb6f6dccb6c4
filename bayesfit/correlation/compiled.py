"""What takes the time of a correlation on a CPU, compiled by Numba where that is installed (extra `bayesfit[frames]`).

Every function here has one of the same meaning in NumPy, to which the tests hold it.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

try:
    from numba import njit
except ImportError:

    def njit(**options: Any) -> Any:  # type: ignore[no-redef]
        """Leaves a function as it is."""
        return lambda function: function


available = importlib.util.find_spec("numba") is not None


@njit(nogil=True, cache=True)
def lag_products(frames: np.ndarray, first: int, window: int, found: np.ndarray) -> None:
    """Add to `found` (delay, pixel) what `lag_products.of_pixels` gives."""
    for late in range(window, frames.shape[0]):
        for delay in range(first, window + 1):
            for pixel in range(frames.shape[1]):
                found[delay - first, pixel] += frames[late, pixel] * frames[late - delay, pixel]


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def gather(
    frames: np.ndarray, places: np.ndarray, edges: np.ndarray, sums: tuple[np.ndarray, np.ndarray], own: np.ndarray
) -> None:
    """The pixels at these `places` of frames (frame, pixel), as `own` (frame, place); and their sums over blocks, whose
    `edges` among the places are given, (frame, block), and over the frames, (place,)."""
    by_block, by_pixel = sums
    for frame in range(frames.shape[0]):
        row = own[frame]
        for place in range(places.size):
            row[place] = frames[frame, places[place]]
        for block in range(edges.size - 1):
            total = 0.0
            for place in range(edges[block], edges[block + 1]):
                total += row[place]
            by_block[frame, block] = total
        for place in range(places.size):
            by_pixel[place] += row[place]


@njit(nogil=True, cache=True)
def bin_products(sums: np.ndarray, edges: np.ndarray, first: int, window: int, found: np.ndarray) -> None:
    """Add to `found` (delay, block) the third of what `lag_products.of_means` gives, for sums over blocks (frame,
    block), the `edges` of whose static bins are given."""
    frames = sums.shape[0]
    whole, partner = np.empty(frames), np.empty((window + 1 - first, frames))
    for each in range(edges.size - 1):
        low, high = edges[each], edges[each + 1]
        for frame in range(frames):
            whole[frame] = sums[frame, low:high].sum()
        partner[:] = 0
        for delay in range(first, window + 1):
            for late in range(window, frames):
                partner[delay - first, late - delay] += whole[late]
                partner[delay - first, late] += whole[late - delay]
        for frame in range(frames):
            if whole[frame] == 0:
                continue
            for delay in range(window + 1 - first):
                factor = partner[delay, frame]
                for block in range(low, high):
                    found[delay, block] += factor * sums[frame, block]


@njit(nogil=True, cache=True)
def order_by_pixel(pixel: np.ndarray, pixels: int) -> np.ndarray:
    """The order in which photons come when sorted by pixel, and otherwise as they are."""
    place = np.zeros(pixels + 1, np.int64)
    for each in pixel:
        place[each + 1] += 1
    for each in range(pixels):
        place[each + 1] += place[each]
    order = np.empty(pixel.size, np.int64)
    for number in range(pixel.size):
        order[place[pixel[number]]] = number
        place[pixel[number]] += 1
    return order


@njit(nogil=True, cache=True)
def advance(
    last: Any,
    new: Any,
    times: tuple[int, int, int, int],
    block: np.ndarray,
    products: np.ndarray,
) -> tuple[Any, Any]:
    """A step of `sparse.SparseLevel`: the `last` events and `new` ones, each sorted by pixel and time, `times` being
    the end of the last ones, that of the new ones, and the first delay and that after the last. Adds to `products`
    (block, delay); returns the events that are last now, and those that are ready for the next level."""
    before, end, first, stop = times
    size = last[0].size + new[0].size
    pixel, time, number = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float64)
    kept = np.zeros(size, np.bool_)
    ready = (np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float64))
    i = j = count = 0
    for place in range(size):
        old = j == new[0].size or (i < last[0].size and last[0][i] <= new[0][j])
        if old:
            pixel[place], time[place], number[place] = last[0][i], last[1][i], last[2][i]
            i += 1
        else:
            pixel[place], time[place], number[place] = new[0][j], new[1][j], new[2][j]
            j += 1
            early = place - 1
            while early >= 0 and pixel[early] == pixel[place] and time[place] - time[early] < stop:
                delay = time[place] - time[early]
                if delay >= first:
                    products[block[pixel[place]], delay - first] += number[place] * number[early]
                early -= 1
        kept[place] = time[place] >= end - stop
        half = time[place] // 2
        if half >= before // 2 and half < end // 2:
            if count and ready[0][count - 1] == pixel[place] and ready[1][count - 1] == half:
                ready[2][count - 1] += number[place]
            else:
                ready[0][count], ready[1][count], ready[2][count] = pixel[place], half, number[place]
                count += 1
    return (pixel[kept], time[kept], number[kept]), (ready[0][:count], ready[1][:count], ready[2][:count])

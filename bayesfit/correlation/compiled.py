"""What takes the time of a correlation on a CPU, compiled by Numba where that is installed (extra `bayesfit[frames]`).

Every function here has one of the same meaning in NumPy, to which the tests hold it.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

try:
    from numba import njit as njit
except ImportError:

    def njit(**options: Any) -> Any:  # type: ignore[no-redef]
        """Leaves a function as it is."""
        return lambda function: function


LINE, FEW = 16, 64  # single-precision numbers in a line of a cache, and lines that are few
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
def gather_series(frames: np.ndarray, places: np.ndarray, own: np.ndarray) -> None:
    """The pixels at these `places` of frames (frame, pixel), as `own` (place, frame)."""
    for begin in range(0, frames.shape[0], LINE):
        for first in range(0, places.size, FEW):  # so that what is written to stays in the cache
            some = places[first : first + FEW]
            for frame in range(begin, min(begin + LINE, frames.shape[0])):
                row, column = frames[frame], own[first : first + FEW, frame]
                for place in range(some.size):
                    column[place] = row[some[place]]


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def sum_series(own: np.ndarray, block: np.ndarray, by_block: np.ndarray, by_pixel: np.ndarray) -> None:
    """Add to `by_block` (block, frame) what is in `own` (place, frame), each place to its `block`; and to `by_pixel`
    (place,) the sums over the frames."""
    for place in range(own.shape[0]):
        row, sums = own[place], by_block[block[place]]
        total = row.dtype.type(0)
        for frame in range(row.size):
            sums[frame] += row[frame]
            total += row[frame]
        by_pixel[place] += total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def multiply(late: np.ndarray, series: np.ndarray, first: int, found: np.ndarray) -> None:
    """Products of `late` numbers, the last ones of their series, with earlier ones of a series as long as theirs."""
    window, new = series.size - late.size, late.size
    done = found.size // 4 * 4
    for place in range(0, done, 4):
        start = window - first - place
        one, two = series[start : start + new], series[start - 1 : start - 1 + new]
        three, four = series[start - 2 : start - 2 + new], series[start - 3 : start - 3 + new]
        of_one = of_two = of_three = of_four = series.dtype.type(0)
        for time in range(new):
            of_one += late[time] * one[time]
            of_two += late[time] * two[time]
            of_three += late[time] * three[time]
            of_four += late[time] * four[time]
        found[place] += of_one
        found[place + 1] += of_two
        found[place + 2] += of_three
        found[place + 3] += of_four
    for place in range(done, found.size):
        early = series[window - first - place : window - first - place + new]
        total = series.dtype.type(0)
        for time in range(new):
            total += late[time] * early[time]
        found[place] += total


@njit(nogil=True, cache=True)
def _multiply(series: np.ndarray, last: np.ndarray, first: int, products: np.ndarray) -> None:
    """Products of new numbers of one pixel with earlier ones, from the delay `first` on. In `series` they follow room
    for the `last` ones, which are put there, and are those of now afterwards."""
    series[: last.size] = last
    multiply(series[last.size :], series, first, products)
    last[:] = series[series.size - last.size :]


@njit(nogil=True, cache=True)
def _halve(new: np.ndarray, before: int, odd: np.ndarray, halved: np.ndarray) -> None:
    """New numbers of one pixel, two by two, into `halved`; `odd` (1,) has the last of the numbers `before` them, if
    that is not in a sum yet, and then the last of all."""
    start = before % 2
    if start:
        halved[0] = odd[0] + new[0]
    rest = halved[start:]
    pairs = new[start : start + 2 * rest.size]
    for time in range(rest.size):
        rest[time] = pairs[2 * time] + pairs[2 * time + 1]
    odd[0] = new[new.size - 1]


@njit(nogil=True, cache=True)
def pass_series(own: np.ndarray, taken: int, single: int, state: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Pass new numbers of pixels through all levels. In `own` (pixel, window + new) they follow room for those that
    came before; `taken` were before them. The `state`, `dense_compiled.DenseCompiled`'s `last`, `odd` and `products`,
    goes on; levels from number `single` on are in double precision."""
    last, odd, products = state
    window, count = last.shape[2], own.shape[1] - last.shape[2]
    narrow, wide = np.empty((2, own.shape[1]), own.dtype), np.empty((2, own.shape[1]))
    for pixel in range(own.shape[0]):
        narrow[0] = own[pixel]
        new, place = count, 0
        for level in range(last.shape[1]):
            before = taken >> level
            if new == 0:
                break
            first = 1 if level == 0 else window // 2 + 1
            found = products[pixel, place : place + window + 1 - first]
            place += found.size
            half = ((before + new) >> 1) - (before >> 1)
            left = odd[pixel, level : level + 1]
            if level < single:
                series = narrow[level % 2]
                _multiply(series[: window + new], last[pixel, level], first, found)
                _halve(series[window : window + new], before, left, narrow[1 - level % 2, window : window + half])
                if level + 1 == single:
                    wide[single % 2] = narrow[single % 2]
            else:
                series = wide[level % 2]
                _multiply(series[: window + new], last[pixel, level], first, found)
                _halve(series[window : window + new], before, left, wide[1 - level % 2, window : window + half])
            new = half


@njit(nogil=True, cache=True)
def bin_products(sums: np.ndarray, edges: np.ndarray, first: int, window: int, found: np.ndarray) -> None:
    """Add to `found` (2, block, delay) the last two of what `lag_products.of_means` gives, for sums over blocks (frame,
    block), the `edges` of whose static bins are given. Sums without a photon take no time."""
    frames, delays = sums.shape[0], window + 1 - first
    whole, partner = np.empty(frames), np.empty((frames, delays))
    for each in range(edges.size - 1):
        low, high = edges[each], edges[each + 1]
        for frame in range(frames):
            whole[frame] = sums[frame, low:high].sum()
        partner[:] = 0
        for late in range(window, frames):
            for place in range(delays):
                partner[late - first - place, place] += whole[late]
                partner[late, place] += whole[late - first - place]
        for frame in range(frames):
            if whole[frame] == 0:
                continue
            of_frame = partner[frame]
            for block in range(low, high):
                own = sums[frame, block]
                if own == 0:
                    continue
                with_bin, with_block = found[0, block], found[1, block]
                for place in range(delays):
                    with_bin[place] += own * of_frame[place]
                if frame >= window:
                    for place in range(delays):
                        with_block[place] += own * sums[frame - first - place, block]


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

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


WIDE = 32  # numbers, to a multiple of which series are filled up with zeros: those that are multiplied at once
available = importlib.util.find_spec("numba") is not None


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


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def sum_of(row: np.ndarray) -> float:
    """The sum of a row, in any order."""
    one = two = three = four = 0.0
    done = row.size // 4 * 4
    for place in range(0, done, 4):
        one += row[place]
        two += row[place + 1]
        three += row[place + 2]
        four += row[place + 3]
    for place in range(done, row.size):
        one += row[place]
    return one + two + three + four


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
def halve(below: np.ndarray, before: int, above: np.ndarray) -> None:
    """Sums of two; `below` are the last two numbers of before and the new ones, and so many there were before."""
    start = 2 - before % 2
    for time in range(above.size):
        above[time] = below[start + 2 * time] + below[start + 2 * time + 1]


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

"""What takes the time of whole frames on a CPU, in tiles of pixels, compiled by Numba."""

from __future__ import annotations

import numpy as np

from bayesfit.correlation.compiled import njit
from bayesfit.correlation.compiled_lags import lag_products
from bayesfit.correlation.compiled_runs import sum_runs


@njit(nogil=True, cache=True)
def gather_tile(frames: np.ndarray, places: np.ndarray, own: np.ndarray) -> None:
    """The pixels at these `places` of frames (frame, pixel), as `own` (frame, place)."""
    low, size = places[0], places.size
    together = places[-1] - low == size - 1
    for frame in range(frames.shape[0]):
        into, row = own[frame, :size], frames[frame]
        if together:
            row = row[low : low + size]
            for place in range(size):
                into[place] = row[place]
        else:
            for place in range(size):
                into[place] = row[places[place]]


@njit(nogil=True, cache=True)
def sum_frames(own: np.ndarray, total: np.ndarray) -> None:
    """Add to `total` (place,) the sums over the frames of `own` (frame, place)."""
    done = own.shape[0] // 4 * 4
    for frame in range(0, done, 4):
        one, two, three, four = own[frame], own[frame + 1], own[frame + 2], own[frame + 3]
        for place in range(total.size):
            total[place] += one[place] + two[place] + three[place] + four[place]
    for frame in range(done, own.shape[0]):
        row = own[frame]
        for place in range(total.size):
            total[place] += row[place]


@njit(nogil=True, cache=True)
def sum_tile(own: np.ndarray, edges: np.ndarray, block: np.ndarray, photons: np.ndarray) -> None:
    """Add to `photons` (block, frame) what is in `own` (frame, place), from one of the `edges` to the next one to the
    `block` of these places."""
    done = sum_runs(own, edges, block, photons)
    for frame in range(done, own.shape[0]):
        for number in range(block.size):
            for place in range(edges[number], edges[number + 1]):
                photons[block[number], frame] += own[frame, place]


@njit(nogil=True, cache=True)
def add_rows(own: np.ndarray, block: np.ndarray, photons: np.ndarray) -> None:
    """Add each row of `own` (number, frame) to that of its block in `photons` (block, frame)."""
    for number in range(block.size):
        row, into = own[number], photons[block[number]]
        for frame in range(into.size):
            into[frame] += row[frame]


@njit(nogil=True, cache=True)
def halve_tile(own: np.ndarray, window: int, before: int, new: int) -> None:
    """Put sums of two frames, so many `new` ones, in place of new frames; so many single ones were before."""
    start = window - before % 2
    for time in range(new):
        one, two, into = own[start + 2 * time], own[start + 2 * time + 1], own[window + time]
        for place in range(into.size):
            into[place] = one[place] + two[place]


@njit(nogil=True, cache=True)
def copy_rows(given: np.ndarray, into: np.ndarray) -> None:
    """Copy an array (frame, place); faster than an assignment of the whole."""
    for frame in range(into.shape[0]):
        row, to = given[frame], into[frame]
        for place in range(to.size):
            to[place] = row[place]


@njit(nogil=True, cache=True)
def multiply_tile(own: np.ndarray, last: np.ndarray, first: int, products: np.ndarray) -> None:
    """Products of new frames of a level with earlier ones. In `own` (window + new, place) they follow room for the
    `last` ones, which are put there, and are those of now afterwards."""
    window = last.shape[0]
    copy_rows(last, own[:window])
    found = np.zeros(products.shape, own.dtype)
    lag_products(own, first, window, found)
    for delay in range(found.shape[0]):
        row, into = found[delay], products[delay]
        for place in range(into.size):
            into[place] += row[place]
    copy_rows(own[own.shape[0] - window :], last)


@njit(nogil=True, cache=True)
def pass_tile(own: np.ndarray, taken: int, single: int, last: np.ndarray, products: np.ndarray) -> None:
    """Pass new frames of pixels through all levels. In `own` (window + new, place) they follow room for those that came
    before; so many were `taken` before them. The `last` ones (level, window, place) and `products` (tau, place) go on;
    levels from number `single` on are in double precision."""
    window, place = last.shape[1], 0
    count = own.shape[0] - window
    wide = np.empty((window + (count >> single) + 2, own.shape[1]))
    for level in range(last.shape[0]):
        before, first = taken >> level, 1 if level == 0 else window // 2 + 1
        new = ((taken + count) >> level) - before
        found = products[place : place + window + 1 - first]
        place += window + 1 - first
        if level > single:
            halve_tile(wide, window, taken >> (level - 1), new)
        elif level > 0:
            halve_tile(own, window, taken >> (level - 1), new)
        if level == single:
            copy_rows(own[window : window + new], wide[window : window + new])
        if level < single:
            multiply_tile(own[: window + new], last[level], first, found)
        else:
            multiply_tile(wide[: window + new], last[level], first, found)


@njit(nogil=True, cache=True)
def take_tiles(
    frames: np.ndarray,
    places: np.ndarray,
    runs: tuple[np.ndarray, np.ndarray, np.ndarray],
    sums: tuple[np.ndarray, np.ndarray],
    levels: tuple[int, int, np.ndarray, np.ndarray],
) -> None:
    """Take the pixels at these `places` of frames (frame, pixel) in, tile by tile.

    `runs` are those of `dense_compiled.Runs`; `sums` are those over blocks (block, frame), in whose precision the first
    levels are, and those over the frames (place,); and `levels` are how many frames were taken before, from which level
    on all is in double precision, and `last` and `products`, as `pass_tile` has them, with an axis of tiles in front.
    """
    edges, block, first = runs
    photons, by_pixel = sums
    taken, single, last, products = levels
    window, tile = last.shape[2], last.shape[3]
    own = np.zeros((window + frames.shape[0], tile), photons.dtype)
    new, total = own[window:], np.empty(tile, photons.dtype)
    for number in range(last.shape[0]):
        start = number * tile
        size = min(tile, places.size - start)
        gather_tile(frames, places[start : start + size], new)
        new[:, size:] = 0
        total[:] = 0
        sum_frames(new, total)
        by_pixel[start : start + size] = total[:size]
        one, end = first[number], first[number + 1]
        sum_tile(new, edges[one : end + 1] - start, block[one:end], photons)
        pass_tile(own, taken, single, last[number], products[number])


@njit(nogil=True, cache=True)
def tiles_over_blocks(
    products: np.ndarray, runs: tuple[np.ndarray, np.ndarray, np.ndarray], found: np.ndarray, squares: np.ndarray
) -> None:
    """Add `products` (tile, tau, place), and their squares, to those of the blocks of these `runs`, (block, tau)."""
    edges, block, first = runs
    for number in range(products.shape[0]):
        one, end = first[number], first[number + 1]
        own = edges[one : end + 1] - number * products.shape[2]
        sum_tile(products[number], own, block[one:end], found)
        sum_tile(products[number] ** 2, own, block[one:end], squares)

"""What takes the time of whole frames on a CPU, in tiles of pixels, compiled by Numba."""

from __future__ import annotations

import numpy as np

from bayesfit.correlation.compiled import njit
from bayesfit.correlation.compiled_lags import lag_products

FRAMES = 8  # whose sums over a block are made at a time


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
    """Add to `photons` (block, frame) what is in `own` (frame, place), from one of the `edges` (unsigned) to the next
    one to the `block` of these places; of eight frames at a time, since such runs are short."""
    done = own.shape[0] // FRAMES * FRAMES
    for frame in range(0, done, FRAMES):
        a, b, c, d = own[frame], own[frame + 1], own[frame + 2], own[frame + 3]
        e, f, g, h = own[frame + 4], own[frame + 5], own[frame + 6], own[frame + 7]
        for number in range(block.size):
            of_a = of_b = of_c = of_d = of_e = of_f = of_g = of_h = own.dtype.type(0)
            for place in range(edges[number], edges[number + 1]):
                of_a += a[place]
                of_b += b[place]
                of_c += c[place]
                of_d += d[place]
                of_e += e[place]
                of_f += f[place]
                of_g += g[place]
                of_h += h[place]
            into = photons[block[number], frame : frame + FRAMES]
            for each, own_sum in enumerate((of_a, of_b, of_c, of_d, of_e, of_f, of_g, of_h)):
                into[each] += own_sum
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
def over_blocks(products: np.ndarray, block: np.ndarray, found: np.ndarray, squares: np.ndarray) -> None:
    """Add `products` (tau, place) of a tile, and their squares, to those of the `block` of each place, (block, tau)."""
    for tau in range(products.shape[0]):
        for place in range(block.size):
            found[block[place], tau] += products[tau, place]
            squares[block[place], tau] += products[tau, place] ** 2


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

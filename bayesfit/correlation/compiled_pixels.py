"""Products of the photons of single pixels, compiled by Numba.

Photons of a pixel are paired one by one up to the level at which a pixel `starts` to see them in many sums of frames;
from there on its series is multiplied whole. `span` and `found` are as in `compiled_photons`. Times are relative to
where new frames begin, which is at a multiple of all sums below a level at which a pixel may start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesfit.correlation.compiled import WIDE, halve, multiply, njit
from bayesfit.correlation.compiled_photons import (
    EXACT,
    ROOM,
    Span,
    bin_sums,
    fill_levels,
    largest,
    level_of,
    scatter,
)
from bayesfit.correlation.compiled_sorting import sort_pixels

OFTEN = 6  # from one photon in so many sums on, series are multiplied whole


@njit(nogil=True, cache=True)
def pair_photons(own: Any, span: Span, start: int, lowest: np.ndarray, found: np.ndarray) -> None:
    """Add the products of the photons of a pixel, their times and numbers, at levels below `start`. `lowest` is the
    first level at which photons so many frames apart may be near enough."""
    time, number = own
    per_level, length = span[2], span[1] - span[0]
    horizon = ((2 * per_level + 1) << start) >> 1 if start else 0
    for late in range(time.size):
        if time[late] < 0:
            continue
        early = late - 1
        while early >= 0 and time[late] - time[early] < horizon:
            lag = time[late] - time[early]
            level = lowest[lag]
            while level < start and (level == 0 or lag >> level >= per_level):
                delay = (time[late] >> level) - (time[early] >> level)
                first = 1 if level == 0 else per_level + 1
                if first <= delay <= 2 * per_level and time[late] >> level < length >> level:
                    found[level * per_level + delay - 1] += float(number[late]) * float(number[early])
                level += 1
            early -= 1


@njit(nogil=True, cache=True)
def whole_series(own: Any, carried: Any, span: Span, starts: tuple[int, int], work: Any) -> int:
    """Add the products of a pixel's series from the level `starts[0]` on. What is `carried` from before are the last
    numbers of levels from `starts[1]` on: level times window plus place, and the number. `work` has two rows, what is
    found, and room for what is carried on, whose size is returned."""
    rows, found, keys, numbers = work
    window, next_one, kept = 2 * span[2], 0, 0
    for level in range(starts[0], span[3]):
        _, new, first, place = level_of(span, level)
        row, end = rows[level % 2], window + new
        row[:window] = 0
        if level < starts[1]:
            scatter(own, level, window, (0, window), row)
        while next_one < carried[0].size and carried[0][next_one] < (level + 1) * window:
            row[carried[0][next_one] - level * window] = carried[1][next_one]
            next_one += 1
        if level == starts[0]:
            row[window:end] = 0
            scatter(own, level, window, (window, end), row)
        else:
            halve(rows[1 - level % 2][window - 2 :], span[0] >> (level - 1), row[window:end])
        if span[1] >> level > first:
            padded = window + (new + WIDE - 1) // WIDE * WIDE
            row[end:padded] = 0
            multiply(row[window:padded], row[:padded], first, found[place : place + window + 1 - first])
        for each in range(window if keys.size else 0):
            if row[new + each] != 0:
                keys[kept], numbers[kept] = level * window + each, row[new + each]
                kept += 1
    return kept


@njit(nogil=True, cache=True)
def start_of(photons: int, span: Span, before: int) -> int:
    """The level at which a pixel with so many new photons starts to see them in many sums."""
    start = before
    while start > 0 and photons << (start - 1) >= (span[1] - span[0]) // OFTEN and photons > 0:
        start -= 1
    return start


@njit(nogil=True, cache=True)
def single_pixel(own: Any, carried: Any, span: Span, start: tuple[int, int, np.ndarray], work: Any) -> int:
    """Products of a pixel at all levels; as `whole_series`, with rows in single and in double precision."""
    single, double, found, keys, numbers, whole_numbers = work
    pair_photons(own, span, start[0], start[2], found)
    total, before = own[1].sum(), carried[1].sum()
    if whole_numbers and total * (total + before) < EXACT:
        return whole_series(own, carried, span, start[:2], (single, found, keys, numbers))
    return whole_series(own, carried, span, start[:2], (double, found, keys, numbers))


@njit(nogil=True, cache=True)
def room_for(more: int, used: int, keys: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same two arrays with room for more."""
    if used + more <= keys.size:
        return keys, numbers
    longer = np.empty(2 * (used + more), keys.dtype), np.empty(2 * (used + more), numbers.dtype)
    longer[0][:used], longer[1][:used] = keys[:used], numbers[:used]
    return longer


@njit(nogil=True, cache=True)
def pixels_of_block(own: Any, places: tuple[int, int, int], settings: Any, sums: Any, carry: Any) -> Any:
    """Products of the pixels of a block, by its photons sorted by pixel, and where those of each pixel end; `places`
    are the block, its first pixel and how many it has. Returns what is carried on (key, number), and how much it is."""
    time, number, ends = own
    block, first, count = places
    span, lowest, whole_numbers, last = settings
    pairs, image, kept, squares, starts, rows = sums
    pointer, key_before, number_before, size, (keys, numbers, used) = carry
    found, most = np.empty(pairs.shape[1]), 2 * span[2] * span[3]
    for each in range(count):
        begin, end, pixel = 0 if each == 0 else ends[each - 1], ends[each], first + each
        low, high = pointer[pixel], pointer[pixel + 1]
        if begin == end and low == high and (not last or kept.size == 0):
            continue
        found[:] = 0
        keys, numbers = room_for(0 if last else most, used, keys, numbers)
        new = begin + np.searchsorted(time[begin:end], 0)
        for photon in range(new, end):
            image[pixel] += number[photon]
        before = starts[pixel]
        starts[pixel] = start_of(end - new, span, before)
        room = 0 if last else most
        work = rows[0], rows[1], found, keys[used : used + room], numbers[used : used + room], whole_numbers
        carried = key_before[low:high], number_before[low:high]
        start = starts[pixel], before, lowest
        size[pixel] = single_pixel((time[begin:end], number[begin:end]), carried, span, start, work)
        used += size[pixel]
        for delay in range(found.size):
            pairs[block, delay] += found[delay]
        if kept.size:
            for delay in range(found.size):
                kept[pixel, delay] += found[delay]
                found[delay] = kept[pixel, delay]
        for delay in range(found.size if last else 0):
            squares[block, delay] += found[delay] ** 2
    return keys, numbers, used


@njit(nogil=True, cache=True)
def correlate_part(blocks: tuple[int, int], photons: Any, layout: Any, settings: Any, sums: Any) -> Any:
    """All products and sums of some blocks. `photons` (time, place, number) are sorted by block, from `edges` on.
    Returns what is carried on of each pixel (key, number)."""
    edges, firsts, bins = layout
    span, few, by_frame, offsets, missing, of_pixels = settings
    means, last, last_now, by_pixel, carry = sums
    row, whole = np.zeros(offsets[-1]), np.zeros(offsets[-1] if by_frame else 0)
    single, most = np.zeros(whole.size, np.float32), np.zeros(0)
    longest = 2 * span[2] + span[1] - span[0] + WIDE
    rows = np.empty((2, longest), np.float32), np.empty((2, longest), np.float64)
    keys, numbers, used, of_bin = np.empty(ROOM, np.int32), np.empty(ROOM), 0, -1
    for block in range(blocks[0], blocks[1]):
        low, high = edges[block], edges[block + 1]
        if by_frame and bins[0][block] != of_bin:
            of_bin = bins[0][block]
            first, end = edges[of_bin], edges[bins[1][block]]
            before = last[of_bin : bins[1][block]].sum(axis=0)
            fill_levels(
                (photons[0][first:end], photons[2][first:end]), (whole, offsets, before, before.copy()), span, 0
            )
            single[:] = whole
            most = largest(whole, offsets)
        time, number = photons[0][low:high], photons[2][low:high]
        new = np.searchsorted(time, 0)
        own_new = time[new:], number[new:]
        fill_levels(own_new, (row, offsets, last[block], last_now[block]), span, few)
        rows_of = row, (whole, single, most), offsets, (last[block], last_now[block]), missing
        bin_sums(own_new, rows_of, span, few, means[:, block])
        place, count = firsts[block], firsts[block + 1] - firsts[block]
        own = np.empty(high - low, time.dtype), np.empty(high - low, number.dtype)
        ends = np.empty(count + 1, np.int64)
        sort_pixels((time, photons[1][low:high], number), place, ends, own)
        state = carry[0], carry[1], carry[2], carry[3], (keys, numbers, used)
        where = block, place, count
        keys, numbers, used = pixels_of_block((own[0], own[1], ends), where, of_pixels, (*by_pixel, rows), state)
    return keys[:used], numbers[:used]

"""What takes the time where few pixels see photons, compiled by Numba: photons sorted by block, their products, and
the sums over blocks.

A series has room for the last `window` numbers of before, then new ones, at every level; `offsets` say where each level
begins. `span` is where in time new frames begin and end, the delays of a level, and how many levels there are. Delays
of level 0 are 1 to window, those of others from half the window on; `found` holds them level after level.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesfit.correlation.compiled import njit

ROOM = 4096  # numbers that are kept of a part, at first
EXACT = 2.0**24  # whole numbers below are exact in single precision
Span = tuple[int, int, int, int]


@njit(nogil=True, cache=True)
def select(photons: Any, place_of: np.ndarray, whole: np.ndarray, room: Any, by_frame: np.ndarray) -> int:
    """Put the photons (frame, pixel, number) of used pixels in whole frames into `room` (frame, place, number), the
    first frame of which has a number; how many they are. Adds to `by_frame` the sum over each frame."""
    frame, pixel, number = photons
    frames, places, numbers, first = room
    count = 0
    for each in range(frame.size):
        place = place_of[pixel[each]]
        if place >= 0 and whole[frame[each]] and number[each] > 0:
            frames[count], places[count], numbers[count] = frame[each] + first, place, number[each]
            by_frame[frame[each]] += number[each]
            count += 1
    return count


@njit(nogil=True, cache=True)
def count_blocks(place: np.ndarray, block: np.ndarray, found: np.ndarray) -> None:
    """Count the photons of each block."""
    for each in place:
        found[block[each]] += 1


@njit(nogil=True, cache=True)
def sort_blocks(photons: Any, block: np.ndarray, next_one: np.ndarray, into: Any) -> None:
    """Put photons (frame, place, number) where the `next_one` of their block belongs, in the order in which they are."""
    frame, place, number = photons
    for each in range(place.size):
        where = next_one[block[place[each]]]
        next_one[block[place[each]]] = where + 1
        into[0][where], into[1][where], into[2][where] = frame[each], place[each], number[each]


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
def level_of(span: Span, level: int) -> tuple[int, int, int, int]:
    """The first new sum of a level, how many are new, its first delay, and the place of that among all delays."""
    begin, end, per_level, _ = span
    first = 1 if level == 0 else per_level + 1
    return begin >> level, (end >> level) - (begin >> level), first, 0 if level == 0 else (level + 1) * per_level


@njit(nogil=True, cache=True)
def halve(below: np.ndarray, before: int, above: np.ndarray) -> None:
    """Sums of two; `below` are the last two numbers of before and the new ones, and so many there were before."""
    start = 2 - before % 2
    for time in range(above.size):
        above[time] = below[start + 2 * time] + below[start + 2 * time + 1]


@njit(nogil=True, cache=True)
def fill_levels(row: np.ndarray, offsets: np.ndarray, span: Span, last: np.ndarray) -> None:
    """Fill the series of all levels, of which `row` has the new numbers of level 0, and `last` (level, window) the last
    ones of before, in whose place come those of now."""
    window, below = 2 * span[2], 0
    for level in range(span[3]):
        _, new, _, _ = level_of(span, level)
        start = offsets[level] + window
        row[start - window : start] = last[level]
        if level > 0:
            halve(row[below - 2 :], span[0] >> (level - 1), row[start : start + new])
        last[level] = row[start + new - window : start + new]
        below = start


@njit(nogil=True, cache=True)
def with_frames(row: np.ndarray, missing: Any, numbers: Any, early: np.ndarray, late: np.ndarray) -> None:
    """Add sums over pairs of S w' and w S' of a level: by what each delay adds to the sum of all S and takes away, and
    by the sums of frames of which some are `missing`, their places and how many those are."""
    window, first, weight = numbers
    new, total = row.size - window, row[window:].sum()
    run = total
    for delay in range(1, window + 1):
        run += row[window - delay] - row[window + new - delay]
        if delay >= first:
            early[delay - first] += weight * run
            late[delay - first] += weight * total
    for each in range(missing[0].size):
        place, lost = missing[0][each], missing[1][each]
        for delay in range(first, window + 1):
            if place >= window:
                early[delay - first] -= lost * row[place - delay]
            if window <= place + delay < row.size:
                late[delay - first] -= lost * row[place + delay]


@njit(nogil=True, cache=True)
def bins_by_photons(own: Any, row: np.ndarray, whole: np.ndarray, first: int, found: np.ndarray) -> None:
    """Add to `found` (2, delay) sums over pairs of S T' + T S' and S S', by the new photons of a block, their places in
    its series and numbers; S is the block's `row`, with zeros after its end, and T the `whole` bin's."""
    place, number = own
    for delay in range(0, found.shape[1], 2):
        one, two = first + delay, min(first + delay + 1, first + found.shape[1] - 1)
        with_one = with_two = own_one = own_two = 0.0
        for each in range(place.size):
            at, photons = place[each], number[each]
            with_one += photons * (whole[at - one] + whole[at + one])
            with_two += photons * (whole[at - two] + whole[at + two])
            own_one += photons * row[at - one]
            own_two += photons * row[at - two]
        found[0, delay] += with_one
        found[1, delay] += own_one
        if two > one:
            found[0, delay + 1] += with_two
            found[1, delay + 1] += own_two


@njit(nogil=True, cache=True)
def bins_by_last(row: np.ndarray, whole: np.ndarray, window: int, first: int, found: np.ndarray) -> None:
    """Add the pairs S T' of which only the late sum is new."""
    for place in range(window):
        for delay in range(max(first, window - place), window + 1):
            found[delay - first] += row[place] * whole[place + delay]


@njit(nogil=True, cache=True)
def bin_sums(own: Any, rows: Any, span: Span, few: int, found: np.ndarray) -> None:
    """Add to `found` (4, delay) what `lag_products.of_means` gives of one block: of its photons up to the level `few`,
    and of its series from there on. `rows` are the series of the block and of its bin, where each level begins, and the
    places and numbers of missing frames of each level."""
    row, whole, offsets, missing = rows
    window = 2 * span[2]
    for level in range(span[3]):
        _, new, first, place = level_of(span, level)
        delays = window + 1 - first
        low, end = offsets[level], offsets[level] + window + new
        sums = found[:, place : place + delays]
        lost = missing[0][missing[2][level] : missing[2][level + 1]], missing[1][missing[2][level] : missing[2][level + 1]]
        with_frames(row[low:end], lost, (window, first, 2.0**level), sums[0], sums[1])
        if whole.size == 0:
            continue
        if level < few:
            at = (own[0] >> level) + window
            kept = at < window + new
            bins_by_photons((at[kept], own[1][kept]), row[low:], whole[low:], first, sums[2:])
            bins_by_last(row[low:end], whole[low:], window, first, sums[2])
        else:
            multiply(whole[low + window : end], row[low:end], first, sums[2])
            multiply(row[low + window : end], whole[low:end], first, sums[2])
            multiply(row[low + window : end], row[low:end], first, sums[3])

"""What takes the time where few pixels see photons, compiled by Numba: series of sums over blocks.

A series has room for the last `window` numbers of before, then new ones, at every level; `offsets` say where each level
begins. `span` is where in time new frames begin and end, the delays of a level, and how many levels there are. Delays
of level 0 are 1 to window, those of others from half the window on; `found` holds them level after level.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesfit.correlation.compiled import halve, multiply, njit, sum_of

ROOM = 4096  # numbers that are kept of a part, at first
EXACT = 2.0**24  # whole numbers below are exact in single precision
Span = tuple[int, int, int, int]


@njit(nogil=True, cache=True)
def level_of(span: Span, level: int) -> tuple[int, int, int, int]:
    """The first new sum of a level, how many are new, its first delay, and the place of that among all delays."""
    begin, end, per_level, _ = span
    first = 1 if level == 0 else per_level + 1
    return begin >> level, (end >> level) - (begin >> level), first, 0 if level == 0 else (level + 1) * per_level


@njit(nogil=True, cache=True)
def scatter(own: Any, level: int, window: int, ends: tuple[int, int], row: np.ndarray) -> None:
    """Add photons, their times and numbers, to the sums of a level, those that belong between two places."""
    time, number = own
    for each in range(time.size):
        place = (time[each] >> level) + window
        if ends[0] <= place < ends[1]:
            row[place] += number[each]


@njit(nogil=True, cache=True)
def last_sums(own: Any, level: int, new: int, before: np.ndarray, now: np.ndarray) -> None:
    """The last sums of a level of which so many are new, by new photons in order of time."""
    time, number = own
    now[:] = 0
    for place in range(max(now.size - new, 0)):
        now[place] = before[new + place]
    for each in range(time.size - 1, -1, -1):
        place = (time[each] >> level) + now.size - new
        if place < 0:
            break
        if place < now.size:
            now[place] += number[each]


@njit(nogil=True, cache=True)
def fill_levels(own: Any, rows: Any, span: Span, few: int) -> None:
    """Fill the series of all levels from the level `few` on, by new photons; `rows` are the row, where each level
    begins, and the last sums of each level of before and of now, those of lower levels, too."""
    row, offsets, before, now = rows
    window = 2 * span[2]
    for level in range(span[3]):
        _, new, _, _ = level_of(span, level)
        low, start = offsets[level], offsets[level] + window
        if level < few:
            last_sums(own, level, new, before[level], now[level])
            continue
        row[low:start] = before[level]
        if level == few:
            row[start : start + new] = 0
            scatter(own, level, window, (window, window + new), row[low:])
        else:
            halve(row[offsets[level - 1] + window - 2 :], span[0] >> (level - 1), row[start : start + new])
        now[level] = row[low + new : start + new]


@njit(nogil=True, cache=True)
def with_frames(total: float, last: Any, numbers: Any, early: np.ndarray, late: np.ndarray) -> None:
    """Add sums over pairs of S w' and w S' of a level if no frame is missing, by what each delay adds to the `total` of
    all new S and takes away; `last` are the last sums of before and of now."""
    window, first, weight = numbers
    run = total
    for delay in range(1, window + 1):
        run += last[0][window - delay] - last[1][window - delay]
        if delay >= first:
            early[delay - first] += weight * run
            late[delay - first] += weight * total


@njit(nogil=True, cache=True)
def without_missing(row: np.ndarray, missing: Any, numbers: Any, early: np.ndarray, late: np.ndarray) -> None:
    """Take from sums over pairs of S w' and w S' those with `missing` frames, their places and how many those are, by
    the series of a block."""
    window, first = numbers
    for each in range(missing[0].size):
        place, lost = missing[0][each], missing[1][each]
        for delay in range(first, window + 1):
            if place >= window:
                early[delay - first] -= lost * row[place - delay]
            if window <= place + delay < row.size:
                late[delay - first] -= lost * row[place + delay]


@njit(nogil=True, cache=True)
def photons_without_missing(own: Any, missing: Any, numbers: Any, early: np.ndarray, late: np.ndarray) -> None:
    """The same, by photons of a block in order of time, their places in its series; the first are the last sums of
    before."""
    window, first = numbers
    at, number = own
    for each in range(missing[0].size):
        place, lost = missing[0][each], missing[1][each]
        for photon in range(np.searchsorted(at, place - window), at.size):
            delay = place - at[photon]
            if delay < -window:
                break
            if delay >= first and place >= window:
                early[delay - first] -= lost * number[photon]
            if delay <= -first and at[photon] >= window:
                late[-delay - first] -= lost * number[photon]


@njit(nogil=True, cache=True)
def bins_by_photons(own: Any, whole: np.ndarray, window: int, first: int, found: np.ndarray) -> None:
    """Add to `found` sums over pairs of S T' + T S' by photons of a block, their places and numbers, of which the first
    are the last sums of before; T is the series of the `whole` bin, with zeros after its end."""
    place, number = own
    old = np.searchsorted(place, window)
    for each in range(old):
        for delay in range(max(first, window - place[each]), window + 1):
            found[delay - first] += number[each] * whole[place[each] + delay]
    new, numbers, end = place[old:], number[old:], first + found.size - 1
    sums = np.zeros(found.size + 3)
    for delay in range(0, found.size, 4):
        one = first + delay
        two, three, four = min(one + 1, end), min(one + 2, end), min(one + 3, end)
        of_one = of_two = of_three = of_four = 0.0
        for each in range(new.size):
            at, photons = new[each], numbers[each]
            of_one += photons * (whole[at - one] + whole[at + one])
            of_two += photons * (whole[at - two] + whole[at + two])
            of_three += photons * (whole[at - three] + whole[at + three])
            of_four += photons * (whole[at - four] + whole[at + four])
        sums[delay] += of_one
        sums[delay + 1] += of_two
        sums[delay + 2] += of_three
        sums[delay + 3] += of_four
    found += sums[: found.size]


@njit(nogil=True, cache=True)
def pairs_by_photons(own: Any, window: int, first: int, found: np.ndarray) -> None:
    """Add to `found` sums over pairs of S S' by photons in order of time, as `bins_by_photons`."""
    place, number = own
    for late in range(np.searchsorted(place, window), place.size):
        early = late - 1
        while early >= 0 and place[late] - place[early] <= window:
            delay = place[late] - place[early]
            if delay >= first:
                found[delay - first] += float(number[late]) * float(number[early])
            early -= 1


@njit(nogil=True, cache=True)
def with_last(own: Any, level: int, new: int, before: np.ndarray, room: Any) -> Any:
    """Places in the series of a level and numbers of the last sums of before and of new photons, in their `room`."""
    count, window = 0, before.size
    for place in range(window):
        if before[place] != 0:
            room[0][count], room[1][count] = place, before[place]
            count += 1
    for each in range(own[0].size):
        place = (own[0][each] >> level) + window
        if place < window + new:
            room[0][count], room[1][count] = place, own[1][each]
            count += 1
    return room[0][:count], room[1][:count]


@njit(nogil=True, cache=True)
def largest(row: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The largest number of each level of a series."""
    return np.array([row[offsets[level] : offsets[level + 1]].max() for level in range(offsets.size - 1)])


@njit(nogil=True, cache=True)
def frame_sums(own: Any, row: np.ndarray, last: Any, numbers: Any, found: np.ndarray) -> Any:
    """Add to `found` sums over pairs of S w' and w S' of a level, by photons where there are any, and else by a row."""
    level, first, lost = numbers
    window = last[0].size
    if own[0].size:
        total = sum_of(own[1]) - sum_of(last[0])
        photons_without_missing(own, lost, (window, first), found[0], found[1])
    else:
        total = sum_of(row[window:])
        without_missing(row, lost, (window, first), found[0], found[1])
    with_frames(total, last, (window, first, 2.0**level), found[0], found[1])
    return total


@njit(nogil=True, cache=True)
def multiply_all(row: np.ndarray, whole: np.ndarray, window: int, first: int, found: np.ndarray) -> None:
    """Add sums over pairs of S T' + T S' and S S'."""
    multiply(whole[window:], row, first, found[0])
    multiply(row[window:], whole, first, found[0])
    multiply(row[window:], row, first, found[1])


@njit(nogil=True, cache=True)
def bin_sums(own: Any, rows: Any, span: Span, few: int, found: np.ndarray) -> None:
    """Add to `found` (4, delay) what `lag_products.of_means` gives of one block: of its photons up to the level `few`,
    and of its series from there on. `rows` are the series of the block and of its bin, this in single precision, too,
    with the largest number of each level, where each level begins, the last sums of before and of now, and the places
    and numbers of missing frames of each level."""
    row, (whole, single, most), offsets, (before, now), missing = rows
    window = 2 * span[2]
    room = np.empty(own[0].size + window, np.int64), np.empty(own[0].size + window)
    for level in range(span[3]):
        _, new, first, place = level_of(span, level)
        low, end = offsets[level], offsets[level] + window + new
        sums, of_level = found[:, place : place + window + 1 - first], slice(missing[2][level], missing[2][level + 1])
        numbers = level, first, (missing[0][of_level], missing[1][of_level])
        photons = room[0][:0], room[1][:0]
        if level < few:
            photons = with_last(own, level, new, before[level], room)
        total = frame_sums(photons, row[low:end], (before[level], now[level]), numbers, sums[:2])
        if whole.size == 0:
            continue
        if level < few:
            bins_by_photons(photons, whole[low:], window, first, sums[2])
            pairs_by_photons(photons, window, first, sums[3])
        elif (total + before[level].sum()) * most[level] < EXACT:
            multiply_all(row[low:end].astype(np.float32), single[low:end], window, first, sums[2:])
        else:
            multiply_all(row[low:end], whole[low:end], window, first, sums[2:])

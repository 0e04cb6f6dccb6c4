"""Photons of used pixels, sorted by blocks of pixels and by pixel, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesfit.correlation.compiled import njit


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
    """Put photons (frame, place, number) where the `next_one` of their block belongs, as they come."""
    frame, place, number = photons
    for each in range(place.size):
        where = next_one[block[place[each]]]
        next_one[block[place[each]]] = where + 1
        into[0][where], into[1][where], into[2][where] = frame[each], place[each], number[each]


@njit(nogil=True, cache=True)
def sort_pixels(photons: Any, first: int, ends: np.ndarray, into: Any) -> None:
    """Sort the photons of a block (time, place, number) by pixel, the first of which is at this place; `ends` (pixel,)
    is where those of each pixel end."""
    time, place, number = photons
    ends[:] = 0
    for each in place:
        if each - first + 1 < ends.size:
            ends[each - first + 1] += 1
    for each in range(1, ends.size):
        ends[each] += ends[each - 1]
    for each in range(time.size):
        where = ends[place[each] - first]
        ends[place[each] - first] = where + 1
        into[0][where], into[1][where] = time[each], number[each]

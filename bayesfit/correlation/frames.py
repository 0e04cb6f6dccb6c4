"""Series of frames, wherever they come from, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.correlation.lag_products import CHUNK
from bayesfit.correlation.photons import Chunk, Photons

BYTES = 8 * 2**20  # of the frames that are taken at a time, about
MOST = 512  # frames that are taken at a time
PHOTON_FRAMES = 4096  # the same, of photons


@dataclass(frozen=True)
class Frames:
    """Frames of rows x columns `shape`, `count` of them if that is known before; `chunks` gives them in order, from the
    frame of a number on. `file`, and the `frame_time` [s] that it states, where they come from one."""

    shape: tuple[int, int]
    count: int | None
    chunks: Callable[[int], Iterator[Chunk | Photons]]
    file: str | None = None
    frame_time: float | None = None


def frames_of(given: Any, shape: tuple[int, int], file: str | None = None) -> Frames:
    """Frames of an array (frame, row, column), or of anything that can be sliced as one; of an iterable of frames (row,
    column); or of photons in order of their frames, on a detector of this shape.

    Raises:
        InputError: they are none, or hold no real numbers.
    """
    if isinstance(given, Photons):
        return _of_photons(given, shape, file)
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        check_frames(given.shape, given.dtype, file)
        return _of_array(given, file)
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | dict):
        raise InputError(
            "expected an array (frame, row, column), or an iterable of frames (row, column)", field="frames"
        )
    return _of_iterable(iter(given))


def at_a_time(shape: tuple[int, int], dtype: Any) -> int:
    """How many frames are taken at a time: a multiple of `CHUNK`."""
    most = BYTES // max(shape[0] * shape[1] * np.dtype(dtype).itemsize, 1)
    return max(min(most, MOST) // CHUNK, 1) * CHUNK


def check_frames(shape: tuple[int, ...], dtype: Any, file: str | None) -> None:
    """Refuse what cannot be frames.

    Raises:
        InputError: says what it is.
    """
    if len(shape) != 3:
        raise InputError(f"expected axes (frame, row, column), got shape {tuple(shape)}", file=file, field="frames")
    if np.dtype(dtype).kind not in "fiub":
        raise InputError(f"expected real numbers, got {dtype}", file=file, field="frames")
    if 0 in shape:
        raise InputError(f"are empty, shape {tuple(shape)}", file=file, field="frames")


def _of_array(given: Any, file: str | None) -> Frames:
    shape, count = (int(given.shape[1]), int(given.shape[2])), int(given.shape[0])

    def chunks(start: int) -> Iterator[Chunk]:
        step = at_a_time(shape, given.dtype)
        for first in range(start, count, step):
            yield np.asarray(given[first : first + step]).reshape(-1, shape[0] * shape[1])

    return Frames(shape, count, chunks, file)


def _of_photons(given: Photons, shape: tuple[int, int], file: str | None) -> Frames:
    frame, pixel = np.asarray(given.frame), np.asarray(given.pixel)
    if frame.size and (frame[0] < 0 or frame[-1] >= given.frames or np.any(np.diff(frame) < 0)):
        raise InputError(f"photons are not in order of frames 0 to {given.frames - 1}", file=file, field="frames")
    outside = (pixel < 0) | (pixel >= shape[0] * shape[1])
    if outside.any():
        place = int(np.argmax(outside))
        problem = f"frame {frame[place]}: a photon in pixel {pixel[place]}, and the bins are of a detector of {shape}"
        raise InputError(problem, file=file, field="frames", remedy="Give the q-map of this detector")

    def chunks(start: int) -> Iterator[Photons]:
        for first in range(start, given.frames, PHOTON_FRAMES):
            end = min(first + PHOTON_FRAMES, given.frames)
            own = slice(*np.searchsorted(frame, (first, end)))
            yield Photons(end - first, frame[own] - first, pixel[own], np.asarray(given.number[own]))

    return Frames(shape, given.frames, chunks, file)


def _of_iterable(given: Iterator[Any]) -> Frames:
    """Frames that come one by one."""
    first = next(given, None)
    if first is None:
        raise InputError("there are none", field="frames")
    first = np.asarray(first)
    check_frames((1, *first.shape), first.dtype, None)

    def chunks(start: int) -> Iterator[Chunk]:
        rest, number = islice(chain([first], given), start, None), start
        step = at_a_time(first.shape, first.dtype)
        while own := [np.asarray(frame) for frame in islice(rest, step)]:
            for frame in own:
                if frame.shape != first.shape or frame.dtype != first.dtype:
                    problem = (
                        f"frame {number}: {frame.dtype} of shape {frame.shape}, expected {first.dtype} {first.shape}"
                    )
                    raise InputError(problem, field="frames")
                number += 1
            yield np.stack(own).reshape(len(own), -1)

    return Frames(first.shape, None, chunks)

"""Series of frames, wherever they come from, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from jaxtyping import Bool, Num

from bayesfit.compute.errors import InputError
from bayesfit.correlation.lag_products import CHUNK
from bayesfit.correlation.photons import Chunk, Photons

BYTES = 128 * 2**20  # of the frames that are taken at a time, about
MOST = 1024  # frames that are taken at a time
PHOTON_FRAMES = 4096  # the same, of photons


@dataclass(frozen=True)
class Frames:
    """Frames of rows x columns `shape`, `count` of them if that is known before; `chunks` gives them in order, from the
    frame of a number on. `file`, and the `frame_time` [s] that it states, where they come from one; `missing` is True
    for frames that were never written there, and `good` for the pixels that can be used; `pixel_size` is the width of a
    pixel [m], if the file states it."""

    shape: tuple[int, int]
    count: int | None
    chunks: Callable[[int], Iterator[Chunk | Photons]]
    file: str | None = None
    frame_time: float | None = None
    missing: Bool[np.ndarray, " frame"] | None = None
    good: Bool[np.ndarray, "row column"] | None = None
    pixel_size: float | None = None


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
            yield plain(given[first : first + step]).reshape(-1, shape[0] * shape[1])

    return Frames(shape, count, chunks, file)


def plain(given: Any) -> Num[np.ndarray, "*any"]:
    """Frames as an array of numbers that can be summed. What is masked holds no number of photons."""
    masked = np.ma.getmask(given)
    data = np.asarray(given)
    if np.issubdtype(data.dtype, np.floating) and data.dtype not in (np.float32, np.float64):
        data = data.astype(np.float32 if data.dtype.itemsize < 4 else np.float64)
    if not np.any(masked):
        return data
    data = data.astype(np.uint8) if data.dtype == bool else data.copy()
    data[masked] = no_number(data.dtype)
    return data


def no_number(dtype: Any) -> float | int:
    """What stands for a pixel that holds no number of photons."""
    return np.nan if np.issubdtype(dtype, np.floating) else int(np.iinfo(dtype).max)


def without_saturated(frames: Chunk, saturation: float | None) -> Chunk:
    """Frames, of which pixels above a number hold no number of photons."""
    if saturation is not None and frames.size and frames.max() > saturation:
        frames[frames > saturation] = no_number(frames.dtype)
    return frames


def _of_photons(given: Photons, shape: tuple[int, int], file: str | None) -> Frames:
    frame, pixel, number = (np.asarray(each) for each in given[1:])
    _check_photons(given.frames, frame, pixel, number, file)
    check_inside(Photons(given.frames, frame, pixel, number), 0, shape, file)

    def chunks(start: int) -> Iterator[Photons]:
        for first in range(start, given.frames, PHOTON_FRAMES):
            end = min(first + PHOTON_FRAMES, given.frames)
            own = slice(*np.searchsorted(frame, (first, end)))
            yield Photons(end - first, frame[own] - first, pixel[own], number[own])

    return Frames(shape, given.frames, chunks, file)


def check_inside(photons: Photons, first: int, shape: tuple[int, int], file: str | None) -> None:
    """Refuse photons in pixels that a detector of this shape does not have; `first` is the number of their first frame.

    Raises:
        InputError: says where.
    """
    outside = (photons.pixel < 0) | (photons.pixel >= shape[0] * shape[1])
    if outside.any():
        place = int(np.argmax(outside))
        where = f"frame {first + photons.frame[place]}: a photon in pixel {photons.pixel[place]}"
        problem = f"{where}, and the bins are of a detector of {shape}"
        raise InputError(problem, file=file, field="frames", remedy="Give the q-map of this detector")


def _check_photons(frames: int, frame: np.ndarray, pixel: np.ndarray, number: np.ndarray, file: str | None) -> None:
    """Refuse lists that are none of photons in order of their frames."""
    if not frame.shape == pixel.shape == number.shape == (frame.size,):
        problem = f"photons have frames {frame.shape}, pixels {pixel.shape} and numbers {number.shape}"
        raise InputError(problem, file=file, field="frames", remedy="Give one of each for every photon")
    for name, values, kinds in (("frame", frame, "iu"), ("pixel", pixel, "iu"), ("number", number, "iufb")):
        if values.size and values.dtype.kind not in kinds:
            raise InputError(f"each {name} of photons must be a number, got {values.dtype}", file=file, field="frames")
    wrong = np.zeros(frame.size, bool)
    wrong[1:] = frame[1:] < frame[:-1]
    wrong |= (frame < 0) | (frame >= frames)
    if wrong.any():
        place = int(np.argmax(wrong))
        problem = f"photon {place} is of frame {frame[place]}: they are not in order of frames 0 to {frames - 1}"
        raise InputError(problem, file=file, field="frames", remedy="Sort them by frame")


def _of_iterable(given: Iterator[Any]) -> Frames:
    """Frames that come one by one."""
    first = next(given, None)
    if first is None:
        raise InputError("there are none", field="frames")
    first = plain(first)
    check_frames((1, *first.shape), first.dtype, None)

    def chunks(start: int) -> Iterator[Chunk]:
        rest, number = islice(chain([first], given), start, None), start
        step = at_a_time(first.shape, first.dtype)
        while own := [plain(frame) for frame in islice(rest, step)]:
            for frame in own:
                if frame.shape != first.shape or frame.dtype != first.dtype:
                    problem = (
                        f"frame {number}: {frame.dtype} of shape {frame.shape}, expected {first.dtype} {first.shape}"
                    )
                    raise InputError(problem, field="frames")
                number += 1
            yield np.stack(own).reshape(len(own), -1)

    return Frames(first.shape, None, chunks)

"""Files in which detectors write photons one by one.

Rigaku      Words of 64 bits, ordered by frame: the frame from bit 40 on, the pixel in 21 bits from bit 16 on, the count
            in the lowest 12. Nothing says how many rows and columns there are, or that a last frame was empty.
IMM         For every frame a header of 1024 bytes, with the compression as a word of 32 bits at byte 4, rows, columns
            and bytes a pixel at 108, 112 and 116, and the number of entries at 152; then that many pixels, as words of
            32 bits, and their counts, of 16 bits (compression 6), or the counts of all pixels.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt

from bayesfit.compute.errors import InputError
from bayesfit.correlation.frames import PHOTON_FRAMES, Frames, check_inside
from bayesfit.correlation.photons import Photons

WORD, LOOKED_AT = 8, 4096  # bytes of a word of Rigaku's; words by which a file is recognised
HEADER, SPARSE = 1024, 6
AT_A_TIME = 1024  # frames of IMM
FRAME, MOSTLY, FULL = 40, 0.9, 2**12 - 1  # of Rigaku's: its bits, words that look so, a counter that may have overflown


def is_rigaku(path: Path) -> bool:
    """Whether the first words are photons, but for a few ordered by frame."""
    words = np.fromfile(path, "<u8", LOOKED_AT)
    frame, _, number = _unpacked(words)
    ordered = np.count_nonzero(np.diff(frame) >= 0) >= MOSTLY * (words.size - 1)
    return bool(words.size and ordered and np.count_nonzero(number) >= MOSTLY * words.size)


def rigaku_frames(path: Path, shape: tuple[int, int]) -> Frames:
    """The photons of a file of Rigaku's, on a detector of this shape.

    Raises:
        InputError: it is cut off, or not in order.
    """
    if path.stat().st_size % WORD:
        raise InputError("ends in the middle of a photon", file=path, remedy="Copy it again")
    words = np.memmap(path, "<u8", "r")
    count = int(words[-1] >> FRAME) + 1

    def chunks(start: int) -> Iterator[Photons]:
        place = int(np.searchsorted(words, np.uint64(start << FRAME)))
        for first in range(start, count, PHOTON_FRAMES):
            end = min(first + PHOTON_FRAMES, count)
            after = words.size if end == count else int(np.searchsorted(words, np.uint64(end << FRAME)))
            frame, pixel, number = _unpacked(words[place:after])
            _check_ordered(frame, (first, end), place, path)
            found = Photons(end - first, frame - first, pixel, number)
            check_inside(found, first, shape, str(path))
            yield found
            place = after

    return Frames(shape, count, chunks, str(path))


def _check_ordered(frame: Int[np.ndarray, " event"], ends: tuple[int, int], before: int, path: Path) -> None:
    """Refuse photons of other frames than those from one to another, or not in their order; so many come before."""
    wrong = (frame < ends[0]) | (frame >= ends[1])
    wrong[1:] |= frame[1:] < frame[:-1]
    if wrong.any():
        place = int(np.argmax(wrong))
        problem = f"photon {before + place} is of frame {frame[place]}, out of order"
        raise InputError(problem, file=path, field="frames", remedy="Copy it again")


def _unpacked(words: UInt[np.ndarray, " event"]) -> tuple[Int[np.ndarray, " event"], ...]:
    """Frame, pixel and count, which is -1 where the counter is full."""
    fields = words >> FRAME, (words >> 16) & (2**21 - 1), words & FULL
    count = fields[2].astype(np.int16)
    return fields[0].astype(np.int64), fields[1].astype(np.int64), np.where(count == FULL, np.int16(-1), count)


def is_imm(start: bytes) -> bool:
    """Whether a file begins with a header of IMM."""
    if len(start) < HEADER:
        return False
    compression, rows, columns, size, entries = _header(start, 0)
    sound = 0 < rows <= 2**15 and 0 < columns <= 2**15 and size in (1, 2, 4)
    return sound and (compression == SPARSE or (compression == 0 and entries == rows * columns))


def imm_frames(path: Path) -> Frames:
    """The frames of an IMM file.

    Raises:
        InputError: it is cut off, or its frames differ in shape.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        places, entries, kinds = _indexed(content, path)
    compression, rows, columns, size = kinds

    def chunks(start: int) -> Iterator[Photons | np.ndarray]:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for first in range(start, len(places), AT_A_TIME):
                own = range(first, min(first + AT_A_TIME, len(places)))
                if compression == SPARSE:
                    found = _photons([_of_frame(content, places[n], entries[n]) for n in own])
                    check_inside(found, first, (rows, columns), str(path))
                    yield found
                else:
                    kind = np.dtype(f"<u{size}")
                    yield np.stack([np.frombuffer(content, kind, rows * columns, places[n]) for n in own])

    return Frames((rows, columns), len(places), chunks, str(path))


def _header(content: bytes | mmap.mmap, place: int) -> tuple[int, int, int, int, int]:
    """Compression, rows, columns, bytes a pixel and entries."""
    (compression,), (entries,) = (struct.unpack_from("<I", content, place + at) for at in (4, 152))
    rows, columns, size = struct.unpack_from("<3i", content, place + 108)
    return compression, rows, columns, size, entries


def _indexed(content: mmap.mmap, path: Path) -> tuple[list[int], list[int], tuple[int, int, int, int]]:
    """Where the entries of each frame begin and how many there are; compression, rows, columns and bytes a pixel."""
    places, entries, place, kind = list[int](), list[int](), 0, _header(content, 0)[:4]
    while place < len(content):
        *own, count = _header(content, place) if place + HEADER <= len(content) else (0,) * 5
        end = place + HEADER + count * (6 if own[0] == SPARSE else own[3])
        if end > len(content):
            raise InputError(f"ends in the middle of frame {len(places)}", file=path, remedy="Copy it again")
        if tuple(own) != kind:
            raise InputError(f"frame {len(places)} is of another shape than those before", file=path)
        places.append(place + HEADER)
        entries.append(count)
        place = end
    return places, entries, kind


def _of_frame(content: mmap.mmap, place: int, entries: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and counts of a frame."""
    pixel = np.frombuffer(content, "<u4", entries, place).astype(np.int64)
    return pixel, np.frombuffer(content, "<u2", entries, place + 4 * entries).copy()


def _photons(frames: list[tuple[np.ndarray, np.ndarray]]) -> Photons:
    """The photons of frames that follow each other."""
    pixels, numbers = zip(*frames, strict=True)
    frame = np.repeat(np.arange(len(frames)), [pixel.size for pixel in pixels])
    return Photons(len(frames), frame, np.concatenate(pixels), np.concatenate(numbers))

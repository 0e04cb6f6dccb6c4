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
from bayesfit.correlation.frames import Frames, frames_of
from bayesfit.correlation.photons import Photons

WORD, LOOKED_AT = 8, 4096  # bytes of a word of Rigaku's; words by which a file is recognised
HEADER, SPARSE = 1024, 6
AT_A_TIME = 1024  # frames of IMM


def is_rigaku(path: Path, pixels: int) -> bool:
    """Whether the first words are photons on so many pixels, ordered by frame."""
    words = np.fromfile(path, "<u8", LOOKED_AT)
    frame, pixel, number = _unpacked(words)
    return bool(words.size and np.all(np.diff(frame) >= 0) and np.all(number > 0) and pixel.max() < pixels)


def rigaku_frames(path: Path, shape: tuple[int, int]) -> Frames:
    """The photons of a file of Rigaku's, on a detector of this shape.

    Raises:
        InputError: it is cut off, or not in order.
    """
    if path.stat().st_size % WORD:
        raise InputError("ends in the middle of a photon", file=path, remedy="Copy it again")
    frame, pixel, number = _unpacked(np.memmap(path, "<u8", "r"))
    if np.any(np.diff(frame) < 0):
        raise InputError(f"photon {int(np.argmax(np.diff(frame) < 0)) + 1} is of an earlier frame", file=path)
    return frames_of(Photons(int(frame[-1]) + 1, frame, pixel, number), shape, str(path))


def _unpacked(words: UInt[np.ndarray, " event"]) -> tuple[Int[np.ndarray, " event"], ...]:
    """Frame, pixel and count."""
    fields = words >> 40, (words >> 16) & (2**21 - 1), words & (2**12 - 1)
    return fields[0].astype(np.int64), fields[1].astype(np.int64), fields[2].astype(np.int16)


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
                    yield _photons([_of_frame(content, places[n], entries[n]) for n in own])
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

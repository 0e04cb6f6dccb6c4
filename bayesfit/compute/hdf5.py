"""Careful reading of HDF5 files: scalars of any shape, messages that name the dataset, no array larger than memory, and
nothing from other files, of which the hash of this one says nothing."""

import math
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from jaxtyping import Float, Num

from bayesfit.compute.errors import InputError
from bayesfit.compute.memory import COPIES, memory
from bayesfit.compute.time_units import seconds_in

SIGNATURE = b"\x89HDF\r\n\x1a\n"
HEAP = b"GCOL\x01\0\0\0"  # where strings of any length are kept
MOST_STRINGS = 100_000
ELSEWHERE = "is in another file"
Points = Float[np.ndarray, "bin tau"]


def missing_in(path: Path, needed: tuple[str, ...]) -> str | None:
    """None if `path` is an HDF5 file with all `needed` datasets; else what is missing, in words."""
    try:
        with path.open("rb") as raw:
            if raw.read(8) != SIGNATURE:
                return "not HDF5"
        with h5py.File(path, "r") as file:
            for name in needed:
                if leads_elsewhere(file, name):
                    return f"{name} {ELSEWHERE}"
                if name not in file:
                    return f"no {name}"
            return None
    except Exception as error:  # a damaged file can fail anywhere in the library, with any type
        return f"HDF5 that cannot be opened ({(str(error) or 'unknown fault').splitlines()[0][:100]})"


@contextmanager
def opened(path: Path) -> Iterator["Reader"]:
    """An HDF5 file, open for reading.

    Raises:
        InputError: it is damaged.
    """
    if not _heaps_are_sound(path):
        raise InputError("is damaged HDF5 (a heap of strings)", file=path, remedy="Copy it again")
    try:
        with h5py.File(path, "r") as file:
            yield Reader(file, path)
    except InputError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, MemoryError) as error:  # whatever h5py fails with
        raise InputError(f"is HDF5 that cannot be read ({error})", file=path, remedy="Is it damaged?") from error


def leads_elsewhere(file: h5py.File, name: str, most: int = 16) -> bool:
    """Whether a path in a file leads into another one, or through too many links. It is not followed there."""
    parts = name.strip("/").split("/")
    for count in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:count]), getlink=True)
        if isinstance(link, h5py.ExternalLink):
            return True
        if isinstance(link, h5py.SoftLink):
            before = [] if link.path.startswith("/") else parts[: count - 1]
            return not most or leads_elsewhere(file, "/".join([*before, link.path, *parts[count:]]), most - 1)
    return False


def _heaps_are_sound(path: Path) -> bool:
    """Whether every heap of strings can be walked through. HDF5 itself would walk for ever in one where an object has
    the size 0."""
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(HEAP)
        while place >= 0:
            if not _can_be_walked(content, place):
                return False
            place = content.find(HEAP, place + len(HEAP))
    return True


def _can_be_walked(content: mmap.mmap, place: int) -> bool:
    """Whether the objects of the heap at this place follow each other up to its end."""
    if place + 16 > len(content):
        return False
    end = place + struct.unpack_from("<Q", content, place + 8)[0]
    place += 16
    while place + 16 <= min(end, len(content)):
        index, size = struct.unpack_from("<H6xQ", content, place)
        step = size if index == 0 else 16 + (size + 7) // 8 * 8
        if step < 16:
            return False
        place += step
    return place <= end <= len(content)


class Reader:
    """One open HDF5 file; every complaint names the file and the dataset."""

    def __init__(self, file: h5py.File, path: Path) -> None:
        self.file, self.path = file, path

    def has(self, name: str) -> bool:
        """Whether there is a dataset of that name in this file."""
        return not leads_elsewhere(self.file, name) and isinstance(self.file.get(name), h5py.Dataset)

    def array(self, name: str) -> Num[np.ndarray, "*any"]:
        """A dataset of real numbers, unchanged.

        Raises:
            InputError: it is missing, empty, not numeric, or too large for the machine's memory.
        """
        dataset = self._dataset(name)
        if dataset.dtype.kind not in "fiu":
            raise InputError(f"expected real numbers, got {dataset.dtype}", file=self.path, field=name)
        try:
            return np.asarray(dataset[()])
        except (OSError, RuntimeError) as error:
            raise InputError(f"cannot be read ({error})", file=self.path, field=name) from error

    def rows(self, name: str) -> Iterator[Num[np.ndarray, "*any"]]:
        """A dataset of real numbers, one place of its first axis after the other; only one of them must fit in
        memory."""
        dataset = self._dataset(name, at_once=1)
        if dataset.dtype.kind not in "fiu" or not dataset.ndim:
            raise InputError(f"expected rows of real numbers, got {dataset.dtype}", file=self.path, field=name)
        for place in range(len(dataset)):
            yield np.asarray(dataset[place])

    def _dataset(self, name: str, at_once: int | None = None) -> h5py.Dataset:
        """A dataset of this file that is not empty and fits in memory, or so many of its rows do."""
        found = None if leads_elsewhere(self.file, name) else self.file.get(name)
        if not isinstance(found, h5py.Dataset):
            problem = "the dataset is missing" if found is None else "is a group, expected a dataset"
            raise InputError(problem, file=self.path, field=name)
        if found.external or found.is_virtual:
            raise InputError(ELSEWHERE, file=self.path, field=name, remedy="Copy the data into one file")
        if not found.size:
            raise InputError(f"is empty, shape {found.shape or ()}", file=self.path, field=name)
        size = found.size if at_once is None else at_once * math.prod(found.shape[1:])
        largest = max(size, math.prod(found.chunks or ())) * max(found.dtype.itemsize, 8)
        if largest * COPIES > memory():
            raise InputError(
                f"shape {found.shape} would not fit in memory", file=self.path, field=name, remedy="Is it corrupt?"
            )
        return found

    def vector(self, name: str) -> Float[np.ndarray, " n"]:
        """A dataset of any shape with at most one axis longer than 1, as float64 (n,)."""
        array = self.array(name)
        if array.size != max(array.shape, default=1):
            raise InputError(f"expected one axis, got shape {array.shape}", file=self.path, field=name)
        return np.ravel(array).astype(float)

    def matrix(self, name: str) -> Num[np.ndarray, "row column"]:
        """A two-dimensional dataset."""
        array = self.array(name)
        if array.ndim != 2:
            raise InputError(f"expected axes (tau, bin), got shape {array.shape}", file=self.path, field=name)
        return array

    def pair(self, g2: str, g2_err: str, delays: int, bins_first: bool = False) -> tuple[Points, Points]:
        """Values and errors, each as (bin, tau). In the file they are (tau, bin), or (bin, tau) if `bins_first`.

        Raises:
            InputError: one does not have the number of delays, or the two differ in shape.
        """
        values, errors = self.matrix(g2), self.matrix(g2_err)
        bins_first = bins_first and values.shape[1] == delays
        if values.shape[1 if bins_first else 0] != delays:
            turned = ": it is transposed" if values.shape[1] == delays else ""
            raise InputError(
                f"shape {values.shape} does not match (tau, bin) with {delays} delays{turned}", file=self.path, field=g2
            )
        if errors.shape != values.shape:
            raise InputError(f"shape {errors.shape} differs from {values.shape} of {g2}", file=self.path, field=g2_err)
        return (values, errors) if bins_first else (values.T, errors.T)

    def scalar(self, name: str, default: float | None = None) -> float:
        """A number stored as (), (1,) or (1, 1).

        Raises:
            InputError: it is missing and has no default, or it is not one finite number.
        """
        if default is not None and name not in self.file:
            return default
        values = np.ravel(self.array(name)).astype(float)
        if values.size != 1 or not np.isfinite(values[0]):
            raise InputError(f"expected one number, got {values[:3]}", file=self.path, field=name)
        return float(values[0])

    def positive(self, name: str, default: float | None = None) -> float:
        """A scalar above zero."""
        value = self.scalar(name, default)
        if value <= 0:
            raise InputError(f"expected a number above 0, got {value:g}", file=self.path, field=name)
        return value

    def strings(self, name: str) -> list[str]:
        """A dataset of strings, empty where it is missing."""
        if not self.has(name):
            return []
        found = self._dataset(name)
        if found.size > MOST_STRINGS:
            raise InputError(f"holds {found.size} strings, expected a few", file=self.path, field=name)
        return [_decoded(value) for value in np.ravel(found[()])]


def seconds(reader: Reader, name: str) -> float:
    """A time above zero, in seconds unless its attribute `units` says otherwise.

    Raises:
        InputError: it is none, or the unit is not known.
    """
    value, unit = reader.positive(name), text(reader.file[name].attrs.get("units"))
    factor = seconds_in(unit) if unit.strip() else 1.0
    if factor is None:
        raise InputError(f"unknown unit {unit!r}", file=reader.path, field=name, remedy="Expected s, ms, us or ns")
    return value * factor


def text(value: object) -> str:
    """An attribute as text, "" if it is None or empty."""
    if value is None or isinstance(value, h5py.Empty):
        return ""
    values = np.ravel(value) if isinstance(value, np.ndarray) else [value]
    return _decoded(values[0]) if len(values) else ""


def _decoded(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

"""Careful reading of HDF5 files: scalars of any shape, names in messages, no array larger than the machine."""

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bayesfit import InputError

SIGNATURE = b"\x89HDF\r\n\x1a\n"


def missing_in(path: Path, needed: tuple[str, ...]) -> str | None:
    """None where `path` is HDF5 and holds all `needed` datasets, else what is missing."""
    try:
        with path.open("rb") as raw:
            if raw.read(8) != SIGNATURE:
                return "not HDF5"
        with h5py.File(path, "r") as file:
            absent = [name for name in needed if name not in file]
            return f"no {absent[0]}" if absent else None
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        return f"HDF5 that cannot be opened ({str(error).splitlines()[0][:100]})"


class Reader:
    """One open HDF5 file; every complaint names the file and the dataset."""

    def __init__(self, file: h5py.File, path: Path) -> None:
        self.file, self.path = file, path

    def has(self, name: str) -> bool:
        """Whether there is a dataset of that name."""
        return isinstance(self.file.get(name), h5py.Dataset)

    def array(self, name: str) -> np.ndarray:
        """A numeric dataset as it stands.

        Raises:
            InputError: it is missing, is not numeric, or would not fit in half the machine's memory.
        """
        if not self.has(name):
            raise InputError("the dataset is missing", file=self.path, field=name)
        dataset = self.file[name]
        if dataset.dtype.kind not in "fiub":
            raise InputError(f"expected real numbers, got {dataset.dtype}", file=self.path, field=name)
        if dataset.size * dataset.dtype.itemsize > _half_memory():
            raise InputError(
                f"shape {dataset.shape} would not fit in memory", file=self.path, field=name, remedy="Is it corrupt?"
            )
        try:
            return np.asarray(dataset[()])
        except (OSError, RuntimeError) as error:
            raise InputError(f"cannot be read ({error})", file=self.path, field=name) from error

    def vector(self, name: str) -> np.ndarray:
        """A dataset of any shape with one axis longer than 1, as float64 (n,)."""
        return np.ravel(self.array(name)).astype(float)

    def matrix(self, name: str) -> np.ndarray:
        """A two-dimensional dataset."""
        array = self.array(name)
        if array.ndim != 2:
            raise InputError(f"expected axes (tau, bin), got shape {array.shape}", file=self.path, field=name)
        return array

    def scalar(self, name: str, default: float | None = None) -> float:
        """A number stored as (), (1,) or (1, 1).

        Raises:
            InputError: it is missing and has no default, or it is not one finite number.
        """
        if default is not None and not self.has(name):
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
        return [v.decode() if isinstance(v, bytes) else str(v) for v in np.ravel(self.file[name][()])]


def text(value: Any) -> str:
    """An attribute as text, "" where it is None."""
    if value is None:
        return ""
    value = np.ravel(value)[0] if isinstance(value, np.ndarray) else value
    return value.decode() if isinstance(value, bytes) else str(value)


def per_angstrom(units: str) -> float:
    """Factor from a unit of q to 1/angstrom: 0.1 for the inverse nanometre, else 1."""
    return 0.1 if "nm" in units.lower() or "nanomet" in units.lower() else 1.0


def _half_memory() -> float:
    return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

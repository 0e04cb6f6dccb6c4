"""Frames in HDF5, as detectors and beamlines write them; compressed ones need the filters of hdf5plugin (extra
`bayesfit[frames]`).

A file holds them as one dataset (frame, row, column) at one of `PLACES`, or anywhere if it is the only such dataset; or
as a series `entry/data/data_000001`, ..., which may lie in other files of its folder, as Eiger detectors write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.correlation.frames import Frames, at_a_time, check_frames
from bayesfit.correlation.photons import Chunk

PLACES = ("entry/data/data", "entry/instrument/detector/data", "exchange/data", "data")
SERIES = "entry/data"
TIMES = (
    "entry/instrument/detector_1/frame_time",
    "entry/instrument/detector/frame_time",
    "entry/instrument/detector/frame_period",
)
FAULTS = OSError, RuntimeError, KeyError, ValueError  # whatever h5py fails with


def hdf5_frames(path: Path, dataset: str | None = None) -> Frames:
    """The frames of a file.

    Raises:
        InputError: it holds none, or cannot be read.
    """
    with suppress(ImportError):
        import hdf5plugin  # noqa: F401  # registers its filters
    try:
        with h5py.File(path, "r") as file:
            places = [dataset] if dataset else _places(file)
            counts, kinds = (
                zip(*[_described(file, place, path) for place in places], strict=True) if places else ((), ())
            )
            seconds = next((float(np.ravel(file[name][()])[0]) for name in TIMES if name in file), None)
    except InputError:
        raise
    except FAULTS as error:
        raise InputError(f"is HDF5 that cannot be read ({error})", file=path, remedy="Is it damaged?") from error
    if not places:
        raise InputError("holds no dataset with axes (frame, row, column)", file=path, remedy="Name it with dataset")
    if len(set(kinds)) > 1:
        raise InputError("its datasets differ in shape or type", file=path, field=SERIES)
    shape, dtype = kinds[0]

    def chunks(start: int) -> Iterator[Chunk]:
        for place, count in zip(places, counts, strict=True):
            yield from _read(path, place, range(min(start, count), count, at_a_time(shape, dtype)))
            start = max(start - count, 0)

    return Frames(shape, sum(counts), chunks, str(path), seconds)


def _places(file: h5py.File) -> list[str]:
    """Where the frames are."""
    for place in PLACES:
        if isinstance(file.get(place), h5py.Dataset) and file[place].ndim == 3:
            return [place]
    series = sorted(name for name in file.get(SERIES, {}) if name.startswith("data_"))
    if series:
        return [f"{SERIES}/{name}" for name in series]
    found: list[str] = []
    file.visititems(
        lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and item.ndim == 3 else None
    )
    return found if len(found) == 1 else []


def _described(file: h5py.File, place: str, path: Path) -> tuple[int, tuple[tuple[int, int], np.dtype]]:
    """How many frames a dataset holds, their shape and type. It may be in another file of the same folder."""
    link = file.get(place, getlink=True)
    if isinstance(link, h5py.ExternalLink) and Path(link.filename).name != link.filename:
        raise InputError(f"leads out of its folder, to {link.filename}", file=path, field=place)
    found = file.get(place)
    if not isinstance(found, h5py.Dataset):
        raise InputError("the dataset is missing", file=path, field=place)
    check_frames(found.shape, found.dtype, str(path))
    return found.shape[0], ((int(found.shape[1]), int(found.shape[2])), found.dtype)


def _read(path: Path, place: str, starts: range) -> Iterator[Chunk]:
    """The frames of a dataset, as many at a time as `starts` are apart."""
    try:
        with h5py.File(path, "r") as file:
            for start in starts:
                own = file[place][start : min(start + starts.step, starts.stop)]
                yield own.reshape(len(own), -1)
    except FAULTS as error:
        if isinstance(error, InputError):
            raise
        remedy = 'Is it damaged? Compressed frames need pip install "bayesfit[frames]"'
        raise InputError(f"cannot be read ({error})", file=path, field=place, remedy=remedy) from error

"""Frames in HDF5, as detectors and beamlines write them; compressed ones need the filters of hdf5plugin (extra
`bayesfit[frames]`).

A file holds them as one dataset (frame, row, column) at one of `PLACES`, or anywhere if it is the only such dataset; or
as a series `entry/data/data_000001`, ..., which may lie in other files of its folder, as Eiger detectors write them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from jaxtyping import Bool, Num

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import Reader, seconds, text
from bayesfit.correlation.frames import Frames, at_a_time, check_frames, without_saturated
from bayesfit.correlation.photons import Chunk

PLACES = ("entry/data/data", "entry/instrument/detector/data", "exchange/data", "data")
SERIES = "entry/data"
DETECTORS = "detector_1", "detector", "detector/detectorSpecific"
TIMES = (
    "entry/instrument/detector_1/frame_time",
    "entry/instrument/detector/frame_time",
    "entry/instrument/detector/frame_period",
)
SATURATION = tuple(f"entry/instrument/{place}/saturation_value" for place in DETECTORS)
BAD_PIXELS = tuple(f"entry/instrument/{place}/pixel_mask" for place in DETECTORS)
PIXEL_SIZES = tuple(f"entry/instrument/{place}/x_pixel_size" for place in DETECTORS)
METRES = {"": 1.0, "m": 1.0, "mm": 1e-3, "um": 1e-6, "µm": 1e-6, "μm": 1e-6}
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
            kinds = [_described(file, place, path) for place in places]
            missing = [_unwritten(file[place]) for place in places]
            stated = _stated(file, path)
    except FAULTS as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is HDF5 that cannot be read ({error})", file=path, remedy="Is it damaged?") from error
    if not places:
        raise InputError("holds no dataset with axes (frame, row, column)", file=path, remedy="Name it with dataset")
    if len(set(kinds)) > 1:
        raise InputError("its datasets differ in shape or type", file=path, field=SERIES)
    (shape, dtype), counts = kinds[0], [part.size for part in missing]

    def chunks(start: int) -> Iterator[Chunk]:
        for place, count in zip(places, counts, strict=True):
            for own in _read(path, place, range(min(start, count), count, at_a_time(shape, dtype))):
                yield without_saturated(own, stated.saturation)
            start = max(start - count, 0)

    good = None if stated.bad is None else _checked(stated.bad, shape, path)
    return Frames(
        shape, sum(counts), chunks, str(path), stated.frame_time, np.concatenate(missing), good, stated.pixel_size
    )


class Stated(NamedTuple):
    """What a file says of its frames: the time from one to the next [s], the largest number of photons that can be
    trusted, the pixels that cannot, which are not 0 (row, column), and the width of a pixel [m]; None where it does not
    say."""

    frame_time: float | None
    saturation: float | None
    bad: Num[np.ndarray, "row column"] | None
    pixel_size: float | None


def _stated(file: h5py.File, path: Path) -> Stated:
    reader = Reader(file, path)
    frame_time = next((seconds(reader, name) for name in TIMES if name in file), None)
    saturation = next((reader.scalar(name) for name in SATURATION if name in file), None)
    bad = next((reader.array(name) for name in BAD_PIXELS if name in file), None)
    return Stated(
        frame_time, saturation, bad, next((_metres(reader, name) for name in PIXEL_SIZES if name in file), None)
    )


def _metres(reader: Reader, name: str) -> float | None:
    """A length in m, None if its unit is not known or it is not one number above zero, as where nobody has set it."""
    factor = METRES.get(text(reader.file[name].attrs.get("units")).strip())
    with suppress(InputError):
        return None if factor is None else reader.positive(name) * factor
    return None


def _checked(bad: Num[np.ndarray, "row column"], shape: tuple[int, int], path: Path) -> Bool[np.ndarray, "row column"]:
    """The pixels that are good."""
    if bad.shape != shape:
        raise InputError(f"its pixel_mask has shape {bad.shape}, and its frames have {shape}", file=path)
    return np.asarray(bad == 0)


def _places(file: h5py.File) -> list[str]:
    """Where the frames are."""
    for place in PLACES:
        if isinstance(file.get(place), h5py.Dataset) and file[place].ndim == 3:
            return [place]
    if series := _series(file):
        return [f"{SERIES}/{name}" for name in series]
    found: list[str] = []
    file.visititems(
        lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and item.ndim == 3 else None
    )
    return found if len(found) == 1 else []


def _series(file: h5py.File) -> list[str]:
    """The parts of a series, in order of their numbers.

    Raises:
        InputError: one between the others is missing.
    """
    numbered = {int(name[5:]): name for name in file.get(SERIES, {}) if name.startswith("data_") and name[5:].isdigit()}
    for number in range(min(numbered, default=0), max(numbered, default=-1)):
        if number not in numbered:
            problem = f"part {number} of the series of frames is missing, {len(numbered)} others are there"
            raise InputError(problem, file=file.filename, field=SERIES, remedy="Copy all files of the series")
    return [numbered[number] for number in sorted(numbered)]


def _described(file: h5py.File, place: str, path: Path) -> tuple[tuple[int, int], np.dtype]:
    """The shape and type of a dataset's frames. It may be in other files of the same folder."""
    link = file.get(place, getlink=True)
    if isinstance(link, h5py.ExternalLink):
        _check_beside(path, link.filename, place)
    found = file.get(place)
    if not isinstance(found, h5py.Dataset):
        raise InputError("the dataset is missing", file=path, field=place)
    check_frames(found.shape, found.dtype, str(path))
    for source in found.virtual_sources() if found.is_virtual else []:
        if source.file_name != ".":
            _check_beside(Path(found.file.filename), source.file_name, place)
    return (int(found.shape[1]), int(found.shape[2])), found.dtype


def _check_beside(path: Path, name: str, place: str) -> None:
    """Refuse a file that is not in the folder of the one that names it: HDF5 itself reads zeros in its stead."""
    if Path(name).name != name:
        raise InputError(f"leads out of its folder, to {name}", file=path, field=place)
    if "%" not in name and not path.with_name(name).is_file():
        raise InputError(f"its frames are in {name}, which is missing", file=path, field=place)


def _unwritten(dataset: h5py.Dataset) -> Bool[np.ndarray, " frame"]:
    """Frames for which there is room in a dataset, but which were never written: HDF5 reads zeros in their stead."""
    count = len(dataset)
    if dataset.is_virtual or dataset.chunks is None:
        return np.full(count, not dataset.is_virtual and not dataset.id.get_storage_size())
    pieces = [-(-length // of) for length, of in zip(dataset.shape, dataset.chunks, strict=True)]
    if dataset.id.get_num_chunks() == math.prod(pieces):
        return np.zeros(count, bool)
    firsts: list[int] = []
    dataset.id.chunk_iter(lambda chunk: firsts.append(chunk.chunk_offset[0]))
    held = np.bincount(np.array(firsts, int) // dataset.chunks[0], minlength=pieces[0])
    return np.repeat(held < math.prod(pieces[1:]), dataset.chunks[0])[:count]


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

"""Two-time matrices in files, told apart by their content.

APS 8-ID    /xpcs/twotime/correlation_map/<key>, one half of a matrix each, of the bins in processed_bins, from 1; the
            bin's q and phi from /xpcs/qmap.
NXxpcs      entry/twotime/two_time_corr_func (bin, frame, frame), or (frame, frame, bin) where its storage_mode is
            one_array_q_last; entry/instrument/masks/dynamic_q_list and dynamic_phi_list.
NumPy       an array (frame, frame) or (bin, frame, frame) in .npy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from jaxtyping import Float

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import Reader, opened, seconds, text
from bayesfit.compute.q_units import per_angstrom_in
from bayesfit.correlation.hdf5_frames import TIMES

APS, NEXUS = "xpcs/twotime/correlation_map", "entry/twotime/two_time_corr_func"
BINS, QMAP, MASKS = "xpcs/twotime/processed_bins", "xpcs/qmap/", "entry/instrument/masks/"


class Matrices(NamedTuple):
    """The matrices of a file, one for each bin: their `fields`, and `get`, which reads that of a number; `q`
    [1/angstrom] and `phi` [degree] (bin,), NaN where unknown; and the time of a frame [s], if it is stated."""

    fields: list[str]
    get: Callable[[int], Any]
    q: Float[np.ndarray, " bin"]
    phi: Float[np.ndarray, " bin"]
    frame_time: float | None
    layout: str


@contextmanager
def opened_matrices(path: Path) -> Iterator[Matrices]:
    """The matrices of a file, as long as it is open.

    Raises:
        InputError: it holds none, or cannot be read.
    """
    if not path.is_file():
        raise InputError("no such file", file=path)
    if h5py.is_hdf5(path):
        with opened(path) as reader:
            yield _of_hdf5(reader)
        return
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        remedy = f"Known are HDF5 with {APS} or {NEXUS}, and NumPy's .npy"
        raise InputError("holds no two-time matrix that is known", file=path, remedy=remedy) from error
    yield _of_array(array, path)


def _of_hdf5(reader: Reader) -> Matrices:
    if isinstance(reader.file.get(APS), h5py.Group):
        return _aps(reader)
    if reader.has(NEXUS):
        return _nexus(reader)
    raise InputError(f"has neither {APS} nor {NEXUS}", file=reader.path, remedy="Is it a two-time correlation?")


def _of_array(array: Any, path: Path) -> Matrices:
    if array.ndim not in (2, 3):
        problem = f"expected axes (frame, frame) or (bin, frame, frame), got shape {array.shape}"
        raise InputError(problem, file=path)
    whole = array if array.ndim == 3 else array[None]
    unknown = np.full(len(whole), np.nan)
    return Matrices(["matrix"] * len(whole), whole.__getitem__, unknown, unknown, None, "NumPy array")


def _aps(reader: Reader) -> Matrices:
    keys = sorted(reader.file[APS])
    if not keys:
        raise InputError("holds no matrix", file=reader.path, field=APS)
    bins = reader.vector(BINS).astype(int) if reader.has(BINS) else np.arange(1, len(keys) + 1)
    if bins.size != len(keys):
        problem = f"{bins.size} bins, and {len(keys)} matrices in {APS}"
        raise InputError(problem, file=reader.path, field=BINS)
    fields = [f"{APS}/{key}" for key in keys]
    seconds = _frame_time(reader)
    if seconds is not None:
        for name in ("stride_frame", "avg_frame"):
            seconds *= reader.positive(f"xpcs/twotime/config/{name}", default=_of_multitau(reader, name))
    return Matrices(fields, lambda n: reader.array(fields[n]), *_aps_bins(reader, bins), seconds, "APS 8-ID, two times")


def _of_multitau(reader: Reader, name: str) -> float:
    return reader.positive(f"xpcs/multitau/config/{name}", default=1.0)


def _aps_bins(reader: Reader, bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q [1/angstrom] and phi of bins, whose numbers go from 1."""
    unknown = np.full(bins.size, np.nan)
    if not reader.has(QMAP + "dynamic_v_list_dim0"):
        return unknown, unknown
    first, second = reader.vector(QMAP + "dynamic_v_list_dim0"), np.array([np.nan])
    if reader.has(QMAP + "dynamic_v_list_dim1"):
        second = reader.vector(QMAP + "dynamic_v_list_dim1")
    places, name = bins - 1, QMAP + "dynamic_index_mapping"
    mapping = reader.vector(name).astype(int) if reader.has(name) else np.arange(first.size * second.size)
    if places.min() < 0 or places.max() >= mapping.size:
        problem = (
            f"bin {bins[np.argmax((places < 0) | (places >= mapping.size))]} is none of the map's 1 to {mapping.size}"
        )
        raise InputError(problem, file=reader.path, field=BINS)
    flat = mapping[places]
    if flat.min() < 0 or flat.max() >= first.size * second.size:
        raise InputError(f"leads out of a map of {first.size} x {second.size}", file=reader.path, field=name)
    names = [each.strip().lower() for each in reader.strings(QMAP + "map_names")] or ["q", "phi"]
    values = dict(zip(names, (first[flat // second.size], second[flat % second.size]), strict=False))
    units = dict(zip(names, reader.strings(QMAP + "map_units"), strict=False))
    if "q" not in values:
        return unknown, unknown
    factor = per_angstrom_in(units.get("q", ""), reader.path, QMAP + "map_units")
    return values["q"] * factor, values.get("phi", unknown)


def _nexus(reader: Reader) -> Matrices:
    shape = reader.file[NEXUS].shape
    if len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3:
        raise InputError(f"expected axes (bin, frame, frame), got shape {shape}", file=reader.path, field=NEXUS)
    last = text(reader.file[NEXUS].attrs.get("storage_mode")) == "one_array_q_last"
    count = shape[-1 if last else 0]

    def get(number: int) -> Any:
        if reader.file[NEXUS].ndim == 2:
            return reader.array(NEXUS)
        return np.asarray(reader.file[NEXUS][..., number] if last else reader.file[NEXUS][number])

    q, unit = _nexus_list(reader, "dynamic_q_list", count)
    phi, _ = _nexus_list(reader, "dynamic_phi_list", count)
    q *= per_angstrom_in(unit, reader.path, f"{MASKS}dynamic_q_list")
    return Matrices([NEXUS] * count, get, q, phi, _frame_time(reader), "NXxpcs, two times")


def _nexus_list(reader: Reader, name: str, count: int) -> tuple[np.ndarray, str]:
    """A list with one number per bin, NaN if the file has none; and its unit."""
    field = MASKS + name
    if not reader.has(field):
        return np.full(count, np.nan), ""
    values = reader.vector(field)
    if values.size != count:
        raise InputError(f"has {values.size} entries for {count} matrices", file=reader.path, field=field)
    return values, text(reader.file[field].attrs.get("units"))


def _frame_time(reader: Reader) -> float | None:
    return next((seconds(reader, name) for name in TIMES if reader.has(name)), None)

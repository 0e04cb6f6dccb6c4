"""Partitions in files, in the layout of APS 8-ID: the group `/qmap` that pySimpleMask writes and boost_corr reads,
which results hold as `/xpcs/qmap`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bayesfit.compute.errors import InputError, SettingsError, warn
from bayesfit.compute.hdf5 import Reader, missing_in, opened
from bayesfit.compute.memory import memory
from bayesfit.compute.q_units import per_angstrom_in
from bayesfit.compute.whole_files import write_whole
from bayesfit.geometry.bins import Bins, Partition
from bayesfit.geometry.detector import Detector

GROUPS = "qmap", "xpcs/qmap"
NAMES, UNITS = ("q", "phi"), ("1/A", "deg")
KEV_ANGSTROM = 12.398419843320026  # h c, exact in the SI
LARGE = 1024  # values, from which an array is compressed


def save_partition(found: Partition, path: str | Path, detector: Detector | None = None) -> Path:
    """Write a partition, with the place of the detector if it is given. The file is written whole or not at all.

    Returns:
        The path.

    Raises:
        SettingsError: the pixels of the detector are not square. InputError: the file cannot be written.
    """
    path = Path(path)
    content = qmap_content(found, detector)
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        group = file.create_group(GROUPS[0])
        for name, value in content.items():
            large = isinstance(value, np.ndarray) and value.size > LARGE
            group.create_dataset(name, data=value, compression="lzf" if large else None)
    try:
        write_whole(path, made.getvalue())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error
    return path


def qmap_content(found: Partition, detector: Detector | None = None) -> dict[str, Any]:
    """The datasets of a partition by name, with the place of the detector if it is given.

    Raises:
        SettingsError: the pixels of the detector are not square.
    """
    content: dict[str, Any] = {"mask": found.mask.astype(np.uint8), "blemish": np.ones(found.mask.shape, np.uint8)}
    content |= {"map_names": [*NAMES], "map_units": [*UNITS]}
    for prefix, bins in (("static", found.static), ("dynamic", found.dynamic)):
        content |= {f"{prefix}_{name}": value for name, value in _described(bins).items()}
    if detector is not None:
        content |= _placed(detector)
    return content


def read_partition(path: str | Path) -> Partition:
    """The partition of a q-map file, or of a result of APS 8-ID.

    Pixels whose `blemish` is 0 are taken out. Of maps that are not in q and phi, what is missing is NaN, and a warning
    says so if that is q: frames can be correlated without.

    Raises:
        InputError: it holds none, or one that contradicts itself; names the field.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("no such file", file=path)
    group = next((name for name in GROUPS if missing_in(path, (f"{name}/dynamic_roi_map",)) is None), None)
    if group is None:
        raise InputError("holds no q-map", file=path, field="/qmap/dynamic_roi_map")
    with opened(path) as reader:
        mask, good = _above_0(reader, f"{group}/mask"), _without_blemish(reader, f"{group}/")
        static, dynamic = (_read(reader, f"{group}/{prefix}_", mask.shape, good) for prefix in ("static", "dynamic"))
        _check_nested(static, dynamic, path)
        if "q" not in (names := _map_names(reader, group)):
            warn(f"{path}: map_names: the map is in {' and '.join(names)}, not in q and phi: q is unknown")
    return Partition(mask if good is None else mask & good, static, dynamic)


def _described(bins: Bins) -> dict[str, Any]:
    """The datasets of bins, without their prefix."""
    known = {} if bins.q_err is None else {"q_err": bins.q_err}
    return known | {
        "roi_map": bins.roi_map.astype(np.uint32),
        "v_list_dim0": bins.q,
        "v_list_dim1": bins.phi,
        "num_pts": np.array([bins.q.size, bins.phi.size]),
        "index_mapping": bins.index_mapping,
    }


def _placed(detector: Detector) -> dict[str, float]:
    """Where a detector stands, as these files say it."""
    height, width = detector.pixel_size
    if height != width:
        raise SettingsError(f"{detector.pixel_size} is not square, as q-map files have it", field="pixel_size")
    row, column = detector.beam_center
    places = {"beam_center_x": column, "beam_center_y": row, "pixel_size": width}
    return places | {"detector_distance": detector.distance, "energy": KEV_ANGSTROM / detector.wavelength}


def _above_0(reader: Reader, name: str) -> np.ndarray:
    """Where a map of numbers is above 0, or one of True and False, as pySimpleMask writes them, is True."""
    found = reader.file[name] if reader.has(name) else None
    if found is None or found.dtype != bool or found.ndim != 2 or found.external or found.is_virtual:
        return reader.matrix(name) > 0
    if found.size > memory():
        problem, remedy = f"shape {found.shape} would not fit in memory", "Is it corrupt?"
        raise InputError(problem, file=reader.path, field=name, remedy=remedy)
    return np.asarray(found[()])


def _without_blemish(reader: Reader, group: str) -> np.ndarray | None:
    """Where the detector is sound; None if the file does not state it."""
    if not reader.has(f"{group}blemish"):
        return None
    good, shape = _above_0(reader, f"{group}blemish"), reader.file[f"{group}mask"].shape
    if good.shape != shape:
        problem = f"shape {good.shape} differs from {shape} of the mask"
        raise InputError(problem, file=reader.path, field=f"{group}blemish")
    return good


def _read(reader: Reader, prefix: str, shape: tuple[int, ...], good: np.ndarray | None) -> Bins:
    """Bins whose datasets have this prefix, without the pixels that are not good."""
    roi_map = reader.matrix(f"{prefix}roi_map").astype(int)
    if roi_map.shape != shape:
        problem = f"shape {roi_map.shape} differs from {shape} of the mask"
        raise InputError(problem, file=reader.path, field=f"{prefix}roi_map")
    first, second = reader.vector(f"{prefix}v_list_dim0"), reader.vector(f"{prefix}v_list_dim1")
    mapping = reader.vector(f"{prefix}index_mapping").astype(int)
    if mapping.min() < 0 or mapping.max() >= first.size * second.size:
        problem = f"names place {mapping.max()} of {first.size} x {second.size}"
        raise InputError(problem, file=reader.path, field=f"{prefix}index_mapping")
    _check_numbers(reader, f"{prefix}roi_map", roi_map, mapping.size)
    if good is not None:
        roi_map = np.where(good, roi_map, 0)
        _check_numbers(reader, f"{prefix}roi_map", roi_map, mapping.size, blemish=True)
    q_err = reader.vector(f"{prefix}q_err") if reader.has(f"{prefix}q_err") else None
    return Bins(roi_map, *_in_q_and_phi(reader, prefix, (first, second), mapping), q_err)


def _check_numbers(reader: Reader, field: str, roi_map: np.ndarray, count: int, blemish: bool = False) -> None:
    """Refuse a number that is no bin's, and a bin without pixels."""
    present = np.unique(roi_map)
    others = present[(present < 0) | (present > count)]
    if others.size:
        remedy = f"Expected 0 to {count}, as many bins as index_mapping names"
        raise InputError(f"holds {others[0]}", file=reader.path, field=field, remedy=remedy)
    empty = np.setdiff1d(np.arange(1, count + 1), present)
    if empty.size:
        problem = "all its pixels have a blemish of 0" if blemish else "has no pixels"
        remedy = "Make the q-map anew, without this bin"
        raise InputError(problem, file=reader.path, field=field, bin=int(empty[0]), remedy=remedy)


def _in_q_and_phi(
    reader: Reader, prefix: str, lists: tuple[np.ndarray, np.ndarray], mapping: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q [1/angstrom] and phi [degree] of two lists, in whichever order and units the file has them and NaN where it
    has others; and the mapping into them."""
    group = prefix.rpartition("/")[0]
    names = _map_names(reader, group)
    units = dict(zip(names, reader.strings(f"{group}/map_units"), strict=False))
    if names[0] == "phi" or names[1] == "q":
        place, other = np.divmod(mapping, lists[1].size)
        mapping = other * lists[0].size + place
        lists, names = lists[::-1], names[::-1]
    radian = units.get("phi", "").strip().lower().startswith("rad")
    of_q = per_angstrom_in(units.get("q", ""), reader.path, f"{group}/map_units")
    factors = of_q, float(np.degrees(1.0)) if radian else 1.0
    q, phi = (
        each * factor if name == known else np.full(each.size, np.nan)
        for each, factor, name, known in zip(lists, factors, names, NAMES, strict=True)
    )
    return q, phi, mapping


def _map_names(reader: Reader, group: str) -> list[str]:
    """What the two lists of a map are; q and phi if the file does not state it."""
    names = [each.strip().lower() for each in reader.strings(f"{group}/map_names")] or [*NAMES]
    return [*names, ""][:2]


def _check_nested(static: Bins, dynamic: Bins, path: Path) -> None:
    """Refuse a static bin that lies in two dynamic ones."""
    pairs = np.unique(np.stack([static.roi_map.ravel(), dynamic.roi_map.ravel()]), axis=1)
    numbers, often = np.unique(pairs[0][pairs[0] > 0], return_counts=True)
    if np.any(often > 1):
        worst = int(numbers[often > 1][0])
        raise InputError("lies in two dynamic bins", file=path, field="static_roi_map", bin=worst)

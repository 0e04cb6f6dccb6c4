"""Partitions in files, in the layout of APS 8-ID: the group `/qmap` that pySimpleMask writes and boost_corr reads,
which results hold as `/xpcs/qmap`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.hdf5 import Reader, missing_in, opened
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
        mask = reader.matrix(f"{group}/mask") > 0
        static, dynamic = (_read(reader, f"{group}/{prefix}_", mask) for prefix in ("static", "dynamic"))
        _check_nested(static, dynamic, path)
    return Partition(mask, static, dynamic)


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


def _read(reader: Reader, prefix: str, mask: np.ndarray) -> Bins:
    """Bins whose datasets have this prefix."""
    roi_map = reader.matrix(f"{prefix}roi_map").astype(int)
    if roi_map.shape != mask.shape:
        problem = f"shape {roi_map.shape} differs from {mask.shape} of the mask"
        raise InputError(problem, file=reader.path, field=f"{prefix}roi_map")
    q, phi = reader.vector(f"{prefix}v_list_dim0"), reader.vector(f"{prefix}v_list_dim1")
    mapping = reader.vector(f"{prefix}index_mapping").astype(int)
    if mapping.min() < 0 or mapping.max() >= q.size * phi.size:
        problem = f"names place {mapping.max()} of {q.size} x {phi.size}"
        raise InputError(problem, file=reader.path, field=f"{prefix}index_mapping")
    present = np.unique(roi_map)
    if not np.array_equal(present[present != 0], np.arange(1, mapping.size + 1)):
        problem = f"its numbers are not 1 to {mapping.size}, as many as index_mapping names"
        raise InputError(problem, file=reader.path, field=f"{prefix}roi_map")
    q_err = reader.vector(f"{prefix}q_err") if reader.has(f"{prefix}q_err") else None
    return Bins(roi_map, q, phi, mapping, q_err)


def _check_nested(static: Bins, dynamic: Bins, path: Path) -> None:
    """Refuse a static bin that lies in two dynamic ones."""
    pairs = np.unique(np.stack([static.roi_map.ravel(), dynamic.roi_map.ravel()]), axis=1)
    numbers, often = np.unique(pairs[0][pairs[0] > 0], return_counts=True)
    if np.any(often > 1):
        worst = int(numbers[often > 1][0])
        raise InputError("lies in two dynamic bins", file=path, field="static_roi_map", bin=worst)

"""Correlation results in the layout of APS 8-ID, which `bayesfit.read` and pyXpcsViewer read."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import missing_in, opened
from bayesfit.compute.whole_files import write_whole
from bayesfit.correlation.multitau import Correlated
from bayesfit.geometry.qmap_files import GROUPS, LARGE, qmap_content

MADE_OF = "xpcs/multitau/config/made_of"
PLACED = "beam_center_x", "beam_center_y", "pixel_size", "detector_distance", "energy"


def is_correlated(path: Path) -> bool:
    """Whether a file is one that `save_correlated` has written."""
    return missing_in(path, (MADE_OF,)) is None


def placement(qmap: Path) -> dict[str, float]:
    """Where the detector stands and what light it sees, as far as a q-map file states it; `PLACED` names what. NaN is
    what is not known, as `save_correlated` writes it."""
    with opened(qmap) as reader:
        group = next(name for name in GROUPS if name in reader.file)
        fields = {name: f"{group}/{name}" for name in PLACED if reader.has(f"{group}/{name}")}
        return {name: reader.scalar(field) for name, field in fields.items() if not np.isnan(reader.array(field)).all()}


def save_correlated(
    found: Correlated, path: str | Path, frame_time: float, placed: Mapping[str, float] | None = None, made_of: str = ""
) -> Path:
    """Write what was correlated. The file is written whole or not at all.

    Args:
        found: what `multitau` returned.
        path: of the file.
        frame_time: [s].
        placed: where the detector stands, as `placement` gives it; what is not known is NaN in the file.
        made_of: a hash of what the result is made of, which is kept in it.

    Returns:
        The path.

    Raises:
        InputError: it cannot be written.
    """
    path, placed = Path(path), dict.fromkeys(PLACED, np.nan) | dict(placed or {})
    qmap = qmap_content(found.partition) | placed
    content = {f"xpcs/qmap/{name}": value for name, value in qmap.items()}
    content |= {f"xpcs/multitau/{name}": value for name, value in _multitau(found).items()} | _means(found)
    content |= {
        MADE_OF: made_of,
        "entry/start_time": "",
        "entry/instrument/incident_beam/incident_energy": placed["energy"],
        "entry/instrument/detector_1/frame_time": frame_time,
        "entry/instrument/detector_1/count_time": frame_time,
    }
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        for name, value in content.items():
            large = isinstance(value, np.ndarray) and value.size > LARGE
            file.create_dataset(name, data=value, compression="lzf" if large else None)
        file["xpcs/qmap"].attrs["hash"] = _hash(qmap)
    try:
        write_whole(path, made.getvalue())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error
    return path


def _hash(qmap: Mapping[str, Any]) -> str:
    """By which viewers tell q-maps apart."""
    digest = hashlib.sha256()
    for name, value in sorted(qmap.items()):
        digest.update(name.encode() + np.asarray(value).tobytes())
    return digest.hexdigest()


def _means(found: Correlated) -> dict[str, Any]:
    """Photons per pixel and frame: of each pixel, of each static bin, in the one segment of time that there is, and of
    each frame."""
    pixels = np.maximum(found.partition.static.pixels, 1)
    photons = np.bincount(found.partition.static.roi_map.ravel(), found.image.ravel(), pixels.size + 1)[1:]
    used = np.flatnonzero(np.isfinite(found.intensity))
    return {
        "xpcs/temporal_mean/scattering_1d": (photons / pixels)[None],
        "xpcs/temporal_mean/scattering_1d_segments": (photons / pixels)[None],
        "xpcs/temporal_mean/scattering_2d": found.image[None],
        "xpcs/spatial_mean/intensity_vs_time": np.stack([used, found.intensity[used]]),
    }


def _multitau(found: Correlated) -> dict[str, Any]:
    """The results, and what they were made with; g2, its error and its pairs (tau, bin)."""
    error = np.sqrt(np.diagonal(found.cov, axis1=1, axis2=2))
    settings = {name: value for name, value in asdict(found.settings).items() if name != "backend"}
    return {
        "delay_list": found.lags,
        "normalized_g2": found.g2.T,
        "normalized_g2_err": np.where(found.seen > 0, np.nan_to_num(error), 0.0).T,
        "normalized_g2_cov": found.cov,
        "normalized_g2_cov_samples": found.cov_samples,
        "normalized_g2_scatter": found.scatter.T,
        "pairs_seen": found.seen.T,
        "pairs_expected": found.expected.T,
        **({} if found.settings.ages is None else {"frame_pairs": found.frame_pairs}),
        "config/stride_frame": 1,
        "config/avg_frame": 1,
        "config/dpl": found.settings.delays_per_level,
        "config/bayesfit": json.dumps(settings),
        "config/notes": "; ".join(found.notes),
    }

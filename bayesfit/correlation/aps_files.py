"""Correlation results in the layout of APS 8-ID, which `bayesfit.read` and pyXpcsViewer read."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.compute.whole_files import write_whole
from bayesfit.correlation.multitau import Correlated
from bayesfit.geometry.detector import Detector
from bayesfit.geometry.qmap_files import LARGE, qmap_content

MADE_OF = "xpcs/multitau/config/made_of"


def save_correlated(
    found: Correlated, path: str | Path, frame_time: float, detector: Detector | None = None, made_of: str = ""
) -> Path:
    """Write what was correlated. The file is written whole or not at all.

    Args:
        found: what `multitau` returned.
        path: of the file.
        frame_time: [s].
        detector: where it stands, if that is known.
        made_of: a hash of what the result is made of, which is kept in it.

    Returns:
        The path.

    Raises:
        InputError: it cannot be written.
    """
    path = Path(path)
    content = {f"xpcs/qmap/{name}": value for name, value in qmap_content(found.partition, detector).items()}
    content |= {f"xpcs/multitau/{name}": value for name, value in _multitau(found).items()}
    pixels = np.maximum(found.partition.static.pixels, 1)
    photons = np.bincount(found.partition.static.roi_map.ravel(), found.image.ravel(), pixels.size + 1)[1:]
    used = np.flatnonzero(np.isfinite(found.intensity))
    content |= {
        MADE_OF: made_of,
        "entry/instrument/detector_1/frame_time": frame_time,
        "entry/instrument/detector_1/count_time": frame_time,
        "xpcs/temporal_mean/scattering_1d": (photons / pixels)[None],
        "xpcs/temporal_mean/scattering_2d": found.image[None],
        "xpcs/spatial_mean/intensity_vs_time": np.stack([used, found.intensity[used]]),
    }
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        for name, value in content.items():
            large = isinstance(value, np.ndarray) and value.size > LARGE
            file.create_dataset(name, data=value, compression="lzf" if large else None)
    try:
        write_whole(path, made.getvalue())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error
    return path


def _multitau(found: Correlated) -> dict[str, Any]:
    """The results, and what they were made with; g2, its error and its pairs (tau, bin)."""
    error = np.sqrt(np.diagonal(found.cov, axis1=1, axis2=2))
    settings = {name: value for name, value in asdict(found.settings).items() if name != "backend"}
    return {
        "delay_list": found.lags,
        "normalized_g2": found.g2.T,
        "normalized_g2_err": np.where(found.seen > 0, np.nan_to_num(error), 0.0).T,
        "normalized_g2_cov": found.cov,
        "pairs_seen": found.seen.T,
        "pairs_expected": found.expected.T,
        **({} if found.settings.ages is None else {"frame_pairs": found.frame_pairs}),
        "config/stride_frame": 1,
        "config/avg_frame": 1,
        "config/dpl": found.settings.delays_per_level,
        "config/bayesfit": json.dumps(settings),
    }

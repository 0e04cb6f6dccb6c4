"""A result in the layout of APS 8-ID, with all that pyXpcsViewer asks for when it opens a file, and the fit at
`/xpcs/fit`.

A result does not know the detector. In a file that is not made from its source, each bin has one pixel of a detector
with one row, and what is unknown (energy, distance, images, intensities) is NaN.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import missing_in
from bayesfit.geometry.bins import Bins, Partition
from bayesfit.geometry.qmap_files import qmap_content
from bayesfit.report.fit_group import Choice, Curves, curves_of, reference_of, write_fit
from bayesfit.report.viewer_fit import viewer_fit

CURVES = ("measured", "fitted")
FIT = "xpcs/fit"
G2 = "xpcs/multitau/normalized_g2"
BLUESKY = "entry/instrument/bluesky/metadata"  # by which pyXpcsViewer recognises the layout
ONE_PIXEL = "one pixel for each bin: a result does not know the detector"
UNKNOWN_PLACES = ("beam_center_x", "beam_center_y", "detector_distance", "energy", "pixel_size")


def aps_content(result: xr.DataTree, choice: Choice) -> bytes:
    """The file's bytes.

    Raises:
        InputError: the source is another file than was fitted.
    """
    raised = 1.0 - reference_of(result)
    curves = curves_of(result, choice.fitted, raised)
    content = io.BytesIO(_source(choice.source, result) if choice.source else b"")
    with h5py.File(content, "r+" if choice.source else "w") as file:
        if not choice.source:
            for name, value in _layout(result, curves).items():
                file[name] = value
            qmap = file["xpcs/qmap"]
            qmap.attrs.update({"hash": _hash(qmap), "note": ONE_PIXEL})
            file.create_group(BLUESKY)
        if FIT in file:
            del file[FIT]
        fit = file.create_group(FIT)
        write_fit(fit, result, choice, raised)
        viewer = fit.create_group("pyxpcsviewer")
        for name, value in viewer_fit(result, raised).items():
            viewer[name] = value
    return content.getvalue()


def _source(path: Path, result: xr.DataTree) -> bytes:
    """The bytes of the file that was fitted.

    Raises:
        InputError: it cannot be read, is not that file, or has another layout.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path, field="source") from error
    if hashlib.sha256(content).hexdigest() != result.attrs.get("input_sha256"):
        named = result.attrs.get("input_file", "") or "arrays"
        raise InputError(f"is not the file that was fitted ({named})", file=path, field="source")
    if missing := missing_in(path, (G2,)):
        remedy = "Leave the source out: the file is then made whole"
        raise InputError(
            f"is not in the current layout of APS 8-ID: {missing}", file=path, field="source", remedy=remedy
        )
    return content


def _layout(result: xr.DataTree, curves: Curves) -> dict[str, Any]:
    """Every dataset that the layout asks for, by its path."""
    bins = _bins(result)
    nothing, count = np.full((1, bins.count), np.nan), bins.count
    delays, frame_time = in_frames(curves.tau, float(result.attrs.get("data_frame_time", 0.0)))
    unknown = dict.fromkeys(UNKNOWN_PLACES, np.nan)
    qmap = qmap_content(Partition(np.ones((1, count), bool), bins, bins)) | unknown
    return {
        **{f"xpcs/qmap/{name}": value for name, value in qmap.items()},
        G2: curves.g2,
        f"{G2}_err": curves.g2_err,
        "xpcs/multitau/delay_list": delays,
        "xpcs/multitau/config/stride_frame": 1,
        "xpcs/multitau/config/avg_frame": 1,
        "xpcs/temporal_mean/scattering_1d": nothing,
        "xpcs/temporal_mean/scattering_1d_segments": nothing,
        "xpcs/temporal_mean/scattering_2d": nothing[None],
        "xpcs/spatial_mean/intensity_vs_time": np.full((2, 1), np.nan),
        "entry/instrument/detector_1/frame_time": frame_time,
        "entry/instrument/detector_1/count_time": np.nan,
        "entry/instrument/incident_beam/incident_energy": np.nan,
        "entry/start_time": "unknown",
    }


def in_frames(tau: Float[np.ndarray, " tau"], frame_time: float) -> tuple[np.ndarray, float]:
    """Delays [s] as numbers of frames, and the time of a frame [s]. Delays that are no whole numbers of frames, or of
    unknown frames, stay in s, which are then frames of 1 s."""
    frames = tau / frame_time if frame_time > 0 else np.full(tau.shape, np.nan)
    whole = np.round(np.nan_to_num(frames))
    if np.all(np.abs(frames - whole) <= 1e-6 * whole):
        return whole.astype(np.int64), frame_time
    return tau, 1.0


def _bins(result: xr.DataTree) -> Bins:
    """One pixel for each bin. The rings are the bins in their order where all have one phi, else the q and the phi that
    occur, in the order in which they do."""
    own = result["diagnostics"].dataset
    q, phi = own.q.values.astype(float), own.phi.values.astype(float)
    roi_map = np.arange(1, q.size + 1)[None]
    rings, sectors = _in_order(q), _in_order(phi)
    ring = np.array([_place(rings, value) for value in q])
    mapping = ring * sectors.size + np.array([_place(sectors, value) for value in phi])
    if sectors.size == 1 or np.unique(mapping).size < mapping.size:
        one = sectors if sectors.size == 1 else np.array([np.nan])
        return Bins(roi_map, q, one, np.arange(q.size))
    return Bins(roi_map, rings, sectors, mapping)


def _in_order(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " unique"]:
    """The values that occur, in the order in which they do; NaN once."""
    return values[np.sort(np.unique(values, return_index=True)[1])]


def _place(among: Float[np.ndarray, " n"], value: float) -> int:
    return int(np.flatnonzero((among == value) | (np.isnan(among) & np.isnan(value)))[0])


def _hash(group: h5py.Group) -> str:
    """By which a viewer knows equal maps."""
    digest = hashlib.sha256()
    for name in sorted(group):
        digest.update(name.encode() + np.asarray(group[name][()]).tobytes())
    return digest.hexdigest()

"""APS beamline 8-ID: multi-tau correlation results in HDF5, the current and the older layout.

Current     /xpcs/multitau/normalized_g2 (tau, bin), its errors, delay_list in frames; /xpcs/qmap with the bins' q and phi.
            tau = delay_list * frame_time * stride_frame * avg_frame. Bins without pixels have no column, so a column's
            q is looked up through dynamic_index_mapping.
Older       /exchange/norm-0-g2 (tau, bin), norm-0-stderr, tau in frames; /xpcs/dqlist, dphilist.
Amplitudes  X-rays see contrasts of a few percent to a half, on a baseline near 1.
"""

from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.pipelines._hdf5 import Reader, missing_in, per_angstrom
from bayesfit.pipelines._quantities import relaxation

CURRENT = ("xpcs/multitau/normalized_g2", "xpcs/multitau/normalized_g2_err", "xpcs/multitau/delay_list")
OLDER = ("exchange/norm-0-g2", "exchange/norm-0-stderr", "exchange/tau")
PRIORS = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}


def recognise(path: Path) -> str | None:
    current, older = missing_in(path, CURRENT), missing_in(path, OLDER)
    if current is None or older is None:
        return None
    return current if current == older else f"{current}, and {older}"


def read(path: Path) -> xr.Dataset:
    with h5py.File(path, "r") as file:
        reader = Reader(file, path)
        return _current(reader) if missing_in(path, CURRENT) is None else _older(reader)


def _current(reader: Reader) -> xr.Dataset:
    g2 = reader.matrix(CURRENT[0])
    frame_time = reader.positive("entry/instrument/detector_1/frame_time")
    stride = reader.positive("xpcs/multitau/config/stride_frame", default=1.0)
    average = reader.positive("xpcs/multitau/config/avg_frame", default=1.0)
    tau = reader.vector(CURRENT[2]) * frame_time * stride * average
    q, phi, notes = _bins(reader, g2.shape[1])
    data = _curves(reader, tau, g2, reader.matrix(CURRENT[1]), q, phi)
    data.attrs["notes"] = "; ".join(filter(None, [data.attrs["notes"], *notes]))
    data.attrs["layout"] = "current"
    return data


def _bins(reader: Reader, bins: int) -> tuple[np.ndarray | None, np.ndarray | None, list[str]]:
    """q [1/angstrom] and phi [degree] of each column of g2."""
    qmap = "xpcs/qmap/"
    if not reader.has(qmap + "dynamic_v_list_dim0"):
        return None, None, ["the file has no q map: q and phi are unknown"]
    first = reader.vector(qmap + "dynamic_v_list_dim0")
    second = reader.vector(qmap + "dynamic_v_list_dim1") if reader.has(qmap + "dynamic_v_list_dim1") else np.array([np.nan])
    names = [name.lower() for name in reader.strings(qmap + "map_names")] or ["q", "phi"]
    units = reader.strings(qmap + "map_units") or ["1/angstrom", "degree"]
    flat_first, flat_second = np.repeat(first, second.size), np.tile(second, first.size)
    mapping = _mapping(reader, qmap + "dynamic_index_mapping", bins, flat_first.size)
    if names[0] != "q":
        return None, None, [f"the map is in {', '.join(names)}, not in q and phi: q and phi are unknown"]
    return flat_first[mapping] * per_angstrom(units[0]), flat_second[mapping], []


def _mapping(reader: Reader, field: str, bins: int, size: int) -> np.ndarray:
    """Flat (q, phi) index of each column; columns are in order where the file does not say."""
    if not reader.has(field):
        if bins != size:
            raise InputError(f"is missing, and {bins} columns do not match {size} bins", file=reader.path, field=field)
        return np.arange(bins)
    mapping = np.ravel(reader.array(field)).astype(int)
    if mapping.size != bins:
        raise InputError(f"has {mapping.size} entries for {bins} columns of g2", file=reader.path, field=field)
    if mapping.min() < 0 or mapping.max() >= size:
        raise InputError(f"points outside the {size} bins of the map", file=reader.path, field=field)
    return mapping


def _older(reader: Reader) -> xr.Dataset:
    g2 = reader.matrix(OLDER[0])
    period = reader.positive("measurement/instrument/detector/exposure_period")
    q = reader.vector("xpcs/dqlist") if reader.has("xpcs/dqlist") else None
    phi = reader.vector("xpcs/dphilist") if reader.has("xpcs/dphilist") else None
    if phi is not None and phi.size != g2.shape[1]:
        phi = None
    data = _curves(reader, reader.vector(OLDER[2]) * period, g2, reader.matrix(OLDER[1]), q, phi)
    data.attrs["layout"] = "older"
    return data


def _curves(
    reader: Reader, tau: np.ndarray, g2: np.ndarray, g2_err: np.ndarray, q: np.ndarray | None, phi: np.ndarray | None
) -> xr.Dataset:
    if g2.shape[0] != tau.size:
        turned = g2.shape[1] == tau.size
        raise InputError(
            f"shape {g2.shape} does not match (tau, bin) with {tau.size} delays" + (": it is transposed" if turned else ""),
            file=reader.path,
            field="g2",
        )
    return curves(tau, g2.T, g2_err.T, q=q, phi=phi, file=str(reader.path), **PRIORS)


pipeline = Pipeline(
    name="aps_8idi",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="APS 8-ID multi-tau results in HDF5, current and older layout",
)

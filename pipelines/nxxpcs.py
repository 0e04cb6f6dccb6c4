"""NXxpcs: the NeXus contributed definition for XPCS results.

Layout      entry/data/g2 (tau, bin), g2_derr, delay_difference in frames or s (its `units` say which); attributes
            baseline_reference (0 where the values are g2 - 1) and first_point_for_fit;
            entry/instrument/masks/dynamic_q_list, dynamic_phi_list.
Amplitudes  X-rays see contrasts of a few percent to a half, on a baseline near baseline_reference.
"""

from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.pipelines._hdf5 import Reader, missing_in, per_angstrom, text
from bayesfit.pipelines._quantities import relaxation

NEEDED = ("entry/data/g2", "entry/data/g2_derr", "entry/data/delay_difference")
FRAME_TIMES = ("entry/instrument/detector/frame_time", "entry/instrument/detector_1/frame_time")
SECONDS = {"s": 1.0, "second": 1.0, "seconds": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def recognise(path: Path) -> str | None:
    return missing_in(path, NEEDED)


def read(path: Path) -> xr.Dataset:
    with h5py.File(path, "r") as file:
        reader = Reader(file, path)
        g2, g2_err = reader.matrix(NEEDED[0]), reader.matrix(NEEDED[1])
        tau = _delays(reader)
        if g2.shape[0] != tau.size:
            raise InputError(
                f"shape {g2.shape} does not match (tau, bin) with {tau.size} delays", file=path, field=NEEDED[0]
            )
        return curves(
            tau,
            g2.T,
            g2_err.T,
            q=_list(reader, "dynamic_q_list", g2.shape[1]),
            phi=_list(reader, "dynamic_phi_list", g2.shape[1]),
            file=str(path),
            skip_first=int(_attribute(file, "first_point_for_fit", 0.0)),
            contrast_prior="TruncatedNormal(0.15, 0.2, low=0)",
            baseline_reference=_attribute(file, "baseline_reference", 1.0),
        )


def _delays(reader: Reader) -> np.ndarray:
    """Delays in s; in frames they are multiplied by the detector's frame time."""
    delays = reader.vector(NEEDED[2])
    units = text(reader.file[NEEDED[2]].attrs.get("units")).lower()
    if units in SECONDS:
        return delays * SECONDS[units]
    found = [name for name in FRAME_TIMES if reader.has(name)]
    if not found:
        raise InputError(
            f"is in {units or 'frames'}, and there is no frame time", file=reader.path, field=NEEDED[2],
            remedy=f"Add {FRAME_TIMES[0]}",
        )
    return delays * reader.positive(found[0])


def _attribute(file: h5py.File, name: str, default: float) -> float:
    """A number that stands as an attribute of g2 or of its group."""
    for holder in (file[NEEDED[0]], file["entry/data"]):
        if name in holder.attrs:
            return float(np.ravel(holder.attrs[name])[0])
    return default


def _list(reader: Reader, name: str, bins: int) -> np.ndarray | None:
    field = f"entry/instrument/masks/{name}"
    if not reader.has(field):
        return None
    values = reader.vector(field)
    if values.size != bins:
        raise InputError(f"has {values.size} entries for {bins} columns of g2", file=reader.path, field=field)
    units = text(reader.file[field].attrs.get("units"))
    return values * (per_angstrom(units) if name == "dynamic_q_list" else 1.0)


pipeline = Pipeline(
    name="nxxpcs",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="NeXus NXxpcs results in HDF5",
)

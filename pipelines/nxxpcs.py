"""NXxpcs: the NeXus contributed definition for XPCS results.

Layout      entry/data/g2 (tau, bin), or (bin, tau) where its storage_mode is one_array_q_first, and g2_derr;
            delay_difference in frames or s (its `units` say which); attributes baseline_reference (0 where the values
            are g2 - 1) and first_point_for_fit (0 where the first delay is to be left out, 1 where it is to be used);
            entry/instrument/masks/dynamic_q_list, dynamic_phi_list.
Amplitudes  X-rays see contrasts of a few percent to a half, on a baseline near baseline_reference.
"""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.compute.hdf5 import Reader, missing_in, opened, seconds, text
from bayesfit.compute.q_units import per_angstrom
from bayesfit.compute.time_units import seconds_in
from bayesfit.pipelines._counting import Maps, numbers_of
from bayesfit.pipelines._quantities import relaxation

NEEDED = ("entry/data/g2", "entry/data/g2_derr", "entry/data/delay_difference")
FRAME_TIMES = ("entry/instrument/detector/frame_time", "entry/instrument/detector_1/frame_time")
FLAGS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
FRAMES = {"", "1", "count", "counts", "frame", "frames", "dimensionless", "nx_count"}


def recognise(path: Path) -> str | None:
    return missing_in(path, NEEDED)


def read(path: Path) -> xr.Dataset:
    with opened(path) as reader:
        tau, tau_unit = _delays(reader)
        bins_first = text(reader.file[NEEDED[0]].attrs.get("storage_mode")) == "one_array_q_first"
        g2, g2_err = reader.pair(NEEDED[0], NEEDED[1], tau.size, bins_first)
        q, q_unit = _list(reader, "dynamic_q_list", len(g2))
        phi, _ = _list(reader, "dynamic_phi_list", len(g2))
        reference = _flag(reader, "baseline_reference")
        counting, note = _counting(reader, len(g2))
        data = curves(
            tau,
            g2,
            g2_err,
            q=None if q is None else q * per_angstrom(q_unit)[0],
            phi=phi,
            file=str(path),
            skip_first=1 - _flag(reader, "first_point_for_fit"),
            contrast_prior="TruncatedNormal(0.15, 0.2, low=0)",
            baseline_reference=reference,
            attrs={
                "layout": "NXxpcs, g2" if reference else "NXxpcs, g2 - 1",
                "tau_unit": tau_unit,
                "q_unit": "no dynamic_q_list" if q is None else per_angstrom(q_unit)[1],
            },
            **counting,
        )
        return data.assign_attrs(notes="; ".join(filter(None, [data.attrs["notes"], note])))


def _counting(reader: Reader, bins: int) -> tuple[dict[str, Any], str]:
    """The numbers by which photon pairs are counted, and a note where the file lacks some: the number of frames is that
    of the photons in all frames over the mean."""
    mean, total, masks = "entry/data/frame_average", "entry/data/frame_sum", "entry/instrument/masks/"
    found, note = numbers_of(reader, bins, Maps(masks + "dynamic_roi_map", mean))
    if not found or not reader.has(total):
        return {}, note or f"photon pairs cannot be counted: the file has no {total}"
    frames = round(float(np.sum(reader.array(total)) / np.sum(reader.array(mean))))
    return found | {"frames": frames}, note


def _delays(reader: Reader) -> tuple[np.ndarray, str]:
    """Delays in s, and their unit in the file; delays in frames are multiplied by the detector's frame time."""
    delays = reader.vector(NEEDED[2])
    units = text(reader.file[NEEDED[2]].attrs.get("units")).strip().lower()
    if (factor := seconds_in(units)) is not None:
        return delays * factor, units
    if units not in FRAMES:
        raise InputError(
            f"unknown unit {units!r}", file=reader.path, field=NEEDED[2], remedy="Expected frames, s, ms, us or ns"
        )
    found = [name for name in FRAME_TIMES if reader.has(name)]
    if not found:
        raise InputError(
            "is in frames, and there is no frame time",
            file=reader.path,
            field=NEEDED[2],
            remedy=f"Add {FRAME_TIMES[0]}",
        )
    frame_time = seconds(reader, found[0])
    return delays * frame_time, f"frames of {frame_time:.6g} s"


def _flag(reader: Reader, name: str) -> int:
    """An attribute of g2 or of its group that is 0 or 1; 1 if there is none."""
    for holder in (NEEDED[0], "entry/data"):
        if name in reader.file[holder].attrs:
            word = text(reader.file[holder].attrs[name]).strip().lower()
            if word not in FLAGS:
                raise InputError(f"expected 0 or 1, got {word!r}", file=reader.path, field=f"{holder} attribute {name}")
            return FLAGS[word]
    return 1


def _list(reader: Reader, name: str, bins: int) -> tuple[np.ndarray | None, str]:
    """A list with one number per bin, None if the file has none; and its unit as the file states it."""
    field = f"entry/instrument/masks/{name}"
    if not reader.has(field):
        return None, ""
    values = reader.vector(field)
    if values.size != bins:
        raise InputError(f"has {values.size} entries for {bins} columns of g2", file=reader.path, field=field)
    return values, text(reader.file[field].attrs.get("units"))


pipeline = Pipeline(
    name="nxxpcs",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="NeXus NXxpcs results in HDF5",
)

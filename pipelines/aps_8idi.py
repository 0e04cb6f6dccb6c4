"""APS beamline 8-ID: multi-tau correlation results in HDF5, the current and the older layout.

Current     /xpcs/multitau/normalized_g2 (tau, bin), its errors, delay_list in frames; /xpcs/qmap with the bins' q and
            phi. tau = delay_list * frame_time * stride_frame * avg_frame. Bins without pixels have no column, so
            dynamic_index_mapping says to which q a column belongs.
Older       /exchange/norm-0-g2 (tau, bin), norm-0-stderr, tau in frames; /xpcs/dqlist, dphilist.
Counting    photons per pixel and frame from temporal_mean/scattering_2d, or pixelSum, over the pixels of a bin in
            dynamic_roi_map, or dqmap; frames from intensity_vs_time, or frameSum; files averaged from file_list.
Covariance  of g2 between delays, from unnormalized_G2 (tau, 3, row, column), which boost_corr writes with -G: mean
            product of each pixel, and means of its early and its late frames, or a link to G2IPIF in the file beside;
            or normalized_g2_cov, as we write it.
Amplitudes  X-rays see contrasts of a few percent to a half, on a baseline near 1.
"""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.compute.hdf5 import Reader, missing_in, opened, seconds
from bayesfit.compute.q_units import per_angstrom
from bayesfit.pipelines._counting import Maps, numbers_of
from bayesfit.pipelines._covariance import covariance_of
from bayesfit.pipelines._quantities import relaxation

CURRENT = ("xpcs/multitau/normalized_g2", "xpcs/multitau/normalized_g2_err", "xpcs/multitau/delay_list")
OLDER = ("exchange/norm-0-g2", "exchange/norm-0-stderr", "exchange/tau")
Arrays = dict[str, Any]
PRIORS: Arrays = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}

Q_ERR = "xpcs/qmap/dynamic_q_err"  # in files that bayesfit has correlated, 1/angstrom
NOTES = "xpcs/multitau/config/notes"  # likewise: what was masked or left out


def recognise(path: Path) -> str | None:
    current, older = missing_in(path, CURRENT), missing_in(path, OLDER)
    if current is None or older is None:
        return None
    return current if current == older else f"{current}, and {older}"


def read(path: Path) -> xr.Dataset:
    with opened(path) as reader:
        layout, collect = ("current", _current) if missing_in(path, CURRENT) is None else ("older", _older)
        arrays, notes = collect(reader)
        units = {
            "layout": f"APS 8-ID, {layout} layout",
            "tau_unit": arrays.pop("tau_unit"),
            "q_unit": arrays.pop("q_unit"),
            "frame_time": arrays.pop("frame_time"),
        }
        data = curves(**arrays, file=str(path), attrs=units, **PRIORS)
        return data.assign_attrs(notes="; ".join(filter(None, [data.attrs["notes"], *notes])))


def _current(reader: Reader) -> tuple[Arrays, list[str]]:
    frame_time = seconds(reader, "entry/instrument/detector_1/frame_time")
    stride = reader.positive("xpcs/multitau/config/stride_frame", default=1.0)
    average = reader.positive("xpcs/multitau/config/avg_frame", default=1.0)
    frame = frame_time * stride * average
    tau = reader.vector(CURRENT[2]) * frame
    g2, g2_err = reader.pair(CURRENT[0], CURRENT[1], tau.size)
    q, phi, unit, notes = _bins(reader, len(g2))
    said = {"tau_unit": f"frames of {frame:.6g} s", "q_unit": unit, "frame_time": frame}
    counting, note = _counting(reader, len(g2)) if stride == average == 1.0 else ({}, "")
    arrays = {"tau": tau, "g2": g2, "g2_err": g2_err, "q": q, "phi": phi}
    if reader.has(Q_ERR) and reader.array(Q_ERR).shape == (len(g2),):
        arrays["q_err"] = reader.vector(Q_ERR)
    covariance, without = covariance_of(reader, len(g2), _flat(reader))
    return arrays | said | counting | covariance, [*notes, *reader.strings(NOTES), note, without]


def _counting(reader: Reader, bins: int) -> tuple[Arrays, str]:
    """The numbers by which photon pairs are counted, and a note where the file lacks some."""
    qmap, frames = "xpcs/qmap/", "xpcs/spatial_mean/intensity_vs_time"
    if not reader.has(frames):
        return {}, f"photon pairs cannot be counted: the file has no {frames}"
    maps = Maps(qmap + "dynamic_roi_map", "xpcs/temporal_mean/scattering_2d", qmap + "static_roi_map")
    found, note = numbers_of(reader, bins, maps, _flat(reader))
    repeats = len(reader.strings("xpcs/average/file_list"))
    alone = {"frames": reader.array(frames).shape[-1], "repeats": max(repeats, 1)}
    if reader.has("xpcs/multitau/frame_pairs"):  # of a slice of ages
        alone["frame_pairs"] = reader.vector("xpcs/multitau/frame_pairs")
    return (found | alone if found else {}), note


def _flat(reader: Reader) -> np.ndarray | None:
    """The flat index of each column on the map; None where the file does not state it."""
    mapping = "xpcs/qmap/dynamic_index_mapping"
    return reader.vector(mapping).astype(int) if reader.has(mapping) else None


def _bins(reader: Reader, bins: int) -> tuple[np.ndarray | None, np.ndarray | None, str, list[str]]:
    """q [1/angstrom] and phi [degree] of each column of g2, the unit of q in the file, and notes."""
    qmap = "xpcs/qmap/"
    if not reader.has(qmap + "dynamic_v_list_dim0"):
        return None, None, "", ["the file has no q map: q and phi are unknown"]
    first, second = reader.vector(qmap + "dynamic_v_list_dim0"), np.array([np.nan])
    if reader.has(qmap + "dynamic_v_list_dim1"):
        second = reader.vector(qmap + "dynamic_v_list_dim1")
    mapping = _mapping(reader, qmap + "dynamic_index_mapping", bins, first.size * second.size)
    flat = [np.repeat(first, second.size)[mapping], np.tile(second, first.size)[mapping]]
    names = [name.strip().lower() for name in reader.strings(qmap + "map_names")] or ["q", "phi"]
    if "q" not in names[:2]:
        return None, None, "", [f"the map is in {', '.join(names)}, not in q and phi: q and phi are unknown"]
    units = dict(zip(names, reader.strings(qmap + "map_units"), strict=False))
    values = dict(zip(names, flat, strict=False))
    factor, unit = per_angstrom(units.get("q", ""))
    return values["q"] * factor, values.get("phi"), unit, []


def _mapping(reader: Reader, field: str, bins: int, size: int) -> np.ndarray:
    """The flat (q, phi) index of each column; 0, 1, 2, ... if the file does not state it."""
    if not reader.has(field):
        if bins != size:
            raise InputError(f"is missing, and {bins} columns do not match {size} bins", file=reader.path, field=field)
        return np.arange(bins)
    mapping = reader.vector(field)
    if mapping.size != bins:
        raise InputError(f"has {mapping.size} entries for {bins} columns of g2", file=reader.path, field=field)
    outside = ~np.isin(mapping, np.arange(size))
    if outside.any():
        column = int(np.argmax(outside))
        problem = f"entry {mapping[column]:g} is none of the map's indices 0 to {size - 1}"
        raise InputError(problem, file=reader.path, field=field, bin=column)
    return mapping.astype(int)


def _older(reader: Reader) -> tuple[Arrays, list[str]]:
    frame = reader.positive("measurement/instrument/detector/exposure_period")
    tau = reader.vector(OLDER[2]) * frame
    g2, g2_err = reader.pair(OLDER[0], OLDER[1], tau.size)
    q = reader.vector("xpcs/dqlist") if reader.has("xpcs/dqlist") else None
    phi = reader.vector("xpcs/dphilist") if reader.has("xpcs/dphilist") else None
    notes = [] if q is not None else ["the file has no xpcs/dqlist: q is unknown"]
    if q is not None and q.size != len(g2):
        raise InputError(f"has {q.size} entries for {len(g2)} columns of g2", file=reader.path, field="xpcs/dqlist")
    if phi is not None and phi.size != len(g2):
        notes.append(f"xpcs/dphilist has {phi.size} entries for {len(g2)} columns of g2: phi is unknown")
        phi = None
    said = {"tau_unit": f"frames of {frame:.6g} s", "q_unit": "", "frame_time": frame}
    found, note = numbers_of(reader, len(g2), Maps("xpcs/dqmap", "exchange/pixelSum"))
    if found and reader.has("exchange/frameSum"):
        said |= found | {"frames": reader.array("exchange/frameSum").shape[-1]}
    elif found:
        note = "photon pairs cannot be counted: the file has no exchange/frameSum"
    return {"tau": tau, "g2": g2, "g2_err": g2_err, "q": q, "phi": phi, **said}, [*notes, note]


pipeline = Pipeline(
    name="aps_8idi",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="APS 8-ID multi-tau results in HDF5, current and older layout",
)

"""A result as NeXus: g2 by the contributed definition NXxpcs, the fit as an NXprocess beside it."""

from __future__ import annotations

import io

import h5py
import numpy as np
import xarray as xr

from bayesfit.report.fit_group import Choice, curves_of, reference_of, write_fit

AXES = ["delay_difference", "q_bin"]


def nexus_content(result: xr.DataTree, choice: Choice) -> bytes:
    """The file's bytes."""
    curves = curves_of(result, choice.fitted)
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs.update({"NX_class": "NXroot", "default": "entry", "creator": "bayesfit"})
        entry = _group(file, "entry", "NXentry")
        entry.attrs["default"] = "data"
        entry["definition"] = "NXxpcs"
        entry["entry_identifier"] = result.attrs.get("input_file", "") or "bayesfit"
        data = _group(entry, "data", "NXdata")
        data.attrs.update({"signal": "g2", "axes": AXES, "first_point_for_fit": 1})
        data["g2"], data["g2_derr"], data["delay_difference"] = curves.g2, curves.g2_err, curves.tau
        reference = int(reference_of(result))
        data["g2"].attrs.update({"storage_mode": "one_array_tau_first", "baseline_reference": reference, "units": "1"})
        data["g2_derr"].attrs["units"] = "1"
        data["delay_difference"].attrs["units"] = "s"
        data["q_bin"] = result["diagnostics"].q_bin.values
        _bins(_group(entry, "instrument", "NXinstrument"), result)
        write_fit(entry.create_group("fit"), result, choice)
    return content.getvalue()


def _group(parent: h5py.Group, name: str, nx_class: str) -> h5py.Group:
    group = parent.create_group(name)
    group.attrs["NX_class"] = nx_class
    return group


def _bins(instrument: h5py.Group, result: xr.DataTree) -> None:
    """q and phi of the bins, where they are known."""
    masks, bins = _group(instrument, "masks", "NXnote"), result["diagnostics"].dataset
    for name, values, units in (("q", bins.q.values, "1/angstrom"), ("phi", bins.phi.values, "degree")):
        if np.isfinite(values).any():
            masks[f"dynamic_{name}_list"] = values
            masks[f"dynamic_{name}_list"].attrs["units"] = units

"""What a fit found, as one group of an HDF5 file: parameters with intervals, curves, verdicts, and where they come
from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import xarray as xr

from bayesfit.compute.errors import SettingsError
from bayesfit.diagnose.interval import MASS
from bayesfit.modelling.priors import parse_prior
from bayesfit.result.summary import common_rows, of_bins, summary

NORMAL_95 = (
    1.959963984540054  # standard deviations of a normal distribution from its mean to the end of a 95 % interval
)
ENDS = {"": "median", "_mean": "mean", "_sd": "standard deviation", "_low": "lower end", "_high": "upper end"}
STATED = ("model", "model_formula", "convention", "settings", "priors", "input_file", "input_sha256")


class Choice(NamedTuple):
    """What an export holds: parameters in these `units`, intervals of this `mass`, the `fitted` curves in place of the
    measured ones, and the contents of the file `source`."""

    units: Mapping[str, str] = {}
    mass: float = MASS
    fitted: bool = False
    source: Path | None = None


class Curves(NamedTuple):
    """The curves of a file, as arrays (tau, q_bin), and their delays `tau` [s]."""

    tau: np.ndarray
    g2: np.ndarray
    g2_err: np.ndarray


def curves_of(result: xr.DataTree, fitted: bool, raise_by: float = 0.0) -> Curves:
    """The measured curves of a result, or the posterior mean with its standard deviation, with a number added to both.

    Raises:
        SettingsError: the x of the curves is no delay.
    """
    data = result["constant_data"].dataset
    if not data.attrs.get("delays", 1):
        raise SettingsError("the x of these curves is no delay", field="path", remedy="Export a table: .csv or .xlsx")
    if not fitted:
        return Curves(data.tau.values, result["observed_data"].g2.values.T + raise_by, data.g2_err.values.T)
    band = result["fit_curve"].dataset
    return Curves(data.tau.values, band["mean"].values.T + raise_by, _sd(band).T)


def _sd(band: xr.Dataset) -> np.ndarray:
    """The standard deviation of the posterior's mean curve, from its 95 % band."""
    return (band.upper.values - band.lower.values) / (2.0 * NORMAL_95)


def reference_of(result: xr.DataTree) -> float:
    """The baseline of the values: 0 where they are g2 - 1, else 1."""
    prior = parse_prior(result.attrs.get("data_baseline_prior", "Normal(1, 0.1)"), "baseline")
    return float(np.all(np.abs(np.asarray(prior.values.get("loc", 1.0))) > 0.5))


def write_fit(group: h5py.Group, result: xr.DataTree, choice: Choice, raise_by: float = 0.0) -> None:
    """Fill a group with what a fit found.

    Args:
        raise_by: what was added to g2 where the values of the result are g2 - 1, and is to be added to the curves and
            the baseline.
    """
    group.attrs.update({"NX_class": "NXprocess", "program": "bayesfit", "version": result.attrs["bayesfit_version"]})
    group.attrs.update({name: str(result.attrs.get(name, "")) for name in STATED})
    group["q_bin"] = result["diagnostics"].q_bin.values
    for name in ("verdict", "reason"):
        group[name] = result["diagnostics"].dataset[name].values.astype(object)
    group["valid"] = result["constant_data"].valid.values.astype(bool).T
    group["valid"].attrs["long_name"] = "the point is data and was used"
    _write_parameters(group, result, choice, raise_by)
    curve = group.create_group("curve")
    curve.attrs.update({"NX_class": "NXdata", "signal": "mean", "axes": ["tau", "q_bin"]})
    curve["tau"], curve["q_bin"] = result["constant_data"].tau.values, group["q_bin"][()]
    curve["tau"].attrs["units"] = "s"
    for name, words in {"mean": "mean curve", "lower": "lower end of the 95 % band", "upper": "upper end"}.items():
        curve[name] = result["fit_curve"].dataset[name].values.T + raise_by
        curve[name].attrs["long_name"] = words
    curve["sigma"] = result["fit_curve"].sigma.values.T
    curve["sigma"].attrs["long_name"] = "standard deviation of the noise, as inferred"


def _write_parameters(group: h5py.Group, result: xr.DataTree, choice: Choice, raise_by: float) -> None:
    """The parameters of the bins, and of all bins together."""
    table, posterior = summary(result, choice.units, mass=choice.mass), result["posterior"].dataset
    own = group.create_group("parameters")
    own.attrs.update({"NX_class": "NXcollection", "interval_mass": choice.mass})
    for name in of_bins(result):
        words = posterior[name].attrs.get("long_name", "") or name
        for end, what in ENDS.items():
            shift = raise_by if name == "baseline" and end != "_sd" else 0.0
            own[f"{name}{end}"] = table[f"{name}{end}"].to_numpy(float) + shift
            own[f"{name}{end}"].attrs.update({"units": table.attrs["units"][name], "long_name": f"{words}: {what}"})
    if "across" not in result:
        return
    common = group.create_group("in_common")
    common.attrs.update({"NX_class": "NXcollection", "interval_mass": choice.mass})
    for row in common_rows(result, choice.mass):
        one = common.create_group(row["parameter"].replace("/", "_"))
        one.attrs["NX_class"] = "NXcollection"
        for name, value in row.items():
            if name != "parameter":
                one[name] = value

"""The result of a law in q, in ArviZ's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.diagnose.interval import central_interval
from bayesfit.diagnose.law_verdict import LawFit, LawVerdict, Residuals
from bayesfit.modelling.model import Parameter
from bayesfit.result.tree import build, described, in_all_bins, provenance

CURVE_POINTS = 100
SCATTER = Parameter("scatter", "", "s", "sd of the bins about the law")
SHIFT = Parameter("q_shift", "", "", "common error of q, in its standard errors")
STATS = ("diverging", "n_steps", "acceptance_rate", "energy")
IN_OWN = {"long_name": "distance of the bin from the law, in sd of its likelihood"}
ALLOWED = {"long_name": "the same with the scatter about the law allowed for"}
DISTANCE = {"long_name": "Kolmogorov-Smirnov distance of the draws"}


def grid(q: Float[np.ndarray, " q_bin"]) -> Float[np.ndarray, " point"]:
    """The bins' q and, after them, `CURVE_POINTS` over their range."""
    return np.concatenate([q, np.geomspace(q.min(), q.max(), CURVE_POINTS)])


def law_result(
    result: xr.DataTree, fit: LawFit, residuals: Residuals, verdict: LawVerdict, settings: Mapping[str, Any]
) -> xr.DataTree:
    """The result of a law; `result` is that of the bins."""
    unit = {"units": result["posterior"][fit.parameter].attrs.get("units", "1")}
    posterior = _posterior(fit, unit)
    sampling = {name: (("chain", "draw"), fit.stats[name]) for name in STATS}
    sampling["lp"] = (("chain", "draw"), -fit.stats["potential"])
    used = fit.bins.used
    verdicts = result["diagnostics"].verdict.values.astype(str).astype(object)
    diagnostics = xr.Dataset({"verdict": ("q_bin", verdicts), **verdict.numbers})
    groups = {
        "posterior": posterior,
        "sample_stats": xr.Dataset(sampling, posterior.coords),
        "law_curve": _curve(fit.over_grid, grid(fit.bins.q[used])[used.sum() :], unit),
        "bins": _bins_group(fit, residuals, unit),
        "diagnostics": diagnostics.assign(law_verdict=verdict.name, law_reason=verdict.reason),
    }
    return build(groups, result["posterior"].dataset, _attributes(result, fit, settings))


def _posterior(fit: LawFit, unit: dict[str, str]) -> xr.Dataset:
    """The draws, described, in the order in which the law describes its parameters."""
    parameters = {parameter.name: parameter for parameter in (*fit.law.parameters, SCATTER, SHIFT)}
    order = dict.fromkeys([*(name for name in parameters if name in fit.samples), *fit.samples])
    posterior = xr.Dataset(
        {
            name: (("chain", "draw"), fit.samples[name], described(parameters.get(name, Parameter(name))))
            for name in order
        },
        {"chain": np.arange(fit.values.shape[0]), "draw": np.arange(fit.values.shape[1])},
    )
    if "scatter" in posterior and not fit.bins.logarithmic:
        posterior["scatter"].attrs.update(unit)
    return posterior


def _attributes(result: xr.DataTree, fit: LawFit, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "creator": "bayesfit",
        "inference_library": "numpyro",
        "law": fit.law.name,
        "law_formula": fit.law.formula,
        "parameter": fit.parameter,
        "scale": "logarithmic" if fit.bins.logarithmic else "linear",
        **settings,
        "model": result.attrs["model"],
        "input_file": result.attrs.get("input_file", ""),
        "input_sha256": result.attrs.get("input_sha256", ""),
        **provenance(),
        **{str(name): value for name, value in result.attrs.items() if str(name).startswith("data_")},
    }


def _curve(
    values: Float[np.ndarray, "chain draw point"], q: Float[np.ndarray, " point"], unit: dict[str, str]
) -> xr.Dataset:
    """The law on the grid: posterior mean and central 95 % band."""
    lower, _, upper = central_interval(values, axis=(0, 1))
    arrays = {"q": q, "mean": values.mean(axis=(0, 1)), "lower": lower, "upper": upper}
    units = {"q": {"units": "1/angstrom"}}
    return xr.Dataset({name: ("point", array, units.get(name, unit)) for name, array in arrays.items()}).set_coords("q")


def _bins_group(fit: LawFit, residuals: Residuals, unit: dict[str, str]) -> xr.Dataset:
    """Group `bins`: each bin's value of the parameter, whether it was used, and its distance from the law."""
    bins = fit.bins
    mean, sd = _moments(bins.draws)
    of_used = {
        "law": ("q_bin", fit.at_bins.mean(axis=(0, 1)), unit),
        "residual": ("q_bin", residuals.alone, IN_OWN),
        "residual_with_scatter": ("q_bin", residuals.checked, ALLOWED),
        "distance": ("q_bin", bins.distance, DISTANCE),
    }
    whole = in_all_bins(xr.Dataset(of_used), np.flatnonzero(bins.used), bins.used.size)
    return xr.Dataset(
        {
            "mean": ("q_bin", mean, unit),
            "sd": ("q_bin", sd, unit),
            "used": ("q_bin", bins.used),
            "left_out": ("q_bin", bins.left_out),
            **whole.data_vars,
        }
    )


def _moments(draws: Float[np.ndarray, "q_bin draw"]) -> tuple[Float[np.ndarray, " q_bin"], Float[np.ndarray, " q_bin"]]:
    """Mean and standard deviation of each bin's draws, without those that were not made; NaN where none was."""
    made = np.isfinite(draws)
    count = np.maximum(made.sum(axis=1), 1)
    mean = np.where(made.any(axis=1), np.where(made, draws, 0.0).sum(axis=1) / count, np.nan)
    spread = np.sqrt(np.where(made, (draws - mean[:, None]) ** 2, 0.0).sum(axis=1) / count)
    return mean, np.where(np.isfinite(mean), spread, np.nan)

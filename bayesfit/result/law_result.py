"""The result of a law in q, in ArviZ's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from bayesfit.diagnose.law_verdict import Fitted, LawVerdict, Residuals
from bayesfit.modelling.model import Parameter
from bayesfit.result.files import describe, provenance

CURVE_POINTS = 100
SCATTER = Parameter("scatter", "", "s", "sd of the bins about the law")
STATS = ("diverging", "n_steps", "acceptance_rate", "energy")

Array = np.ndarray


def grid(q: Array) -> Array:
    """The bins' q and, after them, a fine grid over their range; (q_bin + CURVE_POINTS,)."""
    return np.concatenate([q, np.geomspace(q.min(), q.max(), CURVE_POINTS)])


def law_result(
    result: xr.DataTree, fitted: Fitted, residuals: Residuals, verdict: LawVerdict, settings: Mapping[str, Any]
) -> xr.DataTree:
    """The result of a law; `result` is that of the bins."""
    unit = {"units": result["posterior"][fitted.parameter].attrs.get("units", "1")}
    attrs = _attributes(result, fitted, settings)
    posterior = _posterior(fitted, unit).assign_attrs(attrs)
    sampling = {name: (("chain", "draw"), fitted.stats[name]) for name in STATS}
    sampling["lp"] = (("chain", "draw"), -fitted.stats["potential"])
    used = fitted.bins.used
    verdicts = result["diagnostics"].verdict.values.astype(str).astype(object)
    diagnostics = xr.Dataset({"verdict": ("q_bin", verdicts), **verdict.numbers}, _bin_coords(result))
    tree = xr.DataTree.from_dict(
        {
            "posterior": posterior,
            "sample_stats": xr.Dataset(sampling, posterior.coords, attrs=attrs),
            "law_curve": _curve(fitted.over_grid, grid(fitted.bins.q[used])[used.sum() :], unit),
            "bins": _bins_group(result, fitted, residuals, unit),
            "diagnostics": diagnostics.assign(law_verdict=verdict.name, law_reason=verdict.reason),
        }
    )
    tree.attrs.update(attrs)
    return tree


def _posterior(fitted: Fitted, unit: dict[str, str]) -> xr.Dataset:
    """The draws, described, in the order in which the law describes its parameters."""
    samples = fitted.samples
    described = {known.name: known for known in (*fitted.law.parameters, SCATTER)}
    order = [name for name in described if name in samples] + [name for name in samples if name not in described]
    posterior = xr.Dataset(
        {name: (("chain", "draw"), samples[name], describe(described.get(name, Parameter(name)))) for name in order},
        {"chain": np.arange(fitted.values.shape[0]), "draw": np.arange(fitted.values.shape[1])},
    )
    if "scatter" in posterior and not fitted.bins.logarithmic:
        posterior["scatter"].attrs.update(unit)
    return posterior


def _attributes(result: xr.DataTree, fitted: Fitted, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "creator": "bayesfit",
        "inference_library": "numpyro",
        "law": fitted.law.name,
        "law_formula": fitted.law.formula,
        "parameter": fitted.parameter,
        "scale": "logarithmic" if fitted.bins.logarithmic else "linear",
        **settings,
        "model": result.attrs["model"],
        "input_file": result.attrs.get("input_file", ""),
        "input_sha256": result.attrs.get("input_sha256", ""),
        **provenance(),
        **{str(name): value for name, value in result.attrs.items() if str(name).startswith("data_")},
    }


def _bin_coords(result: xr.DataTree) -> dict[str, Any]:
    coords = result["posterior"].dataset.coords
    return {str(name): coord for name, coord in coords.items() if coord.dims == ("q_bin",)}


def _curve(values: Array, q: Array, unit: dict[str, str]) -> xr.Dataset:
    """The law on the grid (chain, draw, point): posterior mean and central 95 % band."""
    lower, upper = np.quantile(values, [0.025, 0.975], axis=(0, 1))
    arrays = {"q": q, "mean": values.mean(axis=(0, 1)), "lower": lower, "upper": upper}
    units = {"q": {"units": "1/angstrom"}}
    return xr.Dataset({name: ("point", array, units.get(name, unit)) for name, array in arrays.items()}).set_coords("q")


def _bins_group(result: xr.DataTree, fitted: Fitted, residuals: Residuals, unit: dict[str, str]) -> xr.Dataset:
    """The bins as the law sees them."""
    bins, allowed = fitted.bins, "the same with the scatter about the law allowed for"
    made = np.isfinite(bins.draws)
    count = np.maximum(made.sum(axis=1), 1)
    mean = np.where(made.any(axis=1), np.where(made, bins.draws, 0.0).sum(axis=1) / count, np.nan)
    spread = np.sqrt(np.where(made, (bins.draws - mean[:, None]) ** 2, 0.0).sum(axis=1) / count)

    def over_all(of_used: Array) -> Array:
        whole = np.full(bins.q.size, np.nan)
        whole[bins.used] = of_used
        return whole

    in_own = {"long_name": "distance of the bin from the law, in sd of its likelihood"}
    return xr.Dataset(
        {
            "mean": ("q_bin", mean, unit),
            "sd": ("q_bin", np.where(np.isfinite(mean), spread, np.nan), unit),
            "used": ("q_bin", bins.used),
            "left_out": ("q_bin", bins.left_out),
            "law": ("q_bin", over_all(fitted.at_bins.mean(axis=(0, 1))), unit),
            "residual": ("q_bin", over_all(residuals.alone), in_own),
            "residual_with_scatter": ("q_bin", over_all(residuals.checked), {"long_name": allowed}),
            "distance": ("q_bin", over_all(bins.distance), {"long_name": "Kolmogorov-Smirnov distance of the draws"}),
        },
        _bin_coords(result),
    )

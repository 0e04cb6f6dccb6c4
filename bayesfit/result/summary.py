"""A result as a table of numbers, as a tally of verdicts, and as advice in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped

from bayesfit.compute.errors import SettingsError
from bayesfit.compute.kinds import expect_result
from bayesfit.diagnose.interval import MASS, central_interval, check_mass
from bayesfit.result.datasets import is_series, one_dataset
from bayesfit.result.units import in_units

if TYPE_CHECKING:
    import pandas as pd

CHECKED = ("r_hat", "ess_bulk", "ess_tail", "contraction", "verdict", "reason")
FIRST = ("verdict", "reason", "q", "phi")
LAST = ("points", "r_hat", "ess_bulk", "ess_tail", "divergences", "error_ratio", "errors_wrong")
COMMON = ("parameter", "median", "low", "high", "units", *CHECKED)


def summary(
    result: xr.DataTree, units: Mapping[str, str] | None = None, common: bool = False, mass: float = 0.95
) -> pd.DataFrame:
    """One row per bin: verdict and reason, q and phi, median, mean, standard deviation and central interval of every
    parameter, and diagnostics.

    Args:
        result: what `fit` or `load` returned.
        units: parameter to the unit to show it in, `{"D": "um^2/s"}`.
        common: True for the parameters that the bins of a joint fit have in common: one row for each, or for each of
            its groups.
        mass: the probability that the intervals hold, such as 0.68.

    Returns:
        Table indexed by q_bin (of a series by dataset and q_bin), where `contraction` is the smallest of the curve's
        parameters; columns `NAME` (the median), `NAME_mean`, `NAME_sd`, `NAME_low`, `NAME_high` in the units of
        `result.posterior[NAME]` or those given, which `attrs["units"]` lists by parameter; `attrs["mass"]` is that of
        the intervals. What bins have in common has a table of its own, indexed by parameter, with columns `median`,
        `low`, `high`, `units`, `r_hat`, `ess_bulk`, `ess_tail`, `contraction`, `verdict`, `reason`.

    Raises:
        SettingsError: a unit or a parameter is unknown, or the two do not go together; `common` of a fit of single
            bins; a mass that is not between 0 and 1. ResultError: it is no result of a fit or a series.
    """
    import pandas as pd

    expect_result(result, "fit", "series", remedies={"law": "Print it with `bayesfit show`"})
    check_mass(mass)
    if is_series(result):
        labels = result["posterior"].dataset.coords["dataset"].values.tolist()
        each = {label: summary(one_dataset(result, label), units, common, mass) for label in labels}
        table = pd.concat(each, names=["dataset"])
        table.attrs.update(each[labels[0]].attrs)
        return table
    result = in_units(result, units or {})
    if common:
        return pd.DataFrame(common_rows(result, mass), columns=list(COMMON)).set_index("parameter")
    table = pd.DataFrame(_columns(result, mass), index=pd.Index(result["diagnostics"].q_bin.values, name="q_bin"))
    posterior = result["posterior"].dataset
    table.attrs |= {"units": {name: posterior[name].attrs.get("units", "1") for name in of_bins(result)}, "mass": mass}
    return table


def _columns(result: xr.DataTree, mass: float) -> dict[str, Shaped[np.ndarray, " q_bin"]]:
    """The columns of the table of bins."""
    diagnostics, posterior = result["diagnostics"].dataset, result["posterior"].dataset
    columns = {name: diagnostics[name].values for name in FIRST}
    for parameter in of_bins(result):
        array = posterior[parameter].transpose("q_bin", "chain", "draw")
        low, median, high = interval_of_bins(array, mass)
        mean, sd = array.mean(("chain", "draw")).values, array.std(("chain", "draw")).values
        columns |= {parameter: median, f"{parameter}_mean": mean, f"{parameter}_sd": sd}
        columns |= {f"{parameter}_low": low, f"{parameter}_high": high}
    columns |= {name: diagnostics[name].values for name in LAST}
    return columns | {"contraction": diagnostics["contraction"].min("parameter").values}


def of_bins(result: xr.DataTree) -> tuple[str, ...]:
    """The names of the parameters that have a value in each bin."""
    return tuple(str(name) for name, array in result["posterior"].data_vars.items() if "q_bin" in array.dims)


def common_rows(result: xr.DataTree, mass: float = MASS) -> list[dict[str, Any]]:
    """A row for each parameter that bins have in common, or for each of its groups.

    Raises:
        SettingsError: the bins have nothing in common.
    """
    if "across" not in result:
        raise SettingsError("the bins have nothing in common", field="common", remedy="Fit them with across=...")
    checks, rows = result["across"].dataset, []
    for place, name in enumerate(checks.parameter.values):
        array = result["posterior"][name].transpose(..., "chain", "draw")
        groups = array.coords[array.dims[0]].values if array.ndim > 2 else [None]
        judged = {column: checks[column].values[place] for column in CHECKED}
        for group, draws in zip(groups, array.values.reshape(len(groups), -1), strict=True):
            low, median, high = central_interval(draws, mass=mass)
            label = str(name) if group is None else f"{name}[{group}]"
            units = array.attrs.get("units", "1")
            rows.append({"parameter": label, "median": median, "low": low, "high": high, "units": units, **judged})
    return rows


def interval_of_bins(array: xr.DataArray, mass: float = MASS) -> Float[np.ndarray, "3 q_bin"]:
    """Low end, median and high end of the central interval of each bin; NaN where a bin has no draws."""
    return central_interval(array.transpose("q_bin", "chain", "draw").values, axis=(1, 2), mass=mass)


def tally(result: xr.DataTree) -> dict[str, int]:
    """The number of bins with each verdict, the most frequent first."""
    names, counts = np.unique(result["diagnostics"].verdict.values.astype(str), return_counts=True)
    return {str(names[place]): int(counts[place]) for place in np.argsort(-counts, kind="stable")}


def advice(result: xr.DataTree) -> str:
    """In one line, what the bins together refute, and what to try; "" if they refute nothing."""
    attrs = result["diagnostics"].attrs
    if "advice" in attrs:
        return attrs["advice"]
    refuted, to_try = attrs.get("refuted", ""), attrs.get("noise_to_try", "")  # of a result of an older version
    return f"{refuted}; try noise '{to_try}' or another model" if to_try else refuted


def wrong_errors(result: xr.DataTree) -> str:
    """In one line, in how many bins the stated errors are wrong, and by how much; "" if in none, or none are stated."""
    if not result.attrs.get("data_errors_stated", 1):
        return ""
    diagnostics = result["diagnostics"].dataset
    wrong = diagnostics.error_ratio.values[diagnostics.errors_wrong.values.astype(bool)]
    if not wrong.size:
        return ""
    times = " to ".join(dict.fromkeys(f"{ratio:.2g}" for ratio in (wrong.min(), wrong.max())))
    bins = diagnostics.sizes["q_bin"]
    return f"stated errors are wrong in {wrong.size} of {bins} bins: the noise is {times} times as large"


def settings_to_try(result: xr.DataTree) -> dict[str, Any]:
    """The settings that the advice names, as `bayesfit.fit` and `bayesfit.read` take them; empty if there are none."""
    found = {} if is_series(result) else result["diagnostics"].attrs
    return json.loads(found.get("settings_to_try", "{}"))

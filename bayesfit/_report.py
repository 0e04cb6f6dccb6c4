"""Results as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayesfit._datasets import is_series, one_dataset
from bayesfit._errors import SettingsError
from bayesfit._kinds import expect_result
from bayesfit._units import in_units

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

COLOURS = {"ok": "green", "not_identified": "yellow", "misfit": "magenta", "prior_conflict": "magenta"}
COLOURS["unusable_data"] = "bright_black"
CHECKED = ("r_hat", "ess_bulk", "ess_tail", "contraction", "verdict", "reason")
COMMON = ("parameter", "median", "low", "high", "units", *CHECKED)
LEFT = ("parameter", "verdict", "reason")
UNCONVERGED = ("poor_mixing", "interrupted")


def summary(result: xr.DataTree, units: Mapping[str, str] | None = None, common: bool = False) -> pd.DataFrame:
    """One row a bin: q, phi, verdict, reason, diagnostics, and the median and central 95 % interval of every parameter.

    Args:
        result: what `fit` or `load` returned.
        units: parameter to the unit to show it in, `{"D": "um^2/s"}`.
        common: True for the parameters that the bins of a joint fit have in common, one row each, and one for each of
            its groups.

    Returns:
        Table indexed by q_bin (of a series by dataset and q_bin), where `contraction` is the smallest of the curve's
        parameters; columns `NAME`, `NAME_low`, `NAME_high` in the units of `result.posterior[NAME]` or those given.
        What bins have in common is left out: this has a table of its own, indexed by parameter, with columns `median`,
        `low`, `high`, `units`, `r_hat`, `ess_bulk`, `ess_tail`, `contraction`, `verdict`, `reason`.

    Raises:
        SettingsError: a unit or a parameter is unknown, or the two do not go together; `common` of a fit of single
            bins. ResultError: it is no result of a fit or a series.
    """
    import pandas as pd

    expect_result(result, "fit", "series", remedies={"law": "Print it with `bayesfit show`"})
    if is_series(result):
        labels = result["posterior"].dataset.coords["dataset"].values.tolist()
        each = {label: summary(one_dataset(result, label), units, common) for label in labels}
        return pd.concat(each, names=["dataset"])
    result = in_units(result, units or {})
    if common:
        return pd.DataFrame(_common_rows(result), columns=list(COMMON)).set_index("parameter")
    diagnostics, posterior = result["diagnostics"].dataset, result["posterior"].dataset
    columns: dict[str, Any] = {name: diagnostics[name].values for name in ("q", "phi", "verdict", "reason")}
    for name in ("points", "r_hat", "ess_bulk", "ess_tail", "divergences", "error_ratio", "errors_wrong"):
        columns[name] = diagnostics[name].values
    columns["contraction"] = diagnostics["contraction"].min("parameter").values
    for parameter in of_bins(result):
        median, low, high = _quantiles(posterior[parameter])
        columns |= {str(parameter): median, f"{parameter}_low": low, f"{parameter}_high": high}
    return pd.DataFrame(columns, index=pd.Index(diagnostics.q_bin.values, name="q_bin"))


def of_bins(result: xr.DataTree) -> tuple[str, ...]:
    """Names of the parameters that each bin has its own value of."""
    return tuple(str(name) for name, array in result["posterior"].data_vars.items() if "q_bin" in array.dims)


def _common_rows(result: xr.DataTree) -> list[dict[str, Any]]:
    """What is known of each parameter that bins have in common, of each of its groups."""
    if "across" not in result:
        raise SettingsError("the bins have nothing in common", field="common", remedy="Fit them with across=...")
    checks, rows = result["across"].dataset, []
    for place, name in enumerate(checks.parameter.values):
        array = result["posterior"][name].transpose(..., "chain", "draw")
        groups = array.coords[array.dims[0]].values if array.ndim > 2 else [None]
        known = {column: checks[column].values[place] for column in CHECKED}
        for group, draws in zip(groups, array.values.reshape(len(groups), -1), strict=True):
            low, median, high = np.nanquantile(draws, [0.025, 0.5, 0.975]) if np.isfinite(draws).any() else [np.nan] * 3
            label = str(name) if group is None else f"{name}[{group}]"
            units = array.attrs.get("units", "1")
            rows.append({"parameter": label, "median": median, "low": low, "high": high, "units": units, **known})
    return rows


def common_table(result: xr.DataTree) -> Table:
    """A table for the terminal: a row for each parameter that bins have in common, for each of its groups, with its
    median, 95 % interval and verdict."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(header_style="bold")
    for heading in ("parameter", "median (95 % interval)", "R-hat", "ESS", "contraction", "verdict", "reason"):
        shown.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=heading != "reason")
    for row in _common_rows(result):
        units = "" if row["units"] in ("1", "") else f" [{row['units']}]"
        colour = COLOURS.get(row["verdict"], "red")
        shown.add_row(
            escape(row["parameter"] + units),
            interval(row["median"], row["low"], row["high"]),
            f"{row['r_hat']:.3f}",
            f"{np.min([row['ess_bulk'], row['ess_tail']]):.0f}",
            _number(row["contraction"]),
            f"[{colour}]{row['verdict']}[/]",
            escape(row["reason"]),
        )
    return shown


def common_lines(result: xr.DataTree, most: int = 3) -> list[str]:
    """The bins that are farthest from what each link says, and the verdict on the whole."""
    checks, residuals = result["across"].dataset, result["law_residuals"].dataset
    lines = []
    for name in checks.linked.values:
        residual = residuals[name].values
        order = np.argsort(-np.abs(np.nan_to_num(residual)), kind="stable")[:most]
        words = [
            f"{residuals.q_bin.values[i]} (q = {residuals.q.values[i]:.4g}) {residual[i]:+.1f} sd"
            for i in order
            if np.isfinite(residual[i])
        ]
        if words:
            lines.append(f"{name}, bins farthest from what they have in common: {', '.join(words)}")
    return [*lines, f"all bins together: {checks.joint_verdict.item()}: {checks.joint_reason.item()}"]


def derived_lines(result: xr.DataTree) -> list[str]:
    """A line for each quantity that is no bin's own and was not sampled: median and 95 % interval."""
    sampled = result["across"].parameter.values.tolist() if "across" in result else []
    lines = []
    for name, array in result["posterior"].data_vars.items():
        if "q_bin" not in array.dims and name not in sampled:
            low, median, high = np.nanquantile(array.values, [0.025, 0.5, 0.975])
            lines.append(f"{_heading(result, str(name))}: {interval(median, low, high)}".replace("\\[", "["))
    return lines


def _quantiles(array: xr.DataArray) -> np.ndarray:
    """Median, 2.5 % and 97.5 % quantile of each bin (3, q_bin); NaN where a bin has no draws."""
    flat = array.transpose("q_bin", "chain", "draw").values.reshape(array.sizes["q_bin"], -1)
    made = np.isfinite(flat)
    quantiles = np.full((3, len(flat)), np.nan)
    for row in np.flatnonzero(made.any(axis=1)):
        quantiles[:, row] = np.quantile(flat[row, made[row]], [0.5, 0.025, 0.975])
    return quantiles


def table(result: xr.DataTree, parameters: tuple[str, ...] = (), title: str = "") -> Table:
    """A table for the terminal: a row a bin with its verdict, some parameters as median and 95 % interval, and why."""
    from rich.table import Table

    rows = summary(result)
    names = tuple(name for name in parameters or of_bins(result) if name in of_bins(result))
    shown = Table(title=title or None, title_justify="left", header_style="bold")
    headings = ("bin", "q", *(_heading(result, name) for name in names), "errors", "contraction", "verdict", "reason")
    for heading in headings:
        shown.add_column(
            heading, justify="left" if heading in ("verdict", "reason") else "right", no_wrap=heading != "reason"
        )
    for index, row in rows.iterrows():
        values = [interval(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in names]
        colour = COLOURS.get(row.verdict, "red")
        checks = _errors(row.error_ratio, row.errors_wrong), _number(row.contraction)
        shown.add_row(str(index), f"{row.q:.4g}", *values, *checks, f"[{colour}]{row.verdict}[/]", row.reason)
    return shown


def _errors(ratio: float, wrong: bool) -> str:
    """True noise over stated error, in red where the stated errors are wrong."""
    return f"[red]×{ratio:.2g}[/]" if wrong else _number(ratio, "×")


def _number(value: float, sign: str = "") -> str:
    return f"{sign}{value:.2f}" if np.isfinite(value) else "-"


def _heading(result: xr.DataTree, name: str) -> str:
    units = result["posterior"][name].attrs.get("units", "1")
    return name if units in ("1", "") else f"{name} [{units}]".replace("[", r"\[")


def interval(median: float, low: float, high: float) -> str:
    """A median with its interval, to the digits that the interval's width gives sense to."""
    if not np.isfinite([median, low, high]).all():
        return "-"
    width = max(high - low, 1e-12 * abs(median), 1e-300)
    digits = int(np.clip(np.ceil(np.log10(max(abs(low), abs(high), 1e-300) / width)) + 2, 2, 8))
    median_, low_, high_ = (f"{value:#.{digits}g}".rstrip(".") for value in (median, low, high))
    return f"{median_} ({low_} to {high_})"


def tally(result: xr.DataTree) -> dict[str, int]:
    """How many bins have each verdict, the most frequent first."""
    names, counts = np.unique(result["diagnostics"].verdict.values.astype(str), return_counts=True)
    return {str(names[place]): int(counts[place]) for place in np.argsort(-counts, kind="stable")}


def comparison_table(comparison: xr.Dataset) -> Table:
    """A table for the terminal: a row a bin with its best model, and of each model how far it is behind the best and
    its stacking weight; below, the sums over all bins.

    Args:
        comparison: what `bayesfit.compare` returned.
    """
    from rich.markup import escape
    from rich.table import Table

    names = [str(name) for name in comparison.model.values]
    shown = Table(header_style="bold", caption=escape(comparison_line(comparison)), caption_justify="left")
    for heading in ("bin", "q", "best", *(heading for name in names for heading in (name, "weight"))):
        shown.add_column(escape(heading), justify="left" if heading == "best" else "right", no_wrap=True)
    for index in range(comparison.sizes["q_bin"]):
        row = comparison.isel(q_bin=index)
        best = [name for name, rank in zip(names, row["rank"].values, strict=True) if rank == 0]
        cells = [cell for model in range(len(names)) for cell in _compared(row.isel(model=model))]
        shown.add_row(str(row.q_bin.item()), f"{row.q.item():.4g}", escape(best[0]) if best else "-", *cells)
    return shown


def _compared(row: xr.Dataset) -> tuple[str, str]:
    """How far one model is behind the best of one bin, with what speaks against believing it, and its weight."""
    if np.isnan(row.elpd.item()):
        return "-", "-"
    behind = "0" if row["rank"] == 0 else f"{row.elpd_diff.item():.1f} ± {row.diff_se.item():.1f}"
    doubts = [f"k {row.pareto_k.item():.2f}"] if row.bad_k > 0 else []
    doubts += [row.verdict.item()] if row.verdict.item() in UNCONVERGED else []
    return f"{behind} [yellow]({', '.join(doubts)})[/]" if doubts else behind, f"{row.weight.item():.2f}"


def comparison_line(comparison: xr.Dataset) -> str:
    """The sums over bins: elpd of the best model, how far the others are behind, and how many bins each model wins by
    more than two standard errors."""
    from bayesfit._compare import totals

    sums = totals(comparison)
    order = np.argsort(-sums.elpd.values, kind="stable")
    parts = []
    for place, model in enumerate(order):
        row = sums.isel(model=model)
        behind = f"{row.elpd_diff.item():.1f} ± {row.diff_se.item():.1f}" if place else f"elpd {row.elpd.item():.1f}"
        parts.append(f"{row.model.item()} {behind}, ahead by 2 se in {row.wins.item()}")
    return f"sum of {sums.attrs['bins']} bins: " + "; ".join(parts)


def law_table(fitted: xr.DataTree) -> Table:
    """A table for the terminal: every parameter of a law with its median and 95 % interval.

    Args:
        fitted: what `bayesfit.law` returned.
    """
    from rich.markup import escape
    from rich.table import Table

    attrs, posterior = fitted.attrs, fitted["posterior"].dataset
    title = f"{attrs['law']} of {attrs['parameter']}" + (f": {attrs['law_formula']}" if attrs["law_formula"] else "")
    shown = Table(title=escape(title), title_justify="left", header_style="bold")
    shown.add_column("parameter", no_wrap=True)
    shown.add_column("median (95 % interval)", justify="right", no_wrap=True)
    shown.add_column("what it is")
    for name, array in posterior.data_vars.items():
        low, median, high = np.quantile(array.values, [0.025, 0.5, 0.975])
        heading = _heading(fitted, str(name))
        shown.add_row(heading, interval(median, low, high), escape(array.attrs.get("long_name", "")))
    return shown


def law_lines(fitted: xr.DataTree, most: int = 3) -> list[str]:
    """What a law was fitted to, its verdict, and the bins that are farthest from it."""
    bins, diagnostics = fitted["bins"].dataset, fitted["diagnostics"].dataset
    used = bins.used.values.astype(bool)
    reasons, counts = np.unique(bins.left_out.values[~used].astype(str), return_counts=True)
    left_out = ", ".join(f"{count} {reason}" for reason, count in zip(reasons, counts, strict=True))
    residual = np.abs(np.where(used, bins.residual.values, 0.0))
    farthest = np.argsort(-residual, kind="stable")[: min(most, int(used.sum()))]
    words = [f"{bins.q_bin.values[i]} (q = {bins.q.values[i]:.4g}) {bins.residual.values[i]:+.1f} sd" for i in farthest]
    return [
        f"{used.sum()} bins used" + (f"; left out: {left_out}" if left_out else ""),
        f"farthest from the law, in sd of each bin: {', '.join(words)}",
        f"{diagnostics.law_verdict.item()}: {diagnostics.law_reason.item()}",
    ]


def advice(result: xr.DataTree) -> str:
    """In one line, what the bins together refute, and what to try; "" where nothing."""
    attrs = result["diagnostics"].attrs
    if "advice" in attrs:
        return attrs["advice"]
    refuted, to_try = attrs.get("refuted", ""), attrs.get("noise_to_try", "")  # of a result of an older version
    return f"{refuted}; try noise '{to_try}' or another model" if to_try else refuted

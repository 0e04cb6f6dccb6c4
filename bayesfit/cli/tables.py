"""Results as tables and lines for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from bayesfit.diagnose.interval import central_interval
from bayesfit.result.summary import common_rows, of_bins, summary

if TYPE_CHECKING:
    from rich.table import Table

COLOURS = {"ok": "green", "not_identified": "yellow", "misfit": "magenta", "prior_conflict": "magenta"}
COLOURS |= {"unusable_data": "bright_black"}
WHOLE = ("bin", "q", "errors", "contraction", "verdict")  # columns that are not broken into lines
LEFT = ("parameter", "verdict", "reason")
UNCONVERGED = ("poor_mixing", "interrupted")


def common_table(result: xr.DataTree) -> Table:
    """A table for the terminal with one row per parameter that bins have in common, or per group of bins: its median,
    95 % interval and verdict."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(header_style="bold")
    for heading in ("parameter", "median (95 % interval)", "R-hat", "ESS", "contraction", "verdict", "reason"):
        shown.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=heading != "reason")
    for row in common_rows(result):
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
    """Lines that name the bins that are farthest from what each pooling says, and the verdict on the whole."""
    checks, residuals = result["across"].dataset, result["law_residuals"].dataset
    lines = []
    for name in checks.pooled.values:
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
    """One line for each derived quantity that does not belong to a single bin: median and 95 % interval."""
    sampled = result["across"].parameter.values.tolist() if "across" in result else []
    lines = []
    for name, array in result["posterior"].data_vars.items():
        if "q_bin" not in array.dims and name not in sampled:
            low, median, high = central_interval(array.values)
            lines.append(f"{_heading(result, str(name))}: {interval(median, low, high)}".replace("\\[", "["))
    return lines


def table(result: xr.DataTree, parameters: tuple[str, ...] = (), title: str = "") -> Table:
    """A table for the terminal: one row per bin with verdict, some parameters as median and 95 % interval, and why."""
    from rich.table import Table

    rows = summary(result)
    names = tuple(name for name in parameters or of_bins(result) if name in of_bins(result))
    shown = Table(title=title or None, title_justify="left", header_style="bold")
    headings = ("bin", "q", *(_heading(result, name) for name in names), "errors", "contraction", "verdict", "reason")
    least = {"verdict": rows.verdict.str.len().max(), "reason": 30}
    for heading in headings:
        justify: Literal["left", "right"] = "left" if heading in ("verdict", "reason") else "right"
        shown.add_column(heading, justify=justify, no_wrap=heading in WHOLE, min_width=least.get(heading))
    for place, (index, row) in enumerate(rows.iterrows()):
        values = [interval(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in names]
        vague = _not_identified(result, place)
        values = [f"[dim]{value}[/]" if name in vague else value for name, value in zip(names, values, strict=True)]
        colour = COLOURS.get(row.verdict, "red")
        checks = _errors(row.error_ratio, row.errors_wrong), _number(row.contraction)
        shown.add_row(str(index), f"{row.q:.4g}", *values, *checks, f"[{colour}]{row.verdict}[/]", row.reason)
    return shown


def _not_identified(result: xr.DataTree, place: int) -> set[str]:
    """The parameters that the data of a bin do not determine."""
    diagnostics = result["diagnostics"].dataset
    if "identified" not in diagnostics:  # in a result of an older version
        return set()
    known = diagnostics.identified.isel(q_bin=place).values.astype(bool)
    return {str(name) for name in diagnostics.parameter.values[~known]}


def _errors(ratio: float, wrong: bool) -> str:
    """True noise over stated error, in red where the stated errors are wrong."""
    return f"[red]×{ratio:.2g}[/]" if wrong else _number(ratio, "×")


def _number(value: float, sign: str = "") -> str:
    return f"{sign}{value:.2f}" if np.isfinite(value) else "-"


def _heading(result: xr.DataTree, name: str) -> str:
    units = result["posterior"][name].attrs.get("units", "1")
    return name if units in ("1", "") else f"{name} [{units}]".replace("[", r"\[")


def interval(median: float, low: float, high: float) -> str:
    """A median with its interval, with as many digits as the width of the interval makes meaningful."""
    if not np.isfinite([median, low, high]).all():
        return "-"
    width = max(high - low, 1e-12 * abs(median), 1e-300)
    digits = int(np.clip(np.ceil(np.log10(max(abs(low), abs(high), 1e-300) / width)) + 2, 2, 8))
    median_, low_, high_ = (f"{value:#.{digits}g}".rstrip(".") for value in (median, low, high))
    return f"{median_} ({low_} to {high_})"


def comparison_table(comparison: xr.Dataset) -> Table:
    """A table for the terminal: one row per bin with its best model, and how far each model is behind the best and
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
    """How far one model is behind the best one of a bin, with marks if that is not to be trusted; and its weight."""
    if np.isnan(row.elpd.item()):
        return "-", "-"
    behind = "0" if row["rank"] == 0 else f"{row.elpd_diff.item():.1f} ± {row.diff_se.item():.1f}"
    doubts = [f"k {row.pareto_k.item():.2f}"] if row.bad_k > 0 else []
    doubts += [row.verdict.item()] if row.verdict.item() in UNCONVERGED else []
    return f"{behind} [yellow]({', '.join(doubts)})[/]" if doubts else behind, f"{row.weight.item():.2f}"


def comparison_line(comparison: xr.Dataset) -> str:
    """The sums over bins: elpd of the best model, how far the others are behind, and how many bins each model wins by
    more than two standard errors."""
    from bayesfit.api.compare import totals

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
        low, median, high = central_interval(array.values)
        heading = _heading(fitted, str(name))
        shown.add_row(heading, interval(median, low, high), escape(array.attrs.get("long_name", "")))
    return shown


def law_lines(fitted: xr.DataTree, most: int = 3) -> list[str]:
    """Lines that say what a law was fitted to, its verdict, and which bins are farthest from it."""
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

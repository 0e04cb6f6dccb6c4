"""Results as tables and lines for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from bayesfit.cli.numbers import COLOURS, heading_of, interval, number
from bayesfit.diagnose.interval import central_interval
from bayesfit.result.summary import common_rows

if TYPE_CHECKING:
    from rich.table import Table

LEFT = ("in common", "verdict", "why")
UNCONVERGED = ("poor_mixing", "interrupted")


def common_table(result: xr.DataTree, wide: bool = False) -> Table:
    """A table for the terminal with one row per parameter that bins have in common, or per group of bins: its median,
    95 % interval and verdict; the checks, if it may be `wide`."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    checks = ("R-hat", "ESS", "contraction") if wide else ()
    shown = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("in common", "median (95 % interval)", *checks, "verdict", "why"):
        shown.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=heading != "why")
    for row in common_rows(result):
        units = "" if row["units"] in ("1", "") else f" [{row['units']}]"
        ess = f"{np.min([row['ess_bulk'], row['ess_tail']]):.0f}"
        numbers = (f"{row['r_hat']:.3f}", ess, number(row["contraction"])) if wide else ()
        shown.add_row(
            escape(row["parameter"] + units),
            interval(row["median"], row["low"], row["high"]),
            *numbers,
            f"[{COLOURS.get(row['verdict'], 'red')}]{row['verdict']}[/]",
            escape(row["reason"] if wide or row["verdict"] != "ok" else ""),
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
            lines.append(f"{heading_of(result, str(name))}: {interval(median, low, high)}".replace("\\[", "["))
    return lines


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
        heading = heading_of(fitted, str(name))
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

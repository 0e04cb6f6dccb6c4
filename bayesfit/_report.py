"""Results as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

COLOURS = {"ok": "green", "not_identified": "yellow", "misfit": "magenta", "unusable_data": "bright_black"}


def summary(result: xr.DataTree) -> pd.DataFrame:
    """One row a bin: q, phi, verdict, reason, diagnostics, and the median and central 95 % interval of every parameter.

    Args:
        result: what `fit` or `load` returned.

    Returns:
        Table indexed by q_bin, where `contraction` is the smallest of the curve's parameters; columns `NAME`,
        `NAME_low`, `NAME_high` in the units of `result.posterior[NAME]`.
    """
    diagnostics, posterior = result["diagnostics"].dataset, result["posterior"].dataset
    columns: dict[str, Any] = {name: diagnostics[name].values for name in ("q", "phi", "verdict", "reason")}
    for name in ("points", "r_hat", "ess_bulk", "ess_tail", "divergences", "error_ratio", "errors_wrong"):
        columns[name] = diagnostics[name].values
    columns["contraction"] = diagnostics["contraction"].min("parameter").values
    for parameter, array in posterior.data_vars.items():
        median, low, high = _quantiles(array)
        columns |= {str(parameter): median, f"{parameter}_low": low, f"{parameter}_high": high}
    import pandas as pd

    return pd.DataFrame(columns, index=pd.Index(diagnostics.q_bin.values, name="q_bin"))


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
    names = parameters or tuple(str(name) for name in result["posterior"].data_vars)
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

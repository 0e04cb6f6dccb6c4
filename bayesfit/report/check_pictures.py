"""Pictures of checks: convergence, identification and residuals of every bin, and the comparison of models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayesfit.compute.errors import ResultError
from bayesfit.compute.kinds import expect_result
from bayesfit.report.colours import look_of
from bayesfit.report.panels import SMALL, TINY, Over, Size, legend_of_verdicts, panels
from bayesfit.report.parameter_pictures import identified
from bayesfit.report.pictures import check_picture, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 3.6, 2.6  # inches
LIMITS = {"r_hat": 1.01, "ess_bulk": 400.0, "p-value": 0.005, "contraction": 0.75}
CHECKS = {"p_chi2": "size", "p_correlation": "correlation", "p_tails": "outliers", "p_trend": "trend"}
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7A3E9D", "#5F5F5F")
SMALLEST_P = 1e-6


def plot_diagnostics(
    result: xr.DataTree, *, axes: Any = None, size: Size | None = None, path: str | Path | None = None
) -> Figure:
    """Draw the checks of every bin, each with the limit that verdicts hold it to: R-hat, effective sample size,
    p-values of the residuals, and how much the data narrow the prior of each parameter.

    Args:
        result: what `fit` or `load` returned.
        axes: matplotlib's axes to draw on, four.
        size: "column" or "page" of a journal.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: it is no result of a fit. SettingsError: no picture has the path's ending.
    """
    expect_result(result, "fit")
    check_picture(path)
    made, over = panels(4, axes, size, 2, PANEL), Over.of(result)
    checks = result["diagnostics"].dataset
    rhat, ess, residuals, narrowed = made.axes
    for axis, name, label in ((rhat, "r_hat", "largest R-hat"), (ess, "ess_bulk", "smallest ESS")):
        for place, verdict in enumerate(checks.verdict.values.astype(str)):
            look = look_of(verdict)
            axis.plot(over.x[place], checks[name].values[place], look.marker, ms=4, color=look.colour)
        _finish(axis, over, label, LIMITS[name])
    legend_of_verdicts(rhat, checks.verdict.values.astype(str))
    for colour, (name, label) in zip(COLOURS, CHECKS.items(), strict=False):
        values = np.maximum(checks[name].values, SMALLEST_P)
        residuals.plot(over.x, values, ".", ms=4, color=colour, label=label)
    residuals.set_yscale("log")
    _finish(residuals, over, "p-value of residuals", LIMITS["p-value"])
    residuals.legend(fontsize=TINY, framealpha=0.6)
    for colour, name in zip(COLOURS, checks.parameter.values.astype(str), strict=False):
        contraction = checks.contraction.sel(parameter=name).values
        narrowed.plot(over.x, contraction, ".-", ms=4, lw=0.6, color=colour, label=name)
        cut = ~identified(result, name) & (contraction >= LIMITS["contraction"])
        narrowed.plot(over.x[cut], contraction[cut], "x", ms=6, color=colour)
    _finish(narrowed, over, "contraction (x: cut off by the prior)", LIMITS["contraction"])
    narrowed.legend(fontsize=TINY, framealpha=0.6)
    return written(made.figure, path)


def _finish(axis: Axes, over: Over, label: str, limit: float) -> None:
    """Label an axis, and draw the limit that verdicts hold its values to."""
    axis.axhline(limit, color="0.6", lw=0.8, ls="--", zorder=0)
    axis.set_ylabel(label, fontsize=SMALL)
    over.label(axis)


def plot_compare(
    comparison: xr.Dataset, *, axes: Any = None, size: Size | None = None, path: str | Path | None = None
) -> Figure:
    """Draw a comparison of models: above, how far each is behind the best one in every bin, with standard errors;
    below, their stacking weights.

    Args:
        comparison: what `compare` returned.
        axes: matplotlib's axes to draw on, two.
        size: "column" or "page" of a journal.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: it is no comparison. SettingsError: no picture has the path's ending.
    """
    if not isinstance(comparison, xr.Dataset) or "elpd_diff" not in comparison:
        raise ResultError("is no comparison", field="comparison", remedy="Give what bayesfit.compare returned")
    check_picture(path)
    made = panels(2, axes, size, 1, (5.6, 2.5))
    above, below = made.axes
    bins, base = comparison.q_bin.values.astype(float), np.zeros(comparison.sizes["q_bin"])
    count = comparison.sizes["model"]
    for number, (colour, name) in enumerate(zip(COLOURS * count, comparison.model.values.astype(str), strict=False)):
        row, shift = comparison.sel(model=name), 0.5 * ((number + 0.5) / count - 0.5)
        above.errorbar(bins + shift, row.elpd_diff, row.diff_se, fmt="o", ms=3, lw=0.9, color=colour, label=name)
        below.bar(bins, row.weight.values, bottom=base, color=colour, width=0.85)
        base = base + np.nan_to_num(row.weight.values)
    above.axhline(0, color="0.6", lw=0.8, zorder=0)
    above.set_ylabel("elpd less that of the best [nats]", fontsize=SMALL)
    above.legend(fontsize=TINY)
    below.set_ylabel("stacking weight", fontsize=SMALL)
    below.set_xlabel("bin", fontsize=SMALL)
    return written(made.figure, path)

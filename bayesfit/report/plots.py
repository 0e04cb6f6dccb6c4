"""Pictures of a fit: curves with their posterior bands, the rate over q, and a law in q."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from bayesfit.compute.kinds import Kind, expect_result
from bayesfit.report.curve_pictures import ACROSS, PANEL, Curve, draw_bin
from bayesfit.report.panels import chosen_places, legend_of_verdicts, pairs_of_panels
from bayesfit.report.parameter_pictures import draw_parameter
from bayesfit.report.pictures import check_picture, written
from bayesfit.result.summary import of_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHARACTERS = 90  # of a line above the picture of a law
DRAWN_BY: dict[Kind, str] = {
    "fit": "Draw it with plot_fit",
    "series": "Draw it with plot_series, or one of it: bayesfit.one_dataset(result, NAME)",
    "law": "Draw it with `bayesfit plot`",
}


def plot_fit(result: xr.DataTree, bins: Sequence[int] | None = None, path: str | Path | None = None) -> Figure:
    """Draw the curves of a fit with their residuals, one panel per bin, and the first parameter over q.

    Args:
        result: what `fit` or `load` returned.
        bins: which q_bin to draw; by default all of them (of more than 60, first those that are not ok).
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: there is no such bin, or it is no result of a fit. SettingsError: no picture has the path's ending.
    """
    expect_result(result, "fit", remedies=DRAWN_BY)
    check_picture(path)
    places, words = chosen_places(result, bins)
    figure, pairs = pairs_of_panels(len(places) + 1, None, ACROSS, PANEL)
    for pair, place in zip(pairs, places, strict=False):
        draw_bin(*pair, Curve.of(result, place))
    _first_parameter(*pairs[-1], result)
    figure.suptitle(words, fontsize=8)
    return written(figure, path)


def _first_parameter(axis: Axes, below: Axes, result: xr.DataTree) -> None:
    """The rate of every bin, or else the first parameter that has a value in each bin, in the place of two axes."""
    low, high = below.get_position(), axis.get_position()
    axis.set_position((low.x0, low.y0, low.width, high.y1 - low.y0))
    below.remove()
    names = of_bins(result)
    name = "rate" if "rate" in names else next(iter(names), "")
    if not name or not np.isfinite(result["posterior"].dataset[name].values).any():
        axis.set_visible(False)
        return
    draw_parameter(axis, result, name)
    verdicts = result["diagnostics"].verdict.values.astype(str)
    legend_of_verdicts(axis, [verdict for verdict in verdicts if verdict != "unusable_data"])
    axis.set_title(f"{name} with 68 and 95 % intervals", fontsize=7)


def plot_law(fitted: xr.DataTree, path: str | Path | None = None) -> Figure:
    """Draw the parameter of every bin over q with its standard deviation, the law's mean and 95 % band, and below them
    the residuals in sd of each bin; the verdict stands on top. Bins that the law is not fitted to are grey.

    Args:
        fitted: what `bayesfit.law` returned.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: it is no result of a law, or that of a series. SettingsError: no picture has the path's ending.
    """
    from matplotlib.figure import Figure

    expect_result(fitted, "law", field="fitted", remedies=DRAWN_BY)
    check_picture(path)
    figure = Figure(figsize=(5.2, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    _law_over_q(above, fitted)
    _law_residuals(below, fitted["bins"].dataset)
    checks = fitted["diagnostics"].dataset
    words = f"{checks.law_verdict.item()}: {checks.law_reason.item()}"
    figure.suptitle("\n".join(textwrap.wrap(words, CHARACTERS)), fontsize=8)
    return written(figure, path)


def _law_over_q(axis: Axes, fitted: xr.DataTree) -> None:
    """The law with its band, and the bins with their standard deviations."""
    bins, band = fitted["bins"].dataset, fitted["law_curve"].dataset
    axis.fill_between(band.q, band.lower, band.upper, color="tab:blue", alpha=0.35, lw=0)
    axis.plot(band.q, band["mean"], color="tab:blue", lw=1.2, label=fitted.attrs["law_formula"] or fitted.attrs["law"])
    q, mean, sd, used = bins.q.values, bins["mean"].values, bins.sd.values, bins.used.values.astype(bool)
    shown = np.isfinite(q) & (q > 0) & np.isfinite(mean)
    for chosen, colour, label in ((shown & ~used, "0.7", "not used"), (shown & used, "0.2", "")):
        if chosen.any():
            axis.errorbar(q[chosen], mean[chosen], sd[chosen], fmt="o", ms=3, lw=1, color=colour, label=label or None)
    axis.set_xscale("log")
    if np.all(band.lower > 0) and np.all(mean[shown] > 0):
        axis.set_yscale("log")
    unit = band["mean"].attrs.get("units", "1")
    axis.set_ylabel(fitted.attrs["parameter"] + ("" if unit == "1" else f" [{unit}]"))
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=8)


def _law_residuals(axis: Axes, bins: xr.Dataset) -> None:
    """The residuals of the used bins."""
    used = bins.used.values.astype(bool)
    axis.axhspan(-2, 2, color="0.93", lw=0)
    axis.axhline(0, color="tab:blue", lw=1)
    axis.plot(bins.q.values[used], bins.residual.values[used], "o", ms=3, color="0.2")
    axis.set_ylabel("residual [sd]")
    axis.set_xlabel("q [1/Å]")
    axis.tick_params(axis="x", which="both", labelsize=7)

"""Pictures of parameters: over q, and their whole distributions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Bool

from bayesfit.compute.kinds import expect_result
from bayesfit.report.colours import look_of
from bayesfit.report.panels import (
    SMALL,
    TINY,
    Over,
    Size,
    chosen_parameters,
    chosen_places,
    label_of,
    legend_of_verdicts,
    panels,
)
from bayesfit.report.pictures import check_picture, written
from bayesfit.result.summary import interval_of_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 3.6, 2.8  # inches
PALE = 0.3  # opacity of what the data hardly determine


def plot_parameters(
    result: xr.DataTree,
    parameters: Sequence[str] | str | None = None,
    *,
    axes: Any = None,
    size: Size | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Draw parameters over q: median, 68 % interval (thick) and 95 % interval (thin) of every bin, in the colour and
    marker of its verdict, pale where the data hardly determine the parameter; of a joint fit, the law with its band.

    Args:
        result: what `fit` or `load` returned.
        parameters: which to draw; by default those of the curve.
        axes: matplotlib's axes to draw on, one for each parameter.
        size: "column" or "page" of a journal; by default as large as the panels need.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: it is no result of a fit. SettingsError: there is no such parameter, no picture has the path's
            ending, or the number of axes is not that of the parameters.
    """
    expect_result(result, "fit")
    check_picture(path)
    names = chosen_parameters(result, parameters)
    made = panels(len(names), axes, size, 2, PANEL)
    for number, (axis, name) in enumerate(zip(made.axes, names, strict=True)):
        draw_parameter(axis, result, name)
        if number == 0:
            legend_of_verdicts(axis, _drawn_verdicts(result))
    return written(made.figure, path)


def draw_parameter(axis: Axes, result: xr.DataTree, name: str) -> None:
    """Draw one parameter of every bin."""
    over, array = Over.of(result), result["posterior"].dataset[name]
    outer, inner = (interval_of_bins(array, mass) for mass in (0.95, 0.68))
    verdicts, known = result["diagnostics"].verdict.values.astype(str), identified(result, name)
    for place in np.flatnonzero(np.isfinite(outer[1])):
        look, alpha = look_of(verdicts[place]), 1.0 if known[place] else PALE
        for (low, _, high), width in ((outer[:, place], 0.9), (inner[:, place], 2.2)):
            axis.plot([over.x[place]] * 2, [low, high], color=look.colour, lw=width, alpha=alpha)
        axis.plot(over.x[place], outer[1, place], look.marker, ms=4, color=look.colour, alpha=alpha)
    _draw_law(axis, result, name, over.is_q)
    middle = outer[1][np.isfinite(outer[1])]
    if middle.size and middle.min() > 0 and middle.max() > 5.0 * middle.min():
        axis.set_yscale("log")
    axis.set_ylabel(label_of(result, name), fontsize=SMALL)
    over.label(axis)


def _draw_law(axis: Axes, result: xr.DataTree, name: str, over_q: bool) -> None:
    """The law of a joint fit with its band."""
    if "law_curve" not in result or f"{name}_lower" not in result["law_curve"] or not over_q:
        return
    curve = result["law_curve"].dataset
    middle, low, high = (
        curve[name + end].transpose(..., "point").values.reshape(-1, curve.sizes["point"])
        for end in ("", "_lower", "_upper")
    )
    for number, row in enumerate(middle):
        axis.fill_between(curve.q.values, low[number], high[number], color="0.6", alpha=0.3, lw=0, zorder=0)
        axis.plot(curve.q.values, row, color="0.3", lw=1.0, zorder=0)


def identified(result: xr.DataTree, name: str) -> Bool[np.ndarray, " q_bin"]:
    """In which bins the data determine a parameter; all, if that was not asked of it."""
    checks = result["diagnostics"].dataset
    if "identified" not in checks or name not in checks.parameter.values:
        return np.ones(checks.sizes["q_bin"], bool)
    return checks.identified.sel(parameter=name).values.astype(bool)


def _drawn_verdicts(result: xr.DataTree) -> list[str]:
    return [str(name) for name in result["diagnostics"].verdict.values if name != "unusable_data"]


def plot_distribution(
    result: xr.DataTree,
    parameter: str = "rate",
    bins: Sequence[int] | None = None,
    *,
    ax: Axes | None = None,
    size: Size | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Draw the whole posterior distribution of a parameter in every bin, side by side, with its quartiles.

    Args:
        result: what `fit` or `load` returned.
        parameter: which to draw.
        bins: which q_bin to draw; by default all of them (of more than 60, first those that are not ok).
        ax: matplotlib's axes to draw on.
        size: "column" or "page" of a journal.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: there is no such bin, or it is no result of a fit. SettingsError: there is no such parameter, or no
            picture has the path's ending.
    """
    expect_result(result, "fit")
    check_picture(path)
    (name,) = chosen_parameters(result, parameter)
    places, words = chosen_places(result, bins)
    array = result["posterior"].dataset[name].transpose("q_bin", "chain", "draw").values
    made = panels(1, None if ax is None else [ax], size, 1, (max(3.5, 0.32 * len(places)), 3.2))
    (axis,), known = made.axes, identified(result, name)
    drawn = [place for place in places if np.isfinite(array[place]).any()]
    for number, place in enumerate(places):
        if place not in drawn:
            continue
        draws, look = array[place][np.isfinite(array[place])], look_of(str(result["diagnostics"].verdict.values[place]))
        bodies: Any = axis.violinplot(draws, [number], widths=0.9, showextrema=False)["bodies"]
        body = bodies[0]
        body.set(facecolor=look.colour, alpha=0.7 if known[place] else PALE, edgecolor="none")
        low, middle, high = np.quantile(draws, [0.25, 0.5, 0.75])
        axis.plot([number] * 2, [low, high], color="0.2", lw=1.2)
        axis.plot(number, middle, ".", color="0.2", ms=4)
    labels = result["diagnostics"].q_bin.values[places]
    axis.set_xticks(range(len(places)), [str(label) for label in labels], fontsize=TINY)
    axis.set_xlabel("bin" + (f": {words}" if words else ""), fontsize=SMALL)
    axis.set_ylabel(label_of(result, name), fontsize=SMALL)
    values = array[drawn]
    if drawn and np.nanmin(values) > 0 and np.nanmax(values) > 20 * np.nanmin(values):
        axis.set_yscale("log")
    return written(made.figure, path)

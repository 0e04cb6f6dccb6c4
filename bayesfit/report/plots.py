"""Pictures of a fit: curves with their posterior bands, the rate over q, and a law in q."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Shaped

from bayesfit.compute.kinds import Kind, expect_result
from bayesfit.diagnose.interval import central_interval
from bayesfit.report.curve_pictures import ACROSS, PANEL, Curve, draw_bin
from bayesfit.report.panels import chosen_places, legend_of_verdicts, pairs_of_panels
from bayesfit.report.parameter_pictures import draw_parameter
from bayesfit.report.pictures import check_picture, written
from bayesfit.result.summary import of_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = 11  # of a series, up to which they have a legend
MOST_LABELS, LONGEST_LABEL = 16, 24  # of datasets below a picture, and characters of each
CHARACTERS = 90  # of a line above the picture of a law
DIMS = ("chain", "draw", "q_bin")
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


def plot_series(result: xr.DataTree, path: str | Path | None = None) -> Figure:
    """Draw the rate, or the first parameter, over the datasets of a series: median and 95 % interval, one line per bin,
    or a single line where bins have it in common or it is a law's.

    Datasets that are labelled by numbers stand at these, others in order. Markers are open where the verdict on the
    bin, on what the bins have in common, or on the law is not "ok".

    Args:
        result: what `series`, `law` of a series, or `load` returned.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: it is no series. SettingsError: no picture has the path's ending.
    """
    from matplotlib.figure import Figure

    expect_result(result, "series", remedies=DRAWN_BY)
    check_picture(path)
    name, verdicts, lines = _of_series(result)
    array = result["posterior"].dataset[name]
    draws = array.transpose("chain", "draw", ..., "dataset").values
    intervals = central_interval(draws.reshape(*draws.shape[:2], len(lines), -1), axis=(0, 1))
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axis = figure.subplots()
    x = _places_of_datasets(axis, array.coords["dataset"].values)
    if len(lines) > LINES:
        axis.set_prop_cycle(color=_gradual(len(lines)))
    for line, label in enumerate(lines):
        _line(axis, x, intervals[:, line], verdicts[line] == "ok", label)
    low = intervals[0]
    if np.all(low[np.isfinite(low)] > 0):
        axis.set_yscale("log")
    axis.set_xlabel("dataset")
    axis.set_ylabel(f"{name} [{array.attrs.get('units', '1')}]")
    if len(lines) <= LINES:
        axis.legend(fontsize=7)
    else:
        axis.set_title(f"{lines[0]} (dark) to {lines[-1]} (bright), {len(lines)} lines", fontsize=8)
    return written(figure, path)


def _gradual(count: int) -> Any:
    """Colours from dark to bright."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.0, 0.92, count))


def _places_of_datasets(axis: Axes, labels: Shaped[np.ndarray, " dataset"]) -> Shaped[np.ndarray, " dataset"]:
    """Where datasets stand: at their labels where these are numbers, else in order, with the labels as ticks."""
    if labels.dtype.kind in "fiu":
        return labels
    x = np.arange(labels.size)
    shown = x[:: -(-labels.size // MOST_LABELS)]
    words = [textwrap.shorten(str(labels[place]), LONGEST_LABEL, placeholder="…") for place in shown]
    axis.set_xticks(shown, words, rotation=30, ha="right", fontsize=7)
    return x


def _line(
    axis: Axes,
    x: Shaped[np.ndarray, " dataset"],
    interval: Float[np.ndarray, "3 dataset"],
    fine: Bool[np.ndarray, " dataset"],
    label: str,
) -> None:
    """One line of a series, with open markers where it is not `fine`."""
    low, middle, high = interval
    (line, *_) = axis.errorbar(x, middle, [middle - low, high - middle], lw=1, capsize=2, label=label)
    for colour, chosen in (("white", ~fine), (line.get_color(), fine)):
        axis.plot(x[chosen], middle[chosen], "o", ms=4, color=line.get_color(), mfc=colour)


def _of_series(result: xr.DataTree) -> tuple[str, np.ndarray, list[str]]:
    """The parameter of a series to draw, its verdicts (line, dataset), and the names of its lines."""
    posterior, bins = result["posterior"].dataset, result["diagnostics"].dataset
    plain = [str(name) for name, array in posterior.data_vars.items() if set(array.dims) <= {*DIMS, "dataset"}]
    own = of_bins(result)
    name = min(plain, key=lambda name: (name != "rate", name not in own))
    if name not in own:
        judged = bins.law_verdict if "law_verdict" in bins else result["across"].joint_verdict
        return name, judged.values[None], [name]
    verdicts = bins.verdict.transpose("q_bin", "dataset").values
    labels = zip(bins.q.values, bins.q_bin.values, strict=True)
    return name, verdicts, [f"q = {q:.4g} 1/Å" if np.isfinite(q) else f"bin {bin}" for q, bin in labels]


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
    axis.plot(band.q, band["mean"], color="tab:blue", lw=1.2, label=fitted.attrs["law_formula"] or None)
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

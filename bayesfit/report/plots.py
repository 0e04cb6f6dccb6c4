"""Pictures of a fit: curves with their posterior bands, the rate over q, and a law in q."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Shaped

from bayesfit.compute.errors import ResultError, SettingsError, nearest
from bayesfit.compute.kinds import Kind, expect_result, in_words, kind_of
from bayesfit.diagnose.interval import central_interval
from bayesfit.report.pictures import check_picture, written
from bayesfit.result.summary import interval_of_bins, of_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 11
CHARACTERS = 90  # of a line above the picture of a law
DIMS = ("chain", "draw", "q_bin")
DRAWN_BY: dict[Kind, str] = {
    "fit": "Draw it with plot_fit",
    "series": "Draw it with plot_series, or one of it: bayesfit.one_dataset(result, NAME)",
    "law": "Draw it with `bayesfit plot`",
}
COLOURS = {"ok": "tab:blue", "not_identified": "tab:orange", "misfit": "tab:purple", "unusable_data": "tab:gray"}
OTHER_COLOUR = "tab:red"  # of all other verdicts


def plot_fit(result: xr.DataTree, bins: Sequence[int] | None = None, path: str | Path | None = None) -> Figure:
    """Draw curves with the posterior mean and its central 95 % band, one panel per bin, and the rate over q.

    Args:
        result: what `fit` or `load` returned.
        bins: which q_bin to draw; by default up to 11, evenly over all of them.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: there is no such bin, or it is no result of a fit. SettingsError: no picture has the path's ending.
    """
    from matplotlib.figure import Figure

    expect_result(result, "fit", remedies=DRAWN_BY)
    _check_bins(bins)
    check_picture(path)
    places = _places(result, bins)
    columns = min(4, len(places) + 1)
    rows = -(-(len(places) + 1) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.5 * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axis, place in zip(axes, places, strict=False):
        _panel(axis, result, place)
    _rate_over_q(axes[len(places)], result)
    for axis in axes[len(places) + 1 :]:
        axis.set_visible(False)
    return written(figure, path)


def _places(result: xr.DataTree, bins: Sequence[int] | None) -> list[int]:
    """The places of the bins to draw; by default up to `PANELS`, evenly over all of them."""
    labels = result["observed_data"].q_bin.values.tolist()
    if bins is None:
        return np.unique(np.linspace(0, len(labels) - 1, PANELS).round().astype(int)).tolist()
    for bin in bins:
        if bin not in labels:
            raise ResultError(f"there is no bin {bin}", field="bins", remedy=nearest(str(bin), map(str, labels)))
    return [labels.index(bin) for bin in bins]


def _check_bins(bins: Any) -> None:
    """Refuse anything but a list of bins, such as a path in its place."""
    if bins is None or (isinstance(bins, Iterable) and kind_of(bins) != "path"):
        return
    path = kind_of(bins) == "path"
    remedy = f"Write plot_fit(result, path={str(bins)!r})" if path else "Write bins=[0, 1]"
    raise SettingsError(f"got {in_words(bins)}, expected a list of bins", field="bins", remedy=remedy)


def _panel(axis: Axes, result: xr.DataTree, place: int) -> None:
    """The bin at this place: valid points with the errors that the noise model infers, mean curve and band."""
    data = result["constant_data"].dataset.isel(q_bin=place)
    tau, valid = data.tau.values, data.valid.values
    g2 = result["observed_data"].g2.values[place]
    band = result["fit_curve"].dataset.isel(q_bin=place)
    verdict = str(result["diagnostics"].verdict.values[place])
    colour = COLOURS.get(verdict, OTHER_COLOUR)
    error = np.where(np.isfinite(band.sigma), band.sigma, data.g2_err)
    axis.errorbar(tau[valid], g2[valid], error[valid], fmt=".", ms=3, lw=0.6, color="0.45", zorder=1)
    axis.fill_between(tau, band.lower, band.upper, color=colour, alpha=0.35, lw=0, zorder=2)
    axis.plot(tau, band["mean"], color=colour, lw=1.2, zorder=3)
    if valid.any() and np.all(tau[valid] > 0):
        axis.set_xscale("log")
    q = f", q = {float(data.q):.4g} 1/Å" if np.isfinite(data.q) else ""
    labels = ("τ [s]", "g2") if result.attrs.get("data_delays", 1) else ("x", "y")
    _label(axis, *labels, f"bin {data.q_bin.item()}{q}: {verdict}")


def _label(axis: Axes, x: str, y: str, title: str) -> None:
    """Labels and title of a small panel."""
    axis.set_xlabel(x, fontsize=7)
    axis.set_ylabel(y, fontsize=7)
    axis.set_title(title, fontsize=8)
    axis.tick_params(labelsize=7)


def _rate_over_q(axis: Axes, result: xr.DataTree) -> None:
    """Median and 95 % interval in every bin of the rate, or of the first parameter that has a value in each bin."""
    posterior, names = result["posterior"].dataset, of_bins(result)
    name = "rate" if "rate" in names else next(iter(names), "")
    intervals = interval_of_bins(posterior[name]) if name else np.full((3, 1), np.nan)
    made = np.isfinite(intervals[1])
    if not made.any():
        axis.set_visible(False)
        return
    low, middle, high = intervals[:, made]
    bins = result["diagnostics"].dataset.isel(q_bin=np.flatnonzero(made))
    over_q = bool(np.all(bins.q > 0))
    x = bins.q.values if over_q else bins.q_bin.values
    rows = zip(x, middle, middle - low, high - middle, bins.verdict.values, strict=True)
    for x_, y, below, above, verdict in rows:
        colour = COLOURS.get(str(verdict), OTHER_COLOUR)
        axis.errorbar(x_, y, [[below], [above]], fmt="o", ms=3, lw=1, color=colour)
    _scale(axis, over_q, bool(np.all(low > 0)))
    unit = posterior[name].attrs.get("units", "1")
    _label(axis, "q [1/Å]" if over_q else "bin", f"{name} [{unit}]", f"{name} with 95 % intervals")
    axis.tick_params(labelsize=7, which="both")


def _scale(axis: Axes, over_q: bool, positive: bool) -> None:
    """Logarithmic scales, of q and of values that are positive."""
    if over_q:
        from matplotlib.ticker import NullFormatter

        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
    if positive:
        axis.set_yscale("log")


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
    for line, label in enumerate(lines):
        _line(axis, x, intervals[:, line], verdicts[line] == "ok", label)
    low = intervals[0]
    if np.all(low[np.isfinite(low)] > 0):
        axis.set_yscale("log")
    axis.set_xlabel("dataset")
    axis.set_ylabel(f"{name} [{array.attrs.get('units', '1')}]")
    if len(lines) <= PANELS:
        axis.legend(fontsize=7)
    return written(figure, path)


def _places_of_datasets(axis: Axes, labels: Shaped[np.ndarray, " dataset"]) -> Shaped[np.ndarray, " dataset"]:
    """Where datasets stand: at their labels where these are numbers, else in order, with the labels as ticks."""
    if labels.dtype.kind in "fiu":
        return labels
    x = np.arange(labels.size)
    axis.set_xticks(x, [str(label) for label in labels], rotation=30, ha="right", fontsize=7)
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

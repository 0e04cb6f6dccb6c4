"""Pictures of a fit: curves with their posterior bands, the rate over q, and a law in q."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayesfit.compute.errors import ResultError, SettingsError, nearest
from bayesfit.compute.kinds import Kind, expect_result, in_words, kind_of
from bayesfit.result.pictures import check_picture, written
from bayesfit.result.summary import of_bins

if TYPE_CHECKING:
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


def plot_fit(result: xr.DataTree, bins: Sequence[int] | None = None, path: str | Path | None = None) -> Figure:
    """Draw curves with the posterior mean and its central 95 % band, one panel a bin, and the rate over q.

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
    known = result["observed_data"].q_bin.values.tolist()
    if bins is None:
        bins = [known[place] for place in np.unique(np.linspace(0, len(known) - 1, PANELS).round().astype(int))]
    for bin in bins:
        if bin not in known:
            raise ResultError(f"there is no bin {bin}", field="bins", remedy=nearest(str(bin), map(str, known)))
    columns = min(4, len(bins) + 1)
    rows = -(-(len(bins) + 1) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.5 * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axis, bin in zip(axes, bins, strict=False):
        _panel(axis, result, known.index(bin))
    _rate_over_q(axes[len(bins)], result)
    for axis in axes[len(bins) + 1 :]:
        axis.set_visible(False)
    return written(figure, path)


def _check_bins(bins: Any) -> None:
    """Refuse what is no list of bins, as a path in their place."""
    if bins is None or (isinstance(bins, Iterable) and kind_of(bins) != "path"):
        return
    path = kind_of(bins) == "path"
    remedy = f"Write plot_fit(result, path={str(bins)!r})" if path else "Write bins=[0, 1]"
    raise SettingsError(f"got {in_words(bins)}, expected a list of bins", field="bins", remedy=remedy)


def _panel(axis: Any, result: xr.DataTree, bin: int) -> None:
    """The bin at this place: valid points with the errors that the noise model infers, mean curve, band."""
    data = result["constant_data"].dataset.isel(q_bin=bin)
    tau, valid = data.tau.values, data.valid.values
    g2 = result["observed_data"].g2.values[bin]
    band = result["fit_curve"].dataset.isel(q_bin=bin)
    verdict = str(result["diagnostics"].verdict.values[bin])
    colour = COLOURS.get(verdict, "tab:red")
    error = np.where(np.isfinite(band.sigma), band.sigma, data.g2_err)
    axis.errorbar(tau[valid], g2[valid], error[valid], fmt=".", ms=3, lw=0.6, color="0.45", zorder=1)
    axis.fill_between(tau, band.lower, band.upper, color=colour, alpha=0.35, lw=0, zorder=2)
    axis.plot(tau, band["mean"], color=colour, lw=1.2, zorder=3)
    if valid.any() and np.all(tau[valid] > 0):
        axis.set_xscale("log")
    q = float(data.q)
    axis.set_title(
        f"bin {data.q_bin.item()}" + (f", q = {q:.4g} 1/Å" if np.isfinite(q) else "") + f": {verdict}", fontsize=8
    )
    axis.tick_params(labelsize=7)
    labels = ("τ [s]", "g2") if result.attrs.get("data_delays", 1) else ("x", "y")
    axis.set_xlabel(labels[0], fontsize=7)
    axis.set_ylabel(labels[1], fontsize=7)


def _rate_over_q(axis: Any, result: xr.DataTree) -> None:
    """Median and 95 % interval of the rate, or of the first parameter that is each bin's own, of every bin."""
    posterior = result["posterior"].dataset
    names = of_bins(result)
    name = "rate" if "rate" in names else next(iter(names), "")
    if not name:
        axis.set_visible(False)
        return
    with np.errstate(invalid="ignore"):
        made = posterior[name].notnull().any(("chain", "draw")).values
    if not made.any():
        axis.set_visible(False)
        return
    shown = posterior[name].isel(q_bin=np.flatnonzero(made))
    from matplotlib.ticker import NullFormatter

    low, middle, high = shown.quantile([0.025, 0.5, 0.975], ("chain", "draw")).values
    q = result["diagnostics"].q.values[made]
    known = bool(np.all(q > 0))
    x = q if known else shown.q_bin.values
    verdicts = result["diagnostics"].verdict.values[made]
    for x_, y, below, above, verdict in zip(x, middle, middle - low, high - middle, verdicts, strict=True):
        axis.errorbar(x_, y, [[below], [above]], fmt="o", ms=3, lw=1, color=COLOURS.get(str(verdict), "tab:red"))
    if known:
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
    if np.all(low > 0):
        axis.set_yscale("log")
    axis.set_xlabel("q [1/Å]" if known else "bin", fontsize=7)
    axis.set_ylabel(f"{name} [{posterior[name].attrs.get('units', '1')}]", fontsize=7)
    axis.set_title(f"{name} with 95 % intervals", fontsize=8)
    axis.tick_params(labelsize=7, which="both")


def plot_series(result: xr.DataTree, path: str | Path | None = None) -> Figure:
    """Draw the rate, or the first parameter, over the datasets of a series: median and 95 % interval, a line a bin, or
    one line where bins have it in common or it is a law's. Over numbers where datasets are labelled so, else in order.
    Where a bin, what bins have in common, or a law is not "ok", markers are open.

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
    posterior = result["posterior"].to_dataset()
    name, verdicts, lines = _of_series(result)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        quantiles = posterior[name].quantile([0.025, 0.5, 0.975], ("chain", "draw"))
    low, middle, high = quantiles.transpose("quantile", ..., "dataset").values.reshape(3, len(lines), -1)
    labels = posterior.dataset.values
    x = labels if labels.dtype.kind in "fiu" else np.arange(labels.size)
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axis = figure.subplots()
    for bin, label in enumerate(lines):
        error = [middle[bin] - low[bin], high[bin] - middle[bin]]
        (line, *_) = axis.errorbar(x, middle[bin], error, lw=1, capsize=2, label=label)
        for colour, chosen in (("white", verdicts[bin] != "ok"), (line.get_color(), verdicts[bin] == "ok")):
            axis.plot(x[chosen], middle[bin][chosen], "o", ms=4, color=line.get_color(), mfc=colour)
    if labels.dtype.kind not in "fiu":
        axis.set_xticks(x, [str(label) for label in labels], rotation=30, ha="right", fontsize=7)
    if np.all(low[np.isfinite(low)] > 0):
        axis.set_yscale("log")
    axis.set_xlabel("dataset")
    axis.set_ylabel(f"{name} [{posterior[name].attrs.get('units', '1')}]")
    if len(middle) <= PANELS:
        axis.legend(fontsize=7)
    return written(figure, path)


def _of_series(result: xr.DataTree) -> tuple[str, np.ndarray, list[str]]:
    """The parameter that is drawn of a series, its verdicts (line, dataset), and what its lines are called."""
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
    """Draw the parameter of every bin over q with its standard deviation, the law's mean and 95 % band, and below it
    the residuals in sd of each bin; on top its verdict. Bins that the law is not fitted to are grey.

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
    bins, band = fitted["bins"].dataset, fitted["law_curve"].dataset
    used = bins.used.values.astype(bool)
    figure = Figure(figsize=(5.2, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    above.fill_between(band.q, band.lower, band.upper, color="tab:blue", alpha=0.35, lw=0)
    above.plot(band.q, band["mean"], color="tab:blue", lw=1.2, label=fitted.attrs["law_formula"] or None)
    q, mean, sd = bins.q.values, bins["mean"].values, bins.sd.values
    shown = np.isfinite(q) & (q > 0) & np.isfinite(mean)
    for chosen, colour, label in ((shown & ~used, "0.7", "not used"), (shown & used, "0.2", "")):
        if chosen.any():
            above.errorbar(q[chosen], mean[chosen], sd[chosen], fmt="o", ms=3, lw=1, color=colour, label=label or None)
    above.set_xscale("log")
    if np.all(band.lower > 0) and np.all(mean[shown] > 0):
        above.set_yscale("log")
    unit = band["mean"].attrs.get("units", "1")
    above.set_ylabel(fitted.attrs["parameter"] + ("" if unit == "1" else f" [{unit}]"))
    if above.get_legend_handles_labels()[1]:
        above.legend(fontsize=8)
    below.axhspan(-2, 2, color="0.93", lw=0)
    below.axhline(0, color="tab:blue", lw=1)
    below.plot(q[used], bins.residual.values[used], "o", ms=3, color="0.2")
    below.set_ylabel("residual [sd]")
    below.set_xlabel("q [1/Å]")
    below.tick_params(axis="x", which="both", labelsize=7)
    checks = fitted["diagnostics"].dataset
    words = f"{checks.law_verdict.item()}: {checks.law_reason.item()}"
    figure.suptitle("\n".join(textwrap.wrap(words, CHARACTERS)), fontsize=8)
    return written(figure, path)

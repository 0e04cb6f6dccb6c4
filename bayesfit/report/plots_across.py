"""Pictures of a joint fit: what its bins have in common over q, every bin beside it, and its distance from it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import SettingsError
from bayesfit.compute.kinds import expect_result
from bayesfit.report.colours import look_of
from bayesfit.report.pictures import check_picture, written
from bayesfit.report.plots import DRAWN_BY
from bayesfit.result.summary import interval_of_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = 8  # points, of a font
WIDTH = 5.4  # inches, of a column
CHARACTERS = 95  # of a column, side by side in the small font
MARGIN = 0.15  # of the axis above and below what it must show
FAR = 3.0  # residual from which a bin's number is written beside it


def plot_across(result: xr.DataTree, path: str | Path | None = None) -> Figure:
    """Draw each pooled parameter of a joint fit over q, one column each.

    Above, what the bins have in common with its 95 % band: the law without scatter, the shared value, or the middle of
    the common distribution. Beside it the bins with 95 % intervals, coloured by their verdicts: where bins deviate,
    their values in the joint fit, and in grey the maximum of each bin's profile likelihood; else the latter alone.
    Below, each bin's distance from what they have in common, standard normal where the pooling holds.

    Args:
        result: what `fit(..., across=...)` or `load` returned.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        SettingsError: the bins have nothing in common, or no picture has the path's ending. ResultError: it is no
            result of a fit.
    """
    from matplotlib.figure import Figure

    expect_result(result, "fit", remedies=DRAWN_BY)
    check_picture(path)
    if "across" not in result:
        raise SettingsError("the bins have nothing in common", field="plot_across", remedy="Fit them with across=...")
    across = result["across"].dataset
    names = [str(name) for name in across.pooled.values]
    figure = Figure(figsize=(WIDTH * len(names), 5.6), layout="constrained")
    axes = figure.subplots(2, len(names), sharex="col", height_ratios=[3, 1], squeeze=False)
    for (above, below), name in zip(axes.T, names, strict=True):
        _forest(above, result, name)
        _residuals(below, result, name)
    words = f"{across.joint_verdict.item()}: {across.joint_reason.item()}"
    figure.suptitle("\n".join(textwrap.wrap(words, CHARACTERS * len(names))), fontsize=SMALL)
    return written(figure, path)


class _Places(NamedTuple):
    """Where the bins stand on the horizontal axis, and whether that is q, on a logarithmic scale, or their numbers."""

    x: Float[np.ndarray, " q_bin"]
    over_q: bool

    @classmethod
    def of(cls, result: xr.DataTree) -> _Places:
        """The places of a result's bins: over q where all of it is known and positive."""
        bins = result["law_residuals"].dataset
        q = bins.q.values if "q" in bins.coords else np.full(bins.sizes["q_bin"], np.nan)
        over_q = bool(np.all(q > 0))
        return cls(q if over_q else bins.q_bin.values, over_q)

    def beside(self) -> Float[np.ndarray, " q_bin"]:
        """Places a little to the right, a tenth of the usual distance."""
        at = np.log(self.x) if self.over_q else self.x
        moved = at + (0.1 * np.median(np.diff(np.sort(at))) if at.size > 1 else 0.0)
        return np.exp(moved) if self.over_q else moved


def _colours(result: xr.DataTree) -> list[str]:
    return [look_of(str(verdict)).colour for verdict in result["diagnostics"].verdict.values]


def _forest(axis: Axes, result: xr.DataTree, name: str) -> None:
    """The common value with its band, and the bins beside it."""
    places = _Places.of(result)
    deviates = bool(result["across"].dataset.sel(pooled=name).deviates)
    band = _band(axis, result, name, places)
    own = _own(result, name)
    if deviates and np.isfinite(own).any():
        _error_bars(axis, places.beside(), own, fmt=".", ms=4, lw=0.8, color="0.6", label="bin by itself", zorder=2)
    bins = interval_of_bins(result["posterior"].dataset[name]) if deviates else own
    for place, colour in enumerate(_colours(result)):
        one = bins[:, [place]]
        _error_bars(axis, places.x[[place]], one, fmt="o", ms=3.5, lw=1.1, color=colour, zorder=3)
    _legend(axis, result, "bin in the joint fit" if deviates else "bin by itself")
    if places.over_q:
        axis.set_xscale("log")
    _fit_to(axis, np.concatenate([np.ravel(array) for array in (band, bins[1], own[1])]), bins)
    unit = result["law_residuals"][f"{name}_law"].attrs.get("units", "1")
    axis.set_ylabel(name + ("" if unit in ("1", "") else f" [{unit}]"))
    axis.tick_params(labelsize=SMALL, which="both")


def _error_bars(
    axis: Axes, x: Float[np.ndarray, " place"], interval: Float[np.ndarray, "3 place"], **style: Any
) -> None:
    """Medians with the bars of their intervals."""
    low, middle, high = interval
    axis.errorbar(x, middle, np.stack([middle - low, high - middle]), **style)


def _band(axis: Axes, result: xr.DataTree, name: str, places: _Places) -> Float[np.ndarray, "2 group point"]:
    """Draw what the bins have in common, one band per group; returns the bands' edges."""
    curve, word = result["law_curve"].dataset, str(result["across"].pooling.sel(pooled=name).item())
    at = curve.q.values if places.over_q else np.array([places.x.min() - 0.5, places.x.max() + 0.5])
    middle, low, high = (_by_group(curve[name + suffix])[:, : at.size] for suffix in ("", "_lower", "_upper"))
    groups = curve[f"{name}_group"].values if len(middle) > 1 else [""]
    for place, group in enumerate(groups):
        axis.fill_between(at, low[place], high[place], color=f"C{place}", alpha=0.25, lw=0, zorder=1)
        axis.plot(at, middle[place], color=f"C{place}", lw=1.2, label=f"{word} {group}".strip(), zorder=1)
    return np.stack([low, high])


def _by_group(array: xr.DataArray) -> Float[np.ndarray, "group point"]:
    """The curve of each group."""
    return array.transpose(..., "point").values.reshape(-1, array.sizes["point"])


def _own(result: xr.DataTree, name: str) -> Float[np.ndarray, "3 q_bin"]:
    """The bins' own values with their 95 % intervals: low, middle, high."""
    bins = result["law_residuals"].dataset
    return np.stack([bins[f"{name}_own{suffix}"].values for suffix in ("_lower", "", "_upper")])


def _legend(axis: Axes, result: xr.DataTree, bins: str) -> None:
    """Names of the bands, and of the verdicts that there are."""
    for verdict in dict.fromkeys(str(name) for name in result["diagnostics"].verdict.values):
        if verdict != "unusable_data":
            axis.plot([], [], "o", ms=3.5, color=look_of(verdict).colour, label=f"{bins}: {verdict}")
    axis.legend(fontsize=SMALL, framealpha=0.6)


def _fit_to(axis: Axes, values: Float[np.ndarray, " value"], intervals: Float[np.ndarray, "3 q_bin"]) -> None:
    """Set limits that hold these values, and these intervals unless they are much longer than the values' range; on a
    logarithmic scale where the values differ by more than a factor of ten."""
    values, ends = values[np.isfinite(values)], intervals[np.isfinite(intervals)]
    if not values.size:
        return
    logarithmic = values.min() > 0 and values.max() > 10 * values.min()
    if logarithmic:
        axis.set_yscale("log")
        values, ends = np.log(values), np.log(ends[ends > 0])
    low, high = values.min(), values.max()
    span = (high - low) or abs(high) or 1.0
    ends = np.clip([low, high, *ends], low - span, high + span)
    limits = np.array([ends.min() - MARGIN * span, ends.max() + MARGIN * span])
    axis.set_ylim(*(np.exp(limits) if logarithmic else limits))


def _residuals(axis: Axes, result: xr.DataTree, name: str) -> None:
    """Each bin's distance from the common value; bins that are far off are named."""
    places = _Places.of(result)
    bins = result["law_residuals"].dataset
    residual = bins[name].values
    if np.isfinite(residual).any():
        axis.axhspan(-2, 2, color="0.93", lw=0)
        axis.axhline(0, color="C0", lw=1)
        axis.scatter(places.x, residual, s=14, color=_colours(result), zorder=3)
        axis.set_ylim(*(1.25 * max(2.5, np.nanmax(np.abs(residual))) * np.array([-1, 1])))
    else:
        axis.text(0.5, 0.5, "no common value to be far from", transform=axis.transAxes, ha="center", fontsize=SMALL)
        axis.set_yticks([])
    for place in np.flatnonzero(np.abs(np.nan_to_num(residual)) > FAR):
        at = places.x[place], residual[place]
        axis.annotate(f"bin {bins.q_bin.values[place]}", at, xytext=(4, 2), textcoords="offset points", fontsize=7)
    axis.set_ylabel("residual [sd]")
    _label_bins(axis, places.over_q)


def _label_bins(axis: Axes, over_q: bool) -> None:
    """The label and ticks of the horizontal axis."""
    from matplotlib.ticker import NullFormatter

    axis.set_xlabel("q [1/Å]" if over_q else "bin")
    if over_q:
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(labelsize=SMALL, which="both")

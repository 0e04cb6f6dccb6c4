"""Pictures of a joint fit: what its bins have in common over q, every bin beside it, and its distance from it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayesfit.compute.errors import SettingsError
from bayesfit.compute.kinds import expect_result
from bayesfit.result.pictures import check_picture, written
from bayesfit.result.plots import COLOURS, DRAWN_BY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL = 8  # points, of a font
WIDTH = 5.4  # inches, of a column
CHARACTERS = 95  # of a column, side by side in the small font
MARGIN = 0.15  # of the axis above and below what it must show
CALLED = 3.0  # residual from which a bin's number is written beside it


def plot_across(result: xr.DataTree, path: str | Path | None = None) -> Figure:
    """Draw each pooled parameter of a joint fit over q, one column each.

    Above, what the bins have in common with its 95 % band: the law without scatter, the shared value, the middle of the
    common distribution. Beside it the bins with 95 % intervals, coloured by their verdicts: where bins deviate, their
    values in the joint fit, and in grey what each says by itself, freed from the pooling; else the latter alone. Below,
    each bin's distance from what they have in common, standard normal where the pooling holds.

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


def _places(result: xr.DataTree) -> tuple[np.ndarray, bool]:
    """Where the bins stand on the horizontal axis, and whether that is q."""
    bins = result["law_residuals"].dataset
    q = bins.q.values if "q" in bins.coords else np.full(bins.sizes["q_bin"], np.nan)
    known = bool(np.all(q > 0))
    return (q if known else bins.q_bin.values), known


def _colours(result: xr.DataTree) -> list[str]:
    return [COLOURS.get(str(verdict), "tab:red") for verdict in result["diagnostics"].verdict.values]


def _forest(axis: Any, result: xr.DataTree, name: str) -> None:
    """The common value with its band, and the bins beside it."""
    x, known = _places(result)
    pooling = result["across"].dataset.sel(pooled=name)
    shown = [_band(axis, result, name, x, known)]
    bins = own = _own(result, name)
    if bool(pooling.deviates):
        if np.isfinite(own).any():
            beside = _beside(x, known)
            axis.errorbar(
                beside, own[1], _bars(own), fmt=".", ms=4, lw=0.8, color="0.6", label="bin by itself", zorder=2
            )
        bins = _intervals(result["posterior"].dataset[name])
    shown += [bins[1], own[1]]
    for place, colour in enumerate(_colours(result)):
        axis.errorbar(
            x[place], bins[1, place], _bars(bins)[:, [place]], fmt="o", ms=3.5, lw=1.1, color=colour, zorder=3
        )
    _legend(axis, result, "bin in the joint fit" if bool(pooling.deviates) else "bin by itself")
    if known:
        axis.set_xscale("log")
    _fit_to(axis, np.concatenate([np.ravel(array) for array in shown]), bins)
    unit = result["law_residuals"][f"{name}_law"].attrs.get("units", "1")
    axis.set_ylabel(name + ("" if unit in ("1", "") else f" [{unit}]"))
    axis.tick_params(labelsize=SMALL, which="both")


def _band(axis: Any, result: xr.DataTree, name: str, x: np.ndarray, known: bool) -> np.ndarray:
    """Draw what the bins have in common, one band a group; the bands' edges."""
    curve, word = result["law_curve"].dataset, str(result["across"].pooling.sel(pooled=name).item())
    at = curve.q.values if known else np.array([x.min() - 0.5, x.max() + 0.5])
    middle, low, high = (_by_group(curve[name + suffix])[:, : at.size] for suffix in ("", "_lower", "_upper"))
    groups = curve[f"{name}_group"].values if len(middle) > 1 else [""]
    for place, group in enumerate(groups):
        axis.fill_between(at, low[place], high[place], color=f"C{place}", alpha=0.25, lw=0, zorder=1)
        axis.plot(at, middle[place], color=f"C{place}", lw=1.2, label=f"{word} {group}".strip(), zorder=1)
    return np.stack([low, high])


def _by_group(array: xr.DataArray) -> np.ndarray:
    """The curve of each group (group, point)."""
    return array.transpose(..., "point").values.reshape(-1, array.sizes["point"])


def _own(result: xr.DataTree, name: str) -> np.ndarray:
    """The bins' own values with their 95 % intervals: low, middle, high (3, q_bin)."""
    bins = result["law_residuals"].dataset
    return np.stack([bins[f"{name}_own{suffix}"].values for suffix in ("_lower", "", "_upper")])


def _intervals(array: xr.DataArray) -> np.ndarray:
    """The central 95 % interval of each bin with its median in the middle (3, q_bin); NaN where nothing was sampled."""
    draws = array.transpose("q_bin", "chain", "draw").values.reshape(array.sizes["q_bin"], -1)
    made = np.isfinite(draws).any(axis=1)
    found = np.full((3, len(draws)), np.nan)
    found[:, made] = np.nanquantile(draws[made], [0.025, 0.5, 0.975], axis=1)
    return found


def _bars(interval: np.ndarray) -> np.ndarray:
    return np.stack([interval[1] - interval[0], interval[2] - interval[1]])


def _legend(axis: Any, result: xr.DataTree, bins: str) -> None:
    """The bands, and the verdicts that there are."""
    for verdict in dict.fromkeys(str(name) for name in result["diagnostics"].verdict.values):
        if verdict != "unusable_data":
            axis.plot([], [], "o", ms=3.5, color=COLOURS.get(verdict, "tab:red"), label=f"{bins}: {verdict}")
    axis.legend(fontsize=SMALL, framealpha=0.6)


def _beside(x: np.ndarray, known: bool) -> np.ndarray:
    """Places a little to the right of these, a tenth of the usual distance."""
    at = np.log(x) if known else x
    moved = at + (0.1 * np.median(np.diff(np.sort(at))) if x.size > 1 else 0.0)
    return np.exp(moved) if known else moved


def _fit_to(axis: Any, values: np.ndarray, intervals: np.ndarray) -> None:
    """Limits that hold these values, and intervals as far as they are not many times longer than these differ; on a
    logarithmic scale if that is more than a factor of ten."""
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


def _residuals(axis: Any, result: xr.DataTree, name: str) -> None:
    """Each bin's distance from the common value; far bins are named."""
    from matplotlib.ticker import NullFormatter

    x, known = _places(result)
    bins = result["law_residuals"].dataset
    residual = bins[name].values
    if np.isfinite(residual).any():
        axis.axhspan(-2, 2, color="0.93", lw=0)
        axis.axhline(0, color="C0", lw=1)
        axis.scatter(x, residual, s=14, color=_colours(result), zorder=3)
        axis.set_ylim(*(1.25 * max(2.5, np.nanmax(np.abs(residual))) * np.array([-1, 1])))
    else:
        axis.text(0.5, 0.5, "no common value to be far from", transform=axis.transAxes, ha="center", fontsize=SMALL)
        axis.set_yticks([])
    for place in np.flatnonzero(np.abs(np.nan_to_num(residual)) > CALLED):
        beside = {"xytext": (4, 2), "textcoords": "offset points", "fontsize": 7}
        axis.annotate(f"bin {bins.q_bin.values[place]}", (x[place], residual[place]), **beside)
    axis.set_ylabel("residual [sd]")
    axis.set_xlabel("q [1/Å]" if known else "bin")
    if known:
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(labelsize=SMALL, which="both")

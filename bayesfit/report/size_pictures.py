"""Pictures of size distributions: the density over the logarithm of the radius with its band, bin by bin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from bayesfit.compute.errors import ResultError
from bayesfit.compute.kinds import expect_result
from bayesfit.report.panels import chosen_places
from bayesfit.report.pictures import check_picture, written
from bayesfit.report.plots import DRAWN_BY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = 8  # points, of a font
ACROSS, PANEL = 4, (3.6, 2.6)  # panels in a row; inches
HIGHEST = 2.5  # largest upper edge shown, in units of the largest mean density


def plot_sizes(result: xr.DataTree, bins: Sequence[int] | None = None, path: str | Path | None = None) -> Figure:
    """Draw the size distribution of each bin: the mean density over the logarithm of the radius, and its 95 % band.

    Args:
        result: what `fit` or `load` returned, of a model of sizes (`size_distribution`, `mie_spheres`).
        bins: which q_bin to draw; by default all of them (of more than 60, first those that are not ok).
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: there is no such bin, or the result holds no size distribution. SettingsError: no picture has the
            path's ending.
    """
    from matplotlib.figure import Figure

    expect_result(result, "fit", remedies=DRAWN_BY)
    check_picture(path)
    if "distribution" not in result:
        remedy = "Fit with model 'size_distribution' or 'mie_spheres'"
        raise ResultError("holds no size distribution", field="plot_sizes", remedy=remedy)
    places, words = chosen_places(result, bins)
    across = min(ACROSS, len(places))
    rows = -(-len(places) // across)
    figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, across, squeeze=False).ravel()
    for axis, place in zip(panels, places, strict=False):
        _draw(axis, result["distribution"].dataset.isel(q_bin=place))
    for axis in panels[len(places) :]:
        axis.set_visible(False)
    figure.suptitle(words, fontsize=SMALL)
    return written(figure, path)


def _draw(axis: Axes, one: xr.Dataset) -> None:
    """One distribution with its band."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.fill_between(one.radius, one.lower, one.upper, color="tab:blue", alpha=0.25, lw=0, label="95 %")
    axis.plot(one.radius, one.density, color="tab:blue", lw=1.2, label="mean")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    largest = float(np.nanmax(one.density, initial=0.0))
    if largest > 0:
        axis.set_ylim(0.0, min(1.05 * float(np.nanmax(one.upper)), HIGHEST * largest))
    unit = one.radius.attrs.get("units", "1")
    axis.set_xlabel("radius, in harmonic means" if unit == "1" else f"radius [{unit}]", fontsize=SMALL)
    axis.set_ylabel("density over log radius", fontsize=SMALL)
    axis.tick_params(labelsize=SMALL, which="both")
    axis.set_title(_title(one), fontsize=SMALL, loc="left")


def _title(one: xr.Dataset) -> str:
    placed = [f"angle {float(one.angle):.4g}°"] if "angle" in one.coords else []
    placed += [f"q = {float(one.q):.4g} 1/Å"] if np.isfinite(one.q) else []
    return ", ".join([f"bin {int(one.q_bin)}", *placed])

"""Pictures of a correlation over age and delay: a map, and the curve of each slice of ages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import SettingsError
from bayesfit.data.two_time import expect_two_time
from bayesfit.report.colours import limits
from bayesfit.report.pictures import check_picture, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = 8  # points, of a font
WIDTH, HEIGHT = 9.0, 2.6  # inches, of a row
MOST = 6  # bins that are drawn unless others are asked for
COLOURS = "viridis"
LINES = 10  # slices, up to which each is named


def plot_two_time(data: xr.Dataset, bins: Sequence[int] | None = None, path: str | Path | None = None) -> Figure:
    """Draw a correlation over age and delay, a row for each bin: g2 as a map, whose colours span what is usable, and as
    the curve of each slice of ages with its stated errors.

    Args:
        data: what `bayesfit.correlate(..., two_time=True)`, `bayesfit.two_time` or `bayesfit.read_two_time` returned.
        bins: which q_bin to draw; by default the first six.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        InputError: it is no such correlation. SettingsError: there is no such bin, or no picture has the path's ending.
    """
    from matplotlib.figure import Figure

    expect_two_time(data)
    check_picture(path)
    there = data.q_bin.values.tolist()
    chosen = there[:MOST] if bins is None else list(bins)
    if not chosen or (wrong := [bin for bin in chosen if bin not in there]):
        problem = f"there is no bin {wrong[0]}" if chosen else "no bin is chosen"
        raise SettingsError(problem, field="bins", remedy=f"Bins go from {min(there)} to {max(there)}")
    figure = Figure(figsize=(WIDTH, HEIGHT * len(chosen) + 0.4), layout="constrained")
    axes = figure.subplots(len(chosen), 2, squeeze=False, sharex=True)
    for (left, right), bin in zip(axes, chosen, strict=True):
        one = data.sel(q_bin=bin)
        points = np.where(data.usable & np.isfinite(one.g2_err), one.g2, np.nan)
        span = limits(points, points, np.where(np.isfinite(points), one.g2_err, np.nan))
        _map(left, data, points, span)
        _curves(right, one, points, span)
        left.set_title(_title(one), fontsize=SMALL, loc="left")
    axes[0][1].legend(fontsize=SMALL - 2, title="age [s]", title_fontsize=SMALL - 2, framealpha=0.6)
    for axis in axes[-1]:
        axis.set_xlabel("delay [s]")
    return written(figure, path)


def _title(one: xr.Dataset) -> str:
    q, phi = float(one.q), float(one.phi)
    placed = [f"q = {q:.4g} 1/Å"] if np.isfinite(q) else []
    placed += [f"phi = {phi:.4g}°"] if np.isfinite(phi) else []
    return ", ".join([f"bin {int(one.q_bin)}", *placed])


def _map(axis: Axes, data: xr.Dataset, points: Float[np.ndarray, "age tau"], span: tuple[float, float]) -> None:
    """g2 in rectangles of age and delay; white where it is not known."""
    ages, tau = np.append(data.age_start.values, data.age_end.values[-1]), data.tau.values
    mesh = axis.pcolormesh(_edges(tau), ages, np.ma.masked_invalid(points), cmap=COLOURS, vmin=span[0], vmax=span[1])
    bar = axis.figure.colorbar(mesh, ax=axis)
    bar.set_label("g2", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    axis.set_xscale("log")
    axis.set_ylabel("age [s]")
    axis.tick_params(labelsize=SMALL)


def _edges(tau: Float[np.ndarray, " tau"]) -> Float[np.ndarray, " edge"]:
    """Edges between delays on a logarithmic axis."""
    logarithm = np.log(tau)
    inner = 0.5 * (logarithm[1:] + logarithm[:-1]) if tau.size > 1 else np.zeros(0)
    first, last = (inner[0], inner[-1]) if tau.size > 1 else (logarithm[0] - 0.3, logarithm[0] + 0.3)
    outer = 2 * logarithm[0] - first, 2 * logarithm[-1] - last
    return np.exp(np.concatenate([[outer[0]], inner, [outer[1]]]))


def _curves(axis: Axes, one: xr.Dataset, points: Float[np.ndarray, "age tau"], span: tuple[float, float]) -> None:
    """The curve of each slice, in colours that grow with the age."""
    from matplotlib import colormaps

    count = one.sizes["age"]
    colours = colormaps["plasma"](np.linspace(0.0, 0.9, count))
    named = set(range(count)) if count <= LINES else {0, count // 2, count - 1}
    for number, (colour, age) in enumerate(zip(colours, one.age.values, strict=True)):
        own = np.isfinite(points[number])
        label = f"{age:.4g}" if number in named else None
        style = {"fmt": ".-", "ms": 3, "lw": 0.8, "elinewidth": 0.5, "color": colour, "label": label}
        axis.errorbar(one.tau.values[own], points[number][own], one.g2_err.values[number][own], **style)
    axis.set_ylim(*span)
    axis.set_ylabel("g2")
    axis.tick_params(labelsize=SMALL)

"""Pictures of curves: data with the posterior mean and its band, and the residuals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from bayesfit.compute.kinds import expect_result
from bayesfit.report.colours import Look, limits, look_of
from bayesfit.report.panels import SMALL, TINY, Size, chosen_places, pairs_of_panels, panels
from bayesfit.report.pictures import check_picture, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 2.4, 2.7  # inches
ACROSS = 6
FAR = 4.5  # sd, the end of the axis of residuals

OfDelays = Float[np.ndarray, " tau"]


def plot_curves(
    result: xr.DataTree,
    bins: Sequence[int] | None = None,
    *,
    axes: Any = None,
    size: Size | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Draw curves: points with the error bars that the fit infers, the posterior mean with its central 95 % band, and
    below each curve its residuals in standard deviations.

    The axis follows the curve and the points that are known well; points outside are triangles at its edge, and masked
    points are pale and hollow.

    Args:
        result: what `fit` or `load` returned.
        bins: which q_bin to draw; by default all of them (of more than 60, first those that are not ok).
        axes: matplotlib's axes to draw on, one for each bin; residuals are left out then.
        size: "column" or "page" of a journal; by default as large as the panels need.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: there is no such bin, or it is no result of a fit. SettingsError: no picture has the path's ending,
            or the number of axes is not that of the bins.
    """
    expect_result(result, "fit")
    check_picture(path)
    places, words = chosen_places(result, bins)
    if axes is not None:
        made = panels(len(places), axes, size, ACROSS, PANEL)
        for axis, place in zip(made.axes, places, strict=True):
            draw_curve(axis, Curve.of(result, place))
        return written(made.figure, path)
    figure, pairs = pairs_of_panels(len(places), size, ACROSS, PANEL)
    for pair, place in zip(pairs, places, strict=True):
        draw_bin(*pair, Curve.of(result, place))
    figure.suptitle(words, fontsize=SMALL)
    return written(figure, path)


def plot_residuals(
    result: xr.DataTree,
    bins: Sequence[int] | None = None,
    *,
    axes: Any = None,
    size: Size | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Draw the residuals of curves, in standard deviations of the noise that the fit infers; grey: two of them.

    Args, returns and raises as `plot_curves`.
    """
    expect_result(result, "fit")
    check_picture(path)
    places, words = chosen_places(result, bins)
    made = panels(len(places), axes, size, ACROSS, (PANEL[0], 0.6 * PANEL[1]))
    for axis, place in zip(made.axes, places, strict=True):
        curve = Curve.of(result, place)
        draw_residuals(axis, curve)
        _titled(axis, curve)
        axis.set_ylabel("residual [sd]", fontsize=TINY)
    if words:
        made.figure.suptitle(words, fontsize=SMALL)
    return written(made.figure, path)


class Curve(NamedTuple):
    """One bin: delays, values, errors (inferred, else stated), which points are valid, the posterior mean and its band,
    names of the axes, a title and its verdict."""

    tau: OfDelays
    g2: OfDelays
    error: OfDelays
    valid: Bool[np.ndarray, " tau"]
    mean: OfDelays
    lower: OfDelays
    upper: OfDelays
    axes: tuple[str, str]
    title: str
    verdict: str

    @classmethod
    def of(cls, result: xr.DataTree, place: int) -> Curve:
        """The bin at this place."""
        data = result["constant_data"].dataset.isel(q_bin=place)
        band = result["fit_curve"].dataset.isel(q_bin=place)
        q = f", q = {float(data.q):.4g} 1/Å" if np.isfinite(data.q) else ""
        q += f", {float(data.angle):g}°" if "angle" in data.coords and np.isfinite(data.angle) else ""
        delays = bool(result.attrs.get("data_delays", 1))
        return cls(
            data.tau.values,
            result["observed_data"].g2.values[place],
            np.where(np.isfinite(band.sigma), band.sigma, data.g2_err),
            data.valid.values,
            band["mean"].values,
            band["lower"].values,
            band["upper"].values,
            ("τ [s]", "g$_2$") if delays else ("x", "y"),
            f"bin {data.q_bin.item()}{q}",
            str(result["diagnostics"].verdict.values[place]),
        )

    @property
    def look(self) -> Look:
        """Colour, marker and sign of the verdict."""
        return look_of(self.verdict)

    @property
    def logarithmic(self) -> bool:
        """Whether the delays can stand on a logarithmic axis."""
        return bool((self.tau > 0).any() and np.all(self.tau[self.valid] > 0))


def draw_bin(above: Axes, below: Axes, curve: Curve) -> None:
    """Draw one bin: the curve, and its residuals below."""
    draw_curve(above, curve)
    draw_residuals(below, curve)
    above.tick_params(labelbottom=False)
    above.set_xlabel("")


def draw_curve(axis: Axes, curve: Curve) -> None:
    """Draw one bin."""
    known, colour = curve.valid, curve.look.colour
    edges = np.concatenate([curve.lower[known], curve.upper[known]])
    low, high = limits(edges, curve.g2[known], curve.error[known])
    inside = known & (curve.g2 >= low) & (curve.g2 <= high)
    axis.errorbar(
        curve.tau[inside], curve.g2[inside], curve.error[inside], fmt=".", ms=3, lw=0.6, color="0.45", zorder=1
    )
    for outside, at, marker in ((curve.g2 > high, high, "^"), (curve.g2 < low, low, "v")):
        beyond = known & outside
        axis.plot(curve.tau[beyond], np.full(beyond.sum(), at), marker, ms=4, color="0.45", clip_on=False, zorder=4)
    masked = ~known & np.isfinite(curve.g2) & (curve.tau > 0)
    shown = np.clip(curve.g2[masked], low, high)
    axis.plot(curve.tau[masked], shown, "o", ms=2.5, mfc="none", mec="0.8", mew=0.5, zorder=0)
    axis.fill_between(curve.tau, curve.lower, curve.upper, color=colour, alpha=0.35, lw=0, zorder=2)
    axis.plot(curve.tau, curve.mean, color=colour, lw=1.2, zorder=3)
    axis.set_ylim(low, high)
    axis.locator_params(axis="y", nbins=5)
    axis.set_ylabel(curve.axes[1], fontsize=TINY, labelpad=1)
    _titled(axis, curve)


def draw_residuals(axis: Axes, curve: Curve) -> None:
    """Draw the residuals of one bin."""
    known = curve.valid
    residual = (curve.g2[known] - curve.mean[known]) / curve.error[known]
    axis.axhspan(-2, 2, color="0.92", lw=0)
    axis.axhline(0, color=curve.look.colour, lw=0.8)
    axis.plot(curve.tau[known], np.clip(residual, -FAR, FAR), ".", ms=2.5, color="0.35", clip_on=False)
    axis.set_ylim(-FAR, FAR)
    axis.set_yticks([-2, 2])
    axis.set_xlabel(curve.axes[0], fontsize=TINY)
    axis.tick_params(labelsize=TINY)
    if curve.logarithmic:
        axis.set_xscale("log")


def _titled(axis: Axes, curve: Curve) -> None:
    """The title of a panel, in the colour of its verdict if that is not "ok"; small labels."""
    fine = curve.verdict == "ok"
    title = curve.title if fine else f"{curve.title}\n{curve.look.sign} {curve.verdict}"
    axis.set_title(title, fontsize=TINY, color="black" if fine else curve.look.colour)
    axis.set_xlabel(curve.axes[0], fontsize=TINY)
    axis.tick_params(labelsize=TINY)
    if curve.logarithmic:
        axis.set_xscale("log")

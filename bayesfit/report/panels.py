"""What all pictures share: panels of a size, labels with symbols and units, markers of verdicts, places over q."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import ResultError, SettingsError, nearest
from bayesfit.compute.kinds import in_words, kind_of
from bayesfit.report.colours import look_of
from bayesfit.result.summary import of_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Size = Literal["column", "page"]
WIDTHS = {"column": 3.4, "page": 7.0}  # inches, of a column and a page of a journal
SMALL, TINY = 8, 7  # points, of fonts
MOST = 60  # panels of a picture
LEFT, RIGHT, BOTTOM, TOP, HEAD = 0.55, 0.08, 0.42, 0.34, 0.25  # inches, margins of a pair of axes and of their figure
SHARE = 0.27  # of the height, that the lower one of a pair has
UNITS = {"angstrom^2/s": "Å$^2$/s", "1/angstrom": "1/Å", "um^2/s": "µm$^2$/s"}


class Panels(NamedTuple):
    """A figure, and its axes in order."""

    figure: Figure
    axes: list[Axes]


def panels(count: int, axes: Any, size: Size | None, across: int, shape: tuple[float, float]) -> Panels:
    """So many axes: those that are given, or new ones, of this width and height in inches, so many `across`.

    Raises:
        SettingsError: the wrong number of axes is given, or the size has no such name.
    """
    if axes is not None:
        given = list(np.ravel(np.asarray(axes, dtype=object)))
        if len(given) != count:
            raise SettingsError(f"got {len(given)}, and {count} are needed", field="axes", remedy="Give one for each")
        return Panels(given[0].figure, given)
    from matplotlib.figure import Figure

    columns = min(across, max(count, 1))
    rows = -(-max(count, 1) // columns)
    width, height = width_of(size, shape[0] * columns), shape[1] / shape[0]
    figure = Figure(figsize=(width, width / columns * height * rows), layout="constrained")
    made = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for axis in made[count:]:
        axis.set_visible(False)
    return Panels(figure, made[:count])


def pairs_of_panels(
    count: int, size: Size | None, across: int, shape: tuple[float, float]
) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """So many panels, each of two axes, one above the other, with one horizontal axis. Their margins are fixed, which
    suits small labels and is quick for many panels."""
    from matplotlib.figure import Figure

    columns = min(across, max(count, 1))
    rows = -(-max(count, 1) // columns)
    wide, high = width_of(size, shape[0] * columns) / columns, shape[1]
    figure = Figure(figsize=(wide * columns, high * rows + HEAD))
    width, height = wide * columns, high * rows + HEAD
    made = []
    for number in range(count):
        left = (number % columns) * wide + LEFT
        bottom = (rows - 1 - number // columns) * high + BOTTOM
        inner, free = wide - LEFT - RIGHT, high - BOTTOM - TOP
        foot = (bottom + SHARE * free) / height
        above = figure.add_axes((left / width, foot, inner / width, (1.0 - SHARE) * free / height))
        below = figure.add_axes((left / width, bottom / height, inner / width, SHARE * free / height), sharex=above)
        made.append((above, below))
    return figure, made


def width_of(size: Size | None, usual: float) -> float:
    """The width of a figure in inches."""
    if size is not None and size not in WIDTHS:
        remedy = f"Known: {', '.join(WIDTHS)}"
        raise SettingsError(f"unknown size {size!r}", field="size", remedy=remedy)
    return usual if size is None else WIDTHS[size]


def chosen_places(result: xr.DataTree, bins: Sequence[int] | None) -> tuple[list[int], str]:
    """The places of the bins to draw, by default all; and what to say of bins for which there is no room: those that
    are not ok come first.

    Raises:
        ResultError: there is no such bin. SettingsError: `bins` is no list.
    """
    check_bins(bins)
    labels = result["observed_data"].q_bin.values.tolist()
    if bins is not None:
        for bin in bins:
            if bin not in labels:
                raise ResultError(f"there is no bin {bin}", field="bins", remedy=nearest(str(bin), map(str, labels)))
        return [labels.index(bin) for bin in bins], ""
    if len(labels) <= MOST:
        return list(range(len(labels))), ""
    fine = result["diagnostics"].verdict.values == "ok"
    first = np.argsort(fine, kind="stable")[:MOST]
    return np.sort(first).tolist(), f"{MOST} of {len(labels)} bins, those first that are not ok; choose others by bins="


def check_bins(bins: Any) -> None:
    """Refuse anything but a list of bins, such as a path in its place."""
    if bins is None or (isinstance(bins, Iterable) and kind_of(bins) != "path"):
        return
    path = kind_of(bins) == "path"
    remedy = f"Write plot_fit(result, path={str(bins)!r})" if path else "Write bins=[0, 1]"
    raise SettingsError(f"got {in_words(bins)}, expected a list of bins", field="bins", remedy=remedy)


def chosen_parameters(result: xr.DataTree, parameters: Sequence[str] | str | None) -> list[str]:
    """The parameters to draw: by default those of the curve that have a value in each bin.

    Raises:
        SettingsError: there is no such parameter.
    """
    known = of_bins(result)
    if parameters is None:
        own = [str(name) for name in result["diagnostics"].parameter.values if str(name) in known]
        return own or list(known)
    names = [parameters] if isinstance(parameters, str) else list(parameters)
    for name in names:
        if name not in known:
            raise SettingsError(f"unknown parameter {name!r}", field="parameters", remedy=nearest(name, known))
    return names


def label_of(result: xr.DataTree, name: str) -> str:
    """A parameter's name, symbol and unit."""
    attrs = result["posterior"].dataset[name].attrs
    symbol, unit = attrs.get("latex", ""), attrs.get("units", "1")
    words = f"{name} ${symbol}$" if symbol and symbol != name else name
    return words if unit in ("1", "") else f"{words} [{UNITS.get(unit, unit)}]"


class Over(NamedTuple):
    """Where bins stand on the horizontal axis, and whether that is q or their numbers."""

    x: Float[np.ndarray, " q_bin"]
    is_q: bool

    @classmethod
    def of(cls, result: xr.DataTree) -> Over:
        """Over q where all of it is known and positive."""
        bins = result["diagnostics"].dataset
        is_q = bool(np.all(bins.q.values > 0))
        return cls(bins.q.values if is_q else bins.q_bin.values.astype(float), is_q)

    def label(self, axis: Axes) -> None:
        """The label and the scale of the horizontal axis."""
        axis.set_xlabel("q [1/Å]" if self.is_q else "bin", fontsize=SMALL)
        if self.is_q and np.ptp(self.x) > 0:
            from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())
            if np.max(self.x) < 100.0 * np.min(self.x):  # too few powers of ten
                axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.tick_params(labelsize=TINY, which="both")


def legend_of_verdicts(axis: Axes, verdicts: Iterable[str]) -> None:
    """A legend of the verdicts that there are, in their colours and markers."""
    for verdict in dict.fromkeys(verdicts):
        look = look_of(verdict)
        axis.plot([], [], look.marker, ms=4, color=look.colour, ls="none", label=verdict)
    axis.legend(fontsize=TINY, framealpha=0.6)

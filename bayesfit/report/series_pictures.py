"""The picture of a series: a parameter over its datasets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Shaped

from bayesfit.compute.errors import ResultError, SettingsError, nearest
from bayesfit.compute.kinds import Kind, expect_result
from bayesfit.diagnose.interval import central_interval
from bayesfit.report.panels import SMALL, TINY, Size, label_of, panels
from bayesfit.report.pictures import check_picture, written
from bayesfit.result.summary import of_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 5.6, 4.0  # inches
LINES = 11  # up to which lines have a legend
MOST_LABELS, LONGEST_LABEL = 16, 16  # of datasets below the picture, and characters of each
LONGEST_REST = 36  # characters of what names of datasets have in common
PALE = 0.3  # opacity of intervals that are not to be believed
SPREAD = 0.12  # of the distance of datasets, over which the marks of lines are spread
DIMS = ("chain", "draw", "q_bin")
DRAWN_BY: dict[Kind, str] = {"fit": "Draw it with plot_fit", "law": "Draw it with `bayesfit plot`"}


def plot_series(
    result: xr.DataTree,
    path: str | Path | None = None,
    *,
    parameter: str | None = None,
    bins: Sequence[int] | None = None,
    axes: Any = None,
    size: Size | None = None,
) -> Figure:
    """Draw a parameter over the datasets of a series: median and 95 % interval, one line per bin, or a single line
    where bins have it in common or it is a law's. Few lines have a legend, many are coloured by q.

    Datasets that are labelled by numbers stand at these, others in order, under the part of their names in which they
    differ. Markers are open, and intervals pale, where the verdict on the bin, on what the bins have in common, or on
    the law is not "ok"; such intervals do not stretch the axis.

    Args:
        result: what `series`, `law` of a series, or `load` returned.
        path: where to save the picture, if at all; the ending says the format.
        parameter: which to draw; by default the rate, or else the first one.
        bins: which q_bin to draw; by default all of them.
        axes: matplotlib's axes to draw on, one.
        size: "column" or "page" of a journal.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: it is no series, or there is no such bin. SettingsError: there is no such parameter, no picture has
            the path's ending, or not one axis is given.
    """
    expect_result(result, "series", remedies=DRAWN_BY)
    check_picture(path)
    lines, made = Lines.of(result, parameter, bins), panels(1, axes, size, 1, PANEL)
    (axis,) = made.axes
    array = result["posterior"].dataset[lines.parameter]
    x = _places_of_datasets(axis, array.coords["dataset"].values)
    _draw(axis, x, lines)
    _fit_to(axis, lines)
    axis.set_ylabel(label_of(result, lines.parameter), fontsize=SMALL)
    axis.tick_params(labelsize=TINY, which="both")
    return written(made.figure, path)


class Lines(NamedTuple):
    """What is drawn of a series: the parameter, the intervals of each line in each dataset, whether the verdict there
    is ok, the names of the lines, and their q (NaN where a line has none)."""

    parameter: str
    intervals: Float[np.ndarray, "3 line dataset"]
    fine: Bool[np.ndarray, "line dataset"]
    names: list[str]
    q: Float[np.ndarray, " line"]

    @classmethod
    def of(cls, result: xr.DataTree, parameter: str | None, bins: Sequence[int] | None) -> Lines:
        """The lines of a parameter in some bins.

        Raises:
            SettingsError: there is no such parameter. ResultError: there is no such bin.
        """
        posterior, checks = result["posterior"].dataset, result["diagnostics"].dataset
        name, own = _parameter(posterior, parameter), of_bins(result)
        draws = posterior[name].transpose("chain", "draw", ..., "dataset").values
        intervals = central_interval(draws.reshape(*draws.shape[:2], -1, draws.shape[-1]), axis=(0, 1))
        if name not in own:
            judged = checks.law_verdict if "law_verdict" in checks else result["across"].joint_verdict
            return cls(name, intervals, judged.values[None] == "ok", [name], np.array([np.nan]))
        numbers, q = checks.q_bin.values.tolist(), checks.q.values.astype(float)
        verdicts = checks.verdict.transpose("q_bin", "dataset").values == "ok"
        names = [f"q = {at:.4g} 1/Å" if np.isfinite(at) else f"bin {bin}" for bin, at in zip(numbers, q, strict=True)]
        for bin in bins or ():
            if bin not in numbers:
                raise ResultError(f"there is no bin {bin}", field="bins", remedy=nearest(str(bin), map(str, numbers)))
        places = range(len(numbers)) if bins is None else [numbers.index(bin) for bin in bins]
        chosen = list(places)
        return cls(name, intervals[:, chosen], verdicts[chosen], [names[place] for place in chosen], q[chosen])


def _parameter(posterior: xr.Dataset, asked: str | None) -> str:
    """The parameter to draw, of those that are numbers in every dataset, or in every bin of it.

    Raises:
        SettingsError: there is no such.
    """
    known = [str(name) for name, array in posterior.data_vars.items() if set(array.dims) <= {*DIMS, "dataset"}]
    if asked is None:
        return min(known, key=lambda name: (name != "rate", "q_bin" not in posterior[name].dims))
    if asked not in known:
        raise SettingsError(f"unknown parameter {asked!r}", field="parameter", remedy=nearest(asked, known))
    return asked


def _draw(axis: Axes, x: Shaped[np.ndarray, " dataset"], lines: Lines) -> None:
    """Draw all lines, side by side where datasets are far enough apart, with a legend or a bar of colours."""
    many, count = len(lines.names) > LINES, len(lines.names)
    colours = _colours(axis, lines) if many else [f"C{line % 10}" for line in range(count)]
    gap = float(np.min(np.diff(np.unique(x)))) if np.unique(x).size > 1 else 1.0
    shifts = gap * SPREAD * (np.linspace(-1.0, 1.0, count) if count > 1 and np.all(np.isfinite(x)) else np.zeros(count))
    for line, name in enumerate(lines.names):
        low, middle, high = lines.intervals[:, line]
        at, fine = x + shifts[line], lines.fine[line]
        axis.plot(at, middle, lw=0.6 if many else 1.0, color=colours[line], label=name)
        for chosen, face, alpha in ((~fine, "white", PALE), (fine, colours[line], 1.0)):
            ends = [(middle - low)[chosen], (high - middle)[chosen]]
            axis.errorbar(at[chosen], middle[chosen], ends, fmt="none", lw=0.8, ecolor=colours[line], alpha=alpha)
            axis.plot(at[chosen], middle[chosen], "o", ms=2.5 if many else 4, color=colours[line], mfc=face)
    if not many:
        axis.legend(fontsize=TINY, framealpha=0.6)


def _colours(axis: Axes, lines: Lines) -> Any:
    """Colours from dark to bright, over q where all of it is known, else in order; and the bar that says which is
    which."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    known = bool(np.isfinite(lines.q).all())
    values = lines.q if known else np.arange(len(lines.names), dtype=float)
    scale = ScalarMappable(
        Normalize(values.min(), values.max()), ListedColormap(colormaps["viridis"](np.linspace(0, 0.92, 256)))
    )
    bar = axis.figure.colorbar(scale, ax=axis, pad=0.02)
    bar.set_label("q [1/Å]" if known else "bin, in order", fontsize=SMALL)
    bar.ax.tick_params(labelsize=TINY)
    return scale.to_rgba(values)


def _fit_to(axis: Axes, lines: Lines) -> None:
    """Limits that hold all medians, and the intervals that are to be believed, or all if none is; a logarithmic scale
    for what is positive and varies much."""
    low, middle, high = lines.intervals
    believed = lines.fine | ~lines.fine.any()
    ends = np.concatenate([middle.ravel(), low[believed], high[believed]])
    ends = ends[np.isfinite(ends)]
    if not ends.size:
        return
    if ends.min() > 0 and ends.max() > 3.0 * ends.min():
        axis.set_yscale("log")
        axis.set_ylim(ends.min() / 1.2, ends.max() * 1.2)
    elif np.ptp(ends) > 0:
        axis.set_ylim(ends.min() - 0.06 * np.ptp(ends), ends.max() + 0.06 * np.ptp(ends))


def _places_of_datasets(axis: Axes, labels: Shaped[np.ndarray, " dataset"]) -> Shaped[np.ndarray, " dataset"]:
    """Where datasets stand: at their labels where these are numbers, else in order, with short labels as ticks."""
    axis.set_xlabel("dataset", fontsize=SMALL)
    if labels.dtype.kind in "fiu":
        return labels.astype(float)
    x = np.arange(labels.size, dtype=float)
    names, rest = short_names([str(label) for label in labels])
    shown = slice(None, None, -(-labels.size // MOST_LABELS))
    slanted = max(map(len, names)) > 4
    turn, side = (30, "right") if slanted else (0, "center")
    axis.set_xticks(x[shown], names[shown], fontsize=TINY, rotation=turn, ha=side)
    if rest:
        axis.set_xlabel(
            f"dataset {rest if len(rest) <= LONGEST_REST else rest[: LONGEST_REST - 1] + '…'}", fontsize=SMALL
        )
    return x


def short_names(names: list[str]) -> tuple[list[str], str]:
    """The words of names in which they differ, and what the names have in common, with … for these; "" if nothing."""
    words = [re.findall(r"[A-Za-z0-9.]+|[^A-Za-z0-9.]+", name) for name in names]
    first = _equal(words) if len(names) > 1 else 0
    last = _equal([each[first:][::-1] for each in words]) if len(names) > 1 else 0
    own = ["".join(each[first : len(each) - last]) for each in words]
    if not all(own):
        own, first, last = names, 0, 0
    before, after = "".join(words[0][:first]), "".join(words[0][len(words[0]) - last :])
    own = [each if len(each) <= LONGEST_LABEL else f"…{each[1 - LONGEST_LABEL :]}" for each in own]
    return own, f"{before}…{after}" if before or after else ""


def _equal(lists: list[list[str]]) -> int:
    """With how many equal items all lists begin."""
    together = zip(*lists, strict=False)
    return sum(1 for _ in takewhile(lambda items: len(set(items)) == 1, together))

"""The page of a folder of results: a table that links their reports, and what changes from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesfit.compute.errors import BayesfitError, ResultError
from bayesfit.compute.whole_files import write_whole
from bayesfit.report.colours import look_of
from bayesfit.report.html import plain, row_in, write_report
from bayesfit.report.page import FOLLOWED
from bayesfit.report.panels import UNITS
from bayesfit.result.files import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INDEX = "index.html"
MOST_NAMES = 24  # of results that stand below the picture
LETTERS = 80  # that fit side by side


class Row(NamedTuple):
    """What the page says of one result: its name, the verdicts of its bins, quartiles over the bins that are ok of the
    medians of parameters and their units, by name, and words."""

    name: str
    verdicts: dict[str, int]
    quartiles: dict[str, list[float | None]]
    units: dict[str, str]
    words: str


def write_folder_report(folder: Path, again: bool = False) -> Path:
    """Write `index.html` in a folder of results, and the report of each result that has none.

    Args:
        folder: where results lie as `NAME.nc`.
        again: write all reports anew.

    Raises:
        ResultError: there is no result in the folder, or the page cannot be written.
    """
    rows = [_row(path, again) for path in sorted(folder.glob("*.nc"))]
    found = [row for row in rows if row is not None]
    if not found:
        raise ResultError("holds no results", file=folder, remedy="Run `bayesfit run FILE... -o FOLDER` first")
    page, path = _page(folder, found), folder / INDEX
    try:
        write_whole(path, page.encode())
    except OSError as error:
        raise ResultError(f"cannot be written: {error.strerror or error}", file=path) from error
    return path


def _row(path: Path, again: bool) -> Row | None:
    """What the report of one result says of it, after it is there; None of a file that is no result."""
    page = path.with_suffix(".html")
    try:
        if again or not page.exists():
            write_report(load(path), page)
    except BayesfitError:
        return None
    row = row_in(page)
    return None if row is None else Row(path.stem, **row)


def _page(folder: Path, rows: list[Row]) -> str:
    fits = [row for row in rows if row.verdicts]
    followed = next((name for name in FOLLOWED if fits and all(name in row.quartiles for row in fits)), None)
    unit = fits[0].units[followed] if followed else ""
    columns = ["result", "ok", "bins", *([f"{followed} [{unit}], median of ok bins"] if followed else []), "verdicts"]
    cells = [_cells(row, followed) for row in rows]
    fine = sum(row.verdicts.get("ok", 0) for row in fits)
    title = f"{fine} of {sum(map(_bins, fits))} bins ok in {len(fits)} results"
    pictures = [_trend(fits, followed, unit)] if followed and len(fits) > 1 else []
    return plain(title, folder.name, pictures, [{"columns": columns, "rows": cells}])


def _bins(row: Row) -> int:
    return sum(row.verdicts.values())


def _cells(row: Row, followed: str | None) -> list[Any]:
    """The cells of a row of the table."""
    link = {"link": f"{row.name}.html", "text": row.name}
    value = row.quartiles[followed][1] if followed in row.quartiles else None
    middle = "–" if value is None else f"{value:.5g}"
    own = [middle] if followed else []
    return [link, row.verdicts.get("ok", 0) if row.verdicts else "–", _bins(row) or "–", *own, row.words]


def _trend(rows: list[Row], name: str, unit: str) -> Figure:
    """What changes from file to file: the share of bins with each verdict, and a parameter."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2])
    x, base = np.arange(len(rows)), np.zeros(len(rows))
    for verdict in dict.fromkeys(verdict for row in rows for verdict in row.verdicts):
        share = np.array([row.verdicts.get(verdict, 0) / _bins(row) for row in rows])
        above.bar(x, share, bottom=base, width=0.9, color=look_of(verdict).colour, label=verdict)
        base += share
    above.set_ylabel("share of bins")
    above.legend(fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    low, middle, high = np.array([row.quartiles[name] for row in rows], float).T
    below.errorbar(x, middle, [middle - low, high - middle], fmt="o", ms=4, lw=1, color=look_of("ok").colour)
    below.set_ylabel(f"{name} [{UNITS.get(unit, unit)}]\nmedian and quartiles of ok bins")
    _name(below, [row.name for row in rows])
    return figure


def _name(axis: Axes, names: list[str]) -> None:
    """The names of the results below the axis, where there is room for them."""
    if len(names) > MOST_NAMES:
        axis.set_xlabel("result, in the order of the table")
        return
    long = max(map(len, names)) * len(names) > LETTERS
    axis.set_xticks(range(len(names)), names, fontsize=8, rotation=30 if long else 0, ha="right" if long else "center")

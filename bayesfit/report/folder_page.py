"""The page of a folder of results: a table that links their reports, and what changes from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from bayesfit.compute.errors import BayesfitError, ResultError
from bayesfit.compute.whole_files import write_whole
from bayesfit.report.colours import look_of
from bayesfit.report.html import plain, write_report
from bayesfit.report.page import headline
from bayesfit.result.datasets import is_series
from bayesfit.result.files import load
from bayesfit.result.summary import of_bins, tally

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INDEX = "index.html"
FOLLOWED = ("D", "rate")  # of which the first that all results have is followed from file to file


class Row(NamedTuple):
    """What the page says of one result: its name, the verdicts of its bins, and quartiles over the bins that are ok of
    the medians of parameters, by name."""

    name: str
    verdicts: dict[str, int]
    quartiles: dict[str, np.ndarray]
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
    """What is to be said of one result, after its report is there; None of a file that is no result."""
    try:
        result = load(path)
        if again or not path.with_suffix(".html").exists():
            write_report(result, path.with_suffix(".html"))
    except BayesfitError:
        return None
    if "law" in result.attrs or is_series(result):
        kind = f"{result.attrs['law']} of {result.attrs['parameter']}" if "law" in result.attrs else "series"
        return Row(path.stem, {}, {}, {}, kind)
    names = [name for name in FOLLOWED if name in of_bins(result)]
    posterior = result["posterior"].dataset
    quartiles = {name: _quartiles(result, name) for name in names}
    units = {name: posterior[name].attrs.get("units", "1") for name in names}
    return Row(path.stem, tally(result), quartiles, units, headline(tally(result)))


def _quartiles(result: xr.DataTree, name: str) -> np.ndarray:
    """Quartiles, over the bins that are ok, of the medians of a parameter; NaN if there are none."""
    fine = result["diagnostics"].verdict.values == "ok"
    medians = result["posterior"].dataset[name].median(("chain", "draw")).values[fine]
    return np.quantile(medians, [0.25, 0.5, 0.75]) if medians.size else np.full(3, np.nan)


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
    middle = f"{row.quartiles[followed][1]:.5g}" if followed in row.quartiles else "–"
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
    low, middle, high = np.array([row.quartiles[name] for row in rows]).T
    below.errorbar(x, middle, [middle - low, high - middle], fmt="o", ms=4, lw=1, color=look_of("ok").colour)
    below.set_ylabel(f"{name} [{unit}]\nmedian and quartiles of ok bins")
    below.set_xlabel("result, in the order of the table")
    return figure

"""Results for other programs: tables as CSV and Excel, curves and fits in the HDF5 layouts of the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import xarray as xr

from bayesfit.compute.errors import ResultError, SettingsError
from bayesfit.compute.kinds import Kind, expect_path, expect_result
from bayesfit.compute.whole_files import write_whole
from bayesfit.diagnose.interval import MASS, check_mass
from bayesfit.report.export_aps import CURVES, aps_content
from bayesfit.report.export_nexus import nexus_content
from bayesfit.report.export_tables import csv_content, excel_content
from bayesfit.report.fit_group import Choice


class Format(NamedTuple):
    """A format of exports: whether it is a `table`, so that it takes a series, and its writer."""

    table: bool
    content: Callable[[xr.DataTree, Choice], bytes]


APS, NEXUS = Format(False, aps_content), Format(False, nexus_content)
FORMATS = {
    ".csv": Format(True, csv_content),
    ".xlsx": Format(True, excel_content),
    ".hdf": APS,
    ".hdf5": APS,
    ".h5": APS,
    ".nxs": NEXUS,
}
REMEDIES: dict[Kind, str] = {"law": "`bayesfit show` prints it"}


def export(
    result: xr.DataTree,
    path: str | Path,
    *,
    units: Mapping[str, str] | None = None,
    mass: float = MASS,
    curves: str = "measured",
    source: str | Path | None = None,
) -> Path:
    """Write a result for another program, in the format that the ending of the path says.

    `.csv` and `.xlsx` hold `summary`, with units in the headings; `.hdf` holds g2 in the layout of APS 8-ID, which
    pyXpcsViewer and `bayesfit.read` open, and `.nxs` in that of NXxpcs. Both have the fit beside it: parameters with
    intervals, curves (tau, q_bin), verdicts.

    Args:
        result: what `fit` or `load` returned; tables also take what `series` returned.
        path: the file to write. One of that name is replaced.
        units: parameter to the unit to write it in, `{"D": "um^2/s"}`.
        mass: the probability that the intervals of parameters hold, such as 0.68.
        curves: "measured", or "fitted" for the posterior mean in place of g2, and the standard deviation of that mean
            in place of its error, so that a viewer lays it over the measured curves. `.hdf` and `.nxs` alone.
        source: the file of APS 8-ID that was fitted, which is copied with all it holds, and the fit added. Without it,
            what a result does not know (detector, images, energy) is NaN. `.hdf` alone.

    Returns:
        The path.

    Raises:
        SettingsError: the ending, a unit or a choice is unknown, or does not go with the others. InputError: `source`
            is another file than was fitted. ResultError: it is no such result, or cannot be written; then an older
            file of that name stays as it was.
    """
    path = check_export(path)
    format = FORMATS[path.suffix.lower()]
    expect_result(result, "fit", *(("series",) if format.table else ()), remedies=REMEDIES)
    check_mass(mass)
    _check_choice(path, format, curves, source)
    choice = Choice(units or {}, mass, curves == "fitted", Path(source).expanduser() if source else None)
    content = format.content(result, choice)
    try:
        write_whole(path, content)
    except OSError as error:
        raise ResultError(f"cannot be written: {error.strerror or error}", file=path) from error
    return path


def check_export(path: str | Path, field: str = "path") -> Path:
    """The path, refused before any work where its ending is that of no export.

    Raises:
        SettingsError: lists the endings.
    """
    expect_path(path, field)
    path = Path(path).expanduser()
    ending = path.suffix.lower()
    if ending not in FORMATS:
        problem = f"exports have no ending {ending}" if ending else "the export's name has no ending"
        remedy = f"Known: {', '.join(FORMATS)}" + ("; `bayesfit.save` writes .nc" if ending == ".nc" else "")
        raise SettingsError(problem, file=path, field=field, remedy=remedy)
    return path


def _check_choice(path: Path, format: Format, curves: str, source: str | Path | None) -> None:
    """Refuse choices that the format does not have.

    Raises:
        SettingsError: names the choice.
    """
    if curves not in CURVES:
        raise SettingsError(f"got {curves!r}", field="curves", remedy=f"Known: {', '.join(CURVES)}")
    if curves == "fitted" and format.table:
        raise SettingsError("a table holds no curves", file=path, field="curves", remedy="Name it .hdf or .nxs")
    if source is None:
        return
    expect_path(source, "source")
    if format is not APS:
        remedy = "Name the export .hdf"
        raise SettingsError("only an export for APS 8-ID has a source", file=path, field="source", remedy=remedy)
    if curves == "fitted":
        problem = "the curves of the source are the measured ones"
        raise SettingsError(problem, field="source", remedy="Leave out one of source and curves")

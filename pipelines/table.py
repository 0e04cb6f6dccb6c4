"""Tables in text (such as CSV), Excel (.xlsx) and NumPy files (.npz, .npy), in the usual layouts and with usual names.

Layouts     long, wide, interleaved, edge, transposed: see `_layouts.py`
Names       of columns, with their units: see `_headings.py`; spellings of units: `_unit_names.py`
Text        semicolon, tab, comma, bar or space as separator, whichever gives the most numbers; decimal points, or
            decimal commas throughout; UTF-8 or UTF-16. Lines that begin with #, %, //, ! or @ are comments. The last
            comment before the numbers may hold the headings, as `numpy.savetxt` writes them. Other lines above the
            headings are skipped.
Above       lines above the table may state wavelength, refractive index, angle, temperature, q and units: see
            `_above.py`
Twin        the file `NAME_err.csv` or `NAME_g2err.csv` beside `NAME.csv`, of the same form, holds its errors; in a
            workbook, a sheet whose name says so. Without a twin no errors are stated.

What is decided where a table is not explicit:

- If several columns could be one quantity, the name of the first rank counts (`tau` before `time`, `g2` before
  `correlation`); two names of one rank are refused.
- Without a stated unit, delays are in s, q in 1/angstrom and angles in degree. The dataset says "assumed", and a note
  says so if the numbers are unusual. A unit that is not understood is refused.
- `theta` is the whole scattering angle with light; with X-rays it is refused. `2theta` always is.
- Numbers above the columns of a wide table are q, unless they count the columns (0, 1, 2, ... or 1, 2, 3, ...), or
  `units.angle` is set. If a number has a unit, the unit decides what it is.
- If q and the delays stand along two edges, a heading says which edge holds the delays. If the corner names both, the
  delays are the axis that spans more decades, by half a decade or more; `a\\b` also says that a goes down. If the
  corner is empty, the delays go down and q along the top; this is refused if the top spans more decades.
- An angle needs wavelength and refractive index, from the settings, from columns or from lines above; without them it
  is refused.
- A long table is refused if its bins repeat more than half of their delays, or go through them several times, since
  each bin then seems to hold several curves.

Settings, all optional: `columns` (for each quantity the heading of its column, or its number from 1), `units` (for each
quantity its unit; for g2, "g2" or "g2 - 1"), `layout`, `sheet` (name or number), `optics` (wavelength in nm,
refractive_index, angle in degree).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, SettingsError
from bayesfit.pipelines._above import Above, read_above
from bayesfit.pipelines._cells import Cells
from bayesfit.pipelines._excel import is_workbook, read_workbook
from bayesfit.pipelines._grid import Grid, decoded, from_text, is_number
from bayesfit.pipelines._layouts import arrange
from bayesfit.pipelines._locate import NOT_ENDED, is_heading, locate
from bayesfit.pipelines._numpy_files import is_archive, read_arrays
from bayesfit.pipelines._quantities import relaxation
from bayesfit.pipelines._sheet import Reading
from bayesfit.pipelines._table_options import Options, checked
from bayesfit.pipelines._understood import dataset

TWINS = ("_err", "_g2err", "_g2_err")
OLD_EXCEL = b"\xd0\xcf\x11\xe0"
HEAD = 2**16  # bytes that are read to recognise a table
OPTIONS = ("columns", "units", "layout", "sheet", "optics")


def recognise(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    if head.startswith(b"\x93NUMPY") or (head.startswith(b"PK") and (is_workbook(path) or is_archive(path))):
        return None
    if head.startswith(OLD_EXCEL):
        return "an Excel file of the old form; save it as .xlsx or CSV"
    text = decoded(head)
    if text is None:
        return "not text"
    try:
        grid = from_text(text[: text.rfind("\n")] if len(head) == HEAD and "\n" in text else text, path)
    except InputError:
        return None
    rows = sum(sum(map(is_number, row)) > 0 and len(row) > 1 for row in grid.rows)
    headed = any(is_heading(row, set()) for row in grid.rows)
    return None if rows > 1 or (rows and headed) else "not a table of two rows and two columns or more"


def read(
    path: Path,
    columns: Mapping[str, Any] | None = None,
    units: Mapping[str, str] | None = None,
    layout: str | None = None,
    sheet: str | int | None = None,
    optics: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    options = checked(columns or {}, units or {}, layout, sheet, optics or {})
    base = table_of(path)
    if base is not None:
        raise InputError(f"holds the errors of {base.name}, which is read with them", file=path, remedy="Leave it out")
    reading, above = reading_of(path, options)
    return dataset(path, reading, above, options)


def table_of(path: Path) -> Path | None:
    """The table whose errors this file holds; None if it is no twin."""
    for ending in TWINS:
        base = path.with_name(path.stem.removesuffix(ending) + path.suffix)
        if path.stem.endswith(ending) and base.is_file():
            return base
    return None


def errors_of_others(files: Sequence[Path]) -> dict[Path, str]:
    """Those files that hold the errors of another one among them, each with what it is."""
    return {path: "hold the errors of others, with which they are read" for path in files if table_of(path) in files}


def reading_of(path: Path, options: Options) -> tuple[Reading, Above]:
    """What a file holds, in its own units, with the errors of its twin; and what the lines above the table state."""
    source, sheet_of_errors = _source(path, options)
    if isinstance(source, Reading):
        return source, Above()
    cells = locate(source, {str(name) for name in options.columns.values()})
    reading, above = _arranged(cells, options), read_above(cells.above)
    twins = [path.with_name(path.stem + ending + path.suffix) for ending in TWINS]
    twin = next((twin for twin in twins if twin.is_file()), None)
    if sheet_of_errors is not None:
        return _with_twin(path, reading, sheet_of_errors, f"sheet {sheet_of_errors.sheet!r}", options), above
    if twin is None:
        return reading, above
    grid, _ = _source(twin, options)
    if isinstance(grid, Reading):
        raise InputError("is no table of the same form", file=twin)
    return _with_twin(path, reading, grid, f"twin file {twin.name}", options), above


def _source(path: Path, options: Options) -> tuple[Grid | Reading, Grid | None]:
    """The cells or the arrays of a file; and, of a workbook, the sheet of the errors.

    Raises:
        InputError: the file holds no table. SettingsError: the settings name a sheet, and the file has no sheets.
    """
    if is_workbook(path):
        return read_workbook(path, options.sheet)
    if options.sheet is not None:
        raise SettingsError("only a workbook has sheets", file=path, field="sheet", remedy="Leave it out")
    with path.open("rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY" or is_archive(path):
        return read_arrays(path, options.columns, options.layout), None
    text = decoded(path.read_bytes())
    if text is None:
        raise InputError("not text", file=path)
    return from_text(text, path), None


def _arranged(cells: Cells, options: Options, errors: bool = False) -> Reading:
    reading = arrange(cells, options.columns, options.layout, options.units, errors)
    return replace(reading, notes=[*cells.notes, *reading.notes])


def _with_twin(path: Path, reading: Reading, grid: Grid, name: str, options: Options) -> Reading:
    """The table with the errors of its twin.

    Raises:
        InputError: the twin is not of the same bins and delays.
    """
    if reading.g2_err is not None:
        return replace(reading, notes=[*reading.notes, f"{name} is not read, since the table holds errors"])
    shared = {word: name for word, name in options.columns.items() if word not in ("g2", "g2_err")}
    cells = locate(grid, set(map(str, shared.values())))
    errors = _arranged(cells, replace(options, columns=shared), errors=True)
    table, twin = reading.g2.shape, grid.path
    if errors.g2.shape != table:
        raise InputError(
            f"holds (bin, tau) of shape {errors.g2.shape}, expected {table} of {path.name}", file=twin, field="g2_err"
        )
    if not np.allclose(errors.tau, reading.tau, rtol=1e-6, atol=0) or errors.units.get("tau") != reading.units.get(
        "tau"
    ):
        raise InputError(f"its delays differ from those of {path.name}", file=twin, field="tau")
    same = errors.bins.keys() == reading.bins.keys() and all(
        np.allclose(errors.bins[word], values, rtol=1e-6, atol=0, equal_nan=True)
        for word, values in reading.bins.items()
    )
    if not same or (errors.labels != reading.labels and errors.labels is not None and not _numbered(errors.labels)):
        raise InputError(f"its columns are named otherwise than those of {path.name}", file=twin, field="q")
    notes = reading.notes if grid.ended else [*reading.notes, f"{name}: {NOT_ENDED}"]
    return replace(reading, g2_err=errors.g2, errors_from=name, notes=notes)


def _numbered(labels: list[str]) -> bool:
    """Whether labels are numbered names of errors, such as `err_1`."""
    return all(label.lower().startswith(("err", "sigma", "std")) for label in labels)


pipeline = Pipeline(
    name="table",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="tables in text, Excel or NumPy files: long, wide, interleaved, or q and tau along the edges",
    options=OPTIONS,
    general=True,
    of_others=errors_of_others,
)

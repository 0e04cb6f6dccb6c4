"""Sheets of Excel workbooks (.xlsx) as grids; needs openpyxl, the extra `bayesfit[excel]`."""

import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

from bayesfit import InputError, SettingsError
from bayesfit.compute.errors import nearest
from bayesfit.compute.memory import check_unpacked
from bayesfit.pipelines._grid import COMMENT, Grid, is_number

ERRORS = re.compile(r"(?:.*[ _-])?(?:g2)?[ _-]?(?:err(?:or)?s?|sigma|std|uncertaint(?:y|ies))", re.IGNORECASE)

MOST_CELLS = 5_000_000  # a thousand bins of a thousand delays are a million


def is_workbook(path: Path) -> bool:
    """Whether a file is a zip archive that holds a workbook."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return False


def read_workbook(path: Path, sheet: str | int | None) -> tuple[Grid, Grid | None]:
    """The sheet that the user names, or the only one with numbers; and the sheet of its errors, if the name of another
    sheet says that it holds them.

    Raises:
        InputError: openpyxl is not installed, or several sheets could be meant. SettingsError: there is no such sheet.
    """
    grids = {grid.sheet: grid for grid in _sheets(path)}
    full = {name: grid for name, grid in grids.items() if any(sum(map(is_number, row)) > 1 for row in grid.rows)}
    errors = [name for name in full if ERRORS.fullmatch(name.strip())]
    if sheet is not None:
        return _asked(path, grids, sheet), None
    if not full:
        raise InputError("no sheet holds numbers", file=path)
    data = [name for name in full if name not in errors] or list(full)
    if len(data) > 1:
        names = ", ".join(repr(name) for name in data)
        raise InputError(
            f"sheets {names} hold tables", file=path, field="sheet", remedy=f'Choose one, --set sheet="{data[0]}"'
        )
    return full[data[0]], full[errors[0]] if len(errors) == 1 and errors != data else None


def _asked(path: Path, grids: dict[str, Grid], sheet: str | int) -> Grid:
    """A sheet by name, or by number from 1."""
    if str(sheet) in grids:
        return grids[str(sheet)]
    if isinstance(sheet, int) and 1 <= sheet <= len(grids):
        return list(grids.values())[sheet - 1]
    raise SettingsError(f"there is no sheet {sheet!r}", file=path, field="sheet", remedy=nearest(str(sheet), grids))


def _sheets(path: Path) -> list[Grid]:
    """Every sheet of a workbook."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        remedy = 'Install it with pip install "bayesfit[excel]", or save the sheet as CSV'
        raise InputError("an Excel workbook needs openpyxl", file=path, remedy=remedy) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those about what a workbook holds besides cells
            check_unpacked(path)
            values = load_workbook(path, data_only=True)
            _check_sizes(path, values)
            if _has_formulas(path):
                formulas = load_workbook(path)
                for sheet in values.worksheets:
                    _check_formulas(path, sheet, formulas[sheet.title])
    except InputError:
        raise
    except Exception as error:  # openpyxl, zipfile and the parser of XML fail with any type
        raise InputError(f"is a workbook that cannot be read ({error})", file=path, remedy="Save it again") from error
    return [_grid(path, sheet) for sheet in values.worksheets]


def _check_sizes(path: Path, workbook: Any) -> None:
    """Refuse a sheet with something so far from its first cell that all the cells between would fill the memory."""
    for sheet in workbook.worksheets:
        if sheet.max_row * sheet.max_column > MOST_CELLS:
            last = f"{sheet.max_row} rows by {sheet.max_column} columns"
            remedy = "Delete what stands far from the table"
            raise InputError(f"sheet {sheet.title!r} is of {last}", file=path, field="sheet", remedy=remedy)


def _has_formulas(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
        return any(re.search(rb"<f[ >]", archive.read(name)) for name in sheets)


def _check_formulas(path: Path, sheet: Any, formulas: Any) -> None:
    """Refuse a formula whose value is not in the file, as when a program wrote it and no spreadsheet has computed
    it."""
    for row in formulas.iter_rows():
        for cell in row:
            if cell.data_type == "f" and sheet[cell.coordinate].value is None:
                problem = f"sheet {sheet.title!r}, cell {cell.coordinate}: a formula without a value"
                raise InputError(problem, file=path, remedy="Open the file in a spreadsheet and save it again")


def _grid(path: Path, sheet: Any) -> Grid:
    """The cells of one sheet without empty rows, and without empty columns at its edges."""
    every = [list(row) for row in sheet.iter_rows(values_only=True)]
    rows = [(line, ["" if cell is None else cell for cell in row]) for line, row in enumerate(every, 1)]
    rows = [(line, row) for line, row in rows if any(cell != "" for cell in row)]
    is_comment = [isinstance(row[0], str) and bool(COMMENT.match(row[0])) for _, row in rows]
    comments = [
        (line, " ".join(str(cell) for cell in row if cell != ""))
        for (line, row), comment in zip(rows, is_comment, strict=True)
        if comment
    ]
    rows = [pair for pair, comment in zip(rows, is_comment, strict=True) if not comment]
    filled = [place for _, row in rows for place, cell in enumerate(row) if cell != ""]
    first, last = min(filled, default=0), max(filled, default=-1) + 1
    cells = [(row + [""] * last)[first:last] for _, row in rows]
    return Grid(_short(cells), [line for line, _ in rows], comments, path, sheet.title, first + 1)


def _short(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows with those above the table cut after their last filled cell: they have empty cells at their end only
    because the sheet is as wide as the table."""
    table = next((number for number, row in enumerate(rows) if sum(map(is_number, row)) > 1), len(rows))
    for row in rows[: max(0, table - 1)]:
        while row and row[-1] == "":
            row.pop()
    return rows

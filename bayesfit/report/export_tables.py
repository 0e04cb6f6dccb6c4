"""The summary of a result as CSV and as an Excel workbook."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayesfit.compute.errors import ResultError
from bayesfit.report.fit_group import Choice
from bayesfit.report.page import about
from bayesfit.result.datasets import is_series
from bayesfit.result.summary import summary

if TYPE_CHECKING:
    import pandas as pd
    from openpyxl import Workbook

OF_BINS = {"q": "1/angstrom", "phi": "degree"}
ENDS = ("", "_mean", "_sd", "_low", "_high")
WIDEST, ROOM = 40, 2  # characters of a column


def csv_content(result: xr.DataTree, choice: Choice) -> bytes:
    """The summary as CSV, with units in the headings."""
    return with_units(summary(result, choice.units, mass=choice.mass)).to_csv(index=False).encode()


def with_units(table: pd.DataFrame) -> pd.DataFrame:
    """The table of `summary` with its index as columns, and headings like `rate_low [1/s]`."""
    units = {f"{name}{end}": unit for name, unit in table.attrs["units"].items() for end in ENDS} | OF_BINS
    stated = {name: f"{name} [{unit}]" for name, unit in units.items() if unit not in ("1", "")}
    return table.reset_index().rename(columns=stated)


def excel_content(result: xr.DataTree, choice: Choice) -> bytes:
    """A workbook: the bins, what they have in common, what the parameters are, and where all of it comes from.

    Raises:
        ResultError: openpyxl is not installed.
    """
    try:
        from openpyxl import Workbook
    except ImportError as error:
        remedy = 'Install it with pip install "bayesfit[excel]", or name it .csv'
        raise ResultError("an Excel workbook needs openpyxl", remedy=remedy) from error
    book = Workbook()
    book.remove(book.active)
    table = summary(result, choice.units, mass=choice.mass)
    _add(book, "bins", with_units(table))
    if "across" in result and not is_series(result):
        common = summary(result, choice.units, common=True, mass=choice.mass)
        _add(book, "in common", common.reset_index())
    _add(book, "parameters", _parameters(result, table.attrs["units"]))
    _add(book, "about", _frame(["", "where this comes from"], [("interval", f"{choice.mass:g}"), *about(result)]))
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


def _parameters(result: xr.DataTree, units: dict[str, str]) -> pd.DataFrame:
    """What each parameter is."""
    posterior = result["posterior"].dataset
    rows = [(name, unit, posterior[name].attrs.get("long_name", "")) for name, unit in units.items()]
    return _frame(["parameter", "unit", "what it is"], rows)


def _frame(columns: list[str], rows: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)


def _add(book: Workbook, title: str, table: pd.DataFrame) -> None:
    """A sheet with headings that stay in view. Text is text, and no formula, whatever it begins with."""
    from openpyxl.styles import Font

    sheet = book.create_sheet(title)
    sheet.freeze_panes = "B2"
    for column, heading in enumerate(table.columns, start=1):
        values = [str(heading), *(_plain(value) for value in table[heading])]
        for row, value in enumerate(values, start=1):
            cell = sheet.cell(row, column, value)
            if isinstance(value, str):
                cell.data_type = "s"
        sheet.cell(1, column).font = Font(bold=True)
        widest = max(len(f"{value:.6g}" if isinstance(value, float) else str(value or "")) for value in values)
        sheet.column_dimensions[sheet.cell(1, column).column_letter].width = min(widest, WIDEST) + ROOM


def _plain(value: Any) -> Any:
    """A value as a cell holds it: empty where there is no number."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value

"""Correlograms that the software of a Zetasizer exports, as Excel or text: light scattering at one angle.

Layout      "Time (µs) - SAMPLE" and "Correlation Coefficient (g₂-1) - SAMPLE" for each record, or one column of
            "Correlation Delay Times (µs)" and one column of values per record. Each record is one bin, with its name as
            `label`. A workbook of several sheets needs the setting `sheet`.
Zeros       At delays longer than the measurement, the table holds 0 in place of a value; these points are masked.
q           is not in the file: give `optics.wavelength=633`, `optics.refractive_index=1.33` and `optics.angle=173`.
Amplitudes  Light scattering on a single mode sees contrasts up to 1, on a baseline of 0 since the file holds g2 - 1.
"""

import html
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import Pipeline
from bayesfit.pipelines._excel import is_workbook
from bayesfit.pipelines._grid import decoded
from bayesfit.pipelines._quantities import relaxation
from bayesfit.pipelines._sheet import Reading
from bayesfit.pipelines._table_options import checked
from bayesfit.pipelines._understood import dataset
from bayesfit.pipelines._unit_names import tidy
from bayesfit.pipelines.table import OPTIONS, reading_of

TITLES = re.compile(r"correlation coefficient ?\(g2-1\)|correlation delay times?|correlation data")
HEAD = 2**16  # bytes that are read to recognise a text


def recognise(path: Path) -> str | None:
    try:
        if is_workbook(path):
            text: str | None = _words_of_workbook(path)
        else:
            with path.open("rb") as file:
                text = decoded(file.read(HEAD))
    except Exception as error:  # a damaged archive fails with any type
        return f"cannot be opened ({error})"
    return None if text and TITLES.search(tidy(text)) else "no heading of a Zetasizer's correlogram"


def _words_of_workbook(path: Path) -> str:
    """Text of the cells of a workbook: the strings that its sheets share, and the beginnings of the sheets."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if re.match(r"xl/(sharedStrings|worksheets/[^/]*)\.xml", name)]
        parts = []
        for name in names:
            with archive.open(name) as file:
                parts.append(file.read(HEAD).decode("utf-8", errors="replace"))
    return html.unescape(" ".join(parts))


def read(
    path: Path,
    columns: Mapping[str, Any] | None = None,
    units: Mapping[str, str] | None = None,
    layout: str | None = None,
    sheet: str | int | None = None,
    optics: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    options = checked(columns or {}, units or {}, layout, sheet, optics or {})
    reading, above = reading_of(path, options)
    options = replace(options, minus_one=True if options.minus_one is None else options.minus_one)
    return dataset(
        path,
        _named(_without_zeros(reading)),
        above,
        options,
        contrast_prior="TruncatedNormal(0.5, 0.5, low=0)",
        baseline_prior="Normal(0, 0.05)",
    )


def _without_zeros(reading: Reading) -> Reading:
    """The table with NaN for the zeros at the end of each curve, where nothing was measured."""
    filled = np.nan_to_num(reading.g2) != 0
    after = ~np.logical_or.accumulate(filled[:, ::-1], axis=1)[:, ::-1]
    zeros = int(np.sum(after & (reading.g2 == 0)))
    note = [f"{zeros} values of 0 to the end of the columns are masked: nothing was measured there"] if zeros else []
    return replace(reading, g2=np.where(after, np.nan, reading.g2), notes=[*reading.notes, *note])


def _named(reading: Reading) -> Reading:
    """The table with the names of the records as labels."""
    labels = [label.partition(" - ")[2] or label for label in reading.labels or []]
    return replace(reading, layout=f"Zetasizer export, {reading.layout}", labels=labels or None)


pipeline = Pipeline(
    name="zetasizer",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="correlograms that a Zetasizer exports, Excel or text",
    options=OPTIONS,
)

"""Plain tables (CSV), in any of three forms.

Wide        header `tau, ...` and one column a bin, named by its q or by any label; errors in a twin file
Long        header with `q, tau, g2` and, if there are errors, `g2_err`; also `phi`
Corner      no header: row 0 holds q, column 0 holds tau, the corner is not used; errors in a twin file
Twin        `NAME_err.csv` or `NAME_g2err.csv` beside `NAME.csv`, same form. Without one no errors are stated.

tau is in s and q in 1/angstrom; lines that begin with # are comments; separators are comma, semicolon, tab or space.
"""

import csv
import re
from pathlib import Path

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.pipelines._quantities import relaxation

Rows = list[list[str]]
TWINS = ("_err", "_g2err", "_g2_err")


def recognise(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(4096)
    if b"\0" in head:
        return "not text"
    try:
        rows = _rows(head.rsplit(b"\n", 1)[0].decode("utf-8-sig", errors="replace") if b"\n" in head else "")
    except csv.Error:
        return "not a table"
    if len(rows) < 2 or len(rows[0]) < 2:
        return "not a table of two rows and two columns or more"
    if _is_long(rows[0]) or rows[0][0].lower() == "tau":
        return None
    numbers = [_number(word) for row in rows[:3] for word in row[1:]]
    return None if not any(map(np.isnan, numbers)) else "no header with tau, and not all numbers"


def read(path: Path) -> xr.Dataset:
    rows = _rows(path.read_text(encoding="utf-8-sig"))
    if _is_long(rows[0]):
        return _long(rows, path)
    tau, labels, g2 = _wide(rows, path)
    twin = _twin(path)
    if twin is None:
        return curves(tau, g2, None, q=_q(labels), file=str(path))
    tau_err, _, g2_err = _wide(_rows(twin.read_text(encoding="utf-8-sig")), twin)
    if tau_err.shape != tau.shape or not np.allclose(tau_err, tau, rtol=1e-6, equal_nan=True):
        raise InputError(f"its delays differ from those of {path.name}", file=twin, field="tau")
    return curves(tau, g2, g2_err, q=_q(labels), file=str(path))


def _rows(text: str) -> Rows:
    """Cells of each line that is neither blank nor a comment."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return []
    for separator in ",;\t":
        if separator in lines[0]:
            return [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
    return [line.split() for line in lines]


def _is_long(header: list[str]) -> bool:
    return {"q", "tau", "g2"} <= {name.lower() for name in header}


def _number(word: str) -> float:
    """The number that a cell holds; NaN for an empty cell, and for one that holds none."""
    try:
        return float(word)
    except ValueError:
        return np.nan


def _numbers(rows: Rows, first: int, path: Path) -> np.ndarray:
    """Rows of equal length as numbers; an empty cell or `nan` is NaN, anything else that is no number is refused."""
    for number, row in enumerate(rows, first):
        if len(row) != len(rows[0]):
            raise InputError(f"row {number}: expected {len(rows[0])} columns, got {len(row)}", file=path)
        for column, word in enumerate(row):
            if word and word.lower() not in ("nan", "na") and np.isnan(_number(word)):
                raise InputError(f"row {number}, column {column + 1}: {word!r} is not a number", file=path)
    return np.array([[_number(word) for word in row] for row in rows])


def _wide(rows: Rows, path: Path) -> tuple[np.ndarray, list[str], np.ndarray]:
    """tau (tau,), the columns' labels, and the values (bin, tau)."""
    if len(rows) < 2:
        raise InputError("expected a header and at least one row", file=path)
    table = _numbers(rows[1:], 2, path)
    if len(rows[0]) != table.shape[1]:
        raise InputError(f"row 1 has {len(rows[0])} columns, the others {table.shape[1]}", file=path)
    return table[:, 0], rows[0][1:], table[:, 1:].T


def _q(labels: list[str]) -> np.ndarray | None:
    """q [1/angstrom] where every label is a number (or q = number), else None."""
    numbers = np.array([_number(re.sub(r"^q\s*=\s*", "", label)) for label in labels])
    return None if np.isnan(numbers).any() else numbers


def _twin(path: Path) -> Path | None:
    for ending in TWINS:
        twin = path.with_name(path.stem + ending + path.suffix)
        if twin.is_file():
            return twin
    return None


def _long(rows: Rows, path: Path) -> xr.Dataset:
    """One row a point; each (q, phi) is one bin, in the order of appearance; delays are the union over the bins."""
    names = [name.lower() for name in rows[0]]
    columns = dict(zip(names, _numbers([*rows[1:]], 2, path).T, strict=False))
    columns.setdefault("phi", np.full(len(rows) - 1, np.nan))
    keys = list(zip(columns["q"], np.nan_to_num(columns["phi"], nan=-1.0), strict=True))
    bins = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    rank: dict[tuple[int, float], int] = {}
    places = []
    for key, delay in zip(keys, columns["tau"], strict=True):  # a repeated delay of a bin takes a place of its own
        seen = rank.get((bins[key], delay), 0)
        rank[bins[key], delay] = seen + 1
        places.append((delay, seen))
    if np.isnan(columns["tau"]).any():
        raise InputError(
            f"row {int(np.argmax(np.isnan(columns['tau']))) + 2}: the delay is NaN", file=path, field="tau"
        )
    delays = {place: index for index, place in enumerate(sorted(set(places)))}
    index = np.array([bins[key] for key in keys]), np.array([delays[place] for place in places])
    g2, g2_err = np.full((2, len(bins), len(delays)), np.nan)
    g2[index] = columns["g2"]
    g2_err[index] = columns.get("g2_err", np.nan)
    q, phi = np.array(list(bins)).T
    return curves(
        np.array([delay for delay, _ in delays]),
        g2,
        g2_err if "g2_err" in columns else None,
        q=q,
        phi=np.where(phi == -1.0, np.nan, phi),
        file=str(path),
    )


pipeline = Pipeline(
    name="table",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="plain CSV tables: wide, long, or q and tau along the edges",
)

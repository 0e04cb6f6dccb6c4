"""Plain tables (CSV), in any of three forms.

Wide        header `tau, ...` and one column a bin, named by its q or by any label; errors in a twin file
Long        header with `tau, g2` and, if there are errors, `g2_err`; `q` and `phi` tell the bins apart; other columns
            are not read. Without `q` all rows are one bin.
Corner      no header: row 0 holds q, column 0 holds tau, the corner is empty, 0, nan or `q/tau`; errors in a twin file
Twin        `NAME_err.csv` or `NAME_g2err.csv` beside `NAME.csv`, same form. Without one no errors are stated.

tau is in s and q in 1/angstrom. Lines that begin with # are comments; a header may stand in the last one before the
numbers, as `numpy.savetxt` writes it. Separators are semicolon, tab, comma or space; decimals may have a comma where
the separator is something else.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.pipelines._quantities import relaxation

TWINS = ("_err", "_g2err", "_g2_err")
MISSING = ("", "nan", "na", "n/a", "#n/a")
LONG = ("q", "phi", "tau", "g2", "g2_err")
HEADER = re.compile(r"tau(\s*[\[(]s[\])])?", re.IGNORECASE)
CORNER = re.compile(r"(tau|q)?(\s*[\\/|]\s*(tau|q))?|nan|[-+]?0*\.?0*(e[-+]?\d+)?", re.IGNORECASE)
LARGEST_HEAD = 2**24  # bytes; a line of 10,000 bins takes about 2**18


@dataclass(frozen=True)
class Cells:
    """The cells of each row, the line of the file that each row stands on, and the file."""

    rows: list[list[str]]
    lines: list[int]
    path: Path


def recognise(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = b"".join(_first_lines(file))
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    if b"\0" in head:
        return "not text"
    rows = _cells(head.decode("utf-8-sig", errors="replace"), path).rows
    if len(rows) < 2 or len(rows[0]) < 2:
        return "not a table of two rows and two columns or more"
    if _is_header(rows[0]):
        return None
    if not CORNER.fullmatch(rows[0][0]):
        return f"no header with tau in s: its first cell is {rows[0][0][:20]!r}; 0 there if this line holds q"
    numbers = [_number(word) for row in rows[:3] for word in row[1:]]
    return None if not any(map(np.isnan, numbers)) else "no header with tau, and not all numbers"


def read(path: Path) -> xr.Dataset:
    base = table_of(path)
    if base is not None:
        raise InputError(f"holds the errors of {base.name}, which is read with them", file=path, remedy="Leave it out")
    cells = _read_cells(path)
    if _is_long(cells.rows[0]):
        return _long(cells)
    tau, labels, g2 = _wide(cells)
    data = curves(tau, g2, _errors(path, tau, labels, g2), q=_q(labels), file=str(path))
    if not _is_header(cells.rows[0]):
        note = f"line {cells.lines[0]} is taken as the row of q, since there is no header"
        data.attrs["notes"] = "; ".join(filter(None, [data.attrs["notes"], note]))
    return data


def table_of(path: Path) -> Path | None:
    """The table whose errors this file holds; None where it is no twin."""
    for ending in TWINS:
        base = path.with_name(path.stem.removesuffix(ending) + path.suffix)
        if path.stem.endswith(ending) and base.is_file():
            return base
    return None


def errors_of_others(files: Sequence[Path]) -> dict[Path, str]:
    """Of several files, those that hold the errors of another one of them."""
    return {path: "hold the errors of others, with which they are read" for path in files if table_of(path) in files}


def _first_lines(file: BinaryIO) -> list[bytes]:
    """What stands above the third row, and that row."""
    lines: list[bytes] = []
    rows = 0
    while rows < 3 and sum(map(len, lines)) < LARGEST_HEAD and (line := file.readline(LARGEST_HEAD)):
        lines.append(line)
        rows += bool(line.strip()) and not line.lstrip().startswith(b"#")
    return lines


def _read_cells(path: Path) -> Cells:
    """Every row of a file; what is not UTF-8 matters only where a number should stand."""
    cells = _cells(path.read_text(encoding="utf-8-sig", errors="replace"), path)
    if len(cells.rows) < 2:
        raise InputError("expected a header and at least one row", file=path)
    for row, line in zip(cells.rows, cells.lines, strict=True):
        if len(row) != len(cells.rows[0]):
            raise InputError(f"line {line}: expected {len(cells.rows[0])} columns, got {len(row)}", file=path)
    return cells


def _cells(text: str, path: Path) -> Cells:
    """Cells of each line that is neither blank nor a comment; columns that are empty at the right end are dropped."""
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    kept = [(number, line) for number, line in numbered if not line.lstrip().startswith("#")]
    if not kept:
        return Cells([], [], path)
    rows = [_split(line, _separator(kept[0][1])) for _, line in kept]
    above = [(number, _split(line.lstrip("# \t"))) for number, line in numbered if number < kept[0][0]]
    if above and _is_header(above[-1][1]) and not _is_header(rows[0]):
        kept.insert(0, (above[-1][0], ""))
        rows.insert(0, above[-1][1])
    while len(rows[0]) > 1 and not any(row[-1] for row in rows if len(row) == len(rows[0])):
        width = len(rows[0])
        rows = [row[:-1] if len(row) == width else row for row in rows]
    return Cells(rows, [number for number, _ in kept], path)


def _separator(line: str) -> str | None:
    return next((separator for separator in ";\t," if separator in line), None)


def _split(line: str, separator: str | None = None) -> list[str]:
    """Cells of one line; a decimal comma becomes a point where the comma separates nothing."""
    separator = separator or _separator(line)
    if separator is None:
        return line.split() or [""]
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True))]
    except csv.Error:
        cells = line.split(separator)
    return cells if separator == "," else [cell.replace(",", ".") for cell in cells]


def _is_long(header: list[str]) -> bool:
    return {"tau", "g2"} <= {name.lower() for name in header}


def _is_header(row: list[str]) -> bool:
    return _is_long(row) or bool(HEADER.fullmatch(row[0]))


def _number(word: str) -> float:
    """The number that a cell holds; NaN for an empty cell, and for one that holds none."""
    try:
        return np.nan if "_" in word else float(word)
    except ValueError:
        return np.nan


def _numbers(cells: Cells, columns: list[int]) -> np.ndarray:
    """The columns asked for, below the header, as (row, column); an empty cell or `nan` is NaN.

    Raises:
        InputError: a cell holds anything else that is no number.
    """
    table = np.array([[_number(row[column]) for column in columns] for row in cells.rows[1:]])
    for row, place in np.argwhere(np.isnan(table)):
        word = cells.rows[row + 1][columns[place]]
        if word.lower() not in MISSING:
            problem = f"line {cells.lines[row + 1]}, column {columns[place] + 1}: {word!r} is not a number"
            raise InputError(problem, file=cells.path)
    return table


def _wide(cells: Cells) -> tuple[np.ndarray, list[str], np.ndarray]:
    """tau (tau,), the columns' labels, and the values (bin, tau)."""
    table = _numbers(cells, list(range(len(cells.rows[0]))))
    _check_delays(cells, table[:, 0])
    return table[:, 0], cells.rows[0][1:], table[:, 1:].T


def _check_delays(cells: Cells, tau: np.ndarray) -> None:
    bad = ~(np.isfinite(tau) & (tau >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"line {cells.lines[row + 1]}: got {tau[row]:g}, expected a time in s", file=cells.path, field="tau"
        )


def _q(labels: list[str]) -> np.ndarray | None:
    """q [1/angstrom] where every label is a number (or q = number), else None."""
    numbers = np.array([_number(re.sub(r"^q\s*=\s*", "", label, flags=re.IGNORECASE)) for label in labels])
    return None if np.isnan(numbers).any() else numbers


def _errors(path: Path, tau: np.ndarray, labels: list[str], g2: np.ndarray) -> np.ndarray | None:
    """Errors (bin, tau) from the twin file; None where there is none."""
    twins = [path.with_name(path.stem + ending + path.suffix) for ending in TWINS]
    twin = next((twin for twin in twins if twin.is_file()), None)
    if twin is None:
        return None
    tau_err, labels_err, g2_err = _wide(_read_cells(twin))
    if g2_err.shape != g2.shape:
        problem = f"holds (bin, tau) of shape {g2_err.shape}, expected {g2.shape} of {path.name}"
        raise InputError(problem, file=twin, field="g2_err")
    if not np.allclose(tau_err, tau, rtol=1e-6, atol=0):
        raise InputError(f"its delays differ from those of {path.name}", file=twin, field="tau")
    q, q_err = _q(labels), _q(labels_err)
    same = labels == labels_err if q is None or q_err is None else np.allclose(q, q_err, rtol=1e-6, atol=0)
    if not same:
        raise InputError(f"its columns are named otherwise than those of {path.name}", file=twin, field="q")
    return g2_err


def _long(cells: Cells) -> xr.Dataset:
    """One row a point; each (q, phi) is one bin, in the order of appearance; delays are the union over the bins."""
    names = [name.lower() for name in cells.rows[0]]
    doubled = [name for name in LONG if names.count(name) > 1]
    if doubled:
        raise InputError("two columns have this name", file=cells.path, field=doubled[0])
    known = [name for name in LONG if name in names]
    columns = dict(zip(known, _numbers(cells, [names.index(name) for name in known]).T, strict=True))
    tau = columns["tau"]
    _check_delays(cells, tau)
    if "q" in columns and np.isnan(columns["q"]).any():
        row = int(np.argmax(np.isnan(columns["q"])))
        raise InputError(f"line {cells.lines[row + 1]}: q is missing", file=cells.path, field="q")
    nothing = np.full(tau.size, np.nan)
    keys = list(zip(*(_named(columns.get(name, nothing)) for name in ("q", "phi")), strict=True))
    bins = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    places = _places([bins[key] for key in keys], tau)
    delays = {place: index for index, place in enumerate(sorted(set(places)))}
    index = np.array([bins[key] for key in keys]), np.array([delays[place] for place in places])
    g2, g2_err = np.full((2, len(bins), len(delays)), np.nan)
    g2[index] = columns["g2"]
    g2_err[index] = columns.get("g2_err", np.nan)
    q, phi = np.array(list(bins), dtype=float).T  # None becomes NaN
    stated = g2_err if "g2_err" in columns else None
    return curves(np.array([delay for delay, _ in delays]), g2, stated, q=q, phi=phi, file=str(cells.path))


def _named(values: np.ndarray) -> list[float | None]:
    """NaN as None, which equals itself and so names a bin."""
    return [None if np.isnan(value) else float(value) for value in values]


def _places(bins: list[int], tau: np.ndarray) -> list[tuple[float, int]]:
    """Each row's place among the delays: a repeated delay of a bin takes a place of its own."""
    seen: Counter[tuple[int, float]] = Counter()
    places = []
    for key in zip(bins, tau.tolist(), strict=True):
        places.append((key[1], seen[key]))
        seen[key] += 1
    return places


pipeline = Pipeline(
    name="table",
    recognise=recognise,
    read=read,
    derive=relaxation,
    description="plain CSV tables: wide, long, or q and tau along the edges",
    of_others=errors_of_others,
)

"""The cells of a text file or a sheet, row by row, before anything is known of what they mean."""

import csv
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bayesfit import InputError

SEPARATORS = {";": "semicolon", "\t": "tab", ",": "comma", "|": "bar", None: "space"}
COMMENT = re.compile(r"\s*[\"']?(?:#|%|//|!|@)")
RULE = re.compile(r"[\s|:+=_-]*[=_-]{3}[\s|:+=_-]*")  # a line drawn with signs
NUMBER = re.compile(r"([-+]?)((?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?|inf(?:inity)?)", re.IGNORECASE)
COMMA = re.compile(r"[-+−]?\d*,\d+(?:[eEdD][-+]?\d+)?")
POINT = re.compile(r"[-+−]?\d*\.\d+(?:[eEdD][-+]?\d+)?")
MISSING = {"", "nan", "-nan", "na", "n/a", "null", "none", "-", "--", "—"}
MISSING |= {"#n/a", "#num!", "#div/0!", "#value!", "nan(ind)", "-nan(ind)", "1.#qnan", "1.#ind", "-1.#ind"}
SAMPLE = 50  # lines that tell the separator
Row = list[Any]


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of cells (text, or numbers if the file holds numbers as such), the line number of each row, and the
    comments.

    `sheet` is the name of the sheet in a workbook; `first` is the number of the first column in the file. `ended` says
    whether the last line of a text has a line ending.
    """

    rows: list[Row]
    lines: list[int]
    comments: list[tuple[int, str]]
    path: Path
    sheet: str = ""
    first: int = 1
    separator: str | None = ","
    ended: bool = True


def number(cell: object) -> float | None:
    """The number that a cell holds; NaN if it marks a missing value; None if it holds anything else."""
    if isinstance(cell, int | float | np.number) and not isinstance(cell, bool):
        return float(cell)
    word = str(cell)
    if word.isascii() and "_" not in word:  # true for nearly all cells, and quick
        try:
            return float(word)
        except ValueError:
            pass
    word = word.strip().replace("−", "-")
    match = NUMBER.fullmatch(word)
    if match is None:
        return np.nan if word.lower() in MISSING else None
    return float(match[1] + match[2].lower().replace("d", "e"))


def is_number(cell: object) -> bool:
    """Whether a cell holds a number, and not the mark of a missing one."""
    value = number(cell)
    return value is not None and not np.isnan(value)


def is_empty(cell: object) -> bool:
    return isinstance(cell, str) and not cell.strip()


def decoded(raw: bytes) -> str | None:
    """The text of bytes in UTF-8 or UTF-16, or None if they are no text. Bytes that are in neither are replaced, which
    matters only where a number should stand."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace").lstrip("\ufeff")
    zeros = np.frombuffer(raw[:4096], np.uint8) == 0
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if zeros.size > 3 and zeros[start::2].mean() > 0.9 and not zeros[1 - start :: 2].any():
            return raw.decode(name, errors="replace")
    if b"\0" in raw:
        return None
    try:
        return raw.decode().lstrip("\ufeff")
    except UnicodeDecodeError:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("cp1252", errors="replace")


def from_text(text: str, path: Path) -> Grid:
    """The cells of a text, without its comments, split at the separator that gives the most numbers.

    Raises:
        InputError: numbers with decimal commas stand among numbers with decimal points.
    """
    numbered = [(line, words) for line, words in enumerate(text.splitlines(), 1) if words.strip()]
    kept = [(line, words) for line, words in numbered if not COMMENT.match(words) and not RULE.fullmatch(words)]
    comments = [(line, words.strip()) for line, words in numbered if COMMENT.match(words)]
    told = re.fullmatch(r"sep=(.)", kept[0][1].strip()) if kept else None
    kept = kept[1:] if told else kept
    separator = told[1] if told else _separator([words for _, words in kept[-SAMPLE:]])
    rows, lines, ended = [split(words, separator) for _, words in kept], [line for line, _ in kept], text[-1:] in "\r\n"
    grid = Grid(rows, lines, comments, path, separator=separator, ended=ended)
    return _with_points(_without_empty_ends(grid))


def split(line: str, separator: str | None) -> Row:
    """The cells of one line."""
    if separator == "|":
        line = line.strip().strip("|")
    if '"' not in line:
        return [cell.strip() for cell in line.split(separator)]
    if separator is None:
        return [cell for cell in next(csv.reader([line.strip()], delimiter=" ", skipinitialspace=True)) if cell]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True))]
    except csv.Error:
        return [cell.strip() for cell in line.split(separator)]


def _separator(lines: list[str]) -> str | None:
    """The separator that splits the most lines into nothing but numbers, or else the one that gives the most numbers;
    the first of `SEPARATORS` if several are equal."""
    return max(SEPARATORS, key=lambda separator: _numbers(lines, separator))


def _numbers(lines: list[str], separator: str | None) -> tuple[int, float]:
    """How many lines consist of two or more numbers alone; and, summed over the lines of which at least half the cells
    are numbers, the share of these cells. Empty cells at the end of a line do not count."""
    shares = []
    for line in lines:
        cells = split(line, separator)
        while cells and not cells[-1]:
            cells.pop()
        numbers = sum(number(cell) is not None or bool(COMMA.fullmatch(cell)) for cell in cells)
        shares.append(numbers / len(cells) if len(cells) > 1 else 0.0)
    return sum(share == 1.0 for share in shares), sum(share for share in shares if share >= 0.5)


def _without_empty_ends(grid: Grid) -> Grid:
    """The grid without the columns at its right end that are empty in every row."""
    width = widest = max(map(len, grid.rows), default=0)
    full = [row for row in grid.rows if len(row) == width]
    while width > 1 and full and all(is_empty(row[width - 1]) for row in full):
        width -= 1
        full = [row for row in grid.rows if len(row) >= width]
    return grid if width == widest else replace(grid, rows=[row[:width] for row in grid.rows])


def _with_points(grid: Grid) -> Grid:
    """The grid with decimal points in place of decimal commas; a text uses one of the two throughout."""
    width = Counter(map(len, grid.rows)).most_common(1)[0][0] if grid.rows else 0
    table = [(row, cells) for row, cells in enumerate(grid.rows) if len(cells) == width]
    commas = [(row, cell) for row, cells in table for cell in cells if COMMA.fullmatch(cell)]
    if not commas:
        return grid
    if any(POINT.fullmatch(cell) for _, cells in table[1:] for cell in cells):
        row, cell = commas[0]
        problem = f"line {grid.lines[row]}: {cell!r} has a decimal comma, other numbers have decimal points"
        raise InputError(problem, file=grid.path, remedy="Write all numbers with points, and none with commas")
    rows = [[re.sub(r"(?<=\d),(?=\d)|^,(?=\d)", ".", cell) for cell in cells] for cells in grid.rows]
    return replace(grid, rows=rows)

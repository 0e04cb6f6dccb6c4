"""A table cut out of a file: its headings, its rows, and where each cell stands."""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from bayesfit import InputError
from bayesfit.pipelines._grid import Grid, Row, is_number, number
from bayesfit.pipelines._headings import Heading

SHOWN = 12  # headings, in messages


@dataclass(frozen=True, eq=False)
class Cells:
    """A table: its headings (None if it has none), its rows, and where each row stands in the file.

    `above` are the comments and all other lines above the headings. `values` are rows next to the headings that give q,
    phi or an angle for each column, as heading and numbers (column,). `turned` says that the rows of this table are
    columns of the file.
    """

    headings: list[str] | None
    rows: list[Row]
    lines: list[int]
    grid: Grid
    head_line: int = 0
    above: list[str] = field(default_factory=list)
    values: list[tuple[Heading, Float[np.ndarray, " column"]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    turned: bool = False

    @property
    def width(self) -> int:
        return len(self.headings if self.headings is not None else self.rows[0])

    def place(self, row: int, column: int) -> str:
        """Where a cell stands, in words."""
        line, place = (column, row) if self.turned else (row, column)
        number_of_column = place + self.grid.first
        if self.grid.sheet:
            return f"sheet {self.grid.sheet!r}, cell {_letters(number_of_column)}{self.lines[line]}"
        return f"line {self.lines[line]}, column {number_of_column}"

    def column(self, place: int) -> Float[np.ndarray, " row"]:
        """The numbers of a column (row,); NaN where a cell is empty or marks a missing value.

        Raises:
            InputError: a cell holds anything else that is no number.
        """
        values = [number(row[place]) for row in self.rows]
        for row, value in enumerate(values):
            if value is None:
                cell = self.rows[row][place]
                raise InputError(f"{self.place(row, place)}: {cell!r} is not a number", file=self.grid.path)
        return np.array(values, float)

    def columns(self, places: list[int]) -> Float[np.ndarray, "column row"]:
        """Several columns, (column, row)."""
        return np.array([self.column(place) for place in places]).reshape(len(places), len(self.rows))

    def holds_words(self, place: int) -> bool:
        """Whether a column holds words and no number."""
        cells = [row[place] for row in self.rows]
        return not any(map(is_number, cells)) and any(number(cell) is None for cell in cells)


def turned(cells: Cells) -> Cells:
    """The table with its rows as columns; the first cell of each row becomes a heading."""
    every = ([cells.headings] if cells.headings is not None else []) + cells.rows
    lines = ([cells.head_line] if cells.headings is not None else []) + cells.lines
    names, *rows = (list(row) for row in zip(*every, strict=True))
    grid = replace(cells.grid, first=cells.grid.first + 1)
    return replace(cells, headings=list(map(str, names)), rows=rows, lines=lines, grid=grid, values=[], turned=True)


def _letters(column: int) -> str:
    """The name of a column of a sheet: A, B, ..., Z, AA, ..."""
    name = ""
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(65 + rest) + name
    return name


def found(cells: Cells) -> str:
    """The headings, for messages."""
    if cells.headings is None:
        return f"{cells.width} columns without headings"
    names = [repr(str(name)) for name in cells.headings[:SHOWN]]
    more = f" and {cells.width - SHOWN} more" if cells.width > SHOWN else ""
    return "found the headings " + ", ".join(names) + more

"""Where the table stands in a grid: its headings, its rows, and what stands above it."""

import re
from dataclasses import replace

import numpy as np

from bayesfit import InputError
from bayesfit.pipelines._cells import Cells
from bayesfit.pipelines._grid import Grid, Row, is_empty, is_number, number, split
from bayesfit.pipelines._headings import Heading, corner, understand, understand_all
from bayesfit.pipelines._unit_names import tidy, unit_of

PROSE = {"in", "is", "of", "the", "are", "and", "with", "for", "by", "from", "="}
MARKS = {"", "-", "[-]", "(-)", "[]", "()", "1", "a.u.", "arb. units", "arb.u."}  # units of what has no unit
NOT_ENDED = "the last line has no line ending: if the file was cut, its last number may be too"
LONGEST = 5  # words that a heading may have


def locate(grid: Grid, named: set[str]) -> Cells:
    """The table in a grid; `named` are headings that the user names in the settings.

    Raises:
        InputError: there are no two rows of numbers, or a row has more or fewer cells than the others.
    """
    start, heading = _beginning(grid, named)
    headings, head_line = (None, 0) if heading is None else (grid.rows[heading], grid.lines[heading])
    above = list(range(start if heading is None else heading))
    cells = Cells(headings, grid.rows[start:], grid.lines[start:], grid, head_line)
    if heading is None:
        cells = _headed_by_comment(cells, named)
    cells = _with_first_cell(cells)
    cells, above = _with_rows_of_values(cells, above)
    cells = _with_units(cells)
    _check_widths(cells)
    words = [_as_line(grid.rows[row], grid.separator) for row in above]
    before = [text.lstrip("#%/!@ \t\"'") for line, text in grid.comments if line < max(cells.lines[:1] or [0])]
    notes = _skipped(cells, above) + ([] if grid.ended else [NOT_ENDED])
    return replace(cells, above=[*before, *words], notes=notes)


def _as_line(row: Row, separator: str | None) -> str:
    """A row above the table as a line of text; of two cells, the first is a name and the second its value."""
    first, *others = [str(cell) for cell in row if not is_empty(cell)] or [""]
    if separator is None or not others:
        return " ".join([first, *others])
    return f"{first.rstrip(' :=')} = {' '.join(others)}"


def _beginning(grid: Grid, named: set[str]) -> tuple[int, int | None]:
    """The first row of numbers, and the row of headings, None if there is none."""
    for row, cells in enumerate(grid.rows[:-1]):
        if not is_heading(cells, named) or (_is_value_row(cells) and is_heading(grid.rows[row + 1], named)):
            continue
        below = next((other for other in grid.rows[row + 1 : row + 4] if _holds_data(other)), None)
        if below is not None and _suits(cells, below):
            return row + 1, row
    for enough in (1.0, 0.5) if len(grid.rows) > 1 else ():
        found = [row for row, cells in enumerate(grid.rows) if _numbers(cells) >= enough]
        if found:
            widths = [len(grid.rows[row]) for row in found]
            start = next(row for row in found if len(grid.rows[row]) == max(set(widths), key=widths.count))
            above = grid.rows[start - 1] if start else []
            head = len(above) == len(grid.rows[start]) and not all(is_empty(cell) for cell in above[1:])
            return start, start - 1 if head and _numbers(above) < 1.0 else None
    raise InputError(
        "holds no table of two rows and two columns or more",
        file=grid.path,
        remedy="Expected headings such as q, tau, g2, g2_err above columns of numbers",
    )


def _holds_data(cells: Row) -> bool:
    """Whether a row holds numbers, and is not the row that gives q for each column."""
    return any(map(is_number, cells)) and not _is_value_row(cells)


def _suits(cells: Row, below: Row) -> bool:
    """Whether a row belongs to the table of these headings: it is as wide as they are, or holds numbers throughout.

    Headings that are a name and numbers may be a line that the instrument has written for itself. Then the first cell
    of the row must be a number, or name the bin of the row.
    """
    if len(below) != len(cells):
        return sum(map(is_number, below)) > 1 and all(number(cell) is not None for cell in below)
    first = understand(str(below[0]))
    named = bool(first.values) or first.word in ("g2", "g2_err")
    return any(number(cell) is None for cell in cells[1:]) or number(below[0]) is not None or named


def is_heading(cells: Row, named: set[str]) -> bool:
    """Whether a row holds headings: one of delays, or one of q followed by the delays along the top."""
    if len(cells) < 2 or all(number(cell) is not None for cell in cells):
        return False
    if named & {str(cell).strip() for cell in cells}:
        return True
    heads = [understand(str(cell)) for cell in cells if not is_number(cell)]
    if any(head.word == "tau" for head in heads):
        return True
    rest = all(number(cell) is not None or "tau" in understand(str(cell)).values for cell in cells[1:])
    return corner(cells[0]) is not None or (rest and heads[0].word in ("q", "angle") and _is_start(cells[0]))


def _is_start(cell: object) -> bool:
    return not is_number(cell) and understand(str(cell)).plain


def _numbers(cells: Row) -> float:
    """The share of the cells of a row that are numbers or mark missing ones; 0 if the row has fewer than two cells or
    no number."""
    if len(cells) < 2 or not any(map(is_number, cells)):
        return 0.0
    return sum(number(cell) is not None for cell in cells) / len(cells)


def _is_value_row(cells: Row) -> bool:
    """Whether a row gives q, phi or an angle for each column: a name, then numbers."""
    if is_number(cells[0]) or is_empty(cells[0]) or not any(map(is_number, cells[1:])):
        return False
    head = understand(str(cells[0]).rstrip(" :="))
    return head.plain and head.word in ("q", "phi", "angle") and all(number(cell) is not None for cell in cells[1:])


def _headed_by_comment(cells: Cells, named: set[str]) -> Cells:
    """The table with headings from the comment above it, if they stand there as `numpy.savetxt` writes them."""
    for line, text in reversed(cells.grid.comments):
        if line > cells.lines[0]:
            continue
        for row in _ways_to_split(text.lstrip("#%/!@ \t\"'"), cells.grid.separator):
            short = len(row) == cells.width and not PROSE & {str(cell).lower().rstrip(":") for cell in row}
            if short and is_heading(row, named):
                return replace(cells, headings=row, head_line=line)
    return cells


def _ways_to_split(text: str, separator: str | None) -> list[Row]:
    """Ways to split a line of headings, which may be separated otherwise than the numbers below."""
    bracketed = re.sub(r"\s+(?=[\[(])", "", text)  # a unit belongs to the word before it
    ways = [split(text, other) for other in dict.fromkeys((separator, ",", ";", "\t"))]
    return [*ways, re.split(r"\s{2,}|\t", text), bracketed.split()]


def _with_first_cell(cells: Cells) -> Cells:
    """The table with as many headings as its rows have cells: words that belong together are joined, and an empty
    corner is put first if one is missing."""
    if cells.headings is None or not cells.rows:
        return cells
    width = len(cells.rows[0])
    if len(cells.headings) == width:
        return cells
    if cells.grid.separator is not None:
        text = cells.grid.separator.join(map(str, cells.headings))
        names = re.split(rf"{re.escape(cells.grid.separator)}(?![^()\[\]]*[)\]])", text)  # not within brackets
        return replace(cells, headings=names) if len(names) == width else cells
    ways = _known_words([str(word) for word in cells.headings], width)
    if ways:
        return replace(cells, headings=max(ways, key=lambda row: len({understand(name).word for name in row})))
    counts = all(number(row[0]) in (index, index + 1) for index, row in enumerate(cells.rows))
    if len(cells.headings) == width - 1 and counts:
        return replace(cells, headings=["", *cells.headings])
    return cells


def _known_words(words: list[str], count: int) -> list[list[str]]:
    """All ways to join words to this number of headings so that each heading names a quantity."""
    if not words or count < 1:
        return [[]] if not words and count == 0 else []
    found = []
    for length in range(1, min(LONGEST, len(words) - count + 1) + 1):
        name = " ".join(words[:length])
        if understand(name).plain:
            found += [[name, *rest] for rest in _known_words(words[length:], count - 1)]
    return found


def _with_rows_of_values(cells: Cells, above: list[int]) -> tuple[Cells, list[int]]:
    """The table with the rows next to its headings that give q, phi or an angle for each column as its `values`."""
    if cells.headings is None:
        return cells, above
    values = []
    rows, lines = list(cells.rows), list(cells.lines)
    while above and len(cells.grid.rows[above[-1]]) == cells.width and _is_value_row(cells.grid.rows[above[-1]]):
        values.append(_value_row(cells.grid.rows[above.pop()]))
    while len(rows) > 1 and _is_value_row(rows[0]) and len(rows[0]) == cells.width:
        values.append(_value_row(rows.pop(0)))
        lines.pop(0)
    return replace(cells, rows=rows, lines=lines, values=values), above


def _value_row(row: Row) -> tuple[Heading, np.ndarray]:
    """The heading and the numbers of such a row. An empty cell, as merged cells leave it, gets the number before it."""
    numbers = np.array([np.nan, *(number(cell) for cell in row[1:])], float)
    for place in range(2, len(numbers)):
        if np.isnan(numbers[place]):
            numbers[place] = numbers[place - 1]
    return understand(str(row[0]).rstrip(" :=")), numbers


def _with_units(cells: Cells) -> Cells:
    """The table with units that stand in a row below the headings added to the headings."""
    if cells.headings is None or not cells.rows or any(map(is_number, cells.rows[0])):
        return cells
    texts = [str(unit) for unit in cells.rows[0]]
    heads = understand_all(cells.headings)
    are_units = [unit_of(head.word, text) is not None for head, text in zip(heads, texts, strict=False)]
    others = [text for text, is_unit in zip(texts, are_units, strict=False) if not is_unit and tidy(text) not in MARKS]
    if len(texts) != cells.width or not any(are_units) or others:
        return cells
    headings = [
        name if tidy(text) in MARKS else f"{name} [{text.strip('[]() ')}]"
        for name, text in zip(cells.headings, texts, strict=True)
    ]
    return replace(cells, headings=headings, rows=cells.rows[1:], lines=cells.lines[1:])


def _check_widths(cells: Cells) -> None:
    """Refuse a table of one row or column, and rows that are longer or shorter than its headings."""
    if not cells.rows or cells.width < 2:
        raise InputError("expected a header and at least one row, and two columns or more", file=cells.grid.path)
    for row, line in zip(cells.rows, cells.lines, strict=True):
        if len(row) != cells.width:
            remedy = "A decimal comma needs another separator" if len(row) == 2 * cells.width else None
            problem = f"line {line}: expected {cells.width} columns, got {len(row)}"
            raise InputError(problem, file=cells.grid.path, remedy=remedy)


def _skipped(cells: Cells, above: list[int]) -> list[str]:
    """A note on the lines above the headings, which are skipped.

    Raises:
        InputError: one of them is a row of numbers like those below.
    """
    for row in above:
        if len(cells.grid.rows[row]) == cells.width and _numbers(cells.grid.rows[row]) == 1.0:
            problem = f"line {cells.grid.lines[row]} holds numbers, above the headings of line {cells.head_line}"
            raise InputError(problem, file=cells.grid.path, remedy="Put the headings first, or leave the line out")
    if not above:
        return []
    first, last = cells.grid.lines[above[0]], cells.grid.lines[above[-1]]
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    return [f"{lines} above the table hold{'s' if first == last else ''} no rows of it"]

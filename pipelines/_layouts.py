"""Which layout a table has, by its headings and its edges.

long         one row per point; q, phi, angle or bin say which bin a row is of; without any of them all rows are one bin
wide         one column of delays, and one column per bin
interleaved  as wide, with errors: beside each column, in a block after all, or each bin with delays of its own
edge         no headings, q along the top and delays down the first column, with an empty corner
transposed   delays along the top and q down the first column; or a table whose rows are the columns of the others
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesfit import InputError, SettingsError
from bayesfit.compute.errors import nearest
from bayesfit.pipelines._cells import Cells, found, turned
from bayesfit.pipelines._edge import delays_along_top, is_corner, read_edge
from bayesfit.pipelines._grid import is_empty, is_number, number
from bayesfit.pipelines._headings import Heading, understand_all
from bayesfit.pipelines._long import read_long
from bayesfit.pipelines._sheet import ACCEPTED, TELLING, WORDS, Reading, Sheet
from bayesfit.pipelines._unit_names import Unit
from bayesfit.pipelines._wide import is_of_bin, read_wide

LAYOUTS = ("long", "wide", "interleaved", "edge", "transposed")
BY_NUMBER = {
    2: "--set columns.tau=1 --set columns.g2=2",
    3: "--set columns.tau=1 --set columns.g2=2 --set columns.g2_err=3",
}
ANY_NUMBER = (
    "--set columns.q=1 --set columns.tau=2 --set columns.g2=3 for one point a row, "
    "--set columns.tau=1 --set layout=wide for one column per bin"
)


def arrange(
    cells: Cells, columns: Mapping[str, Any], layout: str, units: Mapping[str, Unit], errors: bool = False
) -> Reading:
    """The arrays of a table in the layout that it has, or that the user names. `errors` says that all values of the
    table are errors.

    Raises:
        InputError: the layout is not clear, or the table does not fit it; the message lists the headings, what is
        accepted, and the setting that decides. SettingsError: `columns` names no column of the table.
    """
    if cells.headings is None and (columns or layout in ("long", "wide", "interleaved")):
        if not columns:
            raise _no_headings(cells)
        cells = replace(cells, headings=[""] * cells.width)
    if cells.headings is None:
        return _without_headings(cells, layout, units)
    sheet = Sheet(cells, _named(cells, columns, errors), layout, units)
    if layout in ("edge", "transposed") or (not layout and is_corner(sheet)):
        return read_edge(sheet)
    if not layout and not columns and _names_down_the_side(cells):
        flipped = turned(cells)
        sheet = Sheet(flipped, _named(flipped, columns, errors), layout, units)
        return replace(_by_columns(sheet), layout="transposed table")
    if not layout and not sheet.places("tau") and delays_along_top(sheet):
        return read_edge(sheet)
    return _by_columns(sheet)


def _by_columns(sheet: Sheet) -> Reading:
    """The arrays of a table in layout long, wide or interleaved."""
    layout = sheet.layout or _layout(sheet)
    return read_long(sheet) if layout == "long" else read_wide(sheet, layout)


def _layout(sheet: Sheet) -> str:
    """Long if there is one plain column of g2, or a column of q, phi, angle or bin; else wide or interleaved."""
    values, of_bins = sheet.places("g2"), any(map(is_of_bin, sheet.heads))
    delays = [head for head in sheet.heads if head.word == "tau"]
    if any(sheet.places(word) for word in TELLING) and (values or not of_bins):
        return "long"
    again = len({head.text for head in delays}) < len(delays) or any(head.label for head in delays)
    if len(values) == 1 and not of_bins and not again:
        return "long"
    names = {sheet.heads[place].text for place in values}
    if len(values) > 1 and len(names) == len(values) and not of_bins and not again:
        sheet.only("g2")  # refuses two columns that are both named as g2 and name no bin
    return "interleaved" if again or any(head.word == "g2_err" for head in sheet.heads) else "wide"


def _named(cells: Cells, columns: Mapping[str, Any], errors: bool) -> list[Heading]:
    """The headings, understood; columns that the user names are what the user says."""
    found = heads = understand_all(cells.headings or [])
    for word, name in columns.items():
        place = _place(cells, word, name)
        heads = [replace(head, word="") if head.word == word and head.plain else head for head in heads]
        own = found[place] if found[place].word == word else _with_unit(word, found[place])
        heads[place] = replace(own, word=word, rank=0, label="", values={}, number=None)
    if errors:
        heads = [replace(head, word="g2") if head.word == "g2_err" else head for head in heads]
    return heads


def _with_unit(word: str, head: Heading) -> Heading:
    """The heading of a column that the user names, with the unit that it may state in brackets: `x [ms]`."""
    places = [place for mark in "[(" if (place := head.text.find(mark)) >= 0]
    stated = understand_all([f"{word} {head.text[min(places) :]}"])[0] if places else None
    return replace(head, unit=stated.unit if stated else None, strange="")


def _place(cells: Cells, word: str, name: Any) -> int:
    """The place of the column that the user names by its heading or by its number."""
    field, names = f"columns.{word}", [str(text).strip() for text in cells.headings or []]
    if word not in WORDS:
        raise SettingsError(f"unknown word {word!r}", field="columns", remedy=nearest(word, WORDS))
    wanted = str(name).strip()
    for candidates in ([wanted == text for text in names], [wanted.lower() == text.lower() for text in names]):
        if sum(candidates) == 1:
            return candidates.index(True)
        if sum(candidates) > 1:
            problem = f"{sum(candidates)} columns are called {wanted!r}"
            raise SettingsError(problem, file=cells.grid.path, field=field, remedy="Give the column's number")
    if wanted.isdecimal() and 0 <= int(wanted) - cells.grid.first < cells.width:
        return int(wanted) - cells.grid.first
    problem = f"there is no column {name!r}; {found(cells)}"
    raise SettingsError(problem, file=cells.grid.path, field=field, remedy=nearest(wanted, filter(None, names)))


def _without_headings(cells: Cells, layout: str, units: Mapping[str, Unit]) -> Reading:
    """A table of numbers alone. If its corner is empty, q and the delays stand along its edges; else it is refused."""
    top = cells.rows[0]
    marked = is_empty(top[0]) or not is_number(top[0]) or (number(top[0]) == 0 and _is_row_of_q(cells))
    if len(cells.rows) < 2 or not (layout or marked):
        raise _no_headings(cells)
    headings = [str(cell) for cell in top]
    cells = replace(cells, headings=headings, head_line=cells.lines[0], rows=cells.rows[1:], lines=cells.lines[1:])
    heads = [Heading(str(cell), number=number(cell)) for cell in top]
    return read_edge(Sheet(cells, [replace(heads[0], number=None), *heads[1:]], layout, units))


def _is_row_of_q(cells: Cells) -> bool:
    """Whether the row that begins with 0 holds q, and not the values at delay 0: q rises, and unlike the row below."""
    if len(cells.rows) < 2:
        return False
    top, below = (np.array([number(cell) for cell in row[1:]], float) for row in cells.rows[:2])
    with np.errstate(divide="ignore", invalid="ignore"):
        alike = np.mean((top / below > 0.5) & (top / below < 2.0))
    return bool(np.all(np.diff(top) > 0) and alike < 0.5)


def _no_headings(cells: Cells) -> InputError:
    first = ", ".join(str(cell) for cell in cells.rows[0][:6])
    return InputError(
        f"the table has no headings, its first line is {first}. {ACCEPTED}",
        file=cells.grid.path,
        remedy="Write headings, or name the columns by number: "
        f"{BY_NUMBER.get(cells.width, ANY_NUMBER)}; where q stands along the top, --set layout=edge; where delays do, "
        "--set layout=transposed",
    )


def _names_down_the_side(cells: Cells) -> bool:
    """Whether the first column holds headings, and all others hold numbers."""
    top = (cells.headings or [])[1:]
    return all(number(cell) is not None for cell in top) and not any(is_number(row[0]) for row in cells.rows)

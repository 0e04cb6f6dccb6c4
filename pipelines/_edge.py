"""Tables with q along one edge and the delays along the other."""

import numpy as np
from jaxtyping import Float

from bayesfit import InputError
from bayesfit.pipelines._grid import number
from bayesfit.pipelines._headings import corner
from bayesfit.pipelines._sheet import Reading, Sheet, check_delays
from bayesfit.pipelines._unit_names import Unit

CLEAR = 0.5  # decades by which one axis must span more than the other where a corner names both
FAR = 1.0  # decades by which q may span more than the delays where a heading names the column below it


def is_corner(sheet: Sheet) -> bool:
    """Whether the first heading is a corner, empty or with the names of both axes, and all others are numbers."""
    first, others = sheet.heads[0], sheet.heads[1:]
    numbers = all(head.number is not None or (head.values and not head.word) for head in others)
    return numbers and (corner(first.text) is not None or number(first.text) is not None)


def delays_along_top(sheet: Sheet) -> bool:
    """Whether the first heading names q or an angle, and all others are delays."""
    first, others = sheet.heads[0], sheet.heads[1:]
    delays = all(head.number is not None or "tau" in head.values for head in others)
    return first.plain and first.word in ("q", "angle") and delays


def read_edge(sheet: Sheet) -> Reading:
    """Read a table with q or angles along the top and delays down the side, or the other way round."""
    cells, first = sheet.cells, sheet.heads[0]
    (top, unit), side = _along_top(sheet), cells.column(0)
    across = _across(sheet, top, side)
    names = {head.word: head for head in corner(first.text) or (first,) if head.word and head.plain}
    other = "angle" if "angle" in names or (not names and "angle" in sheet.units) else "q"
    units = {word: head.unit for word, head in names.items() if head.unit is not None}
    if unit is not None:
        units["tau" if across else other] = unit
    if across and np.isnan(side).any():
        raise InputError(f"{cells.place(int(np.argmax(np.isnan(side))), 0)}: q is missing", file=cells.grid.path)
    if not across:
        check_delays(cells, side, 0)
    g2 = cells.columns(list(range(1, cells.width)))
    tau, bins, g2 = (top, side, g2.T) if across else (side, top, g2)
    taken = f"line {cells.head_line} is taken as the row of {'delays' if across else other}"
    notes = [] if first.word else [taken if names else f"{taken}, since there is no header"]
    layout = "transposed table" if across else "edge table"
    strange = {word: head.strange for word, head in names.items() if head.strange}
    return Reading(layout, tau, g2, bins={other: bins}, units=units, notes=notes, strange=strange)


def _along_top(sheet: Sheet) -> tuple[np.ndarray, Unit | None]:
    """The numbers along the top, and the unit that they state."""
    stated = [next(iter(head.values.values()), (head.number, None)) for head in sheet.heads[1:]]
    for place, (value, _) in enumerate(stated, 1):
        if value is None or not np.isfinite(value):
            raise sheet.refuse(
                f"{sheet.name(place)} stands along the top, where this layout has numbers",
                "Leave the setting layout out, or choose another",
            )
    units = {unit for _, unit in stated}
    if len(units) > 1:
        raise sheet.refuse("the headings have different units", "Write them in one unit")
    return np.array([value for value, _ in stated], float), units.pop()


def _across(sheet: Sheet, top: np.ndarray, side: np.ndarray) -> bool:
    """Whether the delays stand along the top.

    Raises:
        InputError: neither the corner nor the ranges of the two axes decide.
    """
    first = sheet.heads[0]
    if sheet.layout:
        return sheet.layout == "transposed"
    both, more = corner(first.text), decades(top) - decades(side)
    if first.word and (first.unit is not None or more > -FAR):
        return True
    if not first.word and both is None and more < 0:
        return False
    by_backslash = both is None or "\\" not in first.text or (both[0].word == "tau") == (more < 0)
    if both is not None and abs(more) > CLEAR and by_backslash:
        return more > 0
    raise sheet.refuse(
        f"it is not clear whether the delays stand down the first column, which spans {decades(side):.1f} decades, or "
        f"along the top, which spans {decades(top):.1f}; the corner is {first.text or 'empty'!r}",
        "--set layout=edge where q stands along the top, --set layout=transposed where the delays do",
    )


def decades(values: Float[np.ndarray, " value"]) -> float:
    """How many decades the positive numbers among these span."""
    positive = values[np.isfinite(values) & (values > 0)]
    return float(np.log10(positive.max() / positive.min())) if positive.size else 0.0

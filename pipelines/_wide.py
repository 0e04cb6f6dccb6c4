"""Wide tables: one column of delays, or one for each bin, and one column of values per bin, with or without errors."""

from collections.abc import Sequence

import numpy as np

from bayesfit import InputError
from bayesfit.pipelines._edge import FAR, decades
from bayesfit.pipelines._grid import number
from bayesfit.pipelines._headings import Heading
from bayesfit.pipelines._sheet import ACCEPTED, TELLING, Reading, Sheet, check_delays, naming
from bayesfit.pipelines._unit_names import Unit

SAME = 1e-6  # relative difference below which two columns of delays are the same


def read_wide(sheet: Sheet, layout: str) -> Reading:
    """The curves of a table that has a column for each."""
    delays, values, errors = _roles(sheet)
    tau, g2, g2_err = _arrays(sheet, delays, values, errors)
    heads = [sheet.heads[place] for place in values]
    bins, units, notes = _bins(sheet, values)
    stated = sheet.stated({"tau": delays[0]})
    if len({head.minus_one for head in heads}) > 1:
        raise sheet.refuse("some columns are g2 and others g2 - 1", "Give one of them, or each in a file of its own")
    stated["units"] |= units
    return Reading(
        f"{layout} table",
        tau,
        g2,
        g2_err,
        bins,
        None if "q" in bins or "angle" in bins else [head.text for head in heads],
        minus_one=heads[0].minus_one,
        errors_from=_said(sheet, errors),
        left_out=sheet.unused({*delays, *values, *errors}),
        notes=notes,
        **stated,
    )


def _said(sheet: Sheet, errors: list[int]) -> str:
    """Where the errors of the table come from, in words."""
    if len(errors) < 2:
        return "".join(f"column {sheet.name(place)}" for place in errors)
    return f"{len(errors)} columns, {sheet.name(errors[0])} to {sheet.name(errors[-1])}"


def is_of_bin(head: Heading) -> bool:
    """Whether a heading stands over the values of one bin."""
    if head.word in ("", "q", "bin", "angle"):
        return bool(head.number is not None or head.values or (head.word and head.label))
    return head.word == "g2" and not head.plain


def _roles(sheet: Sheet) -> tuple[list[int], list[int], list[int]]:
    """The columns of delays, the columns of values, and those of their errors in the same order as the values."""
    delays = _delays(sheet)
    telling = [word for word in TELLING if sheet.places(word)]
    if telling:
        raise sheet.refuse(f"a column of {telling[0]} tells the bins apart, as in a long table", "--set layout=long")
    others = [place for place in range(sheet.cells.width) if place not in delays]
    errors = [place for place in others if sheet.heads[place].word == "g2_err"]
    values = [place for place in others if sheet.heads[place].word == "g2" or is_of_bin(sheet.heads[place])]
    unknown = [place for place in others if _may_be_values(sheet, place)]
    named = any(sheet.heads[place].word == "g2" for place in values)
    if unknown and values and not named and not sheet.layout:
        raise sheet.refuse(
            f"column {sheet.name(unknown[0])} states no q, others do",
            "Leave it out of the file, or --set layout=wide to read it as a bin whose q is unknown",
        )
    if unknown and (not values or (sheet.layout and not named)):
        values = sorted([*values, *unknown])
    if not values:
        raise sheet.refuse("no column is known as that of g2", f"{ACCEPTED}. {naming('g2')}")
    return delays, values, _paired(sheet, delays, values, errors)


def _may_be_values(sheet: Sheet, place: int) -> bool:
    """Whether a column whose heading names no quantity may hold the values of a bin."""
    head = sheet.heads[place]
    if head.word or head.number is not None or head.values or head.other or sheet.cells.holds_words(place):
        return False
    counts = [number(row[place]) for row in sheet.cells.rows]
    return not (head.index and any(counts == list(range(first, first + len(counts))) for first in (0, 1)))


def _delays(sheet: Sheet) -> list[int]:
    """The column of delays, or one such column per bin: the first column, and those like it before the values of each
    bin."""
    found = [place for place, head in enumerate(sheet.heads) if head.word == "tau"]
    best = min((sheet.rank(place) for place in found), default=None)
    found = [place for place in found if sheet.rank(place) == best]
    if not found:
        raise sheet.refuse("no column is known as that of the delays", f"{ACCEPTED}. {naming('tau')}")
    lengths = np.diff([*found, sheet.cells.width])
    if len(found) > 1 and (found[0] != 0 or lengths.min() < 2 or len(set(lengths)) > 1):
        sheet.only("tau")
        raise sheet.refuse("several columns of delays, not one before each bin's values", naming("tau"))
    return found


def _paired(sheet: Sheet, delays: list[int], values: list[int], errors: list[int]) -> list[int]:
    """The columns of errors in the order of the values to which they belong, by their names or else by their places."""
    if not errors:
        return []
    keys, of_errors = ([_key(sheet.heads[place]) for place in places] for places in (values, errors))
    if len(errors) == len(values):
        if len(set(keys)) == len(keys) and set(keys) == set(of_errors):
            return [errors[of_errors.index(key)] for key in keys]
        order = sorted([*values, *errors])
        beside = order[0::2] == values and order[1::2] == errors
        block = order[: len(values)] == values
        unnamed = set(of_errors) == {""} or of_errors == [float(count) for count in range(1, len(errors) + 1)]
        if (beside or (block and len(delays) == 1)) and unnamed and not set(keys) & (set(of_errors) - {""}):
            return errors
    raise sheet.refuse(
        f"{len(errors)} columns of errors, {sheet.name(errors[0])}, ..., do not fit {len(values)} of values, "
        f"{sheet.name(values[0])}, ...",
        "Name each as its values, g2_1, err_1, g2_2, err_2, ..., or name one pair, --set columns.g2=... "
        "--set columns.g2_err=... --set layout=long",
    )


def _key(head: Heading) -> object:
    """A value that is the same for a column and for its errors. A number that pandas has added to a name that stands
    twice does not count."""
    return "" if head.label.startswith(".") else head.key


def _arrays(
    sheet: Sheet, delays: list[int], values: list[int], errors: list[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """tau (tau,), g2 and g2_err (bin, tau), the latter None where there are no errors."""
    cells = sheet.cells
    taus = cells.columns(delays)
    g2, g2_err = cells.columns(values), cells.columns(errors) if errors else None
    if len(delays) == 1:
        check_delays(cells, taus[0], delays[0])
        return taus[0], g2, g2_err
    if len({sheet.heads[place].unit for place in delays}) > 1:
        raise sheet.refuse("the columns of delays have different units", "Write them in one unit")
    own = [max(at for at, first in enumerate(delays) if first < place) for place in values]
    if sorted(own) != list(range(len(delays))):
        raise sheet.refuse("each column of delays must stand before those of one bin", naming("tau"))
    if np.allclose(taus, taus[0], rtol=SAME, atol=0):
        check_delays(cells, taus[0], delays[0])
        return taus[0], g2, g2_err
    for place, column, filled in zip(delays, taus, np.isfinite(g2), strict=True):
        check_delays(cells, np.where(filled, column, 0.0), place)
    return _joined(taus, g2, g2_err)


def _joined(
    taus: np.ndarray, g2: np.ndarray, g2_err: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Curves (bin, tau) on the union of their delays, NaN where a bin has no point."""
    tau = np.unique(taus[np.isfinite(taus)])
    joined = np.full((2, len(g2), tau.size), np.nan)
    for row, column in enumerate(taus):
        finite = np.isfinite(column)
        places = np.searchsorted(tau, column[finite])
        if len(set(places.tolist())) < places.size:
            raise InputError(f"bin {row}: a delay stands twice", field="tau", remedy="Write it as a long table")
        joined[0, row, places] = g2[row, finite]
        joined[1, row, places] = np.nan if g2_err is None else g2_err[row, finite]
    return tau, joined[0], None if g2_err is None else joined[1]


def _bins(sheet: Sheet, values: Sequence[int]) -> tuple[dict[str, np.ndarray], dict[str, Unit], list[str]]:
    """q, phi and angle of each bin, from the headings or from rows of values beside them; their units; and notes."""
    heads = [sheet.heads[place] for place in values]
    bins: dict[str, np.ndarray] = {}
    units: dict[str, Unit] = {}
    for head, numbers in sheet.cells.values:
        bins[head.word] = numbers[list(values)]
        units |= {head.word: head.unit} if head.unit is not None else {}
    for word in ("q", "phi", "angle"):
        said = [head.values.get(word) for head in heads]
        if any(said) and word not in bins:
            bins[word], unit = _stated(sheet, word, heads)
            units |= {word: unit} if unit is not None else {}
    alone = [head.number for head in heads]
    if bins or None in alone:
        return bins, units, []
    word = "angle" if "angle" in sheet.units else "q"
    counting = any(alone == list(range(first, first + len(alone))) for first in (0, 1))
    if counting and len(alone) > 1 and word not in sheet.units:
        names = f"{heads[0].text}, {heads[1].text}, ..."
        return {}, units, [f"the headings {names} count the bins, q is unknown; where they are q, --set units.q=1/nm"]
    bins[word] = np.array(alone, float)
    delays = _delays(sheet)[0]
    more = decades(bins[word]) - decades(sheet.cells.column(delays))
    if more > FAR and not sheet.layout and sheet.heads[delays].unit is None:
        raise sheet.refuse(
            "the numbers along the top span more decades than the delays below: are they the delays?",
            "--set layout=transposed where they are, --set layout=wide where they are q",
        )
    return bins, units, []


def _stated(sheet: Sheet, word: str, heads: list[Heading]) -> tuple[np.ndarray, Unit | None]:
    """The values of one quantity that the headings state, and their unit."""
    said = [head.values.get(word) for head in heads]
    missing = [head.text for head, one in zip(heads, said, strict=True) if one is None]
    if missing and not sheet.layout:
        raise sheet.refuse(
            f"heading {missing[0]!r} states no {word}, others do", f"Write {word} in all, or --set layout=wide"
        )
    stated = {one[1] for one in said if one is not None}
    if len(stated) > 1:
        raise sheet.refuse(f"{word} has different units in the headings", "Write it in one unit")
    return np.array([np.nan if one is None else one[0] for one in said]), stated.pop()

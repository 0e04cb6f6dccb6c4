"""Long tables: one row per point, and columns that say which bin a row is of."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesfit import InputError
from bayesfit.pipelines._cells import Cells
from bayesfit.pipelines._grid import number
from bayesfit.pipelines._sheet import ACCEPTED, TELLING, WORDS, Reading, Sheet, check_delays, naming
from bayesfit.pipelines._unit_names import Unit


def read_long(sheet: Sheet) -> Reading:
    """One row per point; bins by q, phi, angle and bin, in the order of appearance; delays are those of all bins."""
    cells = sheet.cells
    place = {word: found_at for word in WORDS if (found_at := sheet.only(word)) is not None}
    for needed in ("tau", "g2"):
        if needed not in place:
            raise sheet.refuse(f"no column is known as that of {needed}", f"{ACCEPTED}. {naming(needed)}")
    columns = {word: cells.column(at) for word, at in place.items() if word != "bin"}
    tau = columns["tau"]
    check_delays(cells, tau, place["tau"])
    for word in ("q", "angle"):
        if word in columns and np.isnan(columns[word]).any():
            row = int(np.argmax(np.isnan(columns[word])))
            raise InputError(f"line {cells.lines[row]}: {word} is missing", file=cells.grid.path, field=word)
    keys = _keys(cells, place, columns)
    bins = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    if not sheet.layout:
        _check_points(sheet, place, keys, tau)
    places = _places([bins[key] for key in keys], tau)
    delays = {at: index for index, at in enumerate(sorted(set(places)))}
    index = np.array([bins[key] for key in keys]), np.array([delays[at] for at in places])
    g2, g2_err = np.full((2, len(bins), len(delays)), np.nan)
    g2[index] = columns["g2"]
    g2_err[index] = columns.get("g2_err", np.nan)
    told = {word: number_of for number_of, word in enumerate(TELLING) if word in place}
    return Reading(
        "long table",
        np.array([delay for delay, _ in delays]),
        g2,
        g2_err if "g2_err" in columns else None,
        {word: np.array([key[at] for key in bins], float) for word, at in told.items() if word != "bin"},
        [str(key[told["bin"]]) for key in bins] if "bin" in told else None,
        minus_one=sheet.heads[place["g2"]].minus_one,
        errors_from=f"column {sheet.name(place['g2_err'])}" if "g2_err" in place else "",
        left_out=sheet.unused(place.values()),
        optics=_optics_columns(sheet, place, columns),
        **sheet.stated(place),
    )


def _optics_columns(
    sheet: Sheet, place: Mapping[str, int], columns: Mapping[str, np.ndarray]
) -> dict[str, tuple[float, Unit | None]]:
    """Wavelength and refractive index, if columns give one value for all rows."""
    said = {}
    for word in ("wavelength", "refractive_index"):
        if word in columns:
            values = columns[word][np.isfinite(columns[word])]
            if values.size and np.ptp(values) > 1e-6 * np.abs(values).max():
                raise sheet.refuse(f"{word} is not one number", "Give it once, as --set optics." + word)
            if values.size:
                said[word] = float(values[0]), sheet.heads[place[word]].unit
    return said


def _keys(cells: Cells, place: Mapping[str, int], columns: Mapping[str, np.ndarray]) -> list[tuple[Any, ...]]:
    """The bin of each row, as its q, phi, angle and label; None for what has no column."""
    rows = len(cells.rows)
    parts: list[list[Any]] = []
    for word in TELLING:
        if word == "bin":
            parts.append([_label(row[place[word]]) for row in cells.rows] if word in place else [None] * rows)
        else:
            values = columns.get(word, np.full(rows, np.nan))
            parts.append([None if np.isnan(value) else float(value) for value in values])
    return list(zip(*parts, strict=True))


def _label(cell: Any) -> str:
    """A cell as a label; 1.0 becomes 1."""
    value = number(cell)
    return f"{value:g}" if value is not None and np.isfinite(value) else str(cell).strip()


def _check_points(sheet: Sheet, place: Mapping[str, int], keys: list[tuple[Any, ...]], tau: np.ndarray) -> None:
    """Refuse a long table whose bins have one point each, or repeat their delays, or go through them several times:
    each bin then seems to hold several curves, which something else distinguishes."""
    points = list(zip(keys, tau.tolist(), strict=True))
    times, sizes = Counter(points), Counter(keys)
    if len(sizes) > 1 and max(sizes.values()) == 1 and len(set(tau.tolist())) > 1:
        raise sheet.refuse(
            f"each of its {len(sizes)} bins has a single point: q, phi or bin changes from row to row",
            'Name the columns, --set columns.q="NAME" and columns.tau="NAME"; or say --set layout=long',
        )
    repeated = sum(count > 1 for count in times.values()) > len(times) / 2
    if not repeated and not _begins_anew(keys, tau):
        return
    column = _telling(sheet, place, points)
    told = "no column tells them apart" if column is None else f"column {sheet.name(column)} seems to tell them apart"
    name = "NAME" if column is None else sheet.heads[column].text
    what = f"each delay stands {max(times.values())} times in a bin" if repeated else "the delays of a bin begin anew"
    raise sheet.refuse(
        f"{what}, as of several curves; {told}",
        f'--set columns.bin="{name}" makes a bin of each; --set layout=long takes all as points of one bin',
    )


def _begins_anew(keys: list[tuple[Any, ...]], tau: np.ndarray) -> bool:
    """Whether the delays of a bin rise and now and then fall back, at most once in four rows on average, as they do if
    several curves stand one below another."""
    by_bin: dict[tuple[Any, ...], list[float]] = {}
    for key, delay in zip(keys, tau.tolist(), strict=True):
        by_bin.setdefault(key, []).append(delay)
    falls = [(int(np.sum(np.diff(delays) < 0)), len(delays)) for delays in by_bin.values()]
    return any(0 < count <= rows / 4 for count, rows in falls)


def _telling(sheet: Sheet, place: Mapping[str, int], points: list[tuple[Any, float]]) -> int | None:
    """An unused column whose value differs wherever a delay is repeated in a bin; of several, the one with the fewest
    values."""
    found = []
    for column in set(range(sheet.cells.width)) - set(place.values()):
        labels = [_label(row[column]) for row in sheet.cells.rows]
        if len(set(zip(points, labels, strict=True))) == len(points):
            found.append((len(set(labels)), column))
    return min(found)[1] if found else None


def _places(bins: list[int], tau: np.ndarray) -> list[tuple[float, int]]:
    """The place of each row among the delays; a delay that is repeated in a bin takes another place."""
    seen: Counter[tuple[int, float]] = Counter()
    places = []
    for key in zip(bins, tau.tolist(), strict=True):
        places.append((key[1], seen[key]))
        seen[key] += 1
    return places

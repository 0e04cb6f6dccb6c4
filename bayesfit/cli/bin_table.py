"""The table of a result's bins for the terminal: as many columns as there is room for, all of them on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from bayesfit.cli.numbers import COLOURS, heading_of, interval, number
from bayesfit.result.summary import of_bins

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from bayesfit.cli.show_result import Wanted

NARROW = 44  # characters of the columns beside the parameters, without much of the reason
OF_PARAMETER = 29  # characters of a median with its interval
MANY = 40  # bins, above which only those are printed that need attention
SHOWN = 20  # of these, at most


class Chosen(NamedTuple):
    """Which bins are printed: the table of all, their places in it, and what to say of the others, "" if there are
    none."""

    rows: pd.DataFrame
    places: list[int]
    words: str = ""


def chosen_bins(rows: pd.DataFrame, wanted: Wanted) -> Chosen:
    """The bins of one verdict, or all, sorted by a column; of very many only those that need attention, unless `every`
    bin is asked for."""
    verdict, sort, found = wanted.verdict, wanted.sort, rows.verdict.to_list()
    places = [place for place, own in enumerate(found) if verdict in (None, own)]
    if sort is not None:
        values = rows[sort].to_numpy()
        places.sort(key=lambda place: (values[place] != values[place], values[place]))
    if wanted.every or verdict or sort or len(places) <= MANY:
        return Chosen(rows, places)
    attention = [place for place in places if found[place] != "ok"]
    left = f"; {len(attention) - SHOWN} more are not ok" if len(attention) > SHOWN else ""
    ok = len(places) - len(attention)
    return Chosen(
        rows, attention[:SHOWN], f"{ok} bins that are ok are not listed{left}: `bayesfit show {wanted.path} --all`"
    )


def bin_tables(
    result: xr.DataTree, parameters: Sequence[str], chosen: Chosen, width: int | None, title: str = ""
) -> list[Table]:
    """Tables with one row per bin: who it is, some parameters as median and 95 % interval, verdict and reason.

    Args:
        parameters: in order of importance; those for which there is no room are left out.
        width: characters of a line, or None for everything: all parameters, a few in each table, and the checks.
    """
    names = [name for name in parameters if name in of_bins(result)]
    if width is not None:
        room = max((width - NARROW) // OF_PARAMETER, 1)
        return [_table(result, names[:room], chosen, title)]
    size = 4
    groups = [names[first : first + size] for first in range(0, max(len(names), 1), size)]
    return [_table(result, group, chosen, title, wide=True) for group in groups]


def _table(result: xr.DataTree, names: list[str], chosen: Chosen, title: str, wide: bool = False) -> Table:
    """One table."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=title or None, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    (axis, places), rows = _axis(result), chosen.rows
    shown.add_column("bin", justify="right", no_wrap=True)
    shown.add_column(axis, justify="right", no_wrap=True)
    for name in names:
        shown.add_column(heading_of(result, name), justify="right", no_wrap=True)
    for heading in ("errors", "contraction") if wide else ():
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("why", ratio=1 if not wide else None, min_width=12)
    for place in chosen.places:
        row, vague = rows.iloc[place], _not_identified(result, place)
        values = [interval(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in names]
        values = [f"[dim]{value}[/]" if name in vague else value for name, value in zip(names, values, strict=True)]
        checks = (_errors(row.error_ratio, row.errors_wrong), number(row.contraction)) if wide else ()
        verdict = f"[{COLOURS.get(row.verdict, 'red')}]{row.verdict}[/]"
        why = row.reason if wide or row.verdict != "ok" else ""
        shown.add_row(str(rows.index[place]), places[place], *values, *checks, verdict, escape(why))
    return shown


def _axis(result: xr.DataTree) -> tuple[str, list[str]]:
    """What tells the bins apart beside their numbers: the angle where the file states it, else q."""
    bins = result["diagnostics"].dataset
    if "angle" in bins.coords and np.isfinite(bins.angle.values.astype(float)).all():
        return "angle [°]", [f"{value:g}" for value in bins.angle.values]
    return "q [1/Å]", [f"{value:.4g}" if np.isfinite(value) else "-" for value in bins.q.values]


def _not_identified(result: xr.DataTree, place: int) -> set[str]:
    """The parameters that the data of a bin do not determine."""
    diagnostics = result["diagnostics"].dataset
    if "identified" not in diagnostics:  # in a result of an older version
        return set()
    known = diagnostics.identified.isel(q_bin=place).values.astype(bool)
    return {str(name) for name in diagnostics.parameter.values[~known]}


def _errors(ratio: float, wrong: bool) -> str:
    """True noise over stated error, in red where the stated errors are wrong."""
    return f"[red]×{ratio:.2g}[/]" if wrong else number(ratio, "×")

"""A result at a glance, in a terminal or a notebook: which bins to believe and why, before any number."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from bayesfit.compute.kinds import expect_result
from bayesfit.compute.shown import Html, as_html, with_unit
from bayesfit.report.colours import look_of
from bayesfit.report.page import headline, sentences
from bayesfit.result.datasets import is_series, one_dataset
from bayesfit.result.summary import summary, tally

MOST = 12  # rows of the table
PARAMETERS = 2  # of a bin
WIDTH = 80  # characters of a line
VERDICT = "verdict"


@dataclass(frozen=True, repr=False)
class Overview:
    """A result in a few lines, which show themselves in a terminal and in a notebook: a `title`, `sentences`, and a
    table of `rows` under `headings`, with `more` to say of the rows that are not there."""

    title: str
    sentences: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""

    def __repr__(self) -> str:
        said = [self.title, *(textwrap.fill(words, WIDTH, subsequent_indent="  ") for words in self.sentences)]
        table = [self.headings, *self.rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(self.headings))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        cut = [line.rstrip() if len(line.rstrip()) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines]
        return "\n".join([*said, "", *cut, *([self.more] if self.more else [])])

    def _repr_html_(self) -> str:
        place = self.headings.index(VERDICT) if VERDICT in self.headings else None
        rows = [[_coloured(cell) if at == place else cell for at, cell in enumerate(row)] for row in self.rows]
        return as_html(self.title, (*self.sentences, self.more), self.headings, rows)


def overview(result: xr.DataTree) -> Overview:
    """A result at a glance: how many bins are "ok", why the others are not, what to try, and the first parameters of
    each bin, those that are not "ok" first where there are many.

    Args:
        result: what `fit`, `series`, `law` or `load` returned.

    Returns:
        What a terminal shows as text of 80 columns, and a notebook as a table; `summary` has the numbers.

    Raises:
        ResultError: it is no result.
    """
    expect_result(result, "fit", "series", "law")
    if is_series(result):
        return _of_series(result)
    return _of_law(result) if "law" in result.attrs else _of_fit(result)


def _of_fit(result: xr.DataTree) -> Overview:
    table = summary(result)
    names = [str(name) for name in result["diagnostics"].parameter.values if name in table][:PARAMETERS]
    headings = ("bin", VERDICT, "q [1/Å]", *(with_unit(name, table.attrs["units"][name]) for name in names), "reason")
    order = np.argsort(table.verdict.to_numpy() == "ok", kind="stable") if len(table) > MOST else range(len(table))
    rows = []
    for place in order[:MOST]:
        row = table.iloc[place]
        values = [_interval(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in names]
        reason = "" if row.verdict == "ok" else row.reason
        rows.append((str(table.index[place]), row.verdict, _number(row.q), *values, reason))
    more = f"{len(table) - MOST} more bins: bayesfit.summary(result)" if len(table) > MOST else ""
    attrs = result.attrs
    words = (f"{attrs['model']}: {attrs['model_formula']}".rstrip(": "), attrs.get("input_file", ""))
    said = [word for word in (*words, *sentences(result)) if word]
    together = f"; together {result['across'].joint_verdict.item()}" if "across" in result else ""
    return Overview(headline(tally(result)) + together, tuple(said), headings, tuple(rows), more)


def _of_series(result: xr.DataTree) -> Overview:
    labels = result["posterior"].dataset.coords["dataset"].values.tolist()
    if "diagnostics" not in result or "verdict" not in result["diagnostics"].dataset:
        title = f"{result.attrs.get('law', 'law')} of {result.attrs.get('parameter', '')} in {len(labels)} datasets"
        return Overview(title, (), ("dataset",), tuple((str(label),) for label in labels[:MOST]), _more(labels))
    counts = [tally(one_dataset(result, label)) for label in labels]
    total = {name: sum(each.get(name, 0) for each in counts) for name in dict.fromkeys(n for c in counts for n in c)}
    rows = [(str(label), headline(each)) for label, each in zip(labels, counts, strict=True)]
    title = f"{len(labels)} datasets: {headline(total)}"
    return Overview(title, (result.attrs.get("model", ""),), ("dataset", "bins"), tuple(rows[:MOST]), _more(rows))


def _more(rows: Sequence[object]) -> str:
    return f"{len(rows) - MOST} more datasets" if len(rows) > MOST else ""


def _of_law(fitted: xr.DataTree) -> Overview:
    from bayesfit.diagnose.interval import central_interval

    attrs, checks, rows = fitted.attrs, fitted["diagnostics"].dataset, []
    for name, array in fitted["posterior"].dataset.data_vars.items():
        low, median, high = (float(value) for value in central_interval(array.values))
        unit = array.attrs.get("units", "1")
        rows.append((with_unit(str(name), unit), _interval(median, low, high), array.attrs.get("long_name", "")))
    title = f"{attrs['law']} of {attrs['parameter']}: {checks.law_verdict.item()}"
    said = (attrs.get("law_formula", ""), str(checks.law_reason.item()))
    return Overview(title, said, ("parameter", "median (95 % interval)", "what it is"), tuple(rows))


def _interval(median: float, low: float, high: float) -> str:
    """A median with its interval."""
    return f"{median:.4g} ({low:.4g} to {high:.4g})" if np.isfinite([median, low, high]).all() else "-"


def _number(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "-"


def _coloured(verdict: str) -> Html:
    """A verdict with its sign, in its colour."""
    look = look_of(verdict)
    return Html(f'<span style="color:{look.colour};white-space:nowrap">{look.sign} {verdict}</span>')

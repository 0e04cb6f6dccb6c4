"""The report of a result: one HTML file that holds all it needs, for a browser and without a network."""

from __future__ import annotations

import html
import importlib.util
import io
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from bayesfit.compute.errors import ResultError, SettingsError
from bayesfit.compute.kinds import expect_path, expect_result
from bayesfit.compute.whole_files import write_whole
from bayesfit.report.page import Json, about, headline, look_and_count, page_of, row_of
from bayesfit.result.datasets import is_series, one_dataset
from bayesfit.result.summary import tally

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("bokeh.min.js", "bokeh-api.min.js")
HEAD, ROW, LONGEST_HEAD = '<meta charset="utf-8">', "bayesfit-row", 8192  # characters


def write_report(result: xr.DataTree, path: str | Path) -> Path:
    """Write the report of a result: which bins to believe and why, every curve, every parameter, and where it all comes
    from. One HTML file that needs no network.

    Args:
        result: what `fit`, `series`, `law` or `load` returned.
        path: the file to write, ending in .html.

    Returns:
        The path.

    Raises:
        ResultError: it is no result, or cannot be written. SettingsError: the path does not end in .html.
    """
    expect_path(path, "path")
    path = Path(path).expanduser()
    if path.suffix.lower() not in (".html", ".htm"):
        raise SettingsError("a report ends in .html", file=path, field="path", remedy=f"Write {path.stem}.html")
    expect_result(result, "fit", "series", "law")
    text = with_row(report_of(result), row_of(result))
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise ResultError(f"cannot be written: {error.strerror or error}", file=path) from error
    return path


def with_row(text: str, row: Json) -> str:
    """A page whose head says what the page of a folder needs of it."""
    return text.replace(HEAD, f'{HEAD}\n<meta name="{ROW}" content="{html.escape(json.dumps(row))}">', 1)


def row_in(path: Path) -> Json | None:
    """What the head of a page says of its result; None if it says nothing."""
    with path.open(encoding="utf-8", errors="replace") as file:
        found = re.search(f'<meta name="{ROW}" content="([^"]*)">', file.read(LONGEST_HEAD))
    return json.loads(html.unescape(found[1])) if found else None


def report_of(result: xr.DataTree) -> str:
    """The report as HTML."""
    if "law" in result.attrs:
        return _of_law(result)
    return _of_series(result) if is_series(result) else _of_fit(result)


def _of_fit(result: xr.DataTree) -> str:
    page = page_of(result)
    bokeh, api = (script(name) for name in SCRIPTS)
    return (
        environment()
        .get_template("report.html")
        .render(
            page=page,
            headline=page["headline"],
            looks=look_and_count(page["verdicts"]),
            data=inside_script(json.dumps(page, allow_nan=False, separators=(",", ":"))),
            css=own("report.css"),
            bokeh=bokeh,
            bokeh_api=api,
            script=own("overview.js") + own("detail.js"),
        )
    )


def _of_series(result: xr.DataTree) -> str:
    """A series: its picture, and a row for each dataset."""
    from bayesfit.report.series_pictures import plot_series

    labels = result["posterior"].dataset.coords["dataset"].values.tolist()
    counts = {str(label): tally(one_dataset(result, label)) for label in labels}
    rows = [[label, each.get("ok", 0), sum(each.values()), headline(each)] for label, each in counts.items()]
    fine, bins = (
        sum(each.get("ok", 0) for each in counts.values()),
        sum(map(sum, (c.values() for c in counts.values()))),
    )
    table = {"columns": ["dataset", "ok", "bins", "verdicts"], "rows": rows}
    title = f"{fine} of {bins} bins ok in {len(rows)} datasets"
    return plain(title, result.attrs.get("model", ""), [plot_series(result)], [table, _about(result)])


def _of_law(fitted: xr.DataTree) -> str:
    """A law: its verdict, its picture, and its parameters."""
    from bayesfit.diagnose.interval import central_interval
    from bayesfit.report.plots import plot_law

    if is_series(fitted):
        from bayesfit.report.series_pictures import plot_series

        return plain(f"{fitted.attrs['law']} of {fitted.attrs['parameter']}", "", [plot_series(fitted)], [])
    checks, rows = fitted["diagnostics"].dataset, []
    for name, array in fitted["posterior"].data_vars.items():
        low, median, high = central_interval(array.values)
        unit = array.attrs.get("units", "1")
        rows.append(
            [f"{name} [{unit}]" if unit not in ("1", "") else str(name), *(f"{v:.5g}" for v in (median, low, high))]
        )
    table = {"columns": ["parameter", "median", "from (95 %)", "to"], "rows": rows}
    title = f"{fitted.attrs['law']} of {fitted.attrs['parameter']}: {checks.law_verdict.item()}"
    return plain(title, checks.law_reason.item(), [plot_law(fitted)], [table, _about(fitted)])


def _about(result: xr.DataTree) -> Json:
    return {"columns": ["", "where this comes from"], "rows": [list(each) for each in about(result)]}


def plain(
    title: str, words: str, figures: Iterable[Figure], tables: Iterable[Json], sentences: Iterable[str] = ()
) -> str:
    """A page of pictures and tables."""
    from markupsafe import Markup

    return (
        environment()
        .get_template("plain.html")
        .render(
            title=title,
            about=words,
            sentences=list(sentences),
            pictures=[Markup(_svg(figure)) for figure in figures],
            tables=list(tables),
            css=own("report.css"),
            script=own("sort.js"),
        )
    )


def _svg(figure: Figure) -> str:
    """A picture as part of a page."""
    content = io.StringIO()
    figure.savefig(content, format="svg")
    text = content.getvalue()
    return text[text.index("<svg") :]


@cache
def environment() -> Environment:
    """What fills the templates; whatever a file says about itself is text and nothing else."""
    from jinja2 import Environment, FileSystemLoader

    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)


def own(name: str) -> Any:
    """A style or a script of our own."""
    from markupsafe import Markup

    return Markup((TEMPLATES / name).read_text())


@cache
def script(name: str) -> Any:
    """A script that Bokeh ships, found without importing Bokeh."""
    from markupsafe import Markup

    found = importlib.util.find_spec("bokeh")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(found.submodule_search_locations[0])
    return Markup((folder / "server" / "static" / "js" / name).read_text().replace("</script", "<\\/script"))


def inside_script(text: str) -> Any:
    """JSON that cannot end the script element that it stands in."""
    from markupsafe import Markup

    return Markup(text.replace("<", "\\u003c"))

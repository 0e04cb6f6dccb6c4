"""`bayesfit show`: a saved result as a table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesfit.cli.app import app
from bayesfit.cli.show_result import Wanted, print_law, print_result, units_of
from bayesfit.compute.errors import SettingsError, nearest

if TYPE_CHECKING:
    import xarray as xr


@app.command()
def show(
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    parameters: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="Only these; may be repeated.")
    ] = None,
    units: Annotated[
        list[str] | None, typer.Option("--unit", help="Another unit, as D=um^2/s; may be repeated.")
    ] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Every parameter and check, however wide.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every bin, also of very many.")] = False,
    verdict: Annotated[str | None, typer.Option(help="Only the bins with this verdict.")] = None,
    sort: Annotated[str | None, typer.Option(help="Sort by q, verdict, a parameter or a check.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the whole table as CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole table as JSON.")] = False,
) -> None:
    """Print a saved result: the parameters of every bin with 95 % intervals, verdict and reason."""
    from bayesfit.result.files import load
    from bayesfit.result.units import in_units

    loaded = in_units(load(result), units_of(units or []))
    if "law" in loaded.attrs:
        if parameters:
            raise SettingsError("the result of a law is shown whole", field="--parameter", remedy="Leave it out")
        return print_law(loaded)
    wanted = Wanted(tuple(parameters or ()), wide, every, verdict, sort, str(result))
    _check(loaded, wanted)
    if as_csv or as_json:
        return _print_table(loaded, wanted, as_csv)
    attrs = loaded.attrs
    typer.echo(f"{attrs['model']}: {attrs['model_formula']}")
    if "steps" not in loaded.children:
        typer.echo(f"input {attrs['input_file']} (SHA-256 {attrs['input_sha256'][:12]}), seed {attrs['seed']}")
    names = wanted.parameters or tuple(str(name) for name in loaded["posterior"].data_vars)
    print_result(loaded, wanted._replace(parameters=names) if wide else wanted)


def _check(result: xr.DataTree, wanted: Wanted) -> None:
    """Refuse names of parameters, verdicts and columns that do not exist.

    Raises:
        SettingsError: names the nearest that does.
    """
    from bayesfit.report.colours import LOOKS
    from bayesfit.result.summary import summary

    def known(name: str | None, names: Iterable[str], what: str, field: str) -> None:
        if name is not None and name not in (listed := list(names)):
            raise SettingsError(f"unknown {what} {name!r}", field=field, remedy=nearest(name, listed))

    for name in wanted.parameters:
        known(name, map(str, result["posterior"].data_vars), "parameter", "--parameter")
    known(wanted.verdict, LOOKS, "verdict", "--verdict")
    if wanted.sort is not None:
        known(wanted.sort, map(str, summary(result).columns), "column", "--sort")


def _print_table(result: xr.DataTree, wanted: Wanted, as_csv: bool) -> None:
    """Print the bins that are wanted as `bayesfit.summary` has them, for other programs."""
    from bayesfit.result.summary import summary

    table = summary(result)
    if wanted.verdict is not None:
        table = table[table.verdict == wanted.verdict]
    if wanted.sort is not None:
        table = table.sort_values(wanted.sort, kind="stable")
    table = table.reset_index()
    typer.echo(table.to_csv(index=False) if as_csv else table.to_json(orient="records", indent=1), nl=not as_csv)

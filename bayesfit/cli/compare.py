"""`bayesfit compare`: which of several fits predicts each bin best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesfit.cli.app import app
from bayesfit.cli.numbers import console_width
from bayesfit.compute.errors import SettingsError


@app.command()
def compare(
    results: Annotated[
        list[str], typer.Argument(metavar="[NAME=]FILE...", help="Saved results, named by their files if not here.")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also save the comparison, as netCDF.")] = None,
) -> None:
    """Compare models bin by bin by cross-validation, from saved fits of the same data that hold log_likelihood."""
    import xarray as xr
    from rich.console import Console

    from bayesfit.api.compare import compare as compare_results
    from bayesfit.cli.tables import comparison_table
    from bayesfit.result.files import check_ending, load, refuse_own_input, save

    named = _named(results)
    if output is not None:
        check_ending(output)
        for file in named.values():
            refuse_own_input(output, file)
    comparison = compare_results({name: load(path) for name, path in named.items()})
    Console(width=console_width()).print(comparison_table(comparison))
    if output is not None:
        save(xr.DataTree(comparison), output)


def _named(arguments: list[str]) -> dict[str, Path]:
    """Files by name, from NAME=FILE or FILE."""
    named: dict[str, Path] = {}
    for argument in arguments:
        name, equals, file = argument.partition("=")
        if not equals or Path(argument).exists():
            name, file = Path(argument).stem, argument
        if name in named:
            raise SettingsError(f"two results are named {name!r}", remedy="Name them: NAME=FILE")
        named[name] = Path(file)
    return named

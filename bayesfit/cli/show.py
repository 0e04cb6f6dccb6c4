"""`bayesfit show`: a saved result as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesfit.cli.app import app
from bayesfit.cli.show_result import print_law, print_result, units_of
from bayesfit.compute.errors import SettingsError, nearest


@app.command()
def show(
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    parameters: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="Only these; may be repeated.")
    ] = None,
    units: Annotated[
        list[str] | None, typer.Option("--unit", help="Another unit, as D=um^2/s; may be repeated.")
    ] = None,
) -> None:
    """Print a saved result: every parameter of every bin with its 95 % interval, verdict and reason."""
    from bayesfit.result.files import load
    from bayesfit.result.units import in_units

    loaded = in_units(load(result), units_of(units or []))
    if "law" in loaded.attrs:
        if parameters:
            raise SettingsError("the result of a law is shown whole", field="--parameter", remedy="Leave it out")
        return print_law(loaded)
    for name in parameters or ():
        if name not in loaded["posterior"]:
            known = [str(each) for each in loaded["posterior"].data_vars]
            raise SettingsError(f"unknown parameter {name!r}", field="--parameter", remedy=nearest(name, known))
    attrs = loaded.attrs
    typer.echo(f"{attrs['model']}: {attrs['model_formula']}")
    if "steps" not in loaded.children:
        typer.echo(f"input {attrs['input_file']} (SHA-256 {attrs['input_sha256'][:12]}), seed {attrs['seed']}")
    print_result(loaded, tuple(parameters or ()) or tuple(str(name) for name in loaded["posterior"].data_vars))

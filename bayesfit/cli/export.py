"""`bayesfit export`: a saved result for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesfit.cli.app import app
from bayesfit.cli.show_result import units_of


@app.command()
def export(
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The file; .csv, .xlsx, .hdf (APS 8-ID) or .nxs (NXxpcs) says the format."),
    ],
    units: Annotated[
        list[str] | None, typer.Option("--unit", help="Another unit, as D=um^2/s; may be repeated.")
    ] = None,
    mass: Annotated[float, typer.Option(help="The probability that intervals hold, as 0.68.")] = 0.95,
    curves: Annotated[
        str, typer.Option(help="measured or fitted: which curves stand as g2; .hdf and .nxs.")
    ] = "measured",
    source: Annotated[
        Path | None, typer.Option(help="The file that was fitted, to copy with all it holds; .hdf alone.")
    ] = None,
) -> None:
    """Write a saved result for another program: the summary as CSV or Excel, curves and fit for pyXpcsViewer, or as
    NeXus."""
    from bayesfit.report.export import check_export
    from bayesfit.report.export import export as write
    from bayesfit.result.files import load, refuse_own_input

    check_export(output, "-o")
    refuse_own_input(output, result)
    if source is not None:
        refuse_own_input(output, source)
    path = write(load(result), output, units=units_of(units or []), mass=mass, curves=curves, source=source)
    typer.echo(str(path))

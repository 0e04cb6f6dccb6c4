"""`bayesfit law`: a law in q through the bins of a saved result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesfit.cli.app import app
from bayesfit.cli.options import Cache, CpuDevices, Device, MemoryFraction, hardware_of, start
from bayesfit.cli.show_result import draw, print_law, print_paths

LAW_SETTINGS = ("scatter", "q", "verdicts", "priors", "fixed", "draws", "chains", "seed", "model")


@app.command()
def law(
    context: typer.Context,
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    name: Annotated[str, typer.Argument(metavar="LAW", help="diffusion, diffusion_extrapolated, power_law, ...")],
    parameter: Annotated[str, typer.Option(help="The sampled parameter that follows the law.")] = "rate",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the law, n=1 or S=table.csv, or of the fit: seed=1, scatter=false."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also save the law's posterior.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw the law over q; the ending says how.")] = None,
    device: Device = None,
    memory_fraction: MemoryFraction = None,
    cpu_devices: CpuDevices = None,
    cache: Cache = None,
) -> None:
    """Fit a law in q to the bins of a saved result that are ok: its parameters with 95 % intervals; of a series one
    for each dataset."""
    from bayesfit.modelling.settings import assigned

    settings = assigned(set_ or ())
    start(hardware_of(context))
    from bayesfit.api.law import law as fit_law
    from bayesfit.report.pictures import check_picture
    from bayesfit.result.files import check_ending, load, refuse_own_input, save

    check_picture(plot, "--plot")
    if output is not None:
        check_ending(output)
        refuse_own_input(output, result)

    given = {key: settings.pop(key) for key in LAW_SETTINGS if key in settings}
    fitted = fit_law(load(result), {**settings, "name": name}, parameter, **given)
    print_law(fitted)
    if output is not None:
        save(fitted, output)
    if plot is not None:
        print_paths(draw(fitted, None, plot))

"""`bayesfit run`: fit files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesfit.cli.app import (
    DONE,
    FAILED,
    INTERRUPTED,
    NONE_OK,
    WRONG_USE,
    CpuDevices,
    Device,
    MemoryFraction,
    app,
    hardware_options,
    start,
)
from bayesfit.cli.show_result import draw, print_paths, print_result, print_understood
from bayesfit.compute.errors import BayesfitError, SettingsError

if TYPE_CHECKING:
    import xarray as xr

    from bayesfit.modelling.settings import RunSettings


@app.command()
def run(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files of correlation data; each is recognised by its content.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results, one NAME.nc a file.")],
    model: Annotated[str | None, typer.Option(help="Model by name, or the path of a model file.")] = None,
    noise: Annotated[str | None, typer.Option(help="Noise model by name, or auto.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Pipeline by name, instead of recognising the file.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings in TOML.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as key=value; may be repeated (fixed.beta=1).")
    ] = None,
    together: Annotated[
        str | None, typer.Option(help="Several files as one result: average, stack, average_stack or series.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Also draw NAME.png beside each result.")] = False,
    advise: Annotated[
        bool, typer.Option("--advise", help="Also fit as the result advises, into NAME_advised.nc, and report both.")
    ] = False,
    device: Device = None,
    memory_fraction: MemoryFraction = None,
    cpu_devices: CpuDevices = None,
) -> None:
    """Fit files and save a posterior with a verdict on every bin.

    Exit code: 0 all files done; 1 a file failed; 2 wrong use or settings; 3 done, but some file has no bin that is ok;
    130 interrupted (what was sampled is saved).
    """
    from bayesfit.modelling.settings import load_settings

    here, environment = hardware_options(context)
    given = {"model": model, "noise": noise, "pipeline": pipeline, "together": together, **here}
    settings = load_settings(config, set_ or (), environment, **given)
    if output.suffix == ".nc" and not output.is_dir():
        remedy = f"Write -o {output.with_suffix('')}"
        raise SettingsError("is the folder in which each file has its NAME.nc", file=output, field="-o", remedy=remedy)
    start(settings)
    from bayesfit.cli.steps import one_output, outputs, own_measurements

    _check_names(settings)
    files, left_out = own_measurements(files, settings.pipeline)
    for line in left_out:
        typer.echo(line)
    if settings.together is None:
        jobs = [([file], path) for file, path in zip(files, outputs(files, output), strict=True)]
    else:
        jobs = [(files, one_output(files, output, str(settings.together)))]
    ends = [_fit_one(inputs, path, settings, plot, advise) for inputs, path in jobs]
    if all(end == WRONG_USE for end in ends):
        raise typer.Exit(WRONG_USE)
    raise typer.Exit(FAILED if {WRONG_USE, FAILED} & set(ends) else max(ends))


def _check_names(settings: RunSettings) -> None:
    """Refuse unknown names of noise models, models and pipelines before any file is read."""
    from bayesfit.api.automatic_noise import AUTO
    from bayesfit.modelling.model_choice import get_model
    from bayesfit.modelling.noise import get_noise
    from bayesfit.modelling.registry import get_pipeline

    if settings.noise != AUTO:
        get_noise(settings.noise)
    if settings.model is not None:
        get_model(settings.model)
    if settings.pipeline is not None:
        get_pipeline(settings.pipeline)


def _fit_one(files: list[Path], path: Path, settings: RunSettings, plot: bool, advise: bool = False) -> int:
    """Fit one file, or several as one; save and print the result. Returns the exit code for this fit alone.

    Raises:
        typer.Exit: the user has interrupted the fit.
    """
    from bayesfit.cli.steps import distinct, fit_files, read_all
    from bayesfit.result.summary import tally

    try:
        datasets = read_all(files, settings)
        print_understood(datasets)
        datasets, settings, left_out = distinct(datasets, settings)
        for line in left_out:
            typer.echo(line)
        result = fit_files(datasets, path, settings, sys.stderr.isatty())
    except BayesfitError as error:
        typer.echo(f"error: {error}" if error.file else f"error: {files[0]}: {error}", err=True)
        return WRONG_USE if isinstance(error, SettingsError) else FAILED
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    print_result(result, title=f"{files[0]}{more} -> {path}")
    drawn = not plot or _drawn_beside(result, path.with_suffix(".png"))
    verdicts = tally(result)
    if "interrupted" in verdicts or "datasets_left_out" in result.attrs:
        typer.echo(f"interrupted: the draws so far are in {path}", err=True)
        raise typer.Exit(INTERRUPTED)
    ends = [FAILED if not drawn else DONE if "ok" in verdicts else NONE_OK]
    if advise:
        ends += _fit_as_advised(files, path, settings, plot, result)
    return next((end for end in ends if end in (WRONG_USE, FAILED)), min(ends))


def _fit_as_advised(files: list[Path], path: Path, settings: RunSettings, plot: bool, result: xr.DataTree) -> list[int]:
    """Fit again with the settings that a result names, beside it; print how many bins are ok in both. Returns the exit
    code, or none if there is nothing else to try."""
    from bayesfit.cli.show_result import in_words
    from bayesfit.result.files import load
    from bayesfit.result.summary import settings_to_try, tally

    if not (to_try := settings_to_try(result)):
        typer.echo("--advise: the result advises nothing else")
        return []
    beside = path.with_stem(f"{path.stem}_advised")
    typer.echo(f"as advised: {in_words(to_try)}")
    end = _fit_one(files, beside, settings.advised(to_try), plot)
    if end in (DONE, NONE_OK):
        counts = [tally(each).get("ok", 0) for each in (result, load(beside))]
        typer.echo(f"ok: {counts[0]} bins in {path}, {counts[1]} in {beside}")
    return [end]


def _drawn_beside(result: xr.DataTree, path: Path) -> bool:
    """Draw a result beside its file, and print the path or the error; returns whether it was drawn."""
    try:
        drawn = draw(result, None, path)
    except (OSError, ValueError) as error:
        words = str(error) if isinstance(error, BayesfitError) else f"{path}: cannot be drawn: {error}"
        typer.echo(f"error: {words}", err=True)
        return False
    print_paths(drawn)
    return True

"""The command line. Heavy libraries are imported inside the commands, so that `--help` is instant."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesfit.cli.screen import own_warnings_as_lines
from bayesfit.compute.errors import BayesfitError, SettingsError, nearest

if TYPE_CHECKING:
    import xarray as xr

WIDTH, COLUMNS = 200, 4  # of a table that goes to a file: characters, and parameters side by side
SAMPLE_SETTINGS = ("temperature", "viscosity", "radius", "parameter", "seed")
LAW_SETTINGS = ("scatter", "verdicts", "priors", "fixed", "draws", "chains", "seed", "model")
DONE, FAILED, WRONG_USE, NONE_OK, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Posteriors that can be trusted for many noisy decay curves at once (XPCS, DLS).",
)


def _print_version(asked: bool) -> None:
    if asked:
        from bayesfit import __version__

        typer.echo(f"bayesfit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


@app.command()
def run(
    files: Annotated[list[Path], typer.Argument(help="Files of correlation data; each is recognised by its content.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results, one NAME.nc a file.")],
    model: Annotated[str | None, typer.Option(help="Model by name, or the path of a model file.")] = None,
    noise: Annotated[str | None, typer.Option(help="Noise model by name.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Pipeline by name, instead of recognising the file.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings in TOML.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as key=value; may be repeated (fixed.beta=1).")
    ] = None,
    together: Annotated[
        str | None, typer.Option(help="Several files as one result: average, stack, average_stack or series.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Also draw NAME.png beside each result.")] = False,
) -> None:
    """Fit files and save a posterior with a verdict on every bin.

    Exit code: 0 all files done; 1 a file failed; 2 wrong use or settings; 3 done, but some file has no bin that is ok;
    130 interrupted (what was sampled is saved).
    """
    from bayesfit.modelling.settings import load_settings

    settings = load_settings(config, set_ or (), model=model, noise=noise, pipeline=pipeline, together=together)
    if output.suffix == ".nc" and not output.is_dir():
        remedy = f"Write -o {output.with_suffix('')}"
        raise SettingsError("is the folder in which each file has its NAME.nc", file=output, field="-o", remedy=remedy)
    _start_jax()
    from bayesfit.cli.run import distinct, fit_files, one_output, outputs, own_measurements, read_all
    from bayesfit.modelling.noise import get_noise
    from bayesfit.modelling.registry import get_model, get_pipeline
    from bayesfit.result.summary import tally

    get_noise(settings.noise)
    if settings.model is not None:
        get_model(settings.model)
    if settings.pipeline is not None:
        get_pipeline(settings.pipeline)
    code, refused = DONE, 0
    files, left_out = own_measurements(files, settings.pipeline)
    for line in left_out:
        typer.echo(line)
    whole = settings.together is not None
    paths = [one_output(files, output, str(settings.together))] if whole else outputs(files, output)
    for file, path in zip(files, paths, strict=not whole):
        try:
            datasets = read_all(files if whole else [file], settings)
            _print_understood(datasets)
            datasets, settings, left_out = distinct(datasets, settings)
            for line in left_out:
                typer.echo(line)
            result = fit_files(datasets, path, settings, sys.stderr.isatty())
        except BayesfitError as error:
            typer.echo(f"error: {error}" if error.file else f"error: {file}: {error}", err=True)
            code, refused = FAILED, refused + isinstance(error, SettingsError)
            continue
        more = f" and {len(files) - 1} more" if whole and len(files) > 1 else ""
        _print_result(result, title=f"{file}{more} -> {path}")
        if plot and not _drawn_beside(result, path.with_suffix(".png")):
            code = FAILED
        verdicts = tally(result)
        if "interrupted" in verdicts or "datasets_left_out" in result.attrs:
            typer.echo(f"interrupted: the draws so far are in {path}", err=True)
            raise typer.Exit(INTERRUPTED)
        if "ok" not in verdicts and code == DONE:
            code = NONE_OK
    raise typer.Exit(WRONG_USE if refused == len(paths) else code)


def _print_understood(datasets: list[xr.Dataset]) -> None:
    """Two lines for each dataset: what its file was taken for."""
    from bayesfit.data.describe import describe

    for data in datasets:
        typer.echo(f"{data.attrs['file']}: " + "\n  ".join(describe(data)))


@app.command()
def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE|FOLDER...", help="Files of correlation data, or folders.")
    ],
    pipeline: Annotated[str | None, typer.Option(help="Pipeline by name, instead of recognising the file.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings in TOML.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as key=value (units.tau=us); may be repeated.")
    ] = None,
) -> None:
    """Say what each file would be taken for, without fitting: layout, bins, ranges and units of q and tau, errors,
    masked points, what is left out.

    Exit code: 0 every file named can be read, and at least one of each folder; 1 otherwise.
    """
    from bayesfit.cli.run import files_of, own_measurements, read_all
    from bayesfit.modelling.settings import load_settings

    settings = load_settings(config, set_ or (), pipeline=pipeline)
    failed = False
    for given in files:
        read, (found, left_out) = 0, own_measurements(files_of(given), settings.pipeline)
        for line in left_out:
            typer.echo(line)
        for file in found:
            try:
                _print_understood(read_all([file], settings))
                read += 1
            except BayesfitError as error:
                said = str(error) if error.file else f"{file}: {error}"
                typer.echo(f"not read: {said}" if given.is_dir() else f"error: {said}", err=not given.is_dir())
        failed |= read < (1 if given.is_dir() else len(found))
    raise typer.Exit(FAILED if failed else DONE)


def _drawn_beside(result: xr.DataTree, path: Path) -> bool:
    """Draw a result and print where; whether that went well, which it says if not."""
    try:
        drawn = _draw(result, None, path)
    except (OSError, ValueError) as error:
        words = str(error) if isinstance(error, BayesfitError) else f"{path}: cannot be drawn: {error}"
        typer.echo(f"error: {words}", err=True)
        return False
    _print_paths(drawn)
    return True


def _print_paths(drawn: list[Path]) -> None:
    for path in drawn:
        typer.echo(str(path))


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

    loaded = in_units(load(result), _units(units or []))
    if "law" in loaded.attrs:
        if parameters:
            raise SettingsError("the result of a law is shown whole", field="--parameter", remedy="Leave it out")
        return _print_law(loaded)
    for name in parameters or ():
        if name not in loaded["posterior"]:
            known = [str(known) for known in loaded["posterior"].data_vars]
            raise SettingsError(f"unknown parameter {name!r}", field="--parameter", remedy=nearest(name, known))
    attrs = loaded.attrs
    typer.echo(f"{attrs['model']}: {attrs['model_formula']}")
    if "steps" not in loaded.children:
        typer.echo(f"input {attrs['input_file']} (SHA-256 {attrs['input_sha256'][:12]}), seed {attrs['seed']}")
    _print_result(loaded, tuple(parameters or ()) or tuple(str(name) for name in loaded["posterior"].data_vars))


@app.command()
def plot(
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture; its ending says the format.")],
    bins: Annotated[list[int] | None, typer.Option("--bin", "-b", help="Draw this bin; may be repeated.")] = None,
) -> None:
    """Draw a saved result: curves with posterior bands, and the rate over q; of a joint fit also, beside it as
    NAME_across, the parameters that its bins have in common over q."""
    from bayesfit.result.files import load
    from bayesfit.result.pictures import check_picture

    check_picture(output, "-o")
    loaded = load(result)
    if bins and ("law" in loaded.attrs or "steps" in loaded.children):
        raise SettingsError("only a fit of one dataset is drawn bin by bin", field="--bin", remedy="Leave it out")
    known = [] if not bins else loaded["observed_data"].q_bin.values.tolist()
    if wrong := [bin for bin in bins or () if bin not in known]:
        remedy = f"Bins go from {min(known)} to {max(known)}"
        raise SettingsError(f"there is no bin {wrong[0]}", field="--bin", remedy=remedy)
    _print_paths(_draw(loaded, bins, output))


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
    Console(width=None if sys.stdout.isatty() else WIDTH).print(comparison_table(comparison))
    if output is not None:
        save(xr.DataTree(comparison), output)


@app.command()
def law(
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    name: Annotated[str, typer.Argument(metavar="LAW", help="diffusion, diffusion_extrapolated, power_law, ...")],
    parameter: Annotated[str, typer.Option(help="The sampled parameter that follows the law.")] = "rate",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the law, n=1 or S=table.csv, or of the fit: seed=1, scatter=false."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also save the law's posterior.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw the law over q; the ending says how.")] = None,
) -> None:
    """Fit a law in q to the bins of a saved result that are ok: its parameters with 95 % intervals; of a series one
    for each dataset."""
    from bayesfit.modelling.settings import assigned

    settings = assigned(set_ or ())
    _start_jax()
    from bayesfit.api.law import law as fit_law
    from bayesfit.result.files import check_ending, load, refuse_own_input, save
    from bayesfit.result.pictures import check_picture

    check_picture(plot, "--plot")
    if output is not None:
        check_ending(output)
        refuse_own_input(output, result)

    given = {key: settings.pop(key) for key in LAW_SETTINGS if key in settings}
    fitted = fit_law(load(result), {**settings, "name": name}, parameter, **given)
    _print_law(fitted)
    if output is not None:
        save(fitted, output)
    if plot is not None:
        _print_paths(_draw(fitted, None, plot))


@app.command()
def stokes_einstein(
    result: Annotated[Path, typer.Argument(help="A saved result, of a fit or of a law.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="temperature=298.15 [K], viscosity=water, 8.9e-4 [Pa s] or a prior, radius=50 [nm]"),
    ] = None,
    units: Annotated[list[str] | None, typer.Option("--unit", help="Another unit on display, as D=um^2/s.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also save the result with these.")] = None,
) -> None:
    """Hydrodynamic radius of a saved result by Stokes and Einstein, or the viscosity where the radius is set."""
    from bayesfit.api.stokes_einstein import stokes_einstein as derive
    from bayesfit.modelling.settings import assigned
    from bayesfit.result.files import check_ending, load, save
    from bayesfit.result.units import in_units

    if output is not None:
        check_ending(output)
    given = assigned(set_ or ())
    for name in given:
        if name not in SAMPLE_SETTINGS:
            raise SettingsError("unknown setting", field=name, remedy=nearest(name, SAMPLE_SETTINGS))
    derived = derive(load(result), **given)
    shown = in_units(derived, _units(units or []))
    if "law" in derived.attrs:
        _print_law(shown)
    else:
        _print_result(shown, ("D", derived.attrs["stokes_einstein"]))
    typer.echo(_what_followed(derived))
    if output is not None:
        save(derived, output)


def _what_followed(derived: xr.DataTree) -> str:
    """What Stokes and Einstein made of which diffusion coefficient."""
    name = derived.attrs["stokes_einstein_of"]
    words = derived["posterior"][name].attrs.get("long_name", "")
    return f"{derived.attrs['stokes_einstein']} from {name}" + (f", {words}" if words else "")


def _units(arguments: list[str]) -> dict[str, str]:
    """Units by parameter, from PARAMETER=UNIT."""
    units: dict[str, str] = {}
    for argument in arguments:
        name, equals, unit = (part.strip() for part in argument.partition("="))
        if not equals or not name or not unit:
            raise SettingsError(f"got {argument!r}", field="--unit", remedy="Write --unit D=um^2/s")
        units[name] = unit
    return units


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


@app.command()
def models() -> None:
    """List the models, with their formulas."""
    from bayesfit.modelling.registry import describe_model, list_models

    for name in list_models():
        description, formula = describe_model(name)
        typer.echo(f"{name:24}{description}\n{'':24}{formula}")


@app.command()
def noises() -> None:
    """List the noise models, with their formulas."""
    from bayesfit.modelling.noise import NOISES

    for name, found in NOISES.items():
        typer.echo(f"{name:24}{found.description}\n{'':24}{found.formula}")


@app.command()
def pipelines() -> None:
    """List the pipelines."""
    from bayesfit.modelling.registry import get_pipeline, list_pipelines

    for name in list_pipelines():
        typer.echo(f"{name:24}{get_pipeline(name).description}")


def _print_result(result: xr.DataTree, parameters: tuple[str, ...] = (), title: str = "") -> None:
    """Tables of the bins, a few parameters each, and how many bins have each verdict; the curve's own parameters where
    none are named."""
    from rich.console import Console

    from bayesfit.cli.tables import common_lines, common_table, derived_lines, table
    from bayesfit.result.datasets import is_series, one_dataset
    from bayesfit.result.summary import advice, of_bins, tally

    if is_series(result):
        for label in result["steps"].coords["dataset"].values.tolist():
            _print_result(one_dataset(result, label), parameters, f"dataset {label}")
        if left_out := result.attrs.get("datasets_left_out"):
            typer.echo(f"interrupted: not fitted were {left_out}")
        return
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    derived = [result.attrs[key] for key in ("stokes_einstein",) if key in result.attrs]
    names = parameters or (*(str(name) for name in result["diagnostics"].parameter.values), *derived)
    names = tuple(name for name in names if name in of_bins(result))
    for start in range(0, max(len(names), 1), COLUMNS):
        console.print(table(result, names[start : start + COLUMNS], title))
    typer.echo(", ".join(f"{count} {name}" for name, count in tally(result).items()))
    if words := advice(result):
        typer.echo(words)
    for line in derived_lines(result):
        typer.echo(line)
    if "across" in result:
        console.print(common_table(result))
        for line in common_lines(result):
            typer.echo(line)


def _draw(result: xr.DataTree, bins: list[int] | None, path: Path) -> list[Path]:
    """Draw a result of any kind; the pictures' paths."""
    from bayesfit.result.datasets import is_series
    from bayesfit.result.plots import plot_fit, plot_law, plot_series
    from bayesfit.result.plots_across import plot_across

    if is_series(result):
        plot_series(result, path)
        return [path]
    if "law" in result.attrs:
        plot_law(result, path)
        return [path]
    plot_fit(result, bins, path)
    if "across" not in result:
        return [path]
    beside = path.with_stem(f"{path.stem}_across")
    plot_across(result, beside)
    return [path, beside]


def _print_law(fitted: xr.DataTree) -> None:
    """The law's parameters, what it was fitted to, and its verdict; of a series for each dataset."""
    from rich.console import Console

    from bayesfit.cli.tables import law_lines, law_table
    from bayesfit.result.datasets import is_series, one_dataset

    if is_series(fitted):
        for label in fitted["steps"].coords["dataset"].values.tolist():
            typer.echo(f"dataset {label}")
            _print_law(one_dataset(fitted, label))
        return
    Console(width=None if sys.stdout.isatty() else WIDTH).print(law_table(fitted))
    for line in law_lines(fitted):
        typer.echo(line)


def _start_jax() -> None:
    """One CPU device a core; before JAX starts."""
    import gc

    gc.set_threshold(200_000, 50, 50)  # imports and tracing make many small objects that live on
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    jax.config.update("jax_num_cpu_devices", cores or 1)


def main() -> None:
    """Run the command line; an error that a user can meet is one line."""
    try:
        with own_warnings_as_lines():
            app()
    except BayesfitError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(WRONG_USE if isinstance(error, SettingsError) else FAILED) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise SystemExit(INTERRUPTED) from None

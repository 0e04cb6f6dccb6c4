"""`bayesfit surrogate`: a slow simulator as a model that every other command takes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesfit.cli.app import BY_SIGNAL, ENDING, GRACE, INTERRUPTED, app
from bayesfit.compute.work import stop_on

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr


@app.command()
def surrogate(
    simulator: Annotated[
        str, typer.Argument(help="FILE.py:FUNCTION, or a command with {input} and {output} where files belong.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file of the model, NAME.npz.")],
    prior: Annotated[list[str], typer.Option("--prior", help='One parameter, as "rate=LogUniform(1, 1e4)"; repeat.')],
    tau: Annotated[
        Path | None, typer.Option(help="File of the delays [s], text or .npy; by default those of DATA.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Curves that the model is meant for: it is learnt near them.")
    ] = None,
    budget: Annotated[int, typer.Option(help="Runs of the simulator.")] = 300,
    seed: Annotated[int, typer.Option(help="Of the design.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Runs side by side; by default one a core.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds that a run may take.")] = 600.0,
    retries: Annotated[int, typer.Option(help="How often a run that fails is begun again.")] = 2,
    runs: Annotated[Path | None, typer.Option(help="Folder that keeps the runs; by default one in the cache.")] = None,
) -> None:
    """Run a simulator, learn it, and save it as a model: bayesfit run DATA --model NAME.npz.

    Every run is kept; the same command again goes on where it was stopped.
    """
    effort = {"workers": workers, "time_limit": time_limit, "retries": retries, "cache": runs}
    given = {"budget": budget, "seed": seed, "name": output.stem, **effort}
    with stop_on(*ENDING, grace=GRACE) as stop:
        try:
            _learn(_simulator(simulator), _priors(prior), (tau, data, output), given)
        except KeyboardInterrupt:
            typer.echo("interrupted: the same command goes on, all runs are kept", err=True)
            raise typer.Exit(BY_SIGNAL + stop.signal if stop.signal else INTERRUPTED) from None


def _learn(
    simulator: str | list[str],
    space: dict[str, str],
    files: tuple[Path | None, Path | None, Path],
    given: dict[str, Any],
) -> None:
    """Learn, with the delays or the curves in files, and save the model in the last one."""
    from bayesfit.api.surrogate import surrogate as learn
    from bayesfit.modelling.reading import read
    from bayesfit.result.files import save
    from bayesfit.surrogates.files import check_path

    tau, data, output = files
    check_path(output)
    curves = None if data is None else read(data)
    model = learn(simulator, space, _delays(tau, curves), data=curves, progress=True, **given)
    save(model, output)
    typer.echo(f"{output}: {model.description}")


def _simulator(given: str) -> str | list[str]:
    return given if ".py:" in given and " " not in given else shlex.split(given)


def _priors(given: list[str]) -> dict[str, str]:
    """Parameter name to prior.

    Raises:
        SettingsError: an assignment cannot be read.
    """
    from bayesfit.compute.errors import SettingsError

    pairs = [text.partition("=") for text in given]
    for text, (_, equals, _) in zip(given, pairs, strict=True):
        if not equals:
            raise SettingsError(f"got {text!r}", field="--prior", remedy='Write --prior "rate=LogUniform(1, 1e4)"')
    return {name.strip(): prior.strip() for name, _, prior in pairs}


def _delays(path: Path | None, curves: xr.Dataset | None) -> np.ndarray | Any:
    """The delays in a file, or else those of the data.

    Raises:
        SettingsError: there are neither. InputError: the file holds none.
    """
    from bayesfit.compute.errors import InputError, SettingsError
    from bayesfit.modelling.file_checks import readable
    from bayesfit.surrogates.command import read_curve
    from bayesfit.surrogates.simulator import RunFailed

    if path is None:
        if curves is None:
            raise SettingsError("is needed where no data are given", field="--tau", remedy="Name a file of delays")
        tau = curves.tau.values
        return tau[tau > 0]
    try:
        return read_curve(readable(path, "--tau").read_bytes())
    except RunFailed as error:
        raise InputError("holds no delays", file=path, field="--tau") from error

"""`bayesfit inspect`: what files would be taken for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesfit.cli.app import DONE, FAILED, app
from bayesfit.cli.show_result import print_understood
from bayesfit.compute.errors import BayesfitError


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
    from bayesfit.cli.jobs import files_of
    from bayesfit.cli.steps import own_measurements, read_all
    from bayesfit.modelling.settings import load_settings

    settings = load_settings(config, set_ or (), pipeline=pipeline)
    failed = False
    for given in files:
        read, (found, left_out) = 0, own_measurements(files_of(given), settings.pipeline)
        for line in left_out:
            typer.echo(line)
        for file in found:
            try:
                print_understood(read_all([file], settings))
                read += 1
            except BayesfitError as error:
                said = str(error) if error.file else f"{file}: {error}"
                typer.echo(f"not read: {said}" if given.is_dir() else f"error: {said}", err=not given.is_dir())
        failed |= read < (1 if given.is_dir() else len(found))
    raise typer.Exit(FAILED if failed else DONE)

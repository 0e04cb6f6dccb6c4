"""The entry point. Heavy libraries are imported inside the commands, so that `--help` is instant."""

from __future__ import annotations

import typer

from bayesfit.cli import (
    calibrate,
    compare,
    correlate,
    doctor,
    export,
    inspect,
    law,
    lists,
    plot,
    report,
    run,
    show,
    stokes_einstein,
    surrogate,
    watch,
)
from bayesfit.cli.app import BY_SIGNAL, FAILED, INTERRUPTED, WRONG_USE, app
from bayesfit.cli.process import leave
from bayesfit.cli.screen import own_warnings_as_lines
from bayesfit.compute.errors import BayesfitError, SettingsError

# importing a command registers it
OF_RESULTS = (show, plot, report, export, compare, law, stokes_einstein)
COMMANDS = (run, watch, correlate, calibrate, inspect, surrogate, *OF_RESULTS, lists, doctor)


def main() -> None:
    """Run the command line. Errors that bayesfit raises on purpose are printed as one line."""
    try:
        with own_warnings_as_lines():
            app()
    except BayesfitError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(WRONG_USE if isinstance(error, SettingsError) else FAILED) from None
    except OSError as error:  # standard output cannot be written, on a full disk
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        leave(INTERRUPTED)  # a compilation that is under way in another thread would be waited for
    except SystemExit as end:
        if isinstance(end.code, int) and end.code > BY_SIGNAL:
            leave(end.code)
        raise

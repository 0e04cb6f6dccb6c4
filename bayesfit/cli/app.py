"""The program, and what all its commands share: the exit codes, and the signals that end a run."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

DONE, FAILED, WRONG_USE, NONE_OK, INTERRUPTED = 0, 1, 2, 3, 130
BY_SIGNAL = 128  # plus the number of the signal
ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP  # signals that end a run, with its progress kept
GRACE = 3.0  # seconds to the end of the chunk of work that is under way

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

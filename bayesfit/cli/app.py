"""The program, and what all its commands share: the exit codes, and how JAX is set up."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated

import typer

DONE, FAILED, WRONG_USE, NONE_OK, INTERRUPTED = 0, 1, 2, 3, 130
BY_SIGNAL = 128  # plus the number of the signal

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


def start_jax() -> None:
    """Give JAX one CPU device per core, which has to be set before JAX starts."""
    import gc

    gc.set_threshold(200_000, 50, 50)  # imports and tracing make many small objects that live on
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with suppress(RuntimeError):  # a program that calls this one may have started JAX itself
        jax.config.update("jax_num_cpu_devices", cores or 1)

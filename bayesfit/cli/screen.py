"""Which warnings reach the screen of the command line."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import typer

from bayesfit.compute.errors import BayesfitWarning


@contextmanager
def own_warnings_as_lines() -> Iterator[None]:
    """Print each of bayesfit's own warnings as one line on standard error. Warnings and logs of libraries, and errors
    that Python itself ignores, are not shown, since a user can do nothing about them. With PYTHONWARNINGS=default, all
    are shown as Python shows them."""
    before = sys.unraisablehook
    with warnings.catch_warnings():
        if not sys.warnoptions:
            sys.unraisablehook = lambda found: None
            logging.getLogger().addHandler(logging.NullHandler())  # otherwise Python prints logs that have no handler
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", BayesfitWarning)
            warnings.showwarning = _print_own
        try:
            yield
        finally:
            sys.unraisablehook = before


def _print_own(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning if it is bayesfit's own. Others come here too, while a library has changed the filters."""
    if issubclass(category, BayesfitWarning):
        typer.echo(f"warning: {message}", err=True)

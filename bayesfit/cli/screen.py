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
    """bayesfit's own warnings are one line each on standard error. Those of libraries, and what these log, are not
    shown, since a user can do nothing about them; all are, as Python shows them, with PYTHONWARNINGS=default."""
    with warnings.catch_warnings():
        if not sys.warnoptions:
            logging.getLogger().addHandler(logging.NullHandler())  # else Python prints what nobody handles
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", BayesfitWarning)
            warnings.showwarning = _print_own
        yield


def _print_own(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Also asked about others' warnings, where a library has changed the filters for a while."""
    if issubclass(category, BayesfitWarning):
        typer.echo(f"warning: {message}", err=True)

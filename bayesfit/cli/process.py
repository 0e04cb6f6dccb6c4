"""The process of a command: it begins with little and ends at once."""

from __future__ import annotations

import atexit
import os
import sys


def main() -> None:
    """Run the command line as a process of its own.

    Python would take apart all modules at the end, which takes half a second with libraries of this size and is of no
    use. So the process ends before, as the last of what is done at exit: threads are waited for, and whatever else was
    registered is done.
    """
    code = [1]  # of an exception that nobody expected, whose traceback Python prints before
    atexit.register(lambda: leave(code[0]))  # first registered, last called
    from bayesfit.cli.main import main as command

    try:
        command()
        code[0] = 0
    except SystemExit as end:
        code[0] = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


def leave(code: int) -> None:
    """End at once, with this exit code, or 1 in place of 0 where what was printed cannot be written."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed from the beginning
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    os._exit(code)

"""The process of a command: it begins with little and ends at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

LOST = 120  # the exit code of Python itself where it cannot write what was printed


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
    """End at once, with this exit code, or another one if it says that all is well while output was lost."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads it
        code = code or LOST
    except (OSError, ValueError) as error:
        print(f"error: output was lost: {error}", file=sys.stderr)
        code = code or LOST
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)

"""The command line, run in this process: as a user calls it, without the seconds that a new process takes."""

import io
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from bayesfit.cli.main import main


class Said(NamedTuple):
    """The exit code, and what was printed."""

    code: int
    out: str
    err: str

    @property
    def complaints(self):
        """What stands on standard error beside the lines of progress, which begin with the time of the day."""
        lines = self.err.splitlines()
        return "\n".join(line for line in lines if not re.match(r"\d\d:\d\d:\d\d ", line))


def bayesfit(*arguments):
    """What `bayesfit` says to these arguments. An exception that it lets through is raised, as a traceback would be
    shown."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["bayesfit", *map(str, arguments)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), err.getvalue())

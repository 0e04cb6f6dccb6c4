"""A progress bar in the output of a notebook's cell, of plain HTML, so that it needs no widgets and stays when the
notebook is saved."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

from bayesfit.compute.work import Progress, Report

EVERY = 0.2  # seconds between two updates

Draw = Callable[[str, float], None]


def in_notebook() -> bool:
    """Whether the code runs in a cell whose output can be updated: in a Jupyter kernel, not in IPython's terminal."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def notebook_bar(words: Callable[[Progress], str], share: Callable[[Progress], float]) -> Iterator[Report]:
    """A function that progress is reported to, and that draws a bar in the output of the cell.

    Args:
        words: progress in one line of words.
        share: the part of the stage that is done, from 0 to 1.
    """
    from IPython.display import HTML, DisplayHandle

    handle, drawn, line = DisplayHandle(), 0.0, ""
    handle.display(HTML(_bar("preparing", 0.0)))

    def report(progress: Progress) -> None:
        nonlocal drawn, line
        named = f"{progress.dataset}: {progress.stage}" if progress.dataset else progress.stage
        line = f"{named}: {words(progress)}"
        if time.monotonic() - drawn >= EVERY:
            drawn = time.monotonic()
            handle.update(HTML(_bar(line, share(progress))))

    began = time.monotonic()
    try:
        yield report
    except BaseException:
        handle.update(HTML(_bar(f"stopped; {line}", 0.0)))
        raise
    handle.update(HTML(_bar(f"done in {time.monotonic() - began:.0f} s; {line}", 1.0)))


def _bar(words: str, share: float) -> str:
    return f'<progress value="{min(max(share, 0.0), 1.0):.3f}" max="1"></progress> <small>{escape(words)}</small>'

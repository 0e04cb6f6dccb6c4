"""Progress: a live display on a terminal, a bar in a notebook's cell, plain lines in a file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from bayesfit.compute.notebook_bar import in_notebook, notebook_bar
from bayesfit.compute.work import Progress, Report

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STAGES = {
    "point estimate": "least squares",
    "estimate": "modes and starts",
    "sample": "sampling",
    "check": "checks and verdicts",
    "page": "tables, pictures, page",
    "simulate": "runs of the simulator",
    "errors": "errors by theory",
    "exact": "correction by the simulator",
}
EVERY = 10.0  # seconds between lines in a file, within a stage
SHOWN = 5  # escalated bins that are named at once


@contextmanager
def progress_bar(show: bool) -> Iterator[Report]:
    """A function that progress is reported to. If `show`, it draws a live display where standard error is a terminal,
    and writes lines to it elsewhere; in a notebook, a bar stands in the cell."""
    if not show:
        yield lambda progress: None
    elif in_notebook():
        with notebook_bar(words, share) as report_to_cell:
            yield report_to_cell
    elif sys.stderr.isatty():
        with _live() as report:
            yield report
    else:
        yield Lines(sys.stderr)


class Lines:
    """Writes progress as lines: at each new stage, for each bin that is newly escalated, and now and then."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.last, self.stage = stream, -math.inf, ("", "")
        self.said: set[str] = set()

    def __call__(self, progress: Progress) -> None:
        """Say how far the work is, if it is time to."""
        now, stage = time.monotonic(), (progress.dataset, progress.stage)
        if stage != self.stage or now - self.last >= EVERY:
            self.last, self.stage = now, stage
            self.write(f"{title(progress)}: {words(progress)}")
        new = [words for words in progress.escalated if (progress.dataset + words) not in self.said]
        self.said |= {progress.dataset + words for words in new}
        for line in _few(new):
            self.write(f"escalated: {line}")

    def write(self, line: str) -> None:
        """Write a line with the time of the day."""
        print(time.strftime("%H:%M:%S"), line, file=self.stream, flush=True)


@contextmanager
def _live() -> Iterator[Report]:
    """A display below whatever is printed, which is gone at the end."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr)
    display = Display()
    with Live(display, console=console, transient=True, redirect_stdout=False, redirect_stderr=False), above(console):
        yield display.show


@contextmanager
def above(console: Console) -> Iterator[None]:
    """What is printed on the same terminal appears above the console's live display, in lines as they are."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, Above(each, console)) if each.isatty() else each for each in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


class Above:
    """A stream whose lines a console prints, so that its live display stays below them."""

    def __init__(self, stream: TextIO, console: Console) -> None:
        self.stream, self.console, self.begun = stream, console, ""

    def write(self, text: str) -> int:
        """Print what has become whole lines, and keep the rest."""
        if not isinstance(text, str):  # by which libraries find out whether a stream is one of bytes
            raise TypeError(f"expected str, got {type(text).__name__}")
        *lines, self.begun = (self.begun + text).split("\n")
        self._print(lines)
        return len(text)

    def flush(self) -> None:
        """Print the line that is not whole yet."""
        if self.begun:
            self._print([self.begun])
            self.begun = ""

    def _print(self, lines: list[str]) -> None:
        from rich.text import Text

        if lines:
            self.console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's."""
        return getattr(self.stream, name)


class Display:
    """What the live display shows: the stage and its bar, how far it is in words, and which bins are escalated."""

    def __init__(self) -> None:
        from rich.spinner import Spinner

        self.progress: Progress | None = None
        self.began, self.spinner = time.monotonic(), Spinner("line")

    def show(self, progress: Progress) -> None:
        """Show this from now on."""
        if self.progress is None or _of(progress) != _of(self.progress):
            self.began = time.monotonic()
        self.progress = progress

    def __rich_console__(self, console: Console, options: Any) -> Iterator[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        progress, seconds = self.progress, time.monotonic() - self.began
        head = Table.grid(padding=(0, 1), expand=False)
        if progress is None:
            head.add_row(self.spinner, "reading and preparing", Text(clock(seconds), style="dim"))
            yield head
            return
        head.add_row(self.spinner, Text(title(progress), style="bold"), _bar(progress), Text(f"for {clock(seconds)}"))
        yield head
        yield Text(f"  {words(progress)}", no_wrap=True, overflow="ellipsis")
        for line in _few(progress.escalated):
            yield Text(f"  {line}", style="yellow", no_wrap=True, overflow="ellipsis")


def _of(progress: Progress) -> tuple[str, str]:
    """What the progress is of."""
    return progress.dataset, progress.stage


def _bar(progress: Progress) -> RenderableType:
    from rich.progress_bar import ProgressBar

    return ProgressBar(total=1.0, completed=share(progress), width=24, pulse=progress.stage in ("check", "page"))


def _few(lines: list[str] | tuple[str, ...]) -> list[str]:
    """The first few lines, and how many more there are."""
    more = len(lines) - SHOWN
    return list(lines) if more <= 0 else [*lines[:SHOWN], f"and {more} more"]


def share(progress: Progress) -> float:
    """The part of the stage that is done, from 0 to 1."""
    if progress.stage != "sample":
        return progress.bins_done / max(progress.bins, 1)
    return 1.0 if progress.bins_done >= progress.bins else progress.share


def title(progress: Progress) -> str:
    """What is done, and to which dataset."""
    stage = STAGES.get(progress.stage, progress.stage)
    return f"{progress.dataset}: {stage}" if progress.dataset else stage


def words(progress: Progress) -> str:
    """Progress in one line of words."""
    if progress.stage in ("check", "page"):
        return f"{progress.bins} {progress.unit}"
    parts = [f"{progress.bins_done}/{progress.bins} {progress.unit} done"]
    if progress.draws and progress.bins_done < progress.bins:
        parts.append(f"draw {progress.draws_done}/{progress.draws}" if progress.draws_done else "warming up")
    if not math.isnan(progress.worst_rhat):
        parts.append(f"worst R-hat {progress.worst_rhat:.3f}")
    if progress.divergences:
        parts.append(f"{progress.divergences} divergences")
    if not math.isnan(progress.seconds_left) and progress.bins_done < progress.bins:
        parts.append(f"{clock(progress.seconds_left)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """A time in words: 42 s, 3:05 min, 2:10 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02} h"

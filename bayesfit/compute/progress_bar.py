"""A progress bar on standard error, or in a notebook's cell: bins done, worst R-hat, divergences, time left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from bayesfit.compute.notebook_bar import in_notebook, notebook_bar
from bayesfit.compute.work import Progress, Report


@contextmanager
def progress_bar(show: bool) -> Iterator[Report]:
    """A function that progress is reported to; it draws a bar if `show`, and nothing else."""
    if not show:
        yield lambda progress: None
        return
    if in_notebook():
        with notebook_bar(words, _share) as report_to_cell:
            yield report_to_cell
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.fields[words]}")
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("preparing", total=None, words="")

        def report(progress: Progress) -> None:
            named = f"{progress.dataset}: {progress.stage}" if progress.dataset else progress.stage
            bar.update(task, description=named, total=1.0, completed=_share(progress), words=words(progress))

        yield report


def _share(progress: Progress) -> float:
    if progress.stage != "sample":
        return progress.bins_done / progress.bins
    return 1.0 if progress.bins_done >= progress.bins else progress.share


def words(progress: Progress) -> str:
    """Progress in one line of words."""
    parts = [f"{progress.bins_done}/{progress.bins} {progress.unit}"]
    if progress.draws:
        parts.append(f"draw {progress.draws_done}/{progress.draws}" if progress.draws_done else "warming up")
    if not math.isnan(progress.worst_rhat):
        parts += [f"worst R-hat {progress.worst_rhat:.3f}", f"{progress.divergences} divergences"]
    if not math.isnan(progress.seconds_left):
        parts.append(f"{progress.seconds_left:.0f} s left")
    return ", ".join(parts)

"""Fits the files of a run: read ahead, a few groups of small files at a time, so that reading, sampling and writing
overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import jax
import typer
import xarray as xr

from bayesfit.api.fit_many import as_sent, fit_elsewhere
from bayesfit.api.side_by_side import Ended, fit_side_by_side
from bayesfit.api.stages import Choices
from bayesfit.cli.app import INTERRUPTED
from bayesfit.cli.fit_job import End, Fitted, Wishes, failed, finish
from bayesfit.cli.groups import Compute, Done, Fitting, Kept, Ready, fit_group, groups
from bayesfit.cli.jobs import Job
from bayesfit.cli.show_result import print_understood
from bayesfit.cli.status import Status
from bayesfit.compute.elsewhere import Executor, outcome
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Report, heeded, reported_as
from bayesfit.modelling.settings import FitSettings, RunSettings

READ_AHEAD = 8  # files
AT_ONCE = 2  # groups: while one is read, put together or written, the other is sampled


class Where(NamedTuple):
    """What fits groups: this process, or an `executor`; and how many groups it is given at once."""

    executor: Executor | None = None
    groups: int = AT_ONCE

    @property
    def compute(self) -> Compute:
        """The function that fits a group."""
        executor = self.executor
        return _here if executor is None else lambda *group: _elsewhere(executor, *group)


def _here(curves: list[xr.Dataset], choices: Choices, settings: FitSettings, report: Report) -> list[Ended]:
    with jax.enable_x64(True):
        return fit_side_by_side(curves, choices, settings, report)


def _elsewhere(
    executor: Executor, curves: list[xr.Dataset], choices: Choices, settings: FitSettings, report: Report
) -> list[Ended]:
    results: list[Ended] = outcome(executor.submit(fit_elsewhere, curves, as_sent(choices), settings))
    return results


def fit_all(
    jobs: list[Job], settings: RunSettings, wishes: Wishes, status: Status, where: Where | None = None
) -> list[int]:
    """Fit the file of each job; save, print and note each result. Whatever is wrong with one ends only that one, with
    one line. Returns the exit codes of the jobs that have ended, and that of an interruption."""
    with progress_bar(True) as report, _threads(1) as reader:
        queue = Queue(jobs, settings, wishes, status, report)
        with _threads((where or Where()).groups) as fitters:
            try:
                queue.fit(queue.arriving(reader), fitters, where or Where())
            except KeyboardInterrupt:
                status.interrupt()
                typer.echo(f"interrupted: the same command goes on with {queue.folder}", err=True)
                queue.ends.append(INTERRUPTED)
    return queue.ends


class Queue:
    """The jobs of a run, and how those that have ended did (`ends`)."""

    def __init__(self, jobs: list[Job], settings: RunSettings, wishes: Wishes, status: Status, report: Report) -> None:
        self.jobs, self.settings, self.wishes, self.status, self.report = jobs, settings, wishes, status, report
        self.folder = jobs[0].output.parent if jobs else Path()
        self.kept = Kept(self.folder, wishes.fresh)
        self.ends: list[int] = []

    def fit(self, arriving: Iterator[Ready], fitters: ThreadPoolExecutor, where: Where) -> None:
        """Fit the files as they arrive, a few groups at a time."""
        fitting = Fitting(self.settings, self.wishes.fresh, where.compute)
        work: deque[Future[list[Done]]] = deque()
        for group in groups(arriving, self.kept):
            if len(work) >= where.groups:
                self.finish(work.popleft())
            for ready in group:
                self.status.begin(ready.job)
            named = reported_as(f"{len(self.ends)}/{len(self.jobs)} {group[0].job.name}", self.report)
            work.append(fitters.submit(copy_context().run, fit_group, group, fitting, named))
        while work:
            self.finish(work.popleft())

    def arriving(self, reader: ThreadPoolExecutor) -> Iterator[Ready]:
        """The files, a few of which are read ahead. Those that cannot be read have ended."""
        ahead: deque[tuple[Job, Future[Ready]]] = deque()
        left = iter(self.jobs)
        while True:
            for job in islice(left, READ_AHEAD - len(ahead)):
                context = copy_context()
                ahead.append((job, reader.submit(context.run, Ready.of, job, self.settings, self.wishes.fresh)))
            if not ahead:
                return
            if heeded().asked:
                raise KeyboardInterrupt
            job, pending = ahead.popleft()
            try:
                ready = pending.result()
                self.kept.journal_for(ready)
            except Exception as error:
                self.note(job, failed(job, error))
            else:
                yield ready

    def finish(self, pending: Future[list[Done]]) -> None:
        """Print the results of a group, draw them, and note how its files have ended."""
        for ready, result in pending.result():
            if isinstance(result, Exception):
                self.note(ready.job, failed(ready.job, result))
                continue
            if not self.wishes.brief:
                print_understood([ready.curves])
            fitted = Fitted(result, ready.before is not None)
            self.note(ready.job, finish(ready.job, fitted, self.settings, self.wishes, self.report))

    def note(self, job: Job, end: End) -> None:
        """Note how a job has ended.

        Raises:
            KeyboardInterrupt: the user has interrupted it.
        """
        self.status.end(job, end.state, end.verdicts, end.error)
        if end.code == INTERRUPTED:
            raise KeyboardInterrupt
        self.ends.append(end.code)


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are waited for, unless the user interrupts: then the process ends soon."""
    threads = ThreadPoolExecutor(count)
    try:
        yield threads
    finally:
        threads.shutdown(wait=not heeded().asked, cancel_futures=True)

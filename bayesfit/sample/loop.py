"""The one loop of all sampling: advance the chains by a chunk of transitions, assess the runs that have all their
draws, and end them, continue them or escalate, until their targets are met or no step is left.

The chains are advanced by a driver: the slots of `scheduler`, for many small targets, or NumPyro's NUTS in
`numpyro_nuts`, for one large target.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from jaxtyping import Float, Int

from bayesfit.compute.journal import Record, begin_stage, leave
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.sample.convergence import worst_of
from bayesfit.sample.draws import FEWEST_DRAWS, STATS, Arrays, Assessment, Schedule
from bayesfit.sample.escalation import Step

Table = Float[np.ndarray, "chain draw column"]

ENDED = "ended"  # in the journal, of a stage that is complete


@dataclass(eq=False)
class Run:
    """The chains of one target while they are sampled.

    `first` and `step` are the indices of the escalation steps at which they began and at which they are now, `thin` the
    number of transitions per kept draw. `tables` holds, for each chain, tables (transition, column) of what it has
    drawn in this step, chunk by chunk, and `counts` how many transitions these have. `best` assesses the draws that are
    kept so far, and `why` says in words what was wrong with the last ones.
    """

    bin: int
    first: int = 0
    step: int = 0
    thin: int = 1
    tables: list[list[Float[np.ndarray, "transition column"]]] = field(default_factory=list)
    counts: Int[np.ndarray, " chain"] = field(default_factory=lambda: np.zeros(1, int))
    best: Assessment | None = None
    why: str = ""

    def restart(self, chains: int, columns: int) -> None:
        """Forget all transitions, and begin with empty tables for this number of chains."""
        self.thin, self.counts = 1, np.zeros(chains, int)
        self.tables = [[np.zeros((0, columns))] for _ in range(chains)]

    def add(self, tables: Sequence[Float[np.ndarray, "transition column"]]) -> None:
        """Add what each chain has drawn in a chunk."""
        for chain, table in zip(self.tables, tables, strict=True):
            chain.append(table)
        self.counts += [len(table) for table in tables]

    @property
    def made(self) -> int:
        """The number of transitions that every chain has made."""
        return int(self.counts.min())

    def share(self, schedule: Schedule) -> float:
        """The part of its transitions that the run has made, from 0 to 1."""
        return float(np.clip((self.made - schedule.warmup) / (schedule.draws * self.thin), 0.0, 1.0))

    def escalated(self, steps: Sequence[Step]) -> str:
        """In words, what is done beyond the plain run, and why; "" for the plain run."""
        done = [f"begun again, {steps[self.step].name}"] if self.step > self.first else []
        done += [f"chains {self.thin} times as long"] if self.thin > 1 else []
        return ", ".join(done) + (f" ({self.why})" if self.why else "") if done else ""

    def kept(self, schedule: Schedule) -> Table:
        """Every `thin`-th transition after the warm-up, at most `draws` per chain."""
        end = schedule.warmup + schedule.draws * self.thin
        chosen = slice(schedule.warmup + self.thin - 1, min(end, self.made), self.thin)
        return np.stack([np.concatenate(tables)[chosen] for tables in self.tables])

    def is_complete(self, schedule: Schedule) -> bool:
        """Whether every chain has all the draws that are to be kept."""
        return self.made >= schedule.warmup + schedule.draws * self.thin


class Driver(Protocol):
    """Advances chains. The columns of its tables are the `size` coordinates of the position, the statistics `STATS` and
    whatever else it records."""

    schedule: Schedule
    size: int
    worst_rhat: float  # of the runs that were assessed last

    @property
    def steps(self) -> Sequence[Step]:
        """The escalation steps; a run's `step` is an index into them."""

    def start(self) -> list[Run]:
        """Start waiting runs if there is room; returns all runs that are being sampled."""

    def advance(self) -> None:
        """Advance the chains of all runs by a chunk, and add what they have drawn to the runs' tables."""

    def series(self, table: Table) -> Float[np.ndarray, "series chain draw"]:
        """The series whose convergence is assessed, from kept draws."""

    def keep(self, run: Run, table: Table) -> None:
        """Keep these draws, the best so far, as the run's result."""

    def escalate(self, run: Run) -> None:
        """Begin the run's next step."""

    def retire(self, run: Run) -> None:
        """Make room: the run has ended."""

    def progress(self, seconds: float) -> Progress:
        """The progress after this number of seconds."""

    def results(self) -> Arrays:
        """What runs that have ended since the last call have left, by name; empty if none has."""

    def snapshot(self) -> Arrays:
        """All else that the chains need to go on, by name."""

    def restore(self, results: Sequence[Arrays], snapshot: Arrays) -> None:
        """Go on from what `results`, call after call, and `snapshot` have returned."""


def sample_until_reached(driver: Driver, report: Report, stop: Stop) -> None:
    """Run a driver's chains until all targets are met, no step is left, or the user asks to stop. Runs that then have
    no result yet keep the draws made so far."""
    started, runs, record = time.monotonic(), list[Run](), begin_stage()
    if record is not None and _restore(driver, record):
        record = None
    report(driver.progress(0.0))
    if record is not None and stop.asked:  # before the first draw
        _keep(driver, record)
        leave(stop)
    while not stop.asked and (runs := driver.start()):
        driver.advance()
        complete = [run for run in runs if run.is_complete(driver.schedule)]
        found = _assess(driver, complete)
        for run, assessment in zip(complete, found, strict=True):
            _settle(driver, run, assessment)
        rhats = [assessment.convergence[0] for assessment in found]
        driver.worst_rhat = max((rhat for rhat in rhats if not np.isnan(rhat)), default=driver.worst_rhat)
        report(driver.progress(time.monotonic() - started))
        if record is not None and (record.journal.due or stop.asked):
            _keep(driver, record)
            leave(stop)
    if record is not None and not runs and not stop.asked:
        record.add(driver.results() | {ENDED: np.array(True)})
    for run in runs:
        if run.best is None:
            _assess(driver, [run])


def _keep(driver: Driver, record: Record) -> None:
    """Write down what ended runs have left, and how to go on."""
    if results := driver.results():
        record.add(results)
    record.write({"parts": np.array(record.count), **driver.snapshot()})


def _restore(driver: Driver, record: Record) -> bool:
    """Go on from what was written down. Returns whether that is all there is to do."""
    if record.parts and ENDED in record.parts[-1]:
        driver.restore(record.parts, {})
        return True
    state = record.state()
    record.forget(int(state["parts"]) if state else 0)
    if state:
        driver.restore(record.parts, state)
    return False


def _settle(driver: Driver, run: Run, found: Assessment) -> None:
    """Decide how a run goes on that has all its draws.

    It ends if the target is met, or if the last step is used up. Otherwise it goes on to chains of twice the length, of
    which every second transition so far is kept; or, if that has not helped or trajectories are in trouble, it
    escalates. In the last step, trouble is no reason to start again: discarding draws because chains got stuck would
    favour runs that never visited the narrow parts of the posterior.
    """
    step, transitions = driver.steps[run.step], driver.schedule.draws * run.thin
    reached, run.why = found.reaches(driver.schedule.reachable), found.why_not(driver.schedule.reachable)
    impossible = run.best is not None and not run.best.finite
    if driver.schedule.fixed or impossible or (reached and (step.last or found.untroubled)):
        driver.retire(run)
    elif not step.last and (not found.untroubled or transitions >= step.transitions):
        driver.escalate(run)
    elif step.last and 2 * transitions > step.transitions:
        driver.retire(run)
    else:
        run.thin *= 2


def _assess(driver: Driver, runs: Sequence[Run]) -> list[Assessment]:
    """Assess the draws of runs that have equally many of them, and keep them unless earlier ones were good enough and
    better."""
    tables = [run.kept(driver.schedule) for run in runs]
    series = [driver.series(table) for table in tables]
    enough = bool(series) and series[0].shape[-1] >= FEWEST_DRAWS
    converged = worst_of(np.stack(series)) if enough else np.full((len(runs), 3), np.nan)
    assessments = []
    for run, table, numbers in zip(runs, tables, converged, strict=True):
        step = driver.steps[run.step]
        found = Assessment.of(numbers, statistics(table, driver.size), step.tree_depth, step.last)
        assessments.append(found)
        if not found.is_worse_than(run.best):
            run.best = found
            driver.keep(run, table)
    return assessments


def statistics(table: Table, size: int) -> Arrays:
    """The statistics (chain, draw) by name, from a table whose first `size` columns are coordinates."""
    return dict(zip(STATS, np.moveaxis(table, -1, 0)[size:], strict=False))

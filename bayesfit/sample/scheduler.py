"""The driver of many small targets: the bins of a dataset take turns in slots, each of which holds all chains of one
bin side by side on one device.

The chains of a bin run until its worst parameter has the wanted R-hat and effective sample size, and then make room for
the next bin's. Kept draws are always `draws` per chain: where these do not suffice, the chain goes on to twice its
length, of which every second draw is kept, and so on. Nothing that a bin's chains do depends on its slot or on when its
draws are assessed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Float, Int

from bayesfit.compute.batches import devices_for
from bayesfit.compute.devices import gather, take
from bayesfit.compute.hardware import lanes_per_device
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.sample.chains import Chain
from bayesfit.sample.draws import STATS, Arrays, Draws, Schedule
from bayesfit.sample.escalation import FIRST, IMPORTANCE_SAMPLED, SOON_LEFT, STEPS
from bayesfit.sample.loop import Run, Table, sample_until_reached, statistics
from bayesfit.sample.modes import profiled
from bayesfit.sample.slots import Slots, slots_per_group
from bayesfit.sample.snapshots import as_part, numbered, of_draws, of_run, of_tree, part_of, put_draws, put_run, tree_of
from bayesfit.sample.starts import Estimate, readapt
from bayesfit.sample.target import BinTargets


def start_compiling(bins: BinTargets, estimates: Estimate, schedule: Schedule) -> tuple[str, ...]:
    """Begin to compile in the background; `estimates` has the shapes of one bin's. Returns the names of what
    is drawn."""
    blank = jax.tree.map(lambda leaf: np.zeros((bins.count, *np.shape(leaf))), estimates)
    return Scheduler(replace(bins, keys=np.zeros((bins.count, 2), np.uint32)), blank, schedule).slots.values


def sample_bins(bins: BinTargets, estimates: Estimate, schedule: Schedule, report: Report, stop: Stop) -> Draws:
    """Draws of all bins, from their estimates (leading axis)."""
    scheduler = Scheduler(bins, estimates, schedule)
    sample_until_reached(scheduler, report, stop)
    return scheduler.draws


class Scheduler:
    """The bins of a dataset while they are sampled: those that wait, those that have a slot, and the draws of those
    that were assessed. `ended` are those whose draws are not in the journal yet."""

    def __init__(self, bins: BinTargets, estimates: Estimate, schedule: Schedule) -> None:
        self.bins, self.schedule, self.target, self.size = bins, schedule, bins.target, bins.target.size
        self.steps = STEPS if self.target.corrected is None else SOON_LEFT
        self.estimates: Estimate = jax.tree.map(np.array, estimates)
        first = np.where(self.estimates.mixture_fitted > 0, IMPORTANCE_SAMPLED, FIRST).tolist()
        self.waiting = deque(Run(bin, first=index, step=index) for bin, index in enumerate(first))
        devices = devices_for(bins.count, slots_per_group(schedule.chains))
        nobody = np.zeros(devices * lanes_per_device(), int)
        blank = self._chains(nobody, FIRST, nobody)
        self.slots = Slots(self.target, blank, devices, schedule.chains)
        self.runs: list[Run | None] = [None] * len(self.slots.of)
        self.seen: dict[int, list[np.ndarray]] = {}  # of each escalated bin: earlier points and draws z
        self.draws = Draws.none_of(bins.count)
        self.divergent = np.zeros(bins.count, int)  # kept draws of each bin
        self.retired, self.worst_rhat, self.ended = 0, 1.0, list[int]()

    def _chains(self, bin: Int[np.ndarray, " chain"], step: int, number: Int[np.ndarray, " chain"]) -> Chain:
        """The inputs of the chains with these numbers, of these bins, at one escalation step."""
        return Chain(
            take(self.bins.data, bin),
            self.estimates.location[bin],
            self.estimates.factor[bin],
            self.estimates.starts[bin, number],
            take(self.estimates.mixture, bin),
            self.bins.keys[bin],
            number.astype(np.int32),
            np.full(bin.size, step, np.int32),
            np.full(bin.size, self.schedule.warmup, np.int32),
            np.full(bin.size, max(self.schedule.target_accept, self.steps[step].least_acceptance)),
            np.full(bin.size, self.steps[step].tree_depth, np.int32),
        )

    def start(self) -> list[Run]:
        """Give the free slots to bins that wait; returns the runs in all slots."""
        for slot in self.slots.order:
            if self.runs[slot] is None and self.waiting:
                self._put(slot, self.waiting.popleft())
        _move_up(self)
        self.slots.send()
        return [run for run in self.runs if run is not None]

    def _put(self, slot: int, run: Run) -> None:
        """Start a bin's chains in a slot."""
        run.restart(self.schedule.chains, self.size + len(STATS) + len(self.slots.values))
        self.runs[slot] = run
        self.slots.put(slot, self.chains_of(run))

    def chains_of(self, run: Run) -> Chain:
        """The inputs of a bin's chains."""
        numbers = np.arange(self.schedule.chains)
        return self._chains(np.full(numbers.size, run.bin), run.step, numbers)

    def advance(self) -> None:
        """Advance all chains by a chunk, and give each run the transitions that its chains have ended."""
        left = self.slots.advance(busy_slots(self))
        for run, places in zip(self.runs, self.slots.of, strict=True):
            if run is not None:
                run.add(left.of_chains(places))

    def series(self, table: Table) -> Float[np.ndarray, "series chain draw"]:
        """The values of all inferred parameters."""
        values = self._values(table)
        return np.stack([values[name] for name in self.target.names])

    def _values(self, table: Table) -> dict[str, Float[np.ndarray, "chain draw"]]:
        columns = np.moveaxis(table, -1, 0)[self.size + len(STATS) :]
        return dict(zip(self.slots.values, columns, strict=True))

    def keep(self, run: Run, table: Table) -> None:
        """Keep a bin's draws, how they were made, and how well they have converged."""
        bin, draws = run.bin, self.draws
        assert run.best is not None
        draws.put(bin, self._values(table), statistics(table, self.size), self.schedule.draws)
        draws.thin[bin], draws.adaptations[bin] = run.thin, 1 + run.step - run.first
        draws.tree_depth[bin], draws.convergence[bin] = self.steps[run.step].tree_depth, run.best.convergence
        self.divergent[bin] = draws.stats["diverging"][bin].sum()

    def escalate(self, run: Run) -> None:
        """Compute a bin's preconditioner, starting points and mixture again, from its draws so far, and start again. If
        points of its importance sample are remembered, the draws are remembered as well."""
        u = run.kept(self.schedule)[..., : self.size]
        old: Estimate = jax.tree.map(lambda array: array[run.bin], self.estimates)
        seen = self.seen.get(run.bin) or [old.location + old.remembered @ old.factor.T]
        before = np.linalg.solve(old.factor, (np.concatenate(seen) - old.location).T).T
        new = readapt(old, u, before, len(profiled(self.bins.posterior)))
        if old.remembered.size:
            self.seen[run.bin] = [*seen, old.location + u.reshape(-1, u.shape[-1]) @ old.factor.T]
        for whole, part in zip(jax.tree.leaves(self.estimates), jax.tree.leaves(new), strict=True):
            whole[run.bin] = part
        run.step += 1
        self._put(self.runs.index(run), run)

    def retire(self, run: Run) -> None:
        """Free the run's slot."""
        self.runs[self.runs.index(run)] = None
        self.retired += 1
        self.ended.append(run.bin)

    def progress(self, seconds: float) -> Progress:
        """The progress after this number of seconds."""
        return _progress(self, seconds)

    def results(self) -> Arrays:
        """The draws of the bins that have ended since the last call."""
        ended, self.ended = np.array(self.ended, int), []
        return of_draws(self.draws, ended) if ended.size else {}

    def snapshot(self) -> Arrays:
        """What the bins that wait or have a slot need to go on."""
        return snapshot_of(self)

    def restore(self, results: Sequence[Arrays], snapshot: Arrays) -> None:
        """Go on from what `results` and `snapshot` have returned; without a snapshot, all bins have ended."""
        put_back(self, results, snapshot)


def busy_slots(scheduler: Scheduler) -> list[int]:
    """The slots that hold a run."""
    return [slot for slot in scheduler.slots.order if scheduler.runs[slot] is not None]


def _move_up(scheduler: Scheduler) -> None:
    """Move runs into the first slots, if fewer groups of chains have then to be advanced."""
    slots, runs, busy = scheduler.slots, scheduler.runs, busy_slots(scheduler)
    first = slots.order[: len(busy)]
    if slots.groups(first).sum() >= slots.groups(busy).sum():
        return
    leaving, free = [slot for slot in busy if slot not in first], [slot for slot in first if slot not in busy]
    slots.move(leaving, free)
    for before, after in zip(leaving, free, strict=True):
        runs[before], runs[after] = None, runs[before]


def _progress(scheduler: Scheduler, seconds: float) -> Progress:
    """The progress after this number of seconds."""
    wanted, bins = scheduler.schedule.draws, scheduler.bins.count
    runs = [run for run in scheduler.runs if run is not None]
    shares = [run.share(scheduler.schedule) for run in runs]
    labels = scheduler.bins.labels or [f"bin {bin}" for bin in range(bins)]
    said = [(labels[run.bin], run.escalated(scheduler.steps)) for run in runs]
    share, rhats = (scheduler.retired + sum(shares)) / bins, scheduler.draws.convergence[:, 0]
    return Progress(
        "sample",
        bins,
        bins_done=scheduler.retired,
        draws_done=round(wanted * min(shares, default=float(scheduler.retired > 0))),
        draws=wanted,
        worst_rhat=max(rhats[np.isfinite(rhats)].tolist(), default=float("nan")),
        divergences=int(scheduler.divergent.sum()),
        seconds_left=seconds * (1.0 / share - 1.0) if share > 0 else float("nan"),
        share=share,
        escalated=tuple(f"{label}: {words}" for label, words in said if words),
    )


def snapshot_of(scheduler: Scheduler) -> Arrays:
    """What the bins of a scheduler that wait or have a slot need to go on."""
    runs = {slot: run for slot, run in enumerate(scheduler.runs) if run is not None}
    at_work = np.array([run.bin for run in runs.values()], int)
    kept = {
        "waiting": np.array([run.bin for run in scheduler.waiting], int),
        "slots": np.array(list(runs), int),
        "fresh": scheduler.slots.fresh.copy(),
        "retired": np.array(scheduler.retired),
        "worst_rhat": np.array(scheduler.worst_rhat),
        **as_part(of_draws(scheduler.draws, at_work[scheduler.draws.done[at_work] > 0]), "draws"),
        **of_tree(gather(scheduler.slots.states), "states"),
    }
    for slot, run in runs.items():
        estimate = jax.tree.map(lambda array, bin=run.bin: array[bin], scheduler.estimates)
        seen = [np.concatenate(scheduler.seen[run.bin])] if run.bin in scheduler.seen else []
        kept |= as_part({**of_run(run), **of_tree(estimate, "estimate"), **of_tree(seen, "seen")}, f"run/{slot}")
    return kept


def put_back(scheduler: Scheduler, results: Sequence[Arrays], snapshot: Arrays) -> None:
    """Put every bin back to where it was."""
    for arrays in results:
        if "bins" in arrays:
            put_draws(scheduler.draws, arrays)
    if snapshot:
        _put_at_work(scheduler, snapshot)
    else:
        scheduler.waiting.clear()
        scheduler.retired = scheduler.bins.count
    diverging = scheduler.draws.stats.get("diverging", np.zeros((scheduler.bins.count, 0, 0)))
    scheduler.divergent = diverging.sum(axis=(1, 2)).astype(int)


def _put_at_work(scheduler: Scheduler, snapshot: Arrays) -> None:
    """Put the bins back that wait or have a slot."""
    put_draws(scheduler.draws, part_of(snapshot, "draws"))
    waiting = set(snapshot["waiting"].tolist())
    scheduler.waiting = deque(run for run in scheduler.waiting if run.bin in waiting)
    scheduler.retired, scheduler.worst_rhat = int(snapshot["retired"]), float(snapshot["worst_rhat"])
    for slot, arrays in numbered(snapshot, "run", snapshot["slots"]):
        put_run(run := Run(0), arrays)
        leaves = part_of(arrays, "estimate").values()
        for whole, part in zip(jax.tree.leaves(scheduler.estimates), leaves, strict=True):
            whole[run.bin] = part
        if seen := list(part_of(arrays, "seen").values()):
            scheduler.seen[run.bin] = seen
        scheduler.runs[slot] = run
        scheduler.slots.put(slot, scheduler.chains_of(run))
    scheduler.slots.resume(tree_of(snapshot, "states", scheduler.slots.states[0]), snapshot["fresh"])

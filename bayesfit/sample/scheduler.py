"""All lanes of all bins, by target: a bin's lanes run until its worst parameter has the wanted R-hat and effective
sample size, and then make room for the next bin's.

The host drives the devices in chunks. After each it takes in the draws that were made, looks at the bins that have
enough of them, retires, continues or readapts these, and fills the free lanes from the queue. Kept draws are always
`draws` a chain: where these do not suffice the chain goes on to twice its length, of which every second one is kept,
and so on. Nothing that a bin's chains do depends on when they are looked at.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache, partial

import jax
import numpy as np

from bayesfit.compute.devices import Spread, devices_for, gather, named, place, take
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.chains import KNOWN, Lane, advance, standing, tree_depth
from bayesfit.sample.draws import STATS, Draws, Look, Schedule
from bayesfit.sample.modes import held
from bayesfit.sample.starts import Estimate, readapt

CHAINS_PER_DEVICE = 64
# Attempt by attempt, that of bins whose survey tells the whole last: transitions of a chain after which a bin begins
# again or ends, and the least acceptance rate that the step size aims at.
PATIENCE = 400, 800, 800, 1_600, 1_600, 8_000, 32_000
CAREFUL = 0.0, 0.9, 0.9, 0.95, 0.95, 0.98, 0.98
LAST = KNOWN - 1  # of the attempts that may begin again


@dataclass
class Flight:
    """One bin on its way, `attempt` by attempt from the `first`: `rows` holds, for each chain, tables (transition,
    column) of what was drawn, and `counts` how many transitions these have; `seen`, where the survey recalls some, are
    positions z (any, param) of it and of earlier attempts."""

    bin: int
    thin: int = 1
    first: int = 0
    attempt: int = 0
    rows: list[list[np.ndarray]] = field(default_factory=list)
    counts: np.ndarray = field(default_factory=lambda: np.zeros(1, int))
    seen: list[np.ndarray] = field(default_factory=list)

    @property
    def made(self) -> int:
        """Transitions that every chain has made."""
        return int(self.counts.min())

    def kept(self, schedule: Schedule) -> np.ndarray:
        """Every `thin`-th transition after the warm-up, at most `draws` a chain; (chain, draw, column)."""
        end = schedule.warmup + schedule.draws * self.thin
        chosen = slice(schedule.warmup + self.thin - 1, min(end, self.made), self.thin)
        return np.stack([np.concatenate(rows)[chosen] for rows in self.rows])

    def ready(self, schedule: Schedule) -> bool:
        """Whether every chain has all the draws that are to be kept."""
        return self.made >= schedule.warmup + schedule.draws * self.thin


@lru_cache(maxsize=32)
def _advancing(posterior: Posterior) -> Spread:
    return Spread(partial(advance, posterior), named("advance", posterior.identity))


def seats_per_device(chains: int) -> int:
    """How many bins run side by side on one device."""
    return CHAINS_PER_DEVICE // chains


def start_compiling(posterior: Posterior, bins: Bin, estimates: Estimate, schedule: Schedule) -> None:
    """Begin to compile in the background; `estimates` has the shapes of one bin's."""
    count = len(bins.y)
    blank = jax.tree.map(lambda leaf: np.zeros((count, *np.shape(leaf))), estimates)
    Sampling(posterior, bins, blank, np.zeros((count, 2), np.uint32), schedule)


def sample_bins(
    posterior: Posterior,
    bins: Bin,
    estimates: Estimate,
    keys: np.ndarray,
    schedule: Schedule,
    report: Report,
    stop: Stop,
) -> Draws:
    """Draws of all bins (leading axis of `bins`, `estimates` and `keys`)."""
    work = Sampling(posterior, bins, estimates, keys, schedule)
    started = time.monotonic()
    while not stop.asked and work.fill():
        work.take_in(*work.advance())
        work.settle()
        report(work.progress(time.monotonic() - started))
    work.store([flight for _, flight in work.seated() if not work.draws.done[flight.bin]])
    return work.draws


class Sampling:
    """The bins of a dataset on their way: those that wait, those that have a seat, and the draws of those looked at.

    A seat is one lane for each chain, side by side on one device.
    """

    def __init__(
        self, posterior: Posterior, bins: Bin, estimates: Estimate, keys: np.ndarray, schedule: Schedule
    ) -> None:
        count, chains = len(bins.y), schedule.chains
        self.posterior, self.bins, self.schedule = posterior, bins, schedule
        self.estimates: Estimate = jax.tree.map(np.array, estimates)
        self.keys = keys
        self.advancing = _advancing(posterior)
        first = np.where(self.estimates.known > 0, KNOWN, 0).tolist()
        self.waiting = deque(Flight(bin, first=number, attempt=number) for bin, number in enumerate(first))
        per_device = seats_per_device(chains)
        self.devices = devices_for(count, per_device)
        corner = np.arange(self.devices)[:, None] * CHAINS_PER_DEVICE + np.arange(per_device) * chains
        self.slots = corner.reshape(-1, 1) + np.arange(chains)  # (seat, chain): the place of its lane
        self.seats: list[Flight | None] = [None] * len(self.slots)
        nobody = np.zeros(self.devices * CHAINS_PER_DEVICE, int)
        self.host = self._lanes(nobody, 0, nobody)
        self.lanes, self.walks = place(self.host, self.devices), place(standing(self.host), self.devices)
        self.fresh = np.zeros(self.devices * CHAINS_PER_DEVICE, bool)
        self.inferred = (*posterior.names, *posterior.marginal)
        arguments = self.lanes, self.walks, place(self.fresh, self.devices)
        _, left = self.advancing.start(*arguments).shapes(*arguments)
        self.values = tuple(left.values)
        self.nothing = np.zeros((0, len(posterior.names) + len(STATS) + len(self.values)))
        self.draws = Draws.none_of(count)
        self.looks: dict[int, Look] = {}  # by bin, at the draws that are kept of it
        self.divergent = np.zeros(count, int)  # kept draws of each bin
        self.retired, self.worst_rhat = 0, 1.0

    def _lanes(self, bin: np.ndarray, attempt: int, chain: np.ndarray) -> Lane:
        """The lanes of these chains of these bins."""
        return Lane(
            take(self.bins, bin),
            self.estimates.center[bin],
            self.estimates.frame[bin],
            self.estimates.starts[bin, chain],
            take(self.estimates.proposals, bin),
            self.keys[bin],
            chain.astype(np.int32),
            np.full(bin.size, attempt, np.int32),
            np.full(bin.size, self.schedule.warmup, np.int32),
            np.full(bin.size, max(self.schedule.target_accept, CAREFUL[attempt])),
            np.full(bin.size, tree_depth(attempt)),
        )

    def fill(self) -> bool:
        """Give the free seats to the bins that wait; whether anyone is seated then."""
        for seat, flight in enumerate(self.seats):
            if flight is None and self.waiting:
                self._seat(seat, self.waiting.popleft())
        if self.fresh.any():
            self.lanes = place(self.host, self.devices)
        return bool(self.seated())

    def seated(self) -> list[tuple[int, Flight]]:
        """The seats that are taken, and by whom."""
        return [(seat, flight) for seat, flight in enumerate(self.seats) if flight is not None]

    def _seat(self, seat: int, flight: Flight) -> None:
        """Start a bin's chains in this seat."""
        chains = np.arange(self.schedule.chains)
        self.seats[seat], flight.thin, flight.rows = flight, 1, [[self.nothing] for _ in chains]
        flight.counts = np.zeros(chains.size, int)
        lanes = self._lanes(np.full(chains.size, flight.bin), flight.attempt, chains)
        for whole, part in zip(jax.tree.leaves(self.host), jax.tree.leaves(lanes), strict=True):
            whole[self.slots[seat]] = part
        self.fresh[self.slots[seat]] = True

    def advance(self) -> tuple[np.ndarray, np.ndarray]:
        """One chunk: a table (slot, round, column) of what each round left, and whether it did at all (slot, round).
        The columns are positions, statistics and values."""
        advanced = self.advancing(self.lanes, self.walks, place(self.fresh, self.devices))
        self.fresh[:] = False
        self.walks = [walk for walk, _ in advanced]
        left = gather([transition for _, transition in advanced])
        columns = [getattr(left, name) for name in STATS] + [left.values[name] for name in self.values]
        return np.concatenate([left.u, *(column[..., None] for column in columns)], axis=-1), left.made

    def take_in(self, table: np.ndarray, made: np.ndarray) -> None:
        """Give every seated bin the transitions that its chains have ended."""
        for seat, flight in self.seated():
            for rows, slot in zip(flight.rows, self.slots[seat], strict=True):
                rows.append(table[slot][made[slot]])
            flight.counts += made[self.slots[seat]].sum(axis=1)

    def settle(self) -> None:
        """Look at the bins that have all their draws. Those that meet the target, or have used up their means, leave
        their seats. The others go on for longer; where that has not helped, or trajectories diverge, they begin again
        with shorter steps, and with a frame and global moves made of their draws. Where the survey knew all, the first
        attempt is the last: to leave out draws in which chains stuck is to prefer those that saw no narrow places."""
        ready = [(seat, flight) for seat, flight in self.seated() if flight.ready(self.schedule)]
        looks = self.store([flight for _, flight in ready])
        for (seat, flight), look in zip(ready, looks, strict=True):
            last = flight.attempt >= LAST
            transitions = self.schedule.draws * flight.thin
            hopeless = not np.isfinite(self.draws.stats["potential"][flight.bin]).any()
            reached = look.reaches(self.schedule.reachable)
            if self.schedule.fixed or hopeless or (reached and (last or look.calm)):
                self._retire(seat)
            elif not last and (not look.calm or transitions >= PATIENCE[flight.attempt]):
                self._readapt(flight)
                self._seat(seat, flight)
            elif 2 * transitions > PATIENCE[max(flight.attempt, LAST)]:
                self._retire(seat)
            else:
                flight.thin *= 2
        seen = [look.convergence[0] for look in looks]
        self.worst_rhat = max((rhat for rhat in seen if rhat == rhat), default=self.worst_rhat)

    def _retire(self, seat: int) -> None:
        self.seats[seat] = None
        self.retired += 1

    def _readapt(self, flight: Flight) -> None:
        """Make a bin's frame, starts and global moves anew from its draws so far, of which none will be kept."""
        u = flight.kept(self.schedule)[..., : len(self.posterior.names)]
        old = jax.tree.map(lambda array: array[flight.bin], self.estimates)
        seen = flight.seen or [old.center + old.seen @ old.frame.T]
        before = np.linalg.solve(old.frame, (np.concatenate(seen) - old.center).T).T
        new = readapt(old, u, before, len(held(self.posterior)))
        if old.seen.size:
            flight.seen = [*seen, old.center + u.reshape(-1, u.shape[-1]) @ old.frame.T]
        for whole, part in zip(jax.tree.leaves(self.estimates), jax.tree.leaves(new), strict=True):
            whole[flight.bin] = part
        flight.attempt += 1

    def store(self, flights: list[Flight]) -> list[Look]:
        """Look at the draws of these bins, and keep them; where they would spoil what was enough before, that stays."""
        looks = []
        for flight in flights:
            columns = np.moveaxis(flight.kept(self.schedule), -1, 0)[len(self.posterior.names) :]
            stats = dict(zip(STATS, columns, strict=False))
            values = dict(zip(self.values, columns[len(STATS) :], strict=True))
            inferred = np.stack([values[name] for name in self.inferred])
            looks.append(Look.at(inferred, stats, 2 ** tree_depth(flight.attempt) - 1, flight.attempt >= LAST))
            if not looks[-1].spoils(self.looks.get(flight.bin)):
                self.looks[flight.bin] = looks[-1]
                self.draws.put(flight.bin, values, stats, self.schedule.draws)
                self._note(flight, looks[-1])
        return looks

    def _note(self, flight: Flight, look: Look) -> None:
        """How the draws that are kept of a bin were made, and how far they have converged."""
        bin, draws = flight.bin, self.draws
        draws.thin[bin], draws.adaptations[bin] = flight.thin, 1 + flight.attempt - flight.first
        draws.tree_depth[bin], draws.convergence[bin] = tree_depth(flight.attempt), look.convergence
        self.divergent[bin] = draws.stats["diverging"][bin].sum()

    def progress(self, seconds: float) -> Progress:
        """How far the work is after so many seconds."""
        schedule, bins = self.schedule, len(self.bins.y)
        made = [flight.made - schedule.warmup for _, flight in self.seated()]
        draws = [int(np.clip(count, 0, schedule.draws)) for count in made]
        share = (self.retired + sum(draws) / schedule.draws) / bins
        return Progress(
            "sample",
            bins,
            bins_done=self.retired,
            draws_done=min(draws, default=schedule.draws),
            draws=schedule.draws,
            worst_rhat=self.worst_rhat,
            divergences=int(self.divergent.sum()),
            seconds_left=seconds * (1.0 / share - 1.0) if share > 0 else float("nan"),
            share=share,
        )

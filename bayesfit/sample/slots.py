"""Slots: places of all chains of one bin, side by side on one device, in which bins take turns (see `scheduler.py`)."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from bayesfit.compute.devices import Spread, gather, named, place
from bayesfit.compute.hardware import lanes_per_device
from bayesfit.sample.chains import Chain, advance, blank_states
from bayesfit.sample.draws import STATS
from bayesfit.sample.target import Target


@lru_cache(maxsize=32)
def advancing(target: Target) -> Spread:
    """The program that advances chains."""
    return Spread(partial(advance, target), named("advance", target.identity))


def slots_per_device(chains: int) -> int:
    """How many bins run side by side on one device."""
    return lanes_per_device() // chains


class Slots:
    """The slots of all devices. `host` holds the inputs of the chain in each place, and `fresh` says whether that chain
    is to begin at its start; `chains` and `states` lie on the devices. `of` (slot, chain) are the places of each slot's
    chains."""

    def __init__(self, target: Target, blank: Chain, devices: int, chains: int) -> None:
        per_device = slots_per_device(chains)
        corner = np.arange(devices)[:, None] * lanes_per_device() + np.arange(per_device) * chains
        self.of: Int[np.ndarray, "slot chain"] = corner.reshape(-1, 1) + np.arange(chains)
        program = advancing(target)
        self.program, self.devices, self.host = program, devices, blank
        self.fresh = np.zeros(devices * lanes_per_device(), bool)
        self.chains, self.states = place(blank, devices), place(blank_states(target, blank), devices)
        arguments = self.chains, self.states, place(self.fresh, devices)
        _, left = program.start(*arguments).shapes(*arguments)
        self.values = tuple(left.values)

    def put(self, slot: int, chains: Chain) -> None:
        """Put these chains into a slot, at their starts."""
        for whole, part in zip(jax.tree.leaves(self.host), jax.tree.leaves(chains), strict=True):
            whole[self.of[slot]] = part
        self.fresh[self.of[slot]] = True

    def send(self) -> None:
        """Send chains that were put into slots to the devices."""
        if self.fresh.any():
            self.chains = place(self.host, self.devices)

    def resume(self, states: PyTree, fresh: Bool[np.ndarray, " place"]) -> None:
        """Go on with these states of the chains that were put into slots; those that are `fresh` begin."""
        self.chains, self.states = place(self.host, self.devices), place(states, self.devices)
        self.fresh[:] = fresh

    def advance(self) -> Left:
        """Advance all chains by a chunk."""
        advanced = self.program(self.chains, self.states, place(self.fresh, self.devices))
        self.fresh[:] = False
        self.states = [state for state, _ in advanced]
        left = gather([transition for _, transition in advanced])
        columns = [getattr(left, name) for name in STATS] + [left.values[name] for name in self.values]
        made, size = left.made, left.u.shape[-1]
        table = np.empty((np.count_nonzero(made), size + len(columns)))
        table[:, :size] = left.u[made]
        for number, column in enumerate(columns, size):
            table[:, number] = column[made]
        return Left(table, np.cumsum(made.sum(axis=1)))


class Left(NamedTuple):
    """The transitions that chains have ended in a chunk, one chain after the other: columns of positions, statistics
    and values; and where those of the chain in each place end."""

    table: Float[np.ndarray, "transition column"]
    ends: Int[np.ndarray, " place"]

    def of_chains(self, places: Int[np.ndarray, " chain"]) -> list[Float[np.ndarray, "transition column"]]:
        """Those of the chains in these places, one after the other, which hold no memory of other chains'."""
        first = self.ends[places[0] - 1] if places[0] else 0
        own, ends = self.table[first : self.ends[places[-1]]].copy(), self.ends[places] - first
        return [own[begin:end] for begin, end in pairwise([0, *ends.tolist()])]

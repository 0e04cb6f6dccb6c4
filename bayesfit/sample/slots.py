"""Slots: places of all chains of one bin, side by side on one device, in which bins take turns (see `scheduler.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from bayesfit.compute.devices import Spread, gather, give, named, place
from bayesfit.compute.hardware import lanes_per_device, lanes_together
from bayesfit.compute.rows import Layout, Tables
from bayesfit.sample.chains import Chain, Transition, advance, begin
from bayesfit.sample.draws import STATS
from bayesfit.sample.target import Target


class Layouts(NamedTuple):
    """How tables hold the inputs and the states of chains."""

    chains: Layout
    states: Layout


@lru_cache(maxsize=32)
def layouts_for(target: Target, chains: Layout) -> Layouts:
    """The layouts for chains whose inputs have this one."""
    states = jax.eval_shape(jax.vmap(partial(begin, target)), chains.arrays(chains.blank(1)))
    return Layouts(chains, Layout.of(states))


@lru_cache(maxsize=32)
def advancing(target: Target, layouts: Layouts) -> Spread:
    """The program that advances the chains of the first groups of a device's places."""
    width = lanes_together()
    role = f"advance {width} together, {layouts.chains}, {layouts.states}"
    return Spread(partial(_groups, target, layouts, width), named(role, target.identity), each=False)


def _groups(target: Target, layouts: Layouts, width: int, *arguments: PyTree) -> tuple[Tables, Transition]:
    """Advance the chains in some groups of `width` places by a chunk, one group after the other; the states of all
    others stay as they are, and nothing is made there. The arguments are the tables of all inputs and of all states,
    which chains are `fresh`, and the number of groups."""
    *of_chains, count = arguments

    @partial(jax.jit, inline=True)  # so that it is traced once
    def of_group(chains: Tables, states: Tables, fresh: Array) -> tuple[Tables, Transition]:
        own = layouts.chains.arrays(chains), layouts.states.arrays(states), fresh
        after, left = jax.vmap(partial(advance, target))(*own)
        return layouts.states.tables(after), left

    def one(group: Array, made: PyTree) -> PyTree:
        own = jax.tree.map(lambda all: jax.lax.dynamic_slice_in_dim(all, group * width, width), of_chains)
        new = of_group(*own)
        return jax.tree.map(lambda all, own: jax.lax.dynamic_update_slice_in_dim(all, own, group * width, 0), made, new)

    _, states, _ = of_chains
    left = jax.eval_shape(of_group, *of_chains)[1]
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), left)
    return jax.lax.fori_loop(0, count[0], one, (states, nothing))


def slots_per_group(chains: int) -> int:
    """How many bins are advanced together."""
    return max(1, lanes_together() // chains)


class Slots:
    """The slots of all devices. `host` holds the inputs of the chain in each place, in tables, and `fresh` says whether
    that chain is to begin at its start; tables of `chains` and of `states` lie on the devices. `of` (slot, chain) are
    the places of each slot's chains. `order` holds the slots in the order in which they are to be taken: first those of
    the first group of each device, since a group costs the same whether one or all of its places are busy."""

    def __init__(self, target: Target, blank: Chain, devices: int, chains: int) -> None:
        self.lanes, self.together = lanes_per_device(), lanes_together()
        corner = np.arange(devices)[:, None] * self.lanes + np.arange(self.lanes // chains) * chains
        self.of: Int[np.ndarray, "slot chain"] = corner.reshape(-1, 1) + np.arange(chains)
        self._device, last = np.divmod(self.of[:, -1], self.lanes)
        self._group = last // self.together
        self.order: list[int] = np.lexsort((self.of[:, 0], self._device, self._group)).tolist()
        self.layouts = layouts_for(target, Layout.of(blank))
        self.program, self.devices = advancing(target, self.layouts), devices
        self.host, self.fresh = self.layouts.chains.tables(blank), np.zeros(devices * self.lanes, bool)
        states = self.layouts.states.blank(len(self.fresh))
        self.chains, self.states = place(self.host, devices), place(states, devices)
        arguments = self.chains, self.states, place(self.fresh, devices), place(self.groups([]), devices)
        _, left = self.program.start(*arguments).shapes(*arguments)
        self.values = tuple(left.values)

    def groups(self, busy: Sequence[int]) -> Int[np.ndarray, " device"]:
        """How many groups of each device must be advanced so that all these slots are."""
        found = np.zeros(self.devices, np.int32)
        np.maximum.at(found, self._device[busy], self._group[busy] + 1)
        return found

    def move(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Move all chains of slots to other slots."""
        old, new = self.of[before].ravel(), self.of[after].ravel()
        states = gather(self.states)
        for array in (*self.host.values(), *states.values(), self.fresh):
            array[new] = array[old]
        self.chains, self.states = place(self.host, self.devices), place(states, self.devices)

    def put(self, slot: int, chains: Chain) -> None:
        """Put these chains into a slot, at their starts."""
        for name, table in self.layouts.chains.tables(chains).items():
            self.host[name][self.of[slot]] = table
        self.fresh[self.of[slot]] = True

    def send(self) -> None:
        """Send chains that were put into slots to the devices."""
        if self.fresh.any():
            self.chains = place(self.host, self.devices)

    def resume(self, states: Tables, fresh: Bool[np.ndarray, " place"]) -> None:
        """Go on with these states of the chains that were put into slots; those that are `fresh` begin."""
        self.chains, self.states = place(self.host, self.devices), place(states, self.devices)
        self.fresh[:] = fresh

    def advance(self, busy: Sequence[int]) -> Left:
        """Advance the chains in busy slots by a chunk."""
        arguments = (give(array, self.devices) for array in (self.fresh, self.groups(busy)))
        advanced = self.program(self.chains, self.states, *arguments)
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

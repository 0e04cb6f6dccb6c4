"""Products of pixels of which few see a photon: only photons take part, sorted by pixel and time."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from bayesfit.correlation import compiled
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.photons import Photons
from bayesfit.correlation.states import Arrays, parts, within

LATEST = 32  # bits that hold any time
PARTS = 4  # of the detector, whose photons are multiplied side by side


class PhotonChecks:
    """Says which photons are no numbers; `block` is that of each pixel, -1 where it is not used."""

    block: Int[np.ndarray, " pixel"]

    def unusable(self, photons: Photons) -> Bool[np.ndarray, " frame"]:
        """The frames in which a pixel of some block holds no number of photons."""
        found, bad = np.zeros(photons.frames, bool), np.flatnonzero(_no_number(photons.number))
        found[photons.frame[bad[self.block[photons.pixel[bad]] >= 0]]] = True
        return found

    def fault(self, photons: Photons) -> int:
        """The first used pixel of the photons of a frame that holds no number of photons."""
        return int(photons.pixel[_no_number(photons.number) & (self.block[photons.pixel] >= 0)].min())


class Sparse(PhotonChecks):
    """Takes in photons. `squares` (block, tau), once it has finished: sums of the squares of each pixel's products."""

    squares: np.ndarray | None = None

    def __init__(self, blocks: Blocks, per_level: int) -> None:
        self.blocks, self.per_level = blocks, per_level
        self.block = np.full(blocks.detector, -1)
        self.block[blocks.places] = blocks.of_pixels
        self.place = np.full(blocks.detector, -1)
        self.place[blocks.places] = np.arange(blocks.places.size)
        self.edges = np.linspace(0, blocks.detector, PARTS + 1).astype(int)
        self.levels: list[list[SparseLevel]] = [[] for _ in range(PARTS)]
        self.taken, self.pool = 0, ThreadPoolExecutor(os.cpu_count())

    def take(
        self, photons: Photons, whole: Bool[np.ndarray, " frame"]
    ) -> tuple[Float[np.ndarray, "frame block"], Float[np.ndarray, " pixel"]]:
        """Take photons in, of which those in frames that are not `whole` are left out; the sums over each block, and
        those over all frames of each pixel."""
        used = (self.block[photons.pixel] >= 0) & whole[photons.frame] & (photons.number > 0)
        frame, pixel, count = photons.frame[used], photons.pixel[used], photons.number[used].astype(float)
        blocks = self.blocks.pixels.size
        place = frame * blocks + self.block[pixel]
        sums = np.bincount(place, count, photons.frames * blocks).reshape(photons.frames, blocks)
        image = np.bincount(pixel, count, self.blocks.detector)
        events = Events(pixel, frame + self.taken, count)
        if compiled.available:
            order = compiled.order_by_pixel(pixel, self.blocks.detector)
            events = Events(*(each[order] for each in events))
        else:
            events = events.sorted()
        self.taken += photons.frames
        places = np.searchsorted(events.pixel, self.edges)
        parts = [Events(*(each[first:end] for each in events)) for first, end in itertools.pairwise(places)]
        list(self.pool.map(self._pass, self.levels, parts))
        return sums, image

    def _pass(self, levels: list[SparseLevel], events: Events) -> None:
        """The events of one part through all its levels, up to the frame that was taken last."""
        end, number = self.taken, 0
        while end > 0:
            if number == len(levels):
                levels.append(self._level(number))
            events, end = levels[number].take(events, end), end // 2
            number += 1

    def _level(self, number: int) -> SparseLevel:
        return SparseLevel(own_delays(number, self.per_level), self.place, self.blocks.places.size)

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        each = (within(level.state() for level in levels) for levels in self.levels)
        return {"taken": np.array(self.taken)} | within(each)

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.taken = int(state["taken"])
        for levels, part in zip(self.levels, parts(state), strict=True):
            for number, own in enumerate(parts(part)):
                levels.append(self._level(number))
                levels[-1].restore(own)

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        found = [np.concatenate([level.products for level in levels], axis=-1) for levels in self.levels]
        by_pixel, starts = np.sum(found, axis=0), self.blocks.starts
        self.squares = np.add.reduceat(by_pixel**2, starts, axis=0)
        return np.add.reduceat(by_pixel, starts, axis=0)


def _no_number(number: Num[np.ndarray, " event"]) -> Bool[np.ndarray, " event"]:
    """Where it is negative, not finite, or the largest of its type."""
    if np.issubdtype(number.dtype, np.integer):
        return (number < 0) | (number == np.iinfo(number.dtype).max)
    return ~(np.isfinite(number) & (number >= 0))


class Events(NamedTuple):
    """Photons sorted by pixel, and then by time in sums of frames; arrays (event,)."""

    pixel: Int[np.ndarray, " event"]
    time: Int[np.ndarray, " event"]
    number: Float[np.ndarray, " event"]

    def where(self, wanted: Bool[np.ndarray, " event"]) -> Events:
        """Those that are wanted."""
        return Events(*(each[wanted] for each in self))

    def and_(self, others: Events) -> Events:
        """With others, sorted."""
        return Events(*(np.concatenate(pair) for pair in zip(self, others, strict=True))).sorted()

    def sorted(self) -> Events:
        """By pixel, and then by time."""
        order = np.argsort((self.pixel << LATEST) + self.time, kind="stable")
        return Events(*(each[order] for each in self))

    def halved(self) -> Events:
        """In sums of twice as many frames."""
        time = self.time // 2
        first = np.ones(time.size, bool)
        first[1:] = (np.diff(self.pixel) != 0) | (np.diff(time) != 0)
        if not time.size:
            return self
        return Events(self.pixel[first], time[first], np.add.reduceat(self.number, np.flatnonzero(first)))


class SparseLevel:
    """One level: the last events, the time up to which they were multiplied, and the products so far (row, delay), of
    which each pixel has a `row`."""

    def __init__(self, delays: range, row: Int[np.ndarray, " pixel"], rows: int) -> None:
        self.delays, self.row, self.end = delays, row, 0
        self.products = np.zeros((rows, len(delays)))
        self.last = Events(np.zeros(0, int), np.zeros(0, int), np.zeros(0))

    def take(self, new: Events, end: int) -> Events:
        """Take events in, up to the time `end`; give back those that are ready for the next level."""
        events = self.last.and_(new)
        self._multiply(events)
        ready = (events.time >= self.end // 2 * 2) & (events.time < end // 2 * 2)
        self.last = events.where(events.time >= end - self.delays.stop)
        self.end = end
        return events.where(ready).halved()

    def state(self) -> Arrays:
        """All that a level of the same kind needs to go on from here."""
        return {**self.last._asdict(), "end": np.array(self.end), "products": self.products}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.last = Events(*(state[name] for name in Events._fields))
        self.end, self.products = int(state["end"]), state["products"]

    def _multiply(self, events: Events) -> None:
        """Add the products of new events with all earlier ones of their pixels that are near enough: of each event with
        the next one, with that after it, and so on, as long as any are."""
        early, step = np.arange(events.time.size), 0
        while early.size:
            step += 1
            early = early[early + step < events.time.size]
            late = early + step
            delay = events.time[late] - events.time[early]
            near = (events.pixel[late] == events.pixel[early]) & (delay < self.delays.stop)
            early = early[near]
            self._add_products(events, early, early + step)

    def _add_products(self, events: Events, early: Int[np.ndarray, " pair"], late: Int[np.ndarray, " pair"]) -> None:
        """Add the products of pairs, those at delays of this level that are new."""
        delay = events.time[late] - events.time[early]
        counted = (delay >= self.delays.start) & (events.time[late] >= self.end)
        early, late = early[counted], late[counted]
        place = self.row[events.pixel[early]], delay[counted] - self.delays.start
        np.add.at(self.products, place, events.number[early] * events.number[late])

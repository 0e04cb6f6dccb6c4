"""Sums over blocks of time, of those bins that have too few pixels for blocks of pixels.

Time is cut into blocks of 2^m frames, with m such that there are more than `WANTED` / 2 of them and at most `WANTED`; while
frames come, m grows, and blocks are put together two by two. A pair belongs to the block in which its late sum begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.levels import Levels
from bayesfit.correlation.photons import Photons
from bayesfit.correlation.states import Arrays, parts, within

WANTED = 32  # blocks of time, at most
LONGER = 16  # times more frames are multiplied at a time than otherwise


class ByTime(NamedTuple):
    """Sums over pairs of frames whose late one is in a block of time. `pairs` (block, bin, tau): products of each pixel
    with itself, in these dynamic `bins`; `means` (3, block, static, tau): S w', w S' and S S' of static bins, S being
    the photons of a sum of frames and w how many frames that is of, each in one of these bins by number, `of_static`,
    and of so many pixels, `size`; `weights` (block, tau): w w'. Over the frames of a block: `photons` (block, static),
    and how many `frames` (block,)."""

    bins: Int[np.ndarray, " bin"]
    of_static: Int[np.ndarray, " static"]
    size: Float[np.ndarray, " static"]
    pairs: Float[np.ndarray, "block bin tau"]
    means: Float[np.ndarray, "3 block static tau"]
    weights: Float[np.ndarray, "block tau"]
    photons: Float[np.ndarray, "block static"]
    frames: Float[np.ndarray, " block"]


class TimeSums:
    """Takes in frames in order, and sums up those pixels that are in dynamic `bins` of few blocks of pixels."""

    def __init__(self, blocks: Blocks, per_level: int, bins: Int[np.ndarray, " bin"]) -> None:
        self.bins, own = bins, np.isin(blocks.dynamic, bins)[blocks.of_pixels]
        self.places = blocks.places[own]
        static, dynamic = blocks.static[blocks.of_pixels][own], blocks.dynamic[blocks.of_pixels][own]
        firsts = np.flatnonzero(np.diff(static, prepend=-1))
        self.static, self.size = np.cumsum(np.diff(static, prepend=-1) != 0) - 1, np.diff(firsts, append=static.size)
        self.bin = np.searchsorted(bins, dynamic)
        self.levels = TimeLevels(self.places.size, per_level, self.bin, self.static)

    def take(self, chunk: Any, whole: Bool[np.ndarray, " frame"]) -> None:
        """Take frames in, or the photons of some, of which those that are not `whole` are missing."""
        if isinstance(chunk, Photons):
            column = np.full(int(max(self.places.max(), chunk.pixel.max(initial=0))) + 1, -1)
            column[self.places] = np.arange(self.places.size)
            own = column[chunk.pixel] >= 0
            series = np.zeros((chunk.frames, self.places.size))
            np.add.at(series, (chunk.frame[own], column[chunk.pixel[own]]), chunk.number[own])
        else:
            series = chunk[:, self.places]
        series = np.where(whole[:, None], series, 0).astype(float)
        starts = np.flatnonzero(np.diff(self.static, prepend=-1))
        self.levels.take(np.column_stack([series, np.add.reduceat(series, starts, axis=1), whole]))

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        return self.levels.state()

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.levels.restore(state)

    def finish(self) -> ByTime:
        """The sums, when all frames have been taken in."""
        sums, frames = self.levels.finish_blocks()
        static, count = self.size.size, self.bins.size
        means = np.moveaxis(sums[:, count:-1].reshape(len(sums), 3, static, -1), 1, 0)
        of_static = self.bin[np.flatnonzero(np.diff(self.static, prepend=-1))]
        own, photons = (self.bins, of_static, self.size.astype(float)), frames[:, self.places.size : -1]
        return ByTime(*own, sums[:, :count], means, sums[:, -1], photons, frames[:, -1])


class TimeLevel:
    """The `sums` of a level by number of their block (column, delay), and how many sums of frames were `taken`."""

    def __init__(self, whole: TimeLevels, level: int, delays: range) -> None:
        self.whole, self.level, self.delays, self.taken = whole, level, delays, 0
        self.sums: dict[int, np.ndarray] = {}

    def __call__(self, frames: Float[np.ndarray, "frame column"]) -> np.ndarray:
        """Multiply new frames with those before them, as `Level` asks for. The sums stay here; none is given back."""
        window = self.delays.stop - 1
        number = ((self.taken + np.arange(len(frames) - window)) << self.level) >> self.whole.length
        self.taken += number.size
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        late = frames[window:]
        found = [self.whole.products(frames[window - k : len(frames) - k], late, starts) for k in self.delays]
        for place, sums in zip(number[starts].tolist(), np.stack(found, axis=-1), strict=True):
            self.sums[place] = self.sums.get(place, 0.0) + sums
        return np.zeros(1)


class TimeLevels(Levels):
    """Levels of columns: pixels, static bins, and which frames are whole. `length` is log2 of the frames of a block."""

    def __init__(self, pixels: int, per_level: int, bins: np.ndarray, static: np.ndarray) -> None:
        self.pixels, self.bins, statics = pixels, bins, int(static.max(initial=-1)) + 1
        self.length, self.taken, self.by_time = 0, 0, list[TimeLevel]()
        self.frame_sums: dict[int, np.ndarray] = {}
        super().__init__(per_level, np.zeros(pixels + statics + 1), self._of_level, LONGER)

    def _of_level(self, first: int, window: int) -> TimeLevel:
        self.by_time.append(TimeLevel(self, len(self.by_time), range(first, window + 1)))
        return self.by_time[-1]

    def take(self, frames: np.ndarray, number: int = 0) -> None:
        """Take frames in, or sums of them that are ready for the level of this number."""
        if number == 0:
            block = (self.taken + np.arange(len(frames))) >> self.length
            starts = np.flatnonzero(np.diff(block, prepend=-1))
            for place, sums in zip(block[starts].tolist(), np.add.reduceat(frames, starts), strict=True):
                self.frame_sums[place] = self.frame_sums.get(place, 0.0) + sums
            self.taken += len(frames)
        super().take(frames, number)
        while number == 0 and self.taken > WANTED << self.length:
            self._halve()

    def products(self, early: np.ndarray, late: np.ndarray, starts: np.ndarray) -> Float[np.ndarray, "block column"]:
        """Products of early and late frames, summed over the frames of each block, and over the pixels of each bin."""
        pixels, w_early, w_late = self.pixels, early[:, -1:], late[:, -1:]
        by_pixel = np.add.reduceat(early[:, :pixels] * late[:, :pixels], starts)
        order = np.argsort(self.bins, kind="stable")
        firsts = np.flatnonzero(np.diff(self.bins[order], prepend=-1))
        s_early, s_late = early[:, pixels:-1], late[:, pixels:-1]
        means = np.hstack([s_early * w_late, s_late * w_early, s_early * s_late, w_early * w_late])
        return np.hstack([np.add.reduceat(by_pixel[:, order], firsts, axis=1), np.add.reduceat(means, starts)])

    def finish_blocks(self) -> tuple[Float[np.ndarray, "block column tau"], Float[np.ndarray, "block column"]]:
        """The sums of all blocks and levels, and those of frames, when all frames have been taken in."""
        for number, level in enumerate(self.levels):
            self.take(level.finish(), number + 1)
        frames = _of_blocks(self.frame_sums, -(-self.taken // 2**self.length))
        return np.concatenate([_of_blocks(each.sums, len(frames)) for each in self.by_time], axis=-1), frames

    def _halve(self) -> None:
        """Put blocks together two by two."""
        self.length += 1
        self.frame_sums = _together(self.frame_sums)
        for each in self.by_time:
            each.sums = _together(each.sums)

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        own = {"length": np.array(self.length), "taken": np.array(self.taken)}
        each = ({"taken": np.array(level.taken)} | _named(level.sums) for level in self.by_time)
        return super().state() | own | within(each, "time") | within([_named(self.frame_sums)], "sums")

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        super().restore({name: array for name, array in state.items() if not name.startswith(("time", "sums"))})
        self.length, self.taken = int(state["length"]), int(state["taken"])
        self.frame_sums = _numbered(parts(state, "sums")[0])
        for level, own in zip(self.by_time, parts(state, "time"), strict=True):
            level.taken, level.sums = int(own.pop("taken")), _numbered(own)


def _together(sums: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    found: dict[int, np.ndarray] = {}
    for number, array in sums.items():
        found[number // 2] = found.get(number // 2, 0.0) + array
    return found


def _of_blocks(sums: dict[int, np.ndarray], count: int) -> np.ndarray:
    """Those of so many blocks; later ones hold nothing."""
    found = np.zeros((count, *next(iter(sums.values())).shape))
    for number, array in sums.items():
        if number < count:
            found[number] = array
    return found


def _named(sums: dict[int, np.ndarray]) -> Arrays:
    return {str(number): array for number, array in sums.items()}


def _numbered(arrays: Arrays) -> dict[int, np.ndarray]:
    return {int(name): array for name, array in arrays.items()}

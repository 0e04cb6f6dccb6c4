"""Sums over blocks of time, of those bins that have too few pixels for blocks of pixels.

Time is cut into blocks of 2^m frames, with m such that there are more than `WANTED` / 2 of them and at most `WANTED`;
while frames come, m grows, and blocks are put together two by two. A pair belongs to the block in which its late sum of
frames begins.
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
BY_DELAY = "pairs", "means", "weights", "early", "early_weights"
LONGER = 16  # times more frames are multiplied at a time than otherwise


class ByTime(NamedTuple):
    """Sums over pairs of frames whose late one is in a block of time. `pairs` (block, bin, tau): products of each pixel
    with itself, in these dynamic `bins`; `means` (3, block, static, tau): S w', w S' and S S' of static bins, S being
    the photons of a sum of frames and w how many frames that is of, each in one of these bins by number, `of_static`,
    and of so many pixels, `size`; `weights` (block, tau): w w'. `early` (block, static, tau) and `early_weights`
    (block, tau): S w' and w w' of pairs whose early frame is in the block. Over the frames of a block: `photons`
    (block, static), and how many `frames` (block,)."""

    bins: Int[np.ndarray, " bin"]
    of_static: Int[np.ndarray, " static"]
    size: Float[np.ndarray, " static"]
    pairs: Float[np.ndarray, "block bin tau"]
    means: Float[np.ndarray, "3 block static tau"]
    weights: Float[np.ndarray, "block tau"]
    early: Float[np.ndarray, "block static tau"]
    early_weights: Float[np.ndarray, "block tau"]
    photons: Float[np.ndarray, "block static"]
    frames: Float[np.ndarray, " block"]


class TimeSums:
    """Takes in frames in order, and sums up those pixels that are in dynamic `bins` of few blocks of pixels."""

    def __init__(self, blocks: Blocks, per_level: int, bins: Int[np.ndarray, " bin"]) -> None:
        self.bins, own = bins, np.isin(blocks.dynamic, bins)[blocks.of_pixels]
        self.places = blocks.places[own]
        self.column = np.full(blocks.detector, -1)
        self.column[self.places] = np.arange(self.places.size)
        static, dynamic = blocks.static[blocks.of_pixels][own], blocks.dynamic[blocks.of_pixels][own]
        firsts = np.flatnonzero(np.diff(static, prepend=-1))
        self.static, self.size = np.cumsum(np.diff(static, prepend=-1) != 0) - 1, np.diff(firsts, append=static.size)
        self.bin = np.searchsorted(bins, dynamic)
        self.levels = TimeLevels(self.places.size, per_level, self.bin, self.static)

    def take(self, chunk: Any, whole: Bool[np.ndarray, " frame"]) -> None:
        """Take frames in, or the photons of some, of which those that are not `whole` are missing."""
        if isinstance(chunk, Photons):
            own = self.column[chunk.pixel] >= 0
            series = np.zeros((chunk.frames, self.places.size))
            np.add.at(series, (chunk.frame[own], self.column[chunk.pixel[own]]), chunk.number[own])
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
        late, early = np.split(sums, [self.levels.columns], axis=1)
        means = np.split(late[:, self.bins.size : -1], 3, axis=1)
        of_static = self.bin[np.flatnonzero(np.diff(self.static, prepend=-1))]
        own, photons = (self.bins, of_static, self.size.astype(float)), frames[:, self.places.size : -1]
        by_early = early[:, :-1], early[:, -1]
        return ByTime(*own, late[:, : self.bins.size], np.stack(means), late[:, -1], *by_early, photons, frames[:, -1])


class TimeLevel:
    """The `sums` of a level by number of their block (column, delay), and how many sums of frames were `taken`."""

    def __init__(self, whole: TimeLevels, level: int, delays: range) -> None:
        self.whole, self.level, self.delays, self.taken = whole, level, delays, 0
        self.sums: dict[int, np.ndarray] = {}

    def __call__(self, frames: Float[np.ndarray, "frame column"]) -> np.ndarray:
        """Multiply new frames with those before them, as `Level` asks for. The sums stay here; none is given back."""
        window, whole = self.delays.stop - 1, self.whole
        late = self.taken + np.arange(len(frames) - window)
        self.taken += late.size
        for place, delay in enumerate(self.delays):
            products = whole.products(frames[window - delay : len(frames) - delay], frames[window:])
            self._add(late, products, (slice(whole.columns), place))
            self._add(late - delay, products[:, whole.early], (slice(whole.columns, None), place))
        return np.zeros(1)

    def _add(self, time: np.ndarray, products: np.ndarray, where: tuple[slice, int]) -> None:
        """Add products (time, column) to the sums of the blocks in which these times are; before 0 there is none."""
        first, whole = int(np.searchsorted(time, 0)), self.whole
        number = (time[first:] << self.level) >> whole.length
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        for place, sums in zip(number[starts].tolist(), _sums(products[first:], starts), strict=True):
            own = self.sums.setdefault(place, np.zeros((whole.columns + whole.early.size, len(self.delays))))
            own[where] += sums


class TimeLevels(Levels):
    """Levels of columns: pixels, static bins, and which frames are whole. `length` is log2 of the frames of a block;
    products have as many columns as `columns`, of which the `early` ones are summed by their early frames, too."""

    def __init__(self, pixels: int, per_level: int, bins: np.ndarray, static: np.ndarray) -> None:
        self.pixels, statics = pixels, int(static.max(initial=-1)) + 1
        self.length, self.taken, self.by_time = 0, 0, list[TimeLevel]()
        self.frame_sums: dict[int, np.ndarray] = {}
        self.order = np.argsort(bins, kind="stable")
        self.firsts = np.flatnonzero(np.diff(bins[self.order], prepend=-1))
        self.columns = self.firsts.size + 3 * statics + 1
        self.early = np.append(self.firsts.size + np.arange(statics), self.columns - 1)
        super().__init__(per_level, np.zeros(pixels + statics + 1), self._of_level, LONGER)

    def _of_level(self, first: int, window: int) -> TimeLevel:
        self.by_time.append(TimeLevel(self, len(self.by_time), range(first, window + 1)))
        return self.by_time[-1]

    def take(self, frames: np.ndarray, number: int = 0) -> None:
        """Take frames in, or sums of them that are ready for the level of this number."""
        if number == 0:
            block = (self.taken + np.arange(len(frames))) >> self.length
            starts = np.flatnonzero(np.diff(block, prepend=-1))
            for place, sums in zip(block[starts].tolist(), _sums(frames, starts), strict=True):
                self.frame_sums[place] = self.frame_sums.get(place, 0.0) + sums
            self.taken += len(frames)
        super().take(frames, number)
        while number == 0 and self.taken > WANTED << self.length:
            self._halve()

    def products(self, early: np.ndarray, late: np.ndarray) -> Float[np.ndarray, "frame column"]:
        """Products of early and late frames: of pixels, summed over those of each bin, and of static bins."""
        pixels, w_early, w_late = self.pixels, early[:, -1:], late[:, -1:]
        of_bins = np.add.reduceat((early[:, :pixels] * late[:, :pixels])[:, self.order], self.firsts, axis=1)
        s_early, s_late = early[:, pixels:-1], late[:, pixels:-1]
        return np.hstack([of_bins, s_early * w_late, s_late * w_early, s_early * s_late, w_early * w_late])

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


def _sums(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums over the rows from each start to the next one."""
    return np.add.reduceat(numbers, starts) if starts.size else numbers[:0]


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

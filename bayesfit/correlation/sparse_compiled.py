"""Products of pixels of which few see a photon, and the sums over blocks, by compiled code: many photons at a time."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.correlation import compiled_photons, compiled_pixels
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.photons import Photons
from bayesfit.correlation.states import Arrays

PHOTONS, PER_PIXEL, FRAMES = 2**22, 8, 2**17  # that wait until they are multiplied: photons, in a pixel, and frames
LATEST_START = 10  # the level from which on every pixel's series is multiplied whole
ALIGNED = 2**LATEST_START  # frames that are multiplied at a time, or a multiple
TASKS = 8  # for each core, so that none waits long for another
SELDOM = 4  # photons of a block are multiplied one by one where one in so many sums has any
EXACT = 2**24  # whole numbers below this one are exact in single precision


class SparseCompiled:
    """Takes in photons. Those that wait are the first `filled` ones of `waiting` (frame, place, number): frames count
    from `begin`, those before were multiplied with each other, and places are those of used pixels, block after block.

    `means` (4, block + 1, tau) are as `lag_products.of_means` has them, with frames as the last block; `last` (block +
    1, level, number) are the last sums of each level. Of each pixel, `starts` is the level from which on its series is
    multiplied whole, and `carried` (key, number) the last sums of those levels, up to where `pointer` says; its products
    so far are `kept`, once some were multiplied before others came."""

    def __init__(self, blocks: Blocks, per_level: int, by_frame: bool) -> None:
        pixels, count = blocks.places.size, blocks.pixels.size
        self.blocks, self.per_level, self.by_frame = blocks, per_level, by_frame
        self.place = np.full(blocks.detector, -1, np.int32)
        self.place[blocks.places] = np.arange(pixels)
        self.block, self.firsts = blocks.of_pixels.astype(np.int32), np.append(blocks.starts, pixels)
        self.pool = ThreadPoolExecutor(os.cpu_count())
        self.begin, self.filled, self.whole_numbers = 0, 0, True
        self.waiting = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32)
        self.whole = np.zeros(0, bool)
        self.pairs, self.squares = np.zeros((2, count, 0))
        self.means, self.last = np.zeros((4, count + 1, 0)), np.zeros((count + 1, 0, 2 * per_level))
        self.image, self.kept = np.zeros(pixels), np.zeros((0, 0), np.float32)
        self.starts, self.pointer = np.full(pixels, LATEST_START, np.int8), np.zeros(pixels + 1, np.int64)
        self.carried = np.empty(0, np.int32), np.empty(0)

    def take(self, photons: Photons, whole: Bool[np.ndarray, " frame"]) -> Float[np.ndarray, " frame"]:
        """Take photons in, of which those in frames that are not `whole` are left out; how many are in each frame."""
        self._make_room(photons)
        first, by_frame = self.whole.size, np.zeros(photons.frames)
        room = (*(each[self.filled :] for each in self.waiting), first)
        given = tuple(np.ascontiguousarray(each) for each in photons[1:])
        self.filled += compiled_photons.select(given, self.place, whole, room, by_frame)
        self.whole = np.append(self.whole, whole)
        if self.filled >= max(PHOTONS, PER_PIXEL * self.image.size) or self.whole.size >= FRAMES:
            self._multiply(self.whole.size // ALIGNED * ALIGNED, last=False)
        return by_frame

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        self._multiply(self.whole.size, last=True)
        return self.pairs

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        numbers = {"begin": np.array(self.begin), "whole_numbers": np.array(self.whole_numbers), "whole": self.whole}
        waiting = {f"waiting{place}": each[: self.filled] for place, each in enumerate(self.waiting)}
        carried = {f"carried{place}": each for place, each in enumerate(self.carried)}
        return numbers | waiting | carried | {name: getattr(self, name) for name in ARRAYS}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.begin, self.whole_numbers, self.whole = int(state["begin"]), bool(state["whole_numbers"]), state["whole"]
        self.waiting = state["waiting0"], state["waiting1"], state["waiting2"]
        self.carried, self.filled = (state["carried0"], state["carried1"]), self.waiting[0].size
        for name in ARRAYS:
            setattr(self, name, state[name])

    def _make_room(self, photons: Photons) -> None:
        """Room for photons to wait, in single precision while that holds their numbers exactly."""
        number, (frames, places, numbers) = photons.number, self.waiting
        whole = number.dtype.kind in "iub"
        self.whole_numbers &= whole
        small = whole and float(number.max(initial=0)) < EXACT
        precision = numbers.dtype if small else np.dtype(float)
        more = self.filled + number.size - frames.size
        if more > 0:
            more += frames.size // 2
            frames, places = (np.append(each, np.empty(more, each.dtype)) for each in (frames, places))
            numbers = np.append(numbers, np.empty(more, numbers.dtype))
        self.waiting = frames, places, numbers.astype(precision, copy=False)

    def _multiply(self, frames: int, last: bool) -> None:
        """Multiply the photons of so many frames, the `last` ones of all or not."""
        end = self.begin + frames
        if not frames:
            return
        self._grow(end, last)
        span = self.begin, end, self.per_level, self.last.shape[1]
        ready = int(np.searchsorted(self.waiting[0][: self.filled], frames))
        photons, edges = self._sorted(ready)
        carry = self._pass(photons, edges, span, last)
        keys, numbers = (np.concatenate(each) for each in zip(*carry, strict=True))
        self.carried = keys, numbers
        horizon = (2 * self.per_level + 1 << int(self.starts.max(initial=0))) >> 1
        self._forget(frames, horizon)

    def _forget(self, frames: int, horizon: int) -> None:
        """Count from so many frames on; photons of a horizon before remain."""
        first = int(np.searchsorted(self.waiting[0][: self.filled], frames - horizon))
        for each in self.waiting:
            each[: self.filled - first] = each[first : self.filled].copy()
        self.filled -= first
        self.waiting[0][: self.filled] -= frames
        self.begin, self.whole = self.begin + frames, self.whole[frames:]

    def _grow(self, end: int, last: bool) -> None:
        """Room for all levels that are reached at the end."""
        levels = end.bit_length()
        more = levels - self.last.shape[1]
        delays = sum(len(own_delays(level, self.per_level)) for level in range(levels)) - self.pairs.shape[1]
        if more > 0:
            self.last = np.pad(self.last, ((0, 0), (0, more), (0, 0)))
            self.means = np.pad(self.means, ((0, 0), (0, 0), (0, delays)))
            self.pairs, self.squares = (np.pad(each, ((0, 0), (0, delays))) for each in (self.pairs, self.squares))
        if self.kept.size or not last:
            pixels, width = self.image.size, self.pairs.shape[1]
            kept = np.zeros((pixels, width), np.float32)
            kept[: self.kept.shape[0], : self.kept.shape[1]] = self.kept
            self.kept = kept

    def _sorted(self, ready: int) -> tuple[tuple[np.ndarray, ...], Int[np.ndarray, " edge"]]:
        """The first photons, sorted by block, and where those of each block begin."""
        cuts = np.linspace(0, ready, (os.cpu_count() or 1) + 1).astype(int)
        pieces = [tuple(each[low:high] for each in self.waiting) for low, high in itertools.pairwise(cuts)]
        counts = np.zeros((len(pieces), self.blocks.pixels.size), np.int64)
        list(self.pool.map(lambda piece, count: compiled_photons.count_blocks(piece[1], self.block, count), pieces, counts))
        edges = np.append(0, np.cumsum(counts.sum(axis=0)))
        next_ones = edges[:-1] + np.cumsum(counts, axis=0) - counts
        into = tuple(np.empty(ready, each.dtype) for each in self.waiting)
        sort = compiled_photons.sort_blocks
        list(self.pool.map(lambda piece, next_one: sort(piece, self.block, next_one, into), pieces, next_ones))
        return into, edges

    def _pass(self, photons: Any, edges: np.ndarray, span: compiled_photons.Span, last: bool) -> list[Any]:
        """All products and sums of these photons; what is carried on of each part of the detector."""
        window, count = 2 * self.per_level, self.blocks.pixels.size
        new = [(span[1] >> level) - (span[0] >> level) for level in range(span[3])]
        offsets = np.append(0, np.cumsum(np.array(new) + 2 * window))
        last_now, size = self.last.copy(), np.zeros(self.image.size, np.int64)
        missing = self._of_frames(offsets, span, last_now[-1])
        few = self._few(edges[-1] / count / (span[1] - span[0]))
        settings = span, few, self.by_frame, offsets, missing, (span, 0, self._lowest(), self.whole_numbers, last)
        sums = self.pairs, self.image, self.kept, self.squares, self.starts
        carry = self.pointer, *self.carried, size
        layout = edges, self.firsts, self._bins()

        def part(blocks: tuple[int, int]) -> Any:
            everything = self.means, self.last, last_now, sums, carry
            return compiled_pixels.correlate_part(blocks, photons, layout, settings, everything)

        found = list(self.pool.map(part, self._tasks(edges)))
        self.last, self.pointer = last_now, np.append(0, np.cumsum(size))
        return found

    def _of_frames(self, offsets: np.ndarray, span: compiled_photons.Span, now: np.ndarray) -> Any:
        """Sum up which frames are whole; the missing ones: their places in the series of a level, how many frames each
        sum lacks, and where each level begins."""
        window, row, before = 2 * self.per_level, np.zeros(offsets[-1]), self.last[-1]
        whole = np.flatnonzero(self.whole[: span[1] - span[0]]).astype(np.int32)
        frames = whole, np.ones(whole.size, self.waiting[2].dtype)
        compiled_photons.fill_levels(frames, (row, offsets, before, now), span, 0)
        series = [row[low : high - window] for low, high in itertools.pairwise(offsets)]
        places = [np.flatnonzero(each != 2.0**level) for level, each in enumerate(series)]
        lost = [2.0**level - series[level][place] for level, place in enumerate(places)]
        ends = np.append(0, np.cumsum([place.size for place in places]))
        missing = np.concatenate(places), np.concatenate(lost), ends
        compiled_photons.bin_sums(frames, (row, np.empty(0), offsets, (before, now), missing), span, 0, self.means[:, -1])
        return missing

    def _few(self, photons: float) -> int:
        """The level from which on the series of blocks with so many photons a frame are multiplied whole."""
        return int(np.clip(np.ceil(np.log2(1 / (SELDOM * max(photons, 1e-9)))), 0, LATEST_START))

    def _lowest(self) -> Int[np.ndarray, " lag"]:
        """The first level at which photons so many frames apart may be near enough."""
        lag = np.arange((2 * self.per_level + 1 << LATEST_START) >> 1)
        found = np.zeros(lag.size, np.int8)
        for level in range(LATEST_START):
            found[lag >> level > 2 * self.per_level] = level + 1
        return found

    def _bins(self) -> tuple[Int[np.ndarray, " block"], Int[np.ndarray, " block"]]:
        """The first block of the static bin of each block, and that after its last."""
        static = self.blocks.static
        begins = np.flatnonzero(np.diff(static, prepend=-1))
        sizes = np.diff(begins, append=static.size)
        return np.repeat(begins, sizes), np.repeat(begins + sizes, sizes)

    def _tasks(self, edges: np.ndarray) -> list[tuple[int, int]]:
        """Blocks from one to another, in parts with about as many photons and pixels each."""
        effort = np.cumsum(np.diff(edges) + PER_PIXEL * self.blocks.pixels)
        wanted = np.linspace(0, effort[-1], TASKS * (os.cpu_count() or 1) + 1)[1:-1]
        cuts = np.unique([0, *np.searchsorted(effort, wanted), edges.size - 1])
        return list(itertools.pairwise(cuts.tolist()))


ARRAYS = "pairs", "squares", "means", "last", "image", "kept", "starts", "pointer"

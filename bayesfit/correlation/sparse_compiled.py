"""Products of pixels of which few see a photon, and the sums over blocks, by compiled code: many photons at a time."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.correlation import compiled_photons, compiled_pixels
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.compiled_photons import Span
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.photons import Photons
from bayesfit.correlation.sparse import PhotonChecks
from bayesfit.correlation.states import Arrays, parts, within
from bayesfit.correlation.waiting import Waiting, parts_of

PHOTONS, PER_PIXEL, FRAMES = 2**22, 8, 2**17  # that wait until they are multiplied: photons, in a pixel, and frames
LATEST = 10  # the level from which on every pixel's series is multiplied whole
ALIGNED = 2**LATEST  # frames that are multiplied at a time, or a multiple
TASKS = 8  # for each core, so that none waits long for another
SELDOM = 4  # photons of a block are multiplied one by one where one in so many sums has any
KEPT = "pairs", "squares", "means", "last", "image", "products", "starts", "pointer", "keys", "numbers"


class SparseCompiled(PhotonChecks):
    """Takes in photons; those of the first frames, so many as `begin` says, were multiplied with each other.

    `pairs` and `squares` (block, tau), these only in the end, are sums over the pixels of each block, and `means` (4,
    block + 1, tau) as `lag_products.of_means` has them, with frames as the last block; `last` (block + 1, level,
    number) are the last sums of each level. Of each pixel, `starts` is the level from which on its series is multiplied
    whole, and `keys` and `numbers` the last sums of those levels, up to where `pointer` says; `products` (pixel, tau)
    are kept once some were multiplied before others came."""

    def __init__(self, blocks: Blocks, per_level: int, by_frame: bool) -> None:
        pixels, count, window = blocks.places.size, blocks.pixels.size, 2 * per_level
        self.blocks, self.per_level, self.by_frame = blocks, per_level, by_frame
        self.block = np.full(blocks.detector, -1)
        self.block[blocks.places] = blocks.of_pixels
        self.pool, self.waiting, self.begin = ThreadPoolExecutor(os.cpu_count()), Waiting(blocks), 0
        self.pairs, self.squares = np.zeros((2, count, 0))
        self.means, self.last = np.zeros((4, count + 1, 0)), np.zeros((count + 1, 0, window))
        self.image, self.products = np.zeros(pixels), np.zeros((0, 0), np.float32)
        self.starts, self.pointer = np.full(pixels, LATEST, np.int8), np.zeros(pixels + 1, np.int64)
        self.keys, self.numbers = np.empty(0, np.int32), np.empty(0)

    def take(self, photons: Photons, whole: Bool[np.ndarray, " frame"]) -> Float[np.ndarray, " frame"]:
        """Take photons in, of which those in frames that are not `whole` are left out; how many are in each frame."""
        by_frame, frames = self.waiting.add(photons, whole), self.waiting.whole.size
        if self.waiting.size >= max(PHOTONS, PER_PIXEL * self.image.size) or frames >= FRAMES:
            self._multiply(frames // ALIGNED * ALIGNED, last=False)
        return by_frame

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        self._multiply(self.waiting.whole.size, last=True)
        return self.pairs

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        own = {"begin": np.array(self.begin)} | {name: getattr(self, name) for name in KEPT}
        return own | within([self.waiting.state()], "waiting")

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.begin = int(state["begin"])
        for name in KEPT:
            setattr(self, name, state[name])
        self.waiting.restore(parts(state, "waiting")[0])

    def _multiply(self, frames: int, last: bool) -> None:
        """Multiply the photons of so many frames, the `last` ones of all or not."""
        if not frames:
            return
        end = self.begin + frames
        self._grow(end, last)
        found = self._pass((self.begin, end, self.per_level, self.last.shape[1]), last)
        self.keys, self.numbers = (np.concatenate(each) for each in zip(*found, strict=True))
        horizon = (2 * self.per_level + 1 << int(self.starts.max(initial=0))) >> 1
        self.waiting.forget(frames, horizon)
        self.begin = end

    def _grow(self, end: int, last: bool) -> None:
        """Room for all levels that are reached at the end."""
        levels = end.bit_length()
        more = levels - self.last.shape[1]
        delays = sum(len(own_delays(level, self.per_level)) for level in range(levels)) - self.pairs.shape[1]
        if more > 0:
            self.last = np.pad(self.last, ((0, 0), (0, more), (0, 0)))
            self.means = np.pad(self.means, ((0, 0), (0, 0), (0, delays)))
            self.pairs, self.squares = (np.pad(each, ((0, 0), (0, delays))) for each in (self.pairs, self.squares))
        if self.products.size or not last:
            wider = np.zeros((self.image.size, self.pairs.shape[1]), np.float32)
            wider[: self.products.shape[0], : self.products.shape[1]] = self.products
            self.products = wider

    def _pass(self, span: Span, last: bool) -> list[tuple[np.ndarray, np.ndarray]]:
        """All products and sums of waiting photons; keys and numbers of each part of the detector."""
        now, size = self.last.copy(), np.zeros(self.image.size, np.int64)
        frames, blocks = span[1] - span[0], self.blocks
        photons, edges = self.waiting.by_block(frames, self.pool)
        lengths = [(span[1] >> level) - (span[0] >> level) + 4 * self.per_level for level in range(span[3])]
        offsets = np.append(0, np.cumsum(lengths))
        missing = self._of_frames(offsets, span, now[-1])
        of_pixels = span, lowest_levels(self.per_level), self.waiting.whole_numbers, last
        settings = (
            span,
            first_level(edges[-1] / blocks.pixels.size / frames),
            self.by_frame,
            offsets,
            missing,
            of_pixels,
        )
        sums = self.pairs, self.image, self.products, self.squares, self.starts
        everything = self.means, self.last, now, sums, (self.pointer, self.keys, self.numbers, size)
        layout = edges, np.append(blocks.starts, blocks.places.size), bins_of(blocks)

        def part(own: tuple[int, int]) -> Any:
            return compiled_pixels.correlate_part(own, photons, layout, settings, everything)

        found = list(self.pool.map(part, parts_of(edges, PER_PIXEL * blocks.pixels, TASKS)))
        self.last, self.pointer = now, np.append(0, np.cumsum(size))
        return found

    def _of_frames(self, offsets: np.ndarray, span: Span, now: np.ndarray) -> tuple[np.ndarray, ...]:
        """Sum up which frames are whole; the missing ones: their places in the series of a level, how many frames each
        sum lacks, and where each level begins."""
        window, row, before = 2 * self.per_level, np.zeros(offsets[-1]), self.last[-1]
        whole = np.flatnonzero(self.waiting.whole[: span[1] - span[0]]).astype(np.int32)
        frames = whole, np.ones(whole.size, self.waiting.precision)
        none = np.empty(0), np.empty(0, np.float32), np.empty(0)
        compiled_photons.fill_levels(frames, (row, offsets, before, now), span, 0)
        series = [row[low : high - window] for low, high in itertools.pairwise(offsets)]
        places = [np.flatnonzero(each != 2.0**level) for level, each in enumerate(series)]
        lost = [2.0**level - series[level][place] for level, place in enumerate(places)]
        ends = np.append(0, np.cumsum([place.size for place in places]))
        missing = np.concatenate(places), np.concatenate(lost), ends
        compiled_photons.bin_sums(frames, (row, none, offsets, (before, now), missing), span, 0, self.means[:, -1])
        return missing


def first_level(photons: float) -> int:
    """The level from which on the series of blocks with so many photons a frame are multiplied whole."""
    return int(np.clip(np.ceil(np.log2(1 / (SELDOM * max(photons, 1e-9)))), 0, LATEST))


def lowest_levels(per_level: int) -> Int[np.ndarray, " lag"]:
    """The first level at which photons so many frames apart may be near enough."""
    lag = np.arange((2 * per_level + 1 << LATEST) >> 1)
    return np.sum([lag >> level > 2 * per_level for level in range(LATEST)], axis=0, dtype=np.int8)


def bins_of(blocks: Blocks) -> tuple[Int[np.ndarray, " block"], Int[np.ndarray, " block"]]:
    """The first block of the static bin of each block, and that after its last."""
    begins = np.flatnonzero(np.diff(blocks.static, prepend=-1))
    sizes = np.diff(begins, append=blocks.static.size)
    return np.repeat(begins, sizes), np.repeat(begins + sizes, sizes)

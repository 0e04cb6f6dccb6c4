"""Products of pixels of whole frames on a CPU: a pixel's numbers pass through all levels while they are in a cache."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.correlation import compiled_tiles
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.dense import Frames, largest_of_each, no_photons, suspects
from bayesfit.correlation.lag_products import EXACT
from bayesfit.correlation.states import Arrays

TILE = 128  # pixels, of which the frames that a delay spans fit in a core's fastest cache
SINGLE = 6  # levels that may be in single precision
PARTS, MOST = 4, 16  # parts of the tiles for each core, so that none waits long for another; and tiles of a part


class Runs(NamedTuple):
    """Pixels of one block that follow each other, in some tiles that do so: the `blocks` of the pixels; the `edges`
    between such runs, of which one is wherever a tile ends; the place among `blocks` of the `block` of each; and the
    numbers of the `first` run in each tile, and after the last one."""

    blocks: Int[np.ndarray, " block"]
    edges: Int[np.ndarray, " edge"]
    block: Int[np.ndarray, " run"]
    first: Int[np.ndarray, " tile"]

    @classmethod
    def of(cls, block: Int[np.ndarray, " pixel"]) -> Runs:
        """Those of pixels of these blocks."""
        tiles, change = np.arange(0, block.size, TILE), np.flatnonzero(block[1:] != block[:-1]) + 1
        begin = np.union1d(tiles, change)
        blocks, number = np.unique(block[begin], return_inverse=True)
        edges = np.append(begin, block.size)
        return cls(blocks, edges, number, np.append(np.searchsorted(begin, tiles), begin.size))


class DenseCompiled:
    """Takes in frames (frame, pixel), as `dense.Dense` does, in tiles of pixels that follow each other on the detector:
    `places`, each of a `block`. `last` (tile, level, number, pixel) are the last frames of each level, and `products`
    (tile, tau, pixel). `peak` is the largest value in frames that were looked at last, of pixels used or not."""

    squares: np.ndarray | None = None

    def __init__(self, blocks: Blocks, per_level: int) -> None:
        order, pixels = np.argsort(blocks.places, kind="stable"), blocks.places.size
        self.places, self.block = blocks.places[order], blocks.of_pixels[order]
        self.detector, self.blocks, self.per_level = blocks.detector, blocks.pixels.size, per_level
        self.cores, tiles = os.cpu_count() or 1, -(-pixels // TILE)
        together = int(np.clip(tiles // (PARTS * self.cores), 1, MOST))
        self.parts = [range(start, min(start + together, tiles)) for start in range(0, tiles, together)]
        self.runs = [Runs.of(self.block[self._span(part)]) for part in self.parts]
        self.pool = ThreadPoolExecutor(self.cores)
        self.taken, self.largest, self.peak = 0, 0.0, np.inf
        self.last = np.zeros((tiles, 0, 2 * per_level, TILE), np.float32)
        self.products = np.zeros((tiles, 0, TILE))

    def unusable(self, frames: Frames) -> Bool[np.ndarray, " frame"]:
        """The frames in which a pixel of some block holds no number of photons."""
        step = -(-len(frames) // self.cores) or 1
        some = [frames[start : start + step] for start in range(0, len(frames), step)]
        largest = np.concatenate(list(self.pool.map(largest_of_each, some)))
        self.peak = float(largest.max())
        return suspects(frames, self.places, largest)

    def fault(self, frame: Frames) -> int:
        """The first used pixel of a frame that holds no number of photons."""
        return int(self.places[no_photons(frame[self.places])].min())

    def take(
        self, frames: Frames, whole: Bool[np.ndarray, " frame"]
    ) -> tuple[Float[np.ndarray, "frame block"], Float[np.ndarray, " pixel"]]:
        """Take frames in, of which those that are not `whole` are missing; the sums over each block, and those over all
        frames of each pixel."""
        frames = frames if whole.all() else np.where(whole[:, None], frames, frames.dtype.type(0))
        precision = self._precision(frames)
        self._make_room(len(frames))
        image, by_pixel = np.zeros(self.detector), np.zeros(self.places.size)
        photons = np.zeros((self.blocks, len(frames)))
        work = partial(self._take, frames, precision, by_pixel)
        for runs, by_block in zip(self.runs, self.pool.map(work, self.parts, self.runs), strict=True):
            compiled_tiles.add_rows(by_block, runs.blocks, photons)
        image[self.places] = by_pixel
        self.taken += len(frames)
        return photons.T, image

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        found, self.squares = np.zeros((2, self.blocks, self.products.shape[1]))
        for runs, (own, squares) in zip(
            self.runs, self.pool.map(self._over_blocks, self.parts, self.runs), strict=True
        ):
            found[runs.blocks] += own
            self.squares[runs.blocks] += squares
        return found

    def _over_blocks(self, part: range, runs: Runs) -> Float[np.ndarray, "2 block tau"]:
        """The products in some tiles, and their squares, summed over the blocks in these."""
        found = np.zeros((2, runs.blocks.size, self.products.shape[1]))
        compiled_tiles.tiles_over_blocks(self.products[part.start : part.stop], runs[1:], found[0], found[1])
        return found

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        numbers = {"taken": np.array(self.taken), "largest": np.array(self.largest)}
        return numbers | {"last": self.last, "products": self.products}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.taken, self.largest = int(state["taken"]), float(state["largest"])
        self.last, self.products = state["last"], state["products"]

    def _make_room(self, frames: int) -> None:
        """Room for all levels that so many more frames reach, in a precision that holds all sums of frames exactly."""
        levels = max((self.taken + frames).bit_length(), self.last.shape[1])
        delays = sum(len(own_delays(level, self.per_level)) for level in range(levels))
        kept = np.dtype(np.float32 if self.largest * 2.0**levels < EXACT else np.float64)
        if levels > self.last.shape[1] or kept != self.last.dtype:
            self.last = _larger(self.last, levels, kept)
            self.products = _larger(self.products, delays, self.products.dtype)

    def _precision(self, frames: Frames) -> type:
        """Single, where all sums of products are whole numbers that it holds exactly."""
        largest = np.inf
        if not np.issubdtype(frames.dtype, np.floating):
            largest = self.peak
            if not self._exact(largest, len(frames)):
                largest = float(max(self.pool.map(partial(self._largest, frames), self.parts)))
        self.largest = max(self.largest, largest)
        return np.float32 if self._exact(self.largest, len(frames)) else np.float64

    def _exact(self, largest: float, frames: int) -> bool:
        """Whether single precision holds all sums of products of so many frames with such numbers of photons."""
        return largest**2 * frames * 2.0 ** (SINGLE - 1) < EXACT

    def _largest(self, frames: Frames, part: range) -> Any:
        """The largest number of photons in a used pixel of these tiles."""
        places = self.places[self._span(part)]
        return frames[:, places[0] : places[-1] + 1].max(axis=0)[places - places[0]].max()

    def _take(
        self, frames: Frames, precision: type, by_pixel: np.ndarray, part: range, runs: Runs
    ) -> Float[np.ndarray, "block frame"]:
        """Take the pixels of some tiles in; puts their sums over the frames into `by_pixel`, and returns those over the
        blocks in these tiles."""
        span = self._span(part)
        photons: np.ndarray = np.zeros((runs.blocks.size, len(frames)), precision)
        last, products = (each[part.start : part.stop] for each in (self.last, self.products))
        sums, levels = (photons, by_pixel[span]), (self.taken, SINGLE, last, products)
        compiled_tiles.take_tiles(frames, self.places[span], runs[1:], sums, levels)
        return photons

    def _span(self, part: range) -> slice:
        """The places of the pixels in these tiles."""
        return slice(part.start * TILE, min(part.stop * TILE, self.places.size))


def _larger(array: np.ndarray, second: int, precision: np.dtype) -> np.ndarray:
    """The same with so much room along its second axis, zeros where there was none."""
    found = np.zeros((len(array), second, *array.shape[2:]), precision)
    found[:, : array.shape[1]] = array
    return found

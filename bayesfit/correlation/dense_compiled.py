"""Products of pixels of whole frames on a CPU: a pixel's numbers pass through all levels while they are in a cache."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.correlation import compiled
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.dense import Frames, no_photons, suspects
from bayesfit.correlation.lag_products import EXACT
from bayesfit.correlation.states import Arrays

TILE = 128  # pixels, of which the frames that a delay spans fit in a core's fastest cache
SINGLE = 6  # levels that may be in single precision


class DenseCompiled:
    """Takes in frames (frame, pixel), as `dense.Dense` does, in tiles of pixels that follow each other on the detector:
    `places`, each of a `block`. `last` (tile, level, number, pixel) are the last frames of each level, and `products`
    (tile, tau, pixel)."""

    squares: np.ndarray | None = None

    def __init__(self, blocks: Blocks, per_level: int) -> None:
        order, pixels = np.argsort(blocks.places, kind="stable"), blocks.places.size
        self.places, self.block = blocks.places[order], blocks.of_pixels[order]
        self.detector, self.blocks, self.per_level = blocks.detector, blocks.pixels.size, per_level
        self.tiles = [slice(start, min(start + TILE, pixels)) for start in range(0, pixels, TILE)]
        self.runs = [_runs(self.block[tile]) for tile in self.tiles]
        self.pool = ThreadPoolExecutor(os.cpu_count())
        self.taken, self.largest = 0, 0.0
        self.last = np.zeros((len(self.tiles), 0, 2 * per_level, TILE))
        self.products = np.zeros((len(self.tiles), 0, TILE))

    def unusable(self, frames: Frames) -> Bool[np.ndarray, " frame"]:
        """The frames in which a pixel of some block holds no number of photons."""
        return suspects(frames, self.places)

    def fault(self, frame: Frames) -> int:
        """The first used pixel of a frame that holds no number of photons."""
        return int(self.places[no_photons(frame[self.places])].min())

    def take(
        self, frames: Frames, whole: Bool[np.ndarray, " frame"]
    ) -> tuple[Float[np.ndarray, "frame block"], Float[np.ndarray, " pixel"]]:
        """Take frames in, of which those that are not `whole` are missing; the sums over each block, and those over all
        frames of each pixel."""
        frames = frames if whole.all() else np.where(whole[:, None], frames, frames.dtype.type(0))
        self._make_room(len(frames))
        photons, image = np.zeros((self.blocks, len(frames))), np.zeros(self.detector)
        by_pixel = np.zeros(self.places.size)
        work = partial(self._take, frames, self._precision(frames), by_pixel)
        for (blocks, *_), by_block in zip(self.runs, self.pool.map(work, range(len(self.tiles))), strict=True):
            photons[blocks] += by_block.T
        image[self.places] = by_pixel
        self.taken += len(frames)
        return photons.T, image

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        found, self.squares = np.zeros((2, self.blocks, self.products.shape[1]))
        for tile, products in zip(self.tiles, self.products, strict=True):
            compiled.over_blocks(products, self.block[tile], found, self.squares)
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
        """Room for all levels that so many more frames reach."""
        levels = (self.taken + frames).bit_length()
        more = levels - self.last.shape[1]
        delays = sum(len(own_delays(level, self.per_level)) for level in range(levels)) - self.products.shape[1]
        if more > 0:
            self.last = np.pad(self.last, ((0, 0), (0, more), (0, 0), (0, 0)))
            self.products = np.pad(self.products, ((0, 0), (0, delays), (0, 0)))

    def _precision(self, frames: Frames) -> type:
        """Single, where all sums of products are whole numbers that it holds exactly."""
        whole_numbers = not np.issubdtype(frames.dtype, np.floating)
        largest = float(frames.max(axis=0)[self.places].max(initial=0)) if whole_numbers else np.inf
        self.largest = max(self.largest, largest)
        return np.float32 if self.largest**2 * len(frames) * 2.0 ** (SINGLE - 1) < EXACT else np.float64

    def _take(self, frames: Frames, precision: type, by_pixel: np.ndarray, number: int) -> np.ndarray:
        """Take the pixels of a tile in; puts their sums over the frames into `by_pixel`, and returns those over the
        blocks of the tile (frame, block)."""
        tile, (blocks, edges, of_runs) = self.tiles[number], self.runs[number]
        window, count = 2 * self.per_level, len(frames)
        own = np.zeros((window + count, TILE), np.dtype(precision))
        total, by_block = np.zeros(tile.stop - tile.start, own.dtype), np.zeros((count, blocks.size), own.dtype)
        compiled.gather_tile(frames, self.places[tile], own[window:], total)
        compiled.sum_tile(own[window:], edges, of_runs, by_block)
        by_pixel[tile] = total
        compiled.pass_tile(own, self.taken, SINGLE, self.last[number], self.products[number])
        return by_block


def _runs(block: Int[np.ndarray, " pixel"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The blocks of the pixels of a tile; where pixels of the same block that follow each other begin, and the last
    ones end; and the number of the block of each such run."""
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    blocks, number = np.unique(block[starts], return_inverse=True)
    return blocks, np.append(starts, block.size), number

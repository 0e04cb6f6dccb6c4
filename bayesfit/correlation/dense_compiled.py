"""Products of pixels of whole frames on a CPU: a pixel's numbers pass through all levels while they are in a cache."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from bayesfit.correlation import compiled
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.dense import Frames, no_photons, suspects
from bayesfit.correlation.lag_products import EXACT
from bayesfit.correlation.states import Arrays

TILE = 512  # pixels, whose numbers in `MOST` frames fit in a core's cache
SINGLE = 6  # levels that may be in single precision


class DenseCompiled:
    """Takes in frames (frame, pixel), as `dense.Dense` does, in the order of the pixels on the detector: `places`, each
    of a `block`. `last` (pixel, level, number) are the last numbers of each level, `odd` (pixel, level) those that wait
    for a second one, and `products` (pixel, tau)."""

    squares: np.ndarray | None = None

    def __init__(self, blocks: Blocks, per_level: int) -> None:
        order, pixels = np.argsort(blocks.places, kind="stable"), blocks.places.size
        self.places, self.block = blocks.places[order], blocks.of_pixels[order]
        self.detector, self.blocks, self.per_level = blocks.detector, blocks.pixels.size, per_level
        self.tiles = [slice(start, start + TILE) for start in range(0, pixels, TILE)]
        self.of_tile = [np.unique(self.block[tile], return_inverse=True) for tile in self.tiles]
        self.pool = ThreadPoolExecutor(os.cpu_count())
        self.taken, self.largest = 0, 0.0
        self.last, self.odd = np.zeros((pixels, 0, 2 * per_level)), np.zeros((pixels, 0))
        self.products = np.zeros((pixels, 0))

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
        for (blocks, _), by_block in zip(self.of_tile, self.pool.map(work, range(len(self.tiles))), strict=True):
            photons[blocks] += by_block
        image[self.places] = by_pixel
        self.taken += len(frames)
        return photons.T, image

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        self.squares = self._over_blocks(self.products**2)
        return self._over_blocks(self.products)

    def _over_blocks(self, numbers: Float[np.ndarray, "pixel tau"]) -> Float[np.ndarray, "block tau"]:
        return np.stack([np.bincount(self.block, each, self.blocks) for each in numbers.T], axis=1)

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        numbers = {"taken": np.array(self.taken), "largest": np.array(self.largest)}
        return numbers | {"last": self.last, "odd": self.odd, "products": self.products}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.taken, self.largest = int(state["taken"]), float(state["largest"])
        self.last, self.odd, self.products = state["last"], state["odd"], state["products"]

    def _make_room(self, frames: int) -> None:
        """Room for all levels that so many more frames reach."""
        levels = (self.taken + frames).bit_length()
        more = levels - self.odd.shape[1]
        delays = sum(len(own_delays(level, self.per_level)) for level in range(levels)) - self.products.shape[1]
        if more > 0:
            self.last, self.odd = np.pad(self.last, ((0, 0), (0, more), (0, 0))), np.pad(self.odd, ((0, 0), (0, more)))
            self.products = np.pad(self.products, ((0, 0), (0, delays)))

    def _precision(self, frames: Frames) -> type:
        """Single, where all sums of products are whole numbers that it holds exactly."""
        whole_numbers = not np.issubdtype(frames.dtype, np.floating)
        largest = float(frames.max(axis=0)[self.places].max(initial=0)) if whole_numbers else np.inf
        self.largest = max(self.largest, largest)
        return np.float32 if self.largest**2 * len(frames) * 2.0 ** (SINGLE - 1) < EXACT else np.float64

    def _take(self, frames: Frames, precision: type, by_pixel: np.ndarray, number: int) -> np.ndarray:
        """Take the pixels of a tile in; puts their sums over the frames into `by_pixel`, and returns those over the
        blocks of the tile (block, frame)."""
        tile, (blocks, block) = self.tiles[number], self.of_tile[number]
        places, window = self.places[tile], 2 * self.per_level
        own = np.empty((places.size, window + len(frames)), np.dtype(precision))
        by_block = np.zeros((blocks.size, len(frames)), np.dtype(precision))
        compiled.gather_series(frames, places, own[:, window:])
        compiled.sum_series(own[:, window:], block, by_block, by_pixel[tile])
        compiled.pass_series(own, self.taken, SINGLE, (self.last[tile], self.odd[tile], self.products[tile]))
        return by_block

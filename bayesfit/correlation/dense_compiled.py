"""Products of pixels of whole frames on a CPU: a pixel's numbers pass through all levels while they are in a cache."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.correlation import compiled_tiles
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.dense import Frames, no_photons, suspects
from bayesfit.correlation.lag_products import EXACT
from bayesfit.correlation.states import Arrays

TILE = 128  # pixels, of which the frames that a delay spans fit in a core's fastest cache
SINGLE = 6  # levels that may be in single precision
PARTS, MOST = 4, 16  # parts of the tiles for each core, so that none waits long for another; and tiles of a part


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
        cores, tiles = os.cpu_count() or 1, len(self.tiles)
        together = int(np.clip(tiles // (PARTS * cores), 1, MOST))
        self.parts = [range(start, min(start + together, tiles)) for start in range(0, tiles, together)]
        self.pool = ThreadPoolExecutor(cores)
        self.taken, self.largest = 0, 0.0
        self.last = np.zeros((len(self.tiles), 0, 2 * per_level, TILE), np.float32)
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
        precision = self._precision(frames)
        self._make_room(len(frames))
        image, by_pixel = np.zeros(self.detector), np.zeros(self.places.size)
        photons = np.zeros((self.blocks, len(frames)))
        work = partial(self._take, frames, precision, by_pixel)
        for part, by_block in zip(self.parts, self.pool.map(work, self.parts), strict=True):
            for number, own in zip(part, by_block, strict=True):
                compiled_tiles.add_rows(own, self.runs[number][0], photons)
        image[self.places] = by_pixel
        self.taken += len(frames)
        return photons.T, image

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        found, self.squares = np.zeros((2, self.blocks, self.products.shape[1]))
        for tile, products in zip(self.tiles, self.products, strict=True):
            compiled_tiles.over_blocks(products, self.block[tile], found, self.squares)
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
        whole_numbers = not np.issubdtype(frames.dtype, np.floating)
        largest = float(max(self.pool.map(partial(self._largest, frames), self.parts))) if whole_numbers else np.inf
        self.largest = max(self.largest, largest)
        return np.float32 if self.largest**2 * len(frames) * 2.0 ** (SINGLE - 1) < EXACT else np.float64

    def _largest(self, frames: Frames, part: range) -> Any:
        """The largest number of photons in a used pixel of these tiles."""
        places = self.places[self.tiles[part.start].start : self.tiles[part.stop - 1].stop]
        return frames[:, places[0] : places[-1] + 1].max(axis=0)[places - places[0]].max()

    def _take(self, frames: Frames, precision: type, by_pixel: np.ndarray, part: range) -> list[np.ndarray]:
        """Take the pixels of some tiles in; puts their sums over the frames into `by_pixel`, and returns those over the
        blocks of each tile (block, frame)."""
        photons: list[np.ndarray] = []
        window, kind = 2 * self.per_level, np.dtype(precision)
        own = np.zeros((window + len(frames), TILE), kind)
        for number in part:
            tile, new, total = self.tiles[number], own[window:], np.zeros(TILE, kind)
            new[:, tile.stop - tile.start :] = 0
            compiled_tiles.gather_tile(frames, self.places[tile], new)
            compiled_tiles.sum_frames(new, total)
            blocks, edges, of_runs = self.runs[number]
            photons.append(np.zeros((blocks.size, len(frames)), kind))
            compiled_tiles.sum_tile(new, edges, of_runs, photons[-1])
            by_pixel[tile] = total[: tile.stop - tile.start]
            compiled_tiles.pass_tile(own, self.taken, SINGLE, self.last[number], self.products[number])
        return photons


def _larger(array: np.ndarray, second: int, precision: np.dtype) -> np.ndarray:
    """The same with so much room along its second axis, zeros where there was none."""
    found = np.zeros((len(array), second, *array.shape[2:]), precision)
    found[:, : array.shape[1]] = array
    return found


def _runs(block: Int[np.ndarray, " pixel"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The blocks of the pixels of a tile; where pixels of the same block that follow each other begin, and the last
    ones end; and the number of the block of each such run."""
    inner = np.flatnonzero(block[1:] != block[:-1]) + 1
    edges = np.concatenate([[0], inner, [block.size]]).astype(np.uint32)
    blocks, number = np.unique(block[edges[:-1]], return_inverse=True)
    return blocks, edges, number

"""Products of pixels of whole frames, of which every pixel takes part, in tiles of pixels that fit in a cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from bayesfit.backends.protocol import BackendProtocol
from bayesfit.correlation import compiled
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.lag_products import of_pixels
from bayesfit.correlation.levels import Levels
from bayesfit.correlation.states import Arrays, parts, within

TILE = 2048  # pixels

Frames = Num[np.ndarray, "frame pixel"]


class Dense:
    """Takes in frames (frame, pixel). `squares` (block, tau), once it has finished: sums of the squares of each pixel's
    products."""

    squares: np.ndarray | None = None

    def __init__(self, blocks: Blocks, per_level: int, backend: BackendProtocol) -> None:
        self.blocks, self.pool = blocks, ThreadPoolExecutor(os.cpu_count())
        count, self.starts = blocks.places.size, blocks.starts
        self.tiles = [slice(start, min(start + TILE, count)) for start in range(0, count, TILE)]
        made = (np.zeros(tile.stop - tile.start, np.float32) for tile in self.tiles)
        self.levels = [Levels(per_level, frame, partial(of_pixels, backend)) for frame in made]

    def unusable(self, frames: Frames) -> Bool[np.ndarray, " frame"]:
        """The frames in which a pixel of some block holds no number of photons."""
        return suspects(frames, self.blocks.places, largest_of_each(frames))

    def fault(self, frame: Num[np.ndarray, " pixel"]) -> int:
        """The first used pixel of a frame that holds no number of photons."""
        return int(self.blocks.places[no_photons(frame[self.blocks.places])].min())

    def take(
        self, frames: Frames, whole: Bool[np.ndarray, " frame"]
    ) -> tuple[Float[np.ndarray, "frame block"], Float[np.ndarray, " pixel"]]:
        """Take frames in, of which those that are not `whole` are missing; the sums over each block, and those over all
        frames of each pixel."""
        frames = frames if whole.all() else np.where(whole[:, None], frames, frames.dtype.type(0))
        whole_numbers = not np.issubdtype(frames.dtype, np.floating)
        largest = float(frames.max(axis=0)[self.blocks.places].max(initial=0)) if whole_numbers else np.inf
        for levels in self.levels:
            levels.expect(largest)
        photons = np.zeros((len(frames), self.blocks.pixels.size))
        image = np.zeros(self.blocks.detector)
        for tile, (by_block, by_pixel) in zip(self.tiles, self._each(partial(self._take, frames)), strict=True):
            photons[:, self._blocks(tile)] += by_block
            image[self.blocks.places[tile]] = by_pixel
        return photons, image

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        by_pixel = np.concatenate(self._each(lambda tile, levels: levels.finish()))
        self.squares = np.add.reduceat(by_pixel**2, self.starts, axis=0)
        return np.add.reduceat(by_pixel, self.starts, axis=0)

    def _take(
        self, frames: Frames, tile: slice, levels: Levels
    ) -> tuple[Float[np.ndarray, "frame block"], Float[np.ndarray, " pixel"]]:
        """Take the pixels of a tile in; their sums over its blocks, and over the frames."""
        places, blocks = self.blocks.places[tile], self._blocks(tile)
        starts = np.maximum(self.starts[blocks] - tile.start, 0)
        if not compiled.available:
            own = np.take(frames, places, axis=1).astype(levels.precision)
            levels.take(own)
            return np.add.reduceat(own, starts, axis=1, dtype=float), own.sum(axis=0, dtype=float)
        own = np.empty((len(frames), places.size), levels.precision)
        sums = np.empty((len(frames), starts.size)), np.zeros(places.size)
        compiled.gather(frames, places, np.append(starts, places.size), sums, own)
        levels.take(own)
        return sums

    def _blocks(self, tile: slice) -> slice:
        """The blocks of which pixels are in a tile."""
        first, last = np.searchsorted(self.starts, (tile.start, tile.stop - 1), side="right")
        return slice(int(first) - 1, int(last))

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        return within(levels.state() for levels in self.levels)

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        for levels, own in zip(self.levels, parts(state), strict=True):
            levels.restore(own)

    def _each(self, function: Callable[[slice, Levels], Any]) -> list[Any]:
        """The function of each tile, side by side."""
        return list(self.pool.map(function, self.tiles, self.levels))


def no_photons(frames: Frames) -> Bool[np.ndarray, "frame pixel"]:
    """Where a value is no number of photons: it is negative or the largest of its type, as detectors mark bad and
    saturated pixels, or not finite."""
    if np.issubdtype(frames.dtype, np.floating):
        return ~(np.isfinite(frames) & (frames >= 0))
    if frames.dtype == bool:
        return np.zeros(frames.shape, bool)
    return (frames < 0) | (frames == np.iinfo(frames.dtype).max)


def largest_of_each(frames: Frames) -> Num[np.ndarray, " frame"]:
    """The largest value in each frame, of pixels used or not; NaN where a value is."""
    return frames.max(axis=1)


def suspects(
    frames: Frames, places: Int[np.ndarray, " used"], largest: Num[np.ndarray, " frame"]
) -> Bool[np.ndarray, " frame"]:
    """The frames in which some pixel of these places holds no number of photons; `largest_of_each` is known."""
    suspect = _may_hold_none(frames, largest)
    suspect[suspect] = no_photons(frames[suspect][:, places]).any(axis=1)
    return suspect


def _may_hold_none(frames: Frames, largest: Num[np.ndarray, " frame"]) -> Bool[np.ndarray, " frame"]:
    """The frames in which some pixel, used or not, holds no number of photons."""
    if np.issubdtype(frames.dtype, np.floating):
        return ~(np.isfinite(largest) & (frames.min(axis=1) >= 0))
    if frames.dtype == bool:
        return np.zeros(len(frames), bool)
    full = largest == np.iinfo(frames.dtype).max
    return full if np.issubdtype(frames.dtype, np.unsignedinteger) else full | (frames.min(axis=1) < 0)

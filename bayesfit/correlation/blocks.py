"""The used pixels of a detector in blocks: neighbours of one static bin, whose photons are summed together.

A bin has some thirty blocks or more, each of which is left out in turn where the covariance is found.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.geometry.bins import Partition

WANTED, FEWEST = 32, 8  # blocks of a dynamic bin, and how many a covariance needs
BITS = 20  # of a row or a column


class Blocks(NamedTuple):
    """All blocks: how many `pixels` each has, its `static` and its `dynamic` bin, from 0, arrays (block,); how many
    static and dynamic `bins` there are, with those that have no usable pixel, and pixels of the `detector`; and the
    `places` (pixel,) of all used pixels on the flat detector, one block after the other, and of a static bin's blocks,
    too."""

    pixels: Int[np.ndarray, " block"]
    static: Int[np.ndarray, " block"]
    dynamic: Int[np.ndarray, " block"]
    bins: tuple[int, int]
    detector: int
    places: Int[np.ndarray, " pixel"]

    @property
    def starts(self) -> Int[np.ndarray, " block"]:
        """Where each block begins among the used pixels."""
        return np.cumsum(self.pixels) - self.pixels

    @property
    def of_pixels(self) -> Int[np.ndarray, " pixel"]:
        """The block of each used pixel."""
        return np.repeat(np.arange(self.pixels.size), self.pixels)

    def bins_of_few(self) -> Int[np.ndarray, " bin"]:
        """The dynamic bins that have too few blocks for a covariance, but some."""
        count = np.bincount(self.dynamic, minlength=self.bins[1])
        return np.flatnonzero((count > 0) & (count < FEWEST))

    def by_static(self, numbers: Float[np.ndarray, "block ..."]) -> Float[np.ndarray, "static ..."]:
        """Sums over the blocks of each static bin."""
        return _sums(numbers, self.static, self.bins[0])

    def by_dynamic(self, numbers: Float[np.ndarray, "block ..."]) -> Float[np.ndarray, "dynamic ..."]:
        """Sums over the blocks of each dynamic bin."""
        return _sums(numbers, self.dynamic, self.bins[1])

    def over_static(self, numbers: Float[np.ndarray, "static ..."]) -> Float[np.ndarray, "dynamic ..."]:
        """Sums over the static bins of each dynamic bin."""
        of = np.zeros(self.bins[0], int)
        of[self.static] = self.dynamic
        return _sums(numbers, of, self.bins[1])


def blocks_of(partition: Partition, usable: Bool[np.ndarray, "row column"]) -> Blocks:
    """The blocks of a partition, of its usable pixels alone."""
    maps = partition.static.roi_map, partition.dynamic.roi_map
    places = np.flatnonzero(usable & partition.mask & (maps[0] > 0) & (maps[1] > 0))
    static_map, dynamic_map = (roi_map.ravel().astype(int) - 1 for roi_map in maps)
    places = places[np.lexsort((_along_a_curve(places, usable.shape[1]), static_map[places]))]
    sizes = np.maximum(np.bincount(dynamic_map[places], minlength=1) // WANTED, 1)
    starts = np.flatnonzero(np.diff(static_map[places], prepend=-1))
    pieces: list[np.ndarray] = []
    for piece in np.split(places, starts[1:]) if places.size else []:
        parts = -(-piece.size // int(sizes[dynamic_map[piece[0]]]))
        pieces += map(np.sort, np.array_split(piece, parts))
    firsts = np.array([piece[0] for piece in pieces], int)
    pixels = np.array([piece.size for piece in pieces], int)
    bins = partition.static.count, partition.dynamic.count
    places = np.concatenate([*pieces, np.zeros(0, int)])
    return Blocks(pixels, static_map[firsts], dynamic_map[firsts], bins, usable.size, places)


def _along_a_curve(places: Int[np.ndarray, " pixel"], columns: int) -> Int[np.ndarray, " pixel"]:
    """Where a curve that fills the detector square by square passes each pixel, so that a piece of it is compact: the
    bits of row and column in turn (G. M. Morton, IBM, 1966)."""
    row, column = np.divmod(places, columns)
    found = np.zeros(places.size, int)
    for bit in range(BITS):
        found |= (row >> bit & 1) << 2 * bit + 1 | (column >> bit & 1) << 2 * bit
    return found


def _sums(numbers: np.ndarray, of: np.ndarray, bins: int) -> np.ndarray:
    total = np.zeros((bins, *numbers.shape[1:]))
    np.add.at(total, of, numbers)
    return total


def of_used(partition: Partition, blocks: Blocks) -> Partition:
    """The partition without the pixels that were not used, but for bins of which none was."""
    used = np.zeros(blocks.detector, bool)
    used[blocks.places] = True
    of_detector = used.reshape(partition.mask.shape)
    bins, kept = [], []
    for given in (partition.static, partition.dynamic):
        left = np.bincount(given.roi_map[of_detector], minlength=given.count + 1)
        kept.append(of_detector | (left[given.roi_map] == 0))
        bins.append(replace(given, roi_map=np.where(kept[-1], given.roi_map, 0)))
    return Partition(partition.mask & kept[0], *bins)

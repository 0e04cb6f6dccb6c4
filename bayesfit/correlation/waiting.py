"""Photons that wait until there are enough of them to be multiplied."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import Executor

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.correlation import compiled_sorting
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.lag_products import EXACT
from bayesfit.correlation.photons import Photons
from bayesfit.correlation.states import Arrays

Piece = tuple[np.ndarray, ...]  # frames in order, places of used pixels, block after block, and numbers of photons


class Waiting:
    """Photons in `pieces`, of frames that count from the first one not yet multiplied; negative ones were. `whole` says
    which frames are not missing; `whole_numbers`, whether all numbers were."""

    def __init__(self, blocks: Blocks) -> None:
        self.place = np.full(blocks.detector, -1, np.int32)
        self.place[blocks.places] = np.arange(blocks.places.size)
        self.block, self.blocks = blocks.of_pixels.astype(np.int32), blocks.pixels.size
        self.pieces: list[Piece] = []
        self.whole, self.whole_numbers = np.zeros(0, bool), True

    @property
    def size(self) -> int:
        """How many photons wait."""
        return sum(piece[0].size for piece in self.pieces)

    @property
    def precision(self) -> np.dtype:
        """What holds the numbers of all photons exactly."""
        return np.result_type(np.float32, *(piece[2].dtype for piece in self.pieces))

    def add(self, photons: Photons, whole: Bool[np.ndarray, " frame"]) -> Float[np.ndarray, " frame"]:
        """Photons of used pixels in frames that are `whole`; how many are in each frame."""
        number, by_frame = photons.number, np.zeros(photons.frames)
        integer = number.dtype.kind in "iub"
        self.whole_numbers &= integer
        small = integer and int(number.max(initial=0)) < EXACT
        room = tuple(np.empty(number.size, kind) for kind in (np.int32, np.int32, np.float32 if small else np.float64))
        given = tuple(np.ascontiguousarray(each) for each in photons[1:])
        count = compiled_sorting.select(given, self.place, whole, (*room, self.whole.size), by_frame)
        self.pieces.append(tuple(each[:count] for each in room))
        self.whole = np.append(self.whole, whole)
        return by_frame

    def by_block(self, frames: int, pool: Executor) -> tuple[Piece, Int[np.ndarray, " edge"]]:
        """The photons of so many frames, and those of before, sorted by block, and where those of each block begin."""
        precision, cuts = self.precision, (np.searchsorted(piece[0], frames) for piece in self.pieces)
        pieces = [tuple(each[:cut] for each in piece) for piece, cut in zip(self.pieces, cuts, strict=True)]
        counts = np.zeros((len(pieces), self.blocks), np.int64)
        list(pool.map(lambda piece, own: compiled_sorting.count_blocks(piece[1], self.block, own), pieces, counts))
        edges = np.append(0, np.cumsum(counts.sum(axis=0)))
        places = edges[:-1] + np.cumsum(counts, axis=0) - counts
        into = tuple(np.empty(edges[-1], kind) for kind in (np.int32, np.int32, precision))

        def sort(piece: Piece, place: np.ndarray) -> None:
            frame, pixel, number = piece
            compiled_sorting.sort_blocks((frame, pixel, number.astype(precision, copy=False)), self.block, place, into)

        list(pool.map(sort, pieces, places))
        return into, edges

    def forget(self, frames: int, horizon: int) -> None:
        """Count from so many frames on; photons of a horizon before remain."""
        firsts = [np.searchsorted(piece[0], frames - horizon) for piece in self.pieces]
        pieces = (tuple(each[first:] for each in piece) for piece, first in zip(self.pieces, firsts, strict=True))
        self.pieces = [(piece[0] - np.int32(frames), *(each.copy() for each in piece[1:])) for piece in pieces]
        self.pieces = [piece for piece in self.pieces if piece[0].size]
        self.whole = self.whole[frames:]

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        none = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32)
        photons = (np.concatenate(own) for own in zip(none, *self.pieces, strict=True))
        numbers = {"whole": self.whole, "whole_numbers": np.array(self.whole_numbers)}
        return numbers | dict(zip(("frame", "place", "number"), photons, strict=True))

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.pieces = [(state["frame"], state["place"], state["number"])]
        self.whole, self.whole_numbers = state["whole"], bool(state["whole_numbers"])


def parts_of(edges: Int[np.ndarray, " edge"], more: Int[np.ndarray, " block"], count: int) -> list[tuple[int, int]]:
    """Blocks from one to another, in parts with about as many photons, and as much `more`, each."""
    effort = np.cumsum(np.diff(edges) + more)
    wanted = np.linspace(0, effort[-1], count * (os.cpu_count() or 1) + 1)[1:-1]
    cuts = np.unique([0, *np.searchsorted(effort, wanted), edges.size - 1])
    return list(itertools.pairwise(cuts.tolist()))

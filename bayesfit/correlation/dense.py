"""Products of pixels of whole frames: every pixel of every frame takes part, in multiplications of matrices."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Num
from threadpoolctl import threadpool_limits

from bayesfit.backends.protocol import BackendProtocol
from bayesfit.correlation.blocks import Blocks, Sheet
from bayesfit.correlation.lag_products import of_pixels
from bayesfit.correlation.levels import Levels
from bayesfit.correlation.states import Arrays, parts, within

Frames = Num[np.ndarray, "frame pixel"]


class Dense:
    """Takes in frames (frame, pixel)."""

    def __init__(self, blocks: Blocks, per_level: int, backend: BackendProtocol) -> None:
        workers = os.cpu_count() or 1
        self.blocks, self.pool = blocks, ThreadPoolExecutor(workers)
        self.sheets = [part for sheet in blocks.sheets for part in _shared(sheet, workers)]
        made = (np.zeros(sheet.pixels.shape, np.float32) for sheet in self.sheets)
        self.levels = [Levels(per_level, frame, partial(of_pixels, backend)) for frame in made]

    def unusable(self, frames: Frames) -> Bool[np.ndarray, " frame"]:
        """The frames in which a pixel of some block holds no number of photons."""
        suspect = _may_hold_none(frames)
        used = np.concatenate([sheet.pixels[sheet.real] for sheet in self.sheets] or [np.zeros(0, int)])
        suspect[suspect] = no_photons(frames[suspect][:, used]).any(axis=1)
        return suspect

    def take(
        self, frames: Frames, whole: Bool[np.ndarray, " frame"]
    ) -> tuple[Float[np.ndarray, "frame block"], Float[np.ndarray, " pixel"]]:
        """Take frames in, of which those that are not `whole` are missing; the sums over each block, and those over all
        frames of each pixel."""
        frames = frames if whole.all() else np.where(whole[:, None], frames, frames.dtype.type(0))
        sums = np.empty((len(frames), self.blocks.pixels.size))
        image = np.zeros(self.blocks.detector)
        found = self._each(partial(_take, frames), self.sheets, self.levels)
        for sheet, (by_block, by_pixel) in zip(self.sheets, found, strict=True):
            sums[:, sheet.numbers] = by_block
            image[sheet.pixels[sheet.real]] = by_pixel.reshape(sheet.real.shape)[sheet.real]
        return sums, image

    def finish(self) -> Float[np.ndarray, "block tau"]:
        """The products, when all frames have been taken in."""
        found = self._each(Levels.finish, self.levels)
        pairs = np.empty((self.blocks.pixels.size, found[0].shape[1]))
        for sheet, own in zip(self.sheets, found, strict=True):
            pairs[sheet.numbers] = own
        return pairs

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        return within(levels.state() for levels in self.levels)

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        for levels, own in zip(self.levels, parts(state), strict=True):
            levels.restore(own)

    def _each(self, function: Callable[..., Any], *items: list[Any]) -> list[Any]:
        """The function of each item, side by side; each multiplication of matrices runs on one core."""
        with threadpool_limits(1, "blas"):
            return list(self.pool.map(function, *items))


def no_photons(frames: Frames) -> Bool[np.ndarray, "frame pixel"]:
    """Where a value is no number of photons: it is negative or the largest of its type, as detectors mark bad and
    saturated pixels, or not finite."""
    if np.issubdtype(frames.dtype, np.floating):
        return ~np.isfinite(frames)
    if frames.dtype == bool:
        return np.zeros(frames.shape, bool)
    return (frames < 0) | (frames == np.iinfo(frames.dtype).max)


def _may_hold_none(frames: Frames) -> Bool[np.ndarray, " frame"]:
    """The frames in which some pixel, used or not, holds no number of photons, at the price of one look at each."""
    if np.issubdtype(frames.dtype, np.floating):
        return ~np.isfinite(frames.sum(axis=1))
    if frames.dtype == bool:
        return np.zeros(len(frames), bool)
    return (frames.max(axis=1) == np.iinfo(frames.dtype).max) | (frames.min(axis=1) < 0)


def _shared(sheet: Sheet, workers: int) -> list[Sheet]:
    """A sheet in parts for as many workers."""
    parts = np.array_split(np.arange(sheet.numbers.size), min(workers, sheet.numbers.size))
    return [Sheet(sheet.numbers[part], sheet.pixels[part], sheet.real[part]) for part in parts]


def _take(
    frames: Frames, sheet: Sheet, levels: Levels
) -> tuple[Float[np.ndarray, "frame block"], Float[np.ndarray, " pixel"]]:
    """Take the pixels of a sheet in; their sums over blocks, and over the frames."""
    own = np.take(frames, sheet.pixels.ravel(), axis=1)
    levels.expect(np.inf if np.issubdtype(own.dtype, np.floating) else float(own.max(initial=0)))
    precise = own.astype(levels.precision)
    precise[:, np.flatnonzero(~sheet.real)] = 0
    by_sheet = precise.reshape(len(frames), *sheet.pixels.shape)
    levels.take(by_sheet)
    ones = np.ones(max(precise.shape), precise.dtype)
    return by_sheet @ ones[: sheet.pixels.shape[1]], ones[: len(frames)] @ precise

"""Frames pass through the levels of a multi-tau correlator, where they are multiplied, and summed two by two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.lag_products import CHUNK, EXACT, FEWEST, Multiply
from bayesfit.correlation.states import Arrays, parts, within


class Level:
    """The last frames (frame, ...) of one level, of which `filled` are new and not yet multiplied, which is done with a
    `chunk` at a time; and the sums of all products so far (..., delay)."""

    def __init__(self, window: int, chunk: int, frame: np.ndarray, multiply: Multiply) -> None:
        self.window, self.chunk, self.filled, self.multiply = window, chunk, 0, multiply
        self.frames = np.zeros((window + chunk, *frame.shape), frame.dtype)
        self.products = np.zeros(())  # in double precision, whatever the frames are in

    def take(self, frames: np.ndarray) -> list[np.ndarray]:
        """Take frames in; give back sums of two, where they are ready."""
        ready, taken = [], 0
        while taken < len(frames):
            count = min(self.chunk - self.filled, len(frames) - taken)
            start = self.window + self.filled
            self.frames[start : start + count] = frames[taken : taken + count]
            self.filled, taken = self.filled + count, taken + count
            if self.filled == self.chunk:
                ready.append(self.finish())
        return ready

    def finish(self) -> np.ndarray:
        """Multiply the frames that were taken in, as if zeros followed, and sum them two by two; of an odd number, the
        last one is dropped."""
        new = self.frames[self.window :]
        new[self.filled :] = 0
        self.products = self.products + self.multiply(self.frames)
        halved = new[0::2][: self.filled // 2] + new[1::2][: self.filled // 2]
        self.frames[: self.window] = self.frames[self.chunk :].copy()
        self.filled = 0
        return halved

    def state(self) -> Arrays:
        """All that a level of the same kind needs to go on from here."""
        filled = np.array(self.filled)
        return {"frames": self.frames, "filled": filled, "products": self.products}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.frames, self.filled = state["frames"], int(state["filled"])
        self.products = state["products"]


class Levels:
    """All levels, from single frames to the coarsest; a level is added when the first sums for it are ready. So many
    times more frames than otherwise are multiplied at a time as `longer` says."""

    def __init__(
        self, per_level: int, frame: np.ndarray, multiply: Callable[[int, int], Multiply], longer: int = 1
    ) -> None:
        self.per_level, self.frame, self.multiply, self.longer = per_level, frame, multiply, longer
        self.levels: list[Level] = []
        self.largest = 0.0

    def take(self, frames: np.ndarray, number: int = 0) -> None:
        """Take frames in, or sums of them that are ready for the level of this number."""
        if number == len(self.levels) and len(frames):
            self._add()
        for halved in self.levels[number].take(frames) if len(frames) else []:
            self.take(halved, number + 1)

    def _add(self) -> None:
        number = len(self.levels)
        own, frame = own_delays(number, self.per_level), self.frame.astype(self._precision(number))
        multiply = self.multiply(own.start, own.stop - 1)
        self.levels.append(Level(own.stop - 1, self._chunk(number), frame, multiply))

    def state(self) -> Arrays:
        """All that levels of the same kind need to go on from here, by names of which the first part is a number."""
        return {"largest": np.array(self.largest)} | within(level.state() for level in self.levels)

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.largest = float(state["largest"])
        for own in parts(state):
            self._add()
            self.levels[-1].restore(own)

    def finish(self) -> np.ndarray:
        """The products (..., tau) of all levels, when all frames have been taken in."""
        for number, level in enumerate(self.levels):
            self.take(level.finish(), number + 1)
        return np.concatenate([level.products for level in self.levels], axis=-1)

    def expect(self, largest: float) -> None:
        """See to it that products of numbers up to this one are exact: in double precision where single does not do."""
        self.largest = max(largest, self.largest)
        for number, level in enumerate(self.levels):
            level.frames = level.frames.astype(self._precision(number), copy=False)

    @property
    def precision(self) -> np.dtype:
        """The precision of single frames."""
        return self._precision(0)

    def _precision(self, number: int) -> np.dtype:
        sums = (self.largest * 2.0**number) ** 2 * self._chunk(number)
        return self.frame.dtype if sums < EXACT else np.dtype(float)

    def _chunk(self, number: int) -> int:
        """How many frames of a level are multiplied at a time: fewer where frames are rare."""
        return self.longer * max(CHUNK >> number, FEWEST)

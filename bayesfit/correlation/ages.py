"""Ages of pairs of frames: the middle (t1 + t2) / 2 of their times, in frames from the first frame on.

Frames t1 and t2 of a pair that lies on a diagonal of the two-time matrix move along it together as the age grows, and
all delays of a slice of ages are of the same age. (The other choice in use is the time of the first frame: O. Bikondoa,
J. Appl. Cryst. 50, 357 (2017).) Where sums of m frames are multiplied, the age of their pair is the mean age of all
pairs of their frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.compute.errors import SettingsError

MOST = 1000  # slices
ENOUGH = 0.5  # of the pairs of frames of a slice, from which on a delay is used there
LONGEST = 4.0  # times the width of a slice, its longest delay: as far as theory's tables reach


class Ages(NamedTuple):
    """Slices of ages that follow each other: their `edges`, in frames. The upper edge belongs to the next one."""

    edges: tuple[float, ...]

    @property
    def slice_count(self) -> int:
        """How many slices there are."""
        return len(self.edges) - 1

    def slices(self, age: Float[np.ndarray, "*any"]) -> Int[np.ndarray, "*any"]:
        """The slice of each age, from 0; -1 for an age outside of all."""
        found = np.searchsorted(np.array(self.edges), age, side="right") - 1
        return np.where(found < self.slice_count, found, -1)

    def of_pairs(self, level: int, late: Int[np.ndarray, "*any"], delay: Any) -> Int[np.ndarray, "*any"]:
        """The slices of pairs of a level: of the sums number `late` of 2^level frames and those `delay` sums before."""
        return self.slices((late + 0.5 - 0.5 * delay) * 2.0**level - 0.5)

    def finer(self, parts: int) -> Ages:
        """Each slice in so many equal parts."""
        edges = np.array(self.edges)
        shares = np.arange(parts) / parts
        inner = edges[:-1, None] + np.diff(edges)[:, None] * shares
        return Ages((*inner.ravel().tolist(), self.edges[-1]))

    def usable(
        self, frame_pairs: Float[np.ndarray, "age tau"], lags: Int[np.ndarray, " tau"], summed: Int[np.ndarray, " tau"]
    ) -> Bool[np.ndarray, "age tau"]:
        """Which delays are of the age of their slice: there are at least half as many pairs of frames as of frames that
        follow each other, which fails near the ends of the series; and the delay is at most four times as long as the
        slice, and no more frames are summed than it has."""
        width, shortest = np.diff(self.edges)[:, None], frame_pairs[:, summed == 1].max(axis=1, keepdims=True)
        short = (lags <= LONGEST * width) & (summed <= width)
        return short & (frame_pairs > 0) & (frame_pairs >= ENOUGH * shortest)


def ages_of(given: Any, frames: int | None, frame_time: float) -> Ages:
    """Slices of ages: a number of equal ones of a series of `frames`, or edges [s].

    Raises:
        SettingsError: they are none.
    """
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        if frames is None:
            problem = "how many frames will come is not known, so that they cannot be divided into slices"
            raise SettingsError(problem, field="ages", remedy="Give the edges of the slices, in s")
        if not 1 <= given <= min(MOST, frames // 2):
            remedy = f"Expected 1 to {min(MOST, frames // 2)} slices, or their edges in s"
            raise SettingsError(f"got {given!r}", field="ages", remedy=remedy)
        return Ages(tuple(np.linspace(0.0, frames, int(given) + 1).tolist()))
    remedy = "Expected a number of slices, or their edges in s, each above the one before"
    if not _are_edges(given):
        raise SettingsError(f"got {given!r}", field="ages", remedy=remedy)
    edges = np.asarray(given, float) / frame_time
    if np.diff(edges).min() < 2.0:
        raise SettingsError("a slice is shorter than two frames", field="ages", remedy="Give wider slices")
    if frames is not None and edges[-2] >= frames:
        problem = f"a slice begins at {edges[-2] * frame_time:g} s, and the series ends at {frames * frame_time:g} s"
        raise SettingsError(problem, field="ages", remedy="Leave it out")
    return Ages(tuple(edges.tolist()))


def _are_edges(given: Any) -> bool:
    """Whether these are edges of slices: numbers from 0 on that grow."""
    listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes)
    if not listed or not 2 <= len(given) <= MOST + 1:
        return False
    if not all(isinstance(edge, Real) and not isinstance(edge, bool) and np.isfinite(float(edge)) for edge in given):
        return False
    return bool(given[0] >= 0 and np.all(np.diff(np.asarray(given, float)) > 0))

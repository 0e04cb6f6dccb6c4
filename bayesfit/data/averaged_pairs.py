"""Photon pairs of repeats: counted together, they are the pairs of one longer measurement.

With n_r pairs seen and E_r expected in each repeat, n = sum n_r and E = sum E_r are numbers of pairs again, whose g2
is n / E, the mean of the repeats weighted by E_r. A repeat without a pair counts: without it, the mean over the others
would be too high wherever pairs are rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from bayesfit.data.counting import PER_DELAY, REPEATS, SERIES, Counting, countable, missing_numbers

ENOUGH = 10.0  # pairs expected at a delay at which repeats are compared

OfRepeats = Float[np.ndarray, "repeat q_bin"]
OfPoints = Float[np.ndarray, "repeat q_bin tau"]
Used = Bool[np.ndarray, "repeat q_bin"]


class AveragedPairs(NamedTuple):
    """The pairs expected in each repeat where g2 = 1; which points are numbers of pairs; and of each repeat and bin its
    photons per pixel and frame and its number of series."""

    expected: OfPoints
    counted: Bool[np.ndarray, "repeat q_bin tau"]
    counts: OfRepeats
    series: OfRepeats

    @property
    def compared(self) -> Bool[np.ndarray, "repeat q_bin tau"]:
        """The points by which a repeat can be told from the others."""
        return self.counted & (self.expected >= ENOUGH)

    def counted_together(self, averaged: xr.Dataset, repeats: Sequence[xr.Dataset], used: Used) -> xr.Dataset:
        """The average of the repeats that are `used` as numbers of photon pairs. Where none was seen, g2 and its error
        are 0 and the point is not valid, as in a file; elsewhere its error is at least what counting says."""
        taken = self._taken(used)
        expected = np.sum(self.expected, axis=0, where=taken)
        seen = np.sum(np.array([data.g2.values for data in repeats]) * self.expected, axis=0, where=taken)
        there = expected > 0
        size = np.where(there, expected, 1.0)
        scattered = np.where(averaged.valid & (expected >= ENOUGH), averaged.g2_err, 0.0)
        made = averaged.assign(self._numbers(repeats[0], used)).assign(
            g2=averaged.g2.copy(data=np.where(there, seen / size, np.nan)),
            g2_err=averaged.g2_err.copy(data=np.where(there, np.fmax(np.sqrt(seen) / size, scattered), np.nan)),
            valid=averaged.valid.copy(data=seen > 0),
            masked_zero_pairs=repeats[0].masked_zero_pairs.copy(data=np.sum(there & (seen == 0), axis=1)),
            repeats_valid=averaged.repeats_valid.copy(data=taken.sum(axis=0)),
        )
        made.attrs.pop(REPEATS, None)  # of one repeat
        return made

    def _taken(self, used: Used) -> Bool[np.ndarray, "repeat q_bin tau"]:
        """The points that are averaged: those of the repeats used, at delays where all of them were counted."""
        everywhere = (self.counted | ~used[:, :, None]).all(axis=0)
        return self.counted & used[:, :, None] & everywhere

    def _numbers(self, first: xr.Dataset, used: Used) -> dict[str, Any]:
        """The numbers of the average's counting, by name, for data like the first repeat."""
        series = np.maximum(np.sum(self.series, axis=0, where=used), 1.0)
        squares = np.sum(self.series * self.counts**2, axis=0, where=used) / series
        same = {name: first[name] for name in ("pixels", *PER_DELAY) if name in first}
        return same | {
            "counts": first.counts.copy(data=np.sqrt(squares)),
            REPEATS: xr.DataArray(series, dims="q_bin", attrs={"units": "1", "long_name": SERIES}),
        }


def averaged_pairs(repeats: Sequence[xr.Dataset]) -> AveragedPairs | None:
    """The pairs of repeats of the same bins and delays; None if some repeat does not state its numbers, or if they are
    of other frames, frame times or pixels."""
    if any(missing_numbers(data) for data in repeats):
        return None
    every = [Counting.of(data) for data in repeats]
    if not all(own.fits(every[0]) and np.array_equal(own.pixels, every[0].pixels) for own in every):
        return None
    return AveragedPairs(
        np.stack([own.pairs for own in every]),
        np.stack([countable(data) for data in repeats]),
        np.stack([own.counts for own in every]),
        np.stack([own.repeats for own in every]),
    )

"""What a dataset says of its own counting: photons, pixels and frames, and so the photon pairs behind each point.

A point of g2 is the number n of photon pairs seen at a delay over the number E that are expected where g2 = 1,

    E = repeats * pixels * frames * counts^2 * frames_summed * (1 - lag / frames),

with counts the mean photons per pixel and frame. Where the pairs of frames at a delay are others than those of a whole
series, as in a slice of its ages, their number `frame_pairs` stands for frames * (1 - lag / frames). Where the light of
a pixel falls on several detectors, and g2 is the mean of the cross-correlations of each with each other one, counts are
those of all of them, and pairs within one detector do not count: E is less by a factor of 1 - 1 / detectors.

Where E is below one most points are zeros, and a zero is data: it is seen with probability exp(-E g2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from bayesfit.compute.errors import InputError

PER_BIN = {"counts": "mean photons per pixel and frame", "pixels": "pixels of the bin"}
REPEATS, SERIES = "repeats_averaged", "series of frames that were averaged"
PER_DELAY = {"frames_summed": "frames summed at this delay", "frame_pairs": "pairs of frames at this delay"}
DETECTORS = "detectors"
OF_SERIES = ("frames", "frame_time", DETECTORS, REPEATS)
NEEDED = (*PER_BIN, "frames")
OF_BINS = (*PER_BIN, "repeats")
NEARLY = 1e-3  # how far delays in frames may be from whole numbers, relative
WHOLE = 0.25  # how far numbers of pairs may be from whole numbers where pairs are rare
DARK = 1e-12  # photons per pixel and frame of a bin that saw none
RARE = 0.5  # expected pairs below which a point tells whether pairs are whole numbers


@dataclass(frozen=True)
class Counting:
    """What was counted in every bin, arrays (q_bin,): mean photons per pixel and frame `counts`, `pixels`, and the
    number `repeats` of series of frames that were averaged; and what all bins have in common: frames, `frame_time` in
    s, the delays `lags` in frames, how many frames are `summed` at each, and the number of `detectors` that are
    correlated with each other."""

    counts: Float[np.ndarray, " q_bin"]
    pixels: Float[np.ndarray, " q_bin"]
    repeats: Float[np.ndarray, " q_bin"]
    frames: float
    frame_time: float
    lags: Float[np.ndarray, " tau"]
    summed: Float[np.ndarray, " tau"]
    stated_pairs: Float[np.ndarray, " tau"] | None = None
    detectors: float = 1.0

    @classmethod
    def of(cls, data: xr.Dataset) -> Counting:
        """What a dataset says, whose numbers are complete (see `missing_numbers`)."""
        lags = _lags(data)
        return cls(
            data.counts.values.astype(float),
            data.pixels.values.astype(float),
            _repeats(data),
            float(data.attrs["frames"]),
            frame_time(data),
            lags,
            _frames_summed(data, lags),
            data.frame_pairs.values.astype(float) if "frame_pairs" in data else None,
            float(data.attrs.get(DETECTORS, 1.0)),
        )

    def of_bins(self, places: Int[np.ndarray, " bin"]) -> Counting:
        """What was counted in these bins."""
        return replace(self, counts=self.counts[places], pixels=self.pixels[places], repeats=self.repeats[places])

    def fits(self, other: Counting) -> bool:
        """Whether all is equal but what differs from bin to bin."""
        own, others = ((c.frames, c.frame_time, c.detectors, *c.lags, *c.summed, *c.frame_pairs) for c in (self, other))
        return own == others

    def and_(self, others: Sequence[Counting]) -> Counting:
        """What was counted in these bins and in those of others, which must fit."""
        every = [self, *others]
        counts, pixels, repeats = (np.concatenate([getattr(c, name) for c in every]) for name in OF_BINS)
        return replace(self, counts=counts, pixels=pixels, repeats=repeats)

    @property
    def frame_pairs(self) -> Float[np.ndarray, " tau"]:
        """Pairs of frames at each delay; 0 at delays that are not positive or as long as the series."""
        return self.frames * self._share

    @property
    def _share(self) -> Float[np.ndarray, " tau"]:
        """Pairs of frames at each delay over frames."""
        found = 1.0 - self.lags / self.frames if self.stated_pairs is None else self.stated_pairs / self.frames
        return np.where(self.lags > 0, np.maximum(found, 0.0), 0.0)

    @property
    def pairs(self) -> Float[np.ndarray, "q_bin tau"]:
        """E of every point; 0 at delays that are not positive or as long as the series."""
        of_others = 1.0 if self.detectors == 1.0 else 1.0 - 1.0 / self.detectors
        number = of_others * self.repeats * self.pixels * self.frames * self.counts**2
        return number[:, None] * self.summed * self._share


def _repeats(data: xr.Dataset) -> Float[np.ndarray, " q_bin"]:
    """Series of frames that were averaged, in each bin: 1 where the dataset states none."""
    stated = data[REPEATS].values if REPEATS in data else data.attrs.get(REPEATS, 1.0)
    return np.broadcast_to(np.asarray(stated, float), data.sizes["q_bin"]).copy()


def missing_numbers(data: xr.Dataset) -> tuple[str, ...]:
    """The numbers that counting needs and the dataset does not hold."""
    return tuple(name for name in NEEDED if name not in data and name not in data.attrs)


def frame_time(data: xr.Dataset) -> float:
    """Time of one frame [s]: as stated, else the smallest spacing of the delays, from 0 on."""
    if "frame_time" in data.attrs:
        return float(data.attrs["frame_time"])
    tau = data.tau.values
    return float(np.min(np.diff(tau[tau > 0], prepend=0.0)))


def _lags(data: xr.Dataset) -> Float[np.ndarray, " tau"]:
    """The delays in frames; whole numbers where they nearly are."""
    lags = data.tau.values / frame_time(data)
    whole = np.round(lags)
    return np.where(np.abs(lags - whole) < NEARLY * np.maximum(whole, 1.0), whole, lags)


def _frames_summed(data: xr.Dataset, lags: Float[np.ndarray, " tau"]) -> Float[np.ndarray, " tau"]:
    """How many frames are summed at each delay: as stated, else as the delays say."""
    return data.frames_summed.values.astype(float) if "frames_summed" in data else summed_at(lags)


def summed_at(lags: Float[np.ndarray, " tau"]) -> Float[np.ndarray, " tau"]:
    """How many frames a multi-tau correlator sums at each of its delays, in frames: the distance to the delay before, a
    power of two that never falls."""
    spacing = np.diff(lags, prepend=2.0 * lags[0] - lags[1]) if lags.size > 1 else np.ones(lags.size)
    return 2.0 ** np.floor(np.log2(np.maximum(np.maximum.accumulate(spacing), 1.0)) + NEARLY)


def as_counted(data: xr.Dataset) -> xr.Dataset:
    """The dataset as numbers of pairs: zeros are data too, `g2_err` is E^(-1/2), which counting alone says of a point
    with g2 = 1, and `pairs` is E. Points that were masked on request, or hold no number, stay masked.

    Raises:
        InputError: a number is not known, or contradicts the data; names the bin.
    """
    file = data.attrs.get("file") or None
    if missing := missing_numbers(data):
        problem = f"photon pairs cannot be counted: the data state no {', '.join(missing)}"
        raise InputError(problem, file=file, remedy="Give them to bayesfit.curves")
    pairs = Counting.of(data).pairs
    valid = countable(data)
    check_whole(np.where(valid, data.g2.values, 0.0) * pairs, np.where(valid, pairs, np.inf), file)
    error = np.where(pairs > 0, np.where(pairs > 0, pairs, 1.0) ** -0.5, 1.0)
    words = {**data.g2_err.attrs, "long_name": "counting error of a point with g2 = 1"}
    return data.assign(
        g2_err=(data.g2.dims, error, words),
        valid=(data.g2.dims, valid, data.valid.attrs),
        pairs=(data.g2.dims, pairs, {"units": "1", "long_name": "photon pairs expected where g2 = 1"}),
    )


def countable(data: xr.Dataset) -> Bool[np.ndarray, "q_bin tau"]:
    """The points that are numbers of pairs, and were masked for no reason but their errors; the dataset's numbers are
    complete."""
    g2, g2_err, pairs = data.g2.values, data.g2_err.values, Counting.of(data).pairs
    with np.errstate(invalid="ignore"):
        without_error = ~(np.isfinite(g2_err) & (g2_err > 0))
        return np.isfinite(g2) & (g2 >= 0) & (pairs > 0) & (data.valid.values | without_error)


def check_whole(
    seen: Float[np.ndarray, "q_bin tau"], expected: Float[np.ndarray, "q_bin tau"], file: str | None = None
) -> None:
    """Refuse numbers of pairs that are no whole numbers where few are expected: then counts, pixels or frames are not
    those of the data.

    Raises:
        InputError: names the bin that is farthest off.
    """
    telling = (expected < RARE) & (seen > WHOLE)
    enough = telling.sum(axis=1) >= 3
    off = np.where(telling, np.abs(seen - np.round(seen)) / np.maximum(np.round(seen), 1.0), 0.0)
    mean = np.where(enough, off.sum(axis=1) / np.maximum(telling.sum(axis=1), 1), 0.0)
    worst = int(np.argmax(mean)) if mean.size else 0
    if mean.size and mean[worst] > WHOLE:
        place = int(np.argmax(off[worst]))
        problem = (
            f"g2 times the expected pairs should be whole numbers where pairs are rare, got {seen[worst, place]:.3g}"
        )
        remedy = "Check counts, pixels and frames"
        raise InputError(problem, file=file, field="counts", bin=worst, remedy=remedy)


def with_numbers(data: xr.Dataset, numbers: Mapping[str, Any]) -> xr.Dataset:
    """The dataset with these numbers of its counting, by name as `curves` takes them; None where one is not known.

    Raises:
        InputError: a number is not above 0, or there are too few or too many; names the field and the bin.
    """
    file = data.attrs.get("file") or None
    for name, given in numbers.items():
        if given is None:
            continue
        dim = "q_bin" if name in PER_BIN else "tau" if name in PER_DELAY else ""
        array = _positive(given, data.sizes[dim] if dim else 1, name, file)
        if name == DETECTORS and array[0] % 1:
            raise InputError(f"got {array[0]:g}", file=file, field=name, remedy="Expected a whole number")
        words = {"units": "1", "long_name": {**PER_BIN, **PER_DELAY}.get(name)}
        data = data.assign({name: (dim, array, words)}) if dim else data.assign_attrs({name: float(array[0])})
    return data


def stacked(whole: xr.Dataset, parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """The bins of several datasets in one, with the numbers of their counting where delays, frames and frame time are
    those of all; without them where these differ, since pairs could not be counted by them."""
    if any(missing_numbers(data) for data in parts):
        return _without(whole, (*PER_BIN, *PER_DELAY, *OF_SERIES))
    every = [Counting.of(data) for data in parts]
    if not all(own.fits(every[0]) for own in every):
        return _without(whole, (*PER_BIN, *PER_DELAY, *OF_SERIES))
    series = np.concatenate([own.repeats for own in every])
    return _without(whole, (REPEATS,)).assign({REPEATS: ("q_bin", series, {"units": "1", "long_name": SERIES})})


def _without(data: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """The dataset without these variables and attributes."""
    left = data.drop_vars(names, errors="ignore")
    left.attrs = {name: value for name, value in data.attrs.items() if name not in names}
    return left


def _positive(given: Any, size: int, field: str, file: str | None) -> Float[np.ndarray, " size"]:
    """Numbers above 0, one for each of so many, from one or as many."""
    array = np.atleast_1d(np.asarray(given, float))
    if array.shape not in ((1,), (size,)):
        raise InputError(f"expected one number, or {size}, got shape {array.shape}", file=file, field=field)
    array = np.broadcast_to(array, (size,)).copy()
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        place = int(np.argmax(bad))
        bin = place if field in PER_BIN else None
        raise InputError(f"got {array[place]:g}", file=file, field=field, bin=bin, remedy="Expected a number above 0")
    return array

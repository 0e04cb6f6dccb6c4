"""Two-time matrices C(t1, t2) of other programs: their halves put right, and averaged over age and delay."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayesfit.compute.errors import InputError
from bayesfit.correlation.ages import Ages
from bayesfit.correlation.delays import delays

BLOCKS, FEWEST = 10, 4  # of ages within a slice, for its errors; and how many of them must hold pairs
SMALLEST = 4  # frames
SYMMETRIC = 1e-4  # times the largest value, by which the halves of a matrix may differ

Matrix = Float[np.ndarray, "frame frame"]


class Where(NamedTuple):
    """Where a matrix comes from, for messages."""

    file: str | None = None
    field: str = "matrix"
    bin: int | None = None

    def fault(self, problem: str, remedy: str = "") -> InputError:
        """The error that says so."""
        return InputError(problem, file=self.file, field=self.field, bin=self.bin, remedy=remedy or None)


class Averaged(NamedTuple):
    """g2 with its error, and pairs of frames, (age, tau); `missing` frames."""

    g2: Float[np.ndarray, "age tau"]
    g2_err: Float[np.ndarray, "age tau"]
    frame_pairs: Float[np.ndarray, "age tau"]
    missing: int


def upper_half(given: Any, where: Where) -> Matrix:
    """A matrix of which the part above the diagonal holds the values, NaN where there is none, from all forms in use: a
    symmetric matrix, one of its halves with zeros or NaN in place of the other, or the upper half row by row.

    Raises:
        InputError: it is none of them, or holds nothing.
    """
    try:
        array = np.ma.filled(np.ma.asarray(given).astype(float), np.nan)
    except (TypeError, ValueError) as error:
        raise where.fault("expected real numbers") from error
    array = _unpacked(array, where) if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise where.fault(f"expected a square matrix, axes (frame, frame), got shape {array.shape}")
    if len(array) < SMALLEST:
        raise where.fault(f"is of {len(array)} frames, expected at least {SMALLEST}")
    above, below = np.triu(array, 1), np.tril(array, -1).T
    if not np.nan_to_num(above).any():
        above, below = below, above
    if np.nan_to_num(below).any():
        _check_symmetric(above, below, where)
    found = np.where(np.tri(len(array), dtype=bool), np.nan, above)
    missing = _missing(found)
    found[missing], found[:, missing] = np.nan, np.nan
    if not np.isfinite(found).any():
        raise where.fault("every value is NaN or 0")
    return found


def _unpacked(array: Float[np.ndarray, " element"], where: Where) -> Matrix:
    size = (math.isqrt(8 * array.size + 1) - 1) // 2
    if size * (size + 1) // 2 != array.size:
        problem = f"has {array.size} elements, and the upper half of n frames has n (n + 1) / 2"
        raise where.fault(problem, f"{size} frames have {size * (size + 1) // 2}, row by row with the diagonal")
    found = np.full((size, size), np.nan)
    found[np.triu_indices(size)] = array
    return found


def _check_symmetric(above: Matrix, below: Matrix, where: Where) -> None:
    with np.errstate(invalid="ignore"):
        apart = np.abs(above - below)
        limit = SYMMETRIC * np.nanmax(np.abs(above[np.isfinite(above)]))
    if np.any(apart > limit):
        early, late = (int(place[0]) for place in np.nonzero(apart > limit))
        problem = (
            f"is not symmetric: {above[early, late]:g} at frames {early}, {late}, and {below[early, late]:g} across"
        )
        raise where.fault(problem, "Give a two-time correlation, or its upper half")


def _missing(upper: Matrix) -> np.ndarray:
    """The frames (frame,) of which no pair has a value."""
    found = np.isfinite(upper) & (upper != 0)
    return ~(found.any(axis=0) | found.any(axis=1))


def averaged(upper: Matrix, ages: Ages, per_level: int) -> Averaged:
    """A matrix averaged along its diagonals over slices of ages, at the delays of a multi-tau correlator.

    Sums of m frames are pairs of blocks of m x m values, as `ages.py` says. Errors are a jackknife over blocks of ages
    in each slice, NaN where fewer than four of them hold pairs.
    """
    lags, summed = delays(max(len(upper) // 2, 1), per_level)
    counted = np.isfinite(upper)
    values, number, level = np.where(counted, upper, 0.0), counted.astype(float), 0
    g2, error, pairs = (np.zeros((ages.slice_count, lags.size)) for _ in range(3))
    for place, (lag, m) in enumerate(zip(lags.tolist(), summed.tolist(), strict=True)):
        while 2**level < m:
            values, number, level = _halved(values), _halved(number), level + 1
        own = lag // m
        found = _of_delay((values.diagonal(own), number.diagonal(own)), ages, level, own)
        g2[:, place], error[:, place], pairs[:, place] = found[0], found[1], found[2] / m
    return Averaged(g2, error, pairs, int(_missing(upper).sum()))


def _halved(matrix: Matrix) -> Matrix:
    """Sums over blocks of 2 x 2; of an odd number of frames, the last one is dropped."""
    even = matrix[: len(matrix) // 2 * 2, : len(matrix) // 2 * 2]
    return even[0::2, 0::2] + even[0::2, 1::2] + even[1::2, 0::2] + even[1::2, 1::2]


def _of_delay(
    diagonal: tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]], ages: Ages, level: int, delay: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g2, its error and the number of values (age,) of one diagonal: sums of values and their numbers."""
    late = delay + np.arange(diagonal[0].size)
    fine = ages.finer(BLOCKS)
    place = fine.of_pairs(level, late, delay)
    inside = place >= 0
    size = ages.slice_count * BLOCKS
    values, number = (np.bincount(place[inside], each[inside], size).reshape(-1, BLOCKS) for each in diagonal)
    total, count = values.sum(axis=1, keepdims=True), number.sum(axis=1, keepdims=True)
    return _ratio(total, count)[:, 0], _jackknife(values, number), count[:, 0]


def _jackknife(values: Float[np.ndarray, "age block"], number: Int[np.ndarray, "age block"]) -> np.ndarray:
    """Errors (age,) of the ratio of the sums over blocks, by the jackknife for groups of unequal sizes (Busing, Meijer
    & van der Leeden, Stat. Comput. 9, 3 (1999))."""
    total, count, own = values.sum(axis=1, keepdims=True), number.sum(axis=1, keepdims=True), number > 0
    groups = own.sum(axis=1)
    share = _ratio(np.where(own, count, 0.0), number)
    without = _ratio(total - values, count - number)
    pseudo = share * _ratio(total, count) - (share - 1.0) * without
    center = np.sum(_ratio(pseudo, share), axis=1, keepdims=True)
    variance = np.sum(_ratio(np.where(own, (pseudo - center) ** 2, 0.0), share - 1.0), axis=1)
    return np.where(groups >= FEWEST, np.sqrt(_ratio(variance, groups)), np.nan)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    above, below = np.broadcast_arrays(above, below)
    return np.divide(above, below, out=np.zeros(below.shape), where=below > 0)

"""Are the first delays alone off, by dead time or afterpulsing of a detector, or by a correlator's first channels?

Points that are off spoil the fit of all others, so that its residuals do not say how many they are. Therefore bins
whose farthest point is an early one are fitted again by least squares without the first one, two, three, ... delays,
until the next ones lie on the curve of the rest, and those left out lie far from it (the mean-shift outlier model: Cook
& Weisberg, Residuals and Influence in Regression (1982), ch. 2).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from bayesfit.compute.batches import FEW, Batches, devices_for, stream
from bayesfit.compute.devices import Spread, named, take
from bayesfit.compute.work import Stop
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem
from bayesfit.sample.least_squares import point_estimates

EARLY = 0.25  # share of a bin's points among which those that are off must be
FEWEST = 16  # points
FAR = 3.5  # sd: a bin is examined if its farthest point is farther, and the next points are off if they are
CLEARLY = 6.0  # sd of the first point from the curve of the rest
NEXT = 5  # points
SMALLER = 0.6  # the rest's variance about its curve, over that of all points, at most
BINS = 64

Scores = Float[np.ndarray, "draw point"]
Keys = UInt32[np.ndarray, "bin 2"]


def first_good_delays(problem: Problem, keys: Keys, scores: dict[int, Scores]) -> Float[np.ndarray, " q_bin"]:
    """The delay from which on each bin fits, where only its first delays are off; else 0. Has unit s.

    Args:
        keys: the keys of the bins' random numbers.
        scores: index of a bin to the normal scores of its valid points.
    """
    found = np.zeros(len(keys))
    places = [place for place, score in scores.items() if _early(score)]
    trials = [(place, count) for place in places for count in _counts(scores[place].shape[1])]
    if not trials:
        return found
    place, count = np.array(trials).T
    bins = take(problem.bins, place)
    off = _distances(problem.posterior, bins, keys[place], count)
    for one in places:
        rows = np.flatnonzero(place == one)
        valid = bins.valid[rows[0]]
        found[one] = _first_good(off[rows][:, valid], count[rows], bins.tau[rows[0], valid])
    return found


def _early(scores: Scores) -> bool:
    """Whether the farthest point of a bin is one of the first, and far off."""
    mean = np.abs(scores.mean(axis=0)) if scores.size else np.zeros(0)
    return bool(mean.size >= FEWEST and np.argmax(mean) < EARLY * mean.size and np.max(mean) > FAR)


def _counts(points: int) -> Int[np.ndarray, " trial"]:
    """How many first points to leave out, one number after the other: 0 to 8, and then about a tenth more each time."""
    most = int(EARLY * points)
    counts = np.concatenate([np.arange(8), np.geomspace(8, 8 * 1.1**60, 61).astype(int)])
    return np.unique(counts[counts <= most])


def _distances(
    posterior: Posterior, bins: Bin, keys: Keys, count: Int[np.ndarray, " trial"]
) -> Float[np.ndarray, "trial tau"]:
    """Distances of all points from the least-squares curve without the first `count` valid ones, in stated errors."""
    kept = bins.valid & (np.cumsum(bins.valid, axis=1) > count[:, None])
    rest = bins._replace(
        valid=kept, y=np.where(kept, bins.y, 0.0), inverse_error=np.where(kept, bins.inverse_error, 0.0)
    )
    values = point_estimates(posterior, rest, keys, lambda progress: None, Stop()).solution.values
    devices = devices_for(len(count), FEW)
    parts = stream(
        _residual(posterior),
        Batches(len(count), BINS, devices),
        lambda index: (take(bins, index), {name: array[index] for name, array in values.items()}),
    )
    return np.concatenate([part for _, part in parts])[: len(count)]


@lru_cache(maxsize=32)
def _residual(posterior: Posterior) -> Spread:
    def one(bin: Bin, values: dict[str, Float[Array, ""]]) -> Float[Array, " tau"]:
        return bin.y - posterior.mean(values, bin) * bin.inverse_error

    return Spread(one, named("residual", posterior.identity))


def _first_good(
    off: Float[np.ndarray, "trial point"], counts: Int[np.ndarray, " trial"], tau: Float[np.ndarray, " point"]
) -> float:
    """The shortest decimal between the last delay to be left out and the first to be kept; 0 if something other than
    the first delays is wrong. `off` are the distances of the valid points from the curve of each trial, which leaves
    out the first `counts` points."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = [np.sqrt(np.mean(row[count:] ** 2)) for row, count in zip(off, counts, strict=True)]
        for row, count, sd in zip(off[1:], counts[1:], rest[1:], strict=True):
            following = row[count : count + NEXT] / sd
            on = np.all(np.abs(following) < FAR) and abs(np.sum(following)) < FAR * np.sqrt(NEXT)
            if on:
                clear = np.max(np.abs(row[:count])) > CLEARLY * sd and sd**2 < SMALLER * rest[0] ** 2
                return shortest_between(tau[count - 1], tau[count]) if clear else 0.0
    return 0.0


def shortest_between(low: float, high: float) -> float:
    """The number with the fewest digits that is above `low` and not above `high`, both positive."""
    for digits in range(1, 18):
        step = 10.0 ** (np.floor(np.log10(high)) - digits + 1)
        number = float(f"{np.floor(high / step) * step:.{digits}g}")
        if low < number <= high:
            return number
    return high

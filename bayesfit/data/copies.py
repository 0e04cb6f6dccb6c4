"""Datasets that are no measurements of their own beside others: copies of one, and averages of several.

An average of repeats is a weighted mean of their curves, to rounding. So each dataset is compared with the weighted
mean of the others, of the same bins and delays, that comes nearest to it: non-negative least squares, weights of sum 1
(Lawson & Hanson, Solving Least Squares Problems, chapter 23). An independent measurement stays away from all such means
by its own noise at least, as told by the difference of its points from a smooth curve; an average does not. A repeat is
no such mean of the average and the other repeats, since it would need negative weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.optimize import nnls

from bayesfit.data.dependence import noise_of
from bayesfit.data.stack import labels_of, oriented, same_bins, same_delays

Array = np.ndarray

NEAR = 0.2  # of a curve's own noise
EXACT = 1e-9  # of a curve's range
ENOUGH = 200  # points
LEAST_ALIKE = 0.2  # correlation
LEAST_SHARE = 1e-3  # of a mean, below which a dataset is none of those averaged
SUM_OF_WEIGHTS = 1e3  # how much it counts, in units of the curves' range
SHOWN = 3  # names
FEWEST = 12  # points that can be compared


def copies(datasets: Sequence[xr.Dataset]) -> dict[int, str]:
    """Of several datasets the places of those that repeat others, each with what it is, in words; of copies the first
    is none."""
    datasets = oriented(datasets)
    labels, found = labels_of(datasets), dict[int, str]()
    for alike in _alike(datasets):
        few = _few_bins([datasets[place] for place in alike])
        noise = np.array([noise_of(data).ravel() for data in few])
        for one in np.flatnonzero(_suspect(noise))[::-1].tolist():
            others = [other for other in range(len(alike)) if other != one and alike[other] not in found]
            of = _averaged(few[one], noise[one], [few[other] for other in others])
            if len(of) > 1 or (len(of) == 1 and others[of[0]] < one):
                names = [str(labels[alike[others[index]]]) for index in of]
                found[alike[one]] = ("the average of " if len(of) > 1 else "a copy of ") + _listed(names)
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _alike(datasets: list[xr.Dataset]) -> list[list[int]]:
    """The places of datasets of the same bins and delays."""
    found: list[list[int]] = []
    for place, data in enumerate(datasets):
        first = next((places for places in found if _comparable(datasets[places[0]], data)), None)
        if first is None:
            found.append([place])
        else:
            first.append(place)
    return found


def _comparable(data: xr.Dataset, other: xr.Dataset) -> bool:
    return same_delays(data.tau.values, other.tau.values) and same_bins(data, other)


def _few_bins(datasets: list[xr.Dataset]) -> list[xr.Dataset]:
    """The datasets with as few of their bins as tell averages from measurements."""
    points = ENOUGH + len(datasets)
    step = max(datasets[0].g2.size // points, 1)
    return [data.isel(q_bin=slice(None, None, step)) for data in datasets]


def _suspect(noise: Array) -> Array:
    """Which datasets have noise (dataset, point) that is like another one's, or like that of the mean of all others;
    or none, so that nothing can be said. Only of these is it worth to look for weights."""
    made = np.nan_to_num(noise)
    size = np.sqrt((made**2).sum(axis=1))
    scaled = made / np.where(size > 0, size, 1.0)[:, None]
    rest = scaled.sum(axis=0) - scaled
    length = np.maximum(np.sqrt((rest**2).sum(axis=1)), np.finfo(float).tiny)
    gram = scaled @ scaled.T
    np.fill_diagonal(gram, 0.0)
    return (gram.max(axis=1) > LEAST_ALIKE) | ((scaled * rest).sum(axis=1) / length > LEAST_ALIKE) | (size == 0)


def _averaged(data: xr.Dataset, noise: Array, others: list[xr.Dataset]) -> list[int]:
    """Which of the other datasets this one is an average of; none where it is a measurement of its own."""
    if not others:
        return []
    both = data.valid.values & np.all([other.valid.values for other in others], axis=0)
    curve, parts = data.g2.values[both], np.array([other.g2.values[both] for other in others])
    if curve.size < FEWEST:
        return []
    weights = _weights(curve, parts)
    distance = np.median(np.abs(curve - weights @ parts))
    near = max(NEAR * _size_of(noise[both.ravel()], curve), EXACT * np.ptp(curve))
    return np.flatnonzero(weights > LEAST_SHARE).tolist() if distance <= near else []


def _size_of(noise: Array, curve: Array) -> float:
    """Median absolute noise of the points of a curve: from what a spline leaves, or from fourth differences, whichever
    is less, since a point far off spoils the one and a bend the other."""
    left = float(np.nanmedian(np.abs(noise))) if np.isfinite(noise).any() else 0.0
    return min(left, float(np.median(np.abs(np.diff(curve, 4)))) / np.sqrt(70.0))


def _weights(curve: Array, parts: Array) -> Array:
    """Weights of the curves `parts` (dataset, point) whose mean comes nearest to `curve` (point); equal ones where
    there are too few points to tell them."""
    if curve.size < len(parts):
        return np.full(len(parts), 1.0 / len(parts))
    middle = parts.mean(axis=0)
    unit = max(float(np.abs(parts - middle).max()), float(np.abs(curve - middle).max()), np.finfo(float).tiny)
    design = np.vstack([(parts - middle).T / unit, np.full(len(parts), SUM_OF_WEIGHTS)])
    return nnls(design, np.append((curve - middle) / unit, SUM_OF_WEIGHTS))[0]

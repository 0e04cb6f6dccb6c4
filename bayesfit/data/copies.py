"""Finds datasets that are no measurements of their own: copies of another dataset, and averages of several others.

An average of repeats is a weighted mean of their curves, up to rounding. So each dataset is compared with the nearest
weighted mean of the others that have the same bins and delays. The weights come from non-negative least squares, with a
sum of 1 (Lawson & Hanson, Solving Least Squares Problems, chapter 23). An independent measurement differs from every
such mean by at least its own noise, which is estimated from the difference of its points from a smooth curve; an
average does not. A repeat is not such a mean of the average and the other repeats, since that would need negative
weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from bayesfit.data.dependence import noise_of
from bayesfit.data.stack import labels_of, oriented, same_bins, same_delays

Array = np.ndarray

NEAR = 0.2  # distance from a mean, in units of the curve's own noise, below which a dataset is that mean
EXACT = 1e-9  # the same, in units of the curve's range
ENOUGH = 200  # points on which averages are distinguished from measurements
LEAST_ALIKE = 0.2  # correlation of two datasets' noise from which they are suspected
LEAST_SHARE = 1e-3  # smallest weight with which a dataset counts as part of an average
SUM_OF_WEIGHTS = 1e3  # weight of the condition that the weights have the sum 1, in units of the curves' range
SHOWN = 3  # names in a message
FEWEST = 12  # points that can be compared


def copies(datasets: Sequence[xr.Dataset]) -> dict[int, str]:
    """The places of those datasets that are copies or averages of others, each with what it is, in words. Of several
    copies, the first counts as the measurement."""
    datasets = oriented(datasets)
    labels, found = labels_of(datasets), dict[int, str]()
    for group in _same_bins_and_delays(datasets):
        if len(group) == 1:
            continue
        few = _few_bins([datasets[place] for place in group])
        noise = np.array([noise_of(data).ravel() for data in few])
        for one in np.flatnonzero(_suspect(noise))[::-1].tolist():
            others = [other for other in range(len(group)) if other != one and group[other] not in found]
            of = _averaged(few[one], noise[one], [few[other] for other in others])
            if len(of) > 1 or (len(of) == 1 and others[of[0]] < one):
                names = [str(labels[group[others[index]]]) for index in of]
                found[group[one]] = ("the average of " if len(of) > 1 else "a copy of ") + _listed(names)
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _same_bins_and_delays(datasets: list[xr.Dataset]) -> list[list[int]]:
    """The places of the datasets, grouped by equal bins and delays."""
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
    """The datasets with as few of their bins as are needed to distinguish averages from measurements."""
    points = ENOUGH + len(datasets)
    step = max(datasets[0].g2.size // points, 1)
    return [data.isel(q_bin=slice(None, None, step)) for data in datasets]


def _suspect(noise: Array) -> Array:
    """Which datasets may be copies or averages: their noise (dataset, point) correlates with that of another dataset,
    or of the mean of all others, or they have no noise to compare. Weights are searched for these only."""
    made = np.nan_to_num(noise)
    size = np.sqrt((made**2).sum(axis=1))
    scaled = made / np.where(size > 0, size, 1.0)[:, None]
    rest = scaled.sum(axis=0) - scaled
    length = np.maximum(np.sqrt((rest**2).sum(axis=1)), np.finfo(float).tiny)
    gram = scaled @ scaled.T
    np.fill_diagonal(gram, 0.0)
    return (gram.max(axis=1) > LEAST_ALIKE) | ((scaled * rest).sum(axis=1) / length > LEAST_ALIKE) | (size == 0)


def _averaged(data: xr.Dataset, noise: Array, others: list[xr.Dataset]) -> list[int]:
    """The places of those other datasets of which this one is an average; none if it is a measurement of its own."""
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
    """Median absolute noise of the points of a curve, from the residuals of a spline or from fourth differences: the
    smaller of the two, since an outlier spoils the first and a sharp bend the second."""
    left = float(np.nanmedian(np.abs(noise))) if np.isfinite(noise).any() else 0.0
    return min(left, float(np.median(np.abs(np.diff(curve, 4)))) / np.sqrt(70.0))


def _weights(curve: Array, parts: Array) -> Array:
    """Weights of the curves `parts` (dataset, point) for which their mean comes nearest to `curve` (point,); equal
    weights if there are too few points to determine them."""
    from scipy.optimize import nnls

    if curve.size < len(parts):
        return np.full(len(parts), 1.0 / len(parts))
    middle = parts.mean(axis=0)
    size = max(float(np.abs(parts - middle).max()), float(np.abs(curve - middle).max()), np.finfo(float).tiny)
    design = np.vstack([(parts - middle).T / size, np.full(len(parts), SUM_OF_WEIGHTS)])
    return nnls(design, np.append((curve - middle) / size, SUM_OF_WEIGHTS))[0]

"""Repeats of one measurement averaged into one dataset, without the repeats that differ from the others.

The rule. In each bin, the curve of every repeat is compared with the pointwise median of all repeats. Its distance is
the root mean square of its deviations from the median over its valid points, where each deviation is divided by the
typical size that deviations have at that delay and its neighbours. Stated errors are not used, since they can be wrong
a thousandfold, and neither is any fit. A curve is left out if its distance, divided by the median distance of all
repeats, exceeds a limit. The limit is what a share `level` of good repeats exceeds. It is found by simulation (a Monte
Carlo test: Besag & Diggle, Appl. Stat. 26, 327 (1977)) of the same number of repeats of normal noise. One part of this
noise is white, and one part moves whole curves, as few speckles or a drift of the intensity do. The share of the second
part is estimated from the squared cosines of the angles between differences of repeats; in these differences the curve
that the repeats have in common cancels.

Since the limit is above 1, fewer than half of the repeats can be left out of a bin; of two repeats neither can, and of
three only one that is far off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import xarray as xr

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.data.averaged_pairs import averaged_pairs
from bayesfit.data.copies import copies
from bayesfit.data.curves import MASKED
from bayesfit.data.stack import (
    check_agreement,
    check_same_bins,
    common_attrs,
    file_of,
    labels_of,
    oriented,
    same_delays,
)

Array = np.ndarray

LEVEL = 1e-3
WINDOW = 9  # delays over which the variance between repeats is averaged
COUNTED = 100  # deviations of which a typical size is the median
FEWEST = 3  # repeats that can be compared
ENOUGH = 8  # repeats from which on their scatter, and not the stated errors, gives the errors of the average
SIMULATED = 100_000  # curves that are simulated for a limit
QUADRUPLES = 500
POINTS = 48  # delays of a simulated curve
SHARES = np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0])  # of noise in one mode


def average(
    repeats: Sequence[xr.Dataset],
    *,
    level: float = LEVEL,
    whole: bool = False,
    names: Sequence[str | float] | None = None,
) -> xr.Dataset:
    """Average repeats of one measurement, bin by bin, without those that differ from the others.

    The curve of a repeat is left out of a bin if its distance from the pointwise median of all repeats, divided by the
    median distance, is larger than that of all but a share `level` of good repeats (the rule is explained at the top of
    `data/average.py`). The average is the plain mean over the repeats that are valid at a delay. In bins where 8 or
    more repeats are used, its `g2_err` comes from the scatter of the repeats, whose variance is averaged over nine
    neighbouring delays; in other bins it comes from the stated errors. A dataset that is a copy of another one, or an
    average of others that the instrument has written, is not counted as a repeat (see `bayesfit/data/copies.py`);
    `attrs["repeats_left_out"]` names it.

    Repeats that state their photons, pixels and frames, the same pixels and frames in each, are averaged as numbers of
    photon pairs, zeros included, and the average states its own numbers, so that it is fitted with noise "photons"
    (`data/averaged_pairs.py`). They are compared at the delays at which 10 pairs or more are expected.

    Args:
        repeats: what `bayesfit.read` or `bayesfit.curves` returned, of the same bins and delays.
        level: share of good curves that may be left out by mistake; with 0, none is ever left out.
        whole: whether to leave a repeat out of all bins if it is left out of more than half of them.
        names: names of the repeats; by default those of their files.

    Returns:
        Dataset as `bayesfit.curves` gives it. In addition, `repeats_used` (q_bin) and `repeats_valid` (q_bin, tau) are
        the numbers of repeats in the average; `distance` (repeat, q_bin) is the distance of each repeat over the median
        one, NaN if fewer than 3 can be compared; `limit` (q_bin) is its limit, and `was_used` (repeat, q_bin) says
        whether the repeat is part of the average. Counts of masked points are sums over the repeats used.

    Raises:
        InputError: bins, delays or kinds of data differ; names the file. SettingsError: an impossible level or name.

    Example:
        >>> import bayesfit
        >>> repeats = [bayesfit.simulate(bins=2, seed=seed)[0] for seed in range(5)]
        >>> bayesfit.average(repeats).repeats_used.values.tolist()
        [5, 5]
    """
    repeats = oriented(repeats)
    if not isinstance(level, int | float) or isinstance(level, bool) or not 0.0 <= level < 0.5:
        raise SettingsError(f"got {level!r}, expected a share from 0 to 0.5", field="level")
    check_agreement(repeats)
    check_same_bins(repeats)
    _check_delays(repeats)
    labels, copied = labels_of(repeats, names), copies(repeats)
    own = [place for place in range(len(repeats)) if place not in copied]
    averaged = _of_repeats([repeats[place] for place in own], labels[own], level, whole)
    said = [averaged.attrs["repeats_left_out"], *(f"{labels[place]}, {what}" for place, what in copied.items())]
    return averaged.assign_attrs(repeats_left_out="; ".join(filter(None, said)))


def _of_repeats(repeats: list[xr.Dataset], labels: Array, level: float, whole: bool) -> xr.Dataset:
    """The average of repeats, none of which is a copy or an average of others."""
    pairs = averaged_pairs(repeats)
    g2, _, valid = _points(repeats)
    some = valid if pairs is None else pairs.compared
    compared = [_distances(np.where(some[:, bin], g2[:, bin], np.nan)) for bin in range(g2.shape[1])]
    distance = np.stack([one for one, _ in compared], axis=1)
    limit = np.array([distance_limit(len(repeats), share, level) for share in _shares([c for _, c in compared])])
    with np.errstate(invalid="ignore"):
        used = ~(distance > limit)
    if whole:
        used[(~used).mean(axis=1) > 0.5] = False
    averaged = _averaged(repeats, labels, (distance, limit, used))
    return averaged if pairs is None else pairs.counted_together(averaged, repeats, used)


def _check_delays(repeats: Sequence[xr.Dataset]) -> None:
    first = repeats[0].tau.values
    for data in repeats:
        if not same_delays(data.tau.values, first):
            raise InputError(
                "its delays are not those of the first dataset",
                file=file_of(data),
                field="tau",
                remedy="Average the repeats of each correlator by themselves, and stack the averages",
            )


def _distances(g2: Array) -> tuple[Array, float]:
    """For the curves of one bin (repeat, tau): the distance of each repeat from the median, divided by the median
    distance (repeat,), and the mean squared cosine between differences of repeats; NaN if fewer than 3 repeats can be
    compared."""
    whole = np.full(len(g2), np.nan)
    some = np.isfinite(g2).any(axis=1)
    g2 = g2[:, np.isfinite(g2).sum(axis=0) >= FEWEST]
    some &= np.isfinite(g2).any(axis=1)
    if some.sum() < FEWEST:
        return whole, np.nan
    deviation = g2[some] - np.nanmedian(g2[some], axis=0)
    scaled = deviation / _scale(deviation)
    distance = np.sqrt(np.nanmean(scaled**2, axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):  # repeats that are copies of each other
        whole[some] = np.where(distance > 0, distance / np.median(distance), 0.0)
    return whole, _squared_cosine(np.nan_to_num(scaled))


def _scale(deviation: Array) -> Array:
    """Typical size of the deviations (repeat, tau) at each delay: the median absolute value of some 100 deviations, at
    this delay and its neighbours."""
    half = min(-(-COUNTED // (2 * len(deviation))), deviation.shape[1])
    padded = np.pad(np.abs(deviation), ((0, 0), (half, half)), constant_values=np.nan)
    size = np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1, axis=1), axis=(0, 2))
    return np.maximum(size, 1e-9 * np.nanmax(np.abs(deviation)) + np.finfo(float).tiny)


def _squared_cosine(scaled: Array) -> float:
    """Mean squared cosine of the angle between the differences of two pairs of repeats, from deviations (repeat, tau).

    With 4 repeats or more, the two pairs have no repeat in common. With 3 they share one, which makes the result too
    large and the limit too high: the safe side.
    """
    one, other, third, fourth = _quadruples(len(scaled))
    gram = scaled @ scaled.T
    length = np.diag(gram)
    products = gram[one, third] - gram[one, fourth] - gram[other, third] + gram[other, fourth]
    squares = [length[i] + length[j] - 2.0 * gram[i, j] for i, j in ((one, other), (third, fourth))]
    with np.errstate(divide="ignore", invalid="ignore"):  # repeats that are copies of each other
        return float(np.nanmean(np.minimum(products**2 / (squares[0] * squares[1]), 1.0)))


@lru_cache(maxsize=64)
def _quadruples(repeats: int) -> Array:
    """Sets of four of this number of repeats, drawn with a fixed seed; (4, set). Of 3 repeats, one is taken twice."""
    order = np.argsort(np.random.default_rng(0).random((QUADRUPLES, repeats)), axis=1)
    return order[:, :4].T if repeats > FEWEST else order[:, [0, 1, 0, 2]].T


def _shares(squared_cosines: list[float]) -> list[float]:
    """The share of the noise that moves whole curves, for which the limit of each bin is simulated: one of `SHARES`,
    from the mean squared cosines of the bins.

    If this share of the variance is p and the rest is white, the squared cosines are p^2 on average. A few repeats
    determine them poorly. Therefore the larger of the bin's own value and of the mean over all bins is taken, and then
    p^(1/2) instead of p.
    """
    own = np.array(squared_cosines)
    pooled = np.nanmean(own) if np.isfinite(own).any() else 1.0
    share = np.fmin(np.fmax(own, pooled), 1.0) ** 0.25
    return SHARES[np.minimum(np.searchsorted(SHARES, share - 1e-9), SHARES.size - 1)].tolist()


@lru_cache(maxsize=1024)
def distance_limit(repeats: int, share: float, level: float) -> float:
    """The distance, divided by the median one, that a share `level` of good curves exceeds. It is simulated, with a
    fixed seed, for this number of repeats of normal noise, of whose variance the given `share` moves whole curves."""
    if level == 0.0 or repeats < FEWEST:
        return np.inf
    rng = np.random.default_rng(0)
    rounds, found = max(SIMULATED // repeats, 200), []
    at_once = max(2_000_000 // (repeats * POINTS), 1)
    for start in range(0, rounds, at_once):
        count = min(at_once, rounds - start)
        noise = np.sqrt(1.0 - share) * rng.standard_normal((count, repeats, POINTS))
        noise += np.sqrt(share) * rng.standard_normal((count, repeats, 1))
        distance = np.sqrt(np.mean((noise - np.median(noise, axis=1, keepdims=True)) ** 2, axis=2))
        found.append(distance / np.median(distance, axis=1, keepdims=True))
    return max(float(np.quantile(np.concatenate(found), 1.0 - level)), 1.0)


def _averaged(repeats: list[xr.Dataset], labels: Array, choice: tuple[Array, Array, Array]) -> xr.Dataset:
    """The dataset that is the average over repeats, whose `choice` is: their distances (repeat, q_bin), the limits
    (q_bin), and which of them are used (repeat, q_bin)."""
    distance, limit, used = choice
    g2, g2_err, valid = _points(repeats)
    taken = valid & used[:, :, None]
    count = taken.sum(axis=0)
    mean = _over(np.where(taken, g2, 0.0).sum(axis=0), count)
    stated = _over(np.sqrt(np.where(taken, g2_err**2, 0.0).sum(axis=0)), count)
    found = np.sqrt(_over(_variance(np.where(taken, g2 - mean, 0.0), count), count))
    scattered = (used.sum(axis=0) >= ENOUGH)[:, None] & (found > 0)
    first, binned, per_repeat = repeats[0], ("q_bin", "tau"), ("repeat", "q_bin")
    masked = {name: _masked(repeats, name, used) for name in MASKED if all(name in data for data in repeats)}
    sources = [str(data.attrs.get("file", "")) for data in repeats]
    whole = first.drop_vars([name for name in first.data_vars if name not in ("g2", "g2_err", "valid")]).assign(
        g2=(binned, mean, first.g2.attrs),
        g2_err=(binned, np.where(scattered, found, stated), first.g2_err.attrs),
        valid=(binned, count > 0, first.valid.attrs),
        repeats_used=("q_bin", used.sum(axis=0), {"long_name": "repeats that the average is of"}),
        repeats_valid=(binned, count, {"long_name": "repeats that the average is of at this delay"}),
        distance=(per_repeat, distance, {"long_name": "distance from the median of all repeats over the median one"}),
        limit=("q_bin", limit, {"long_name": "distance from which a repeat is left out"}),
        was_used=(per_repeat, used, {"long_name": "the repeat is part of the average"}),
        repeat_file=("repeat", np.array(sources, dtype=object)),
        repeat_sha256=("repeat", np.array([str(data.attrs.get("sha256", "")) for data in repeats], dtype=object)),
    )
    whole = whole.assign(masked)
    attrs = common_attrs(repeats)
    stated_errors = bool(attrs.get("errors_stated", 1)) or bool((scattered | (count == 0)).all())
    left_out = _in_words(labels, used)
    whole.attrs = attrs | {"repeats": len(repeats), "repeats_left_out": left_out, "errors_stated": int(stated_errors)}
    return whole.assign_coords(repeat=labels)


def _masked(repeats: list[xr.Dataset], name: str, used: Array) -> tuple[str, Array, dict[str, str]]:
    """The number of points of each bin that are masked for one cause, summed over the repeats that are used."""
    counts = np.stack([data[name].values for data in repeats])
    return "q_bin", (counts * used).sum(axis=0), {"long_name": f"{MASKED[name]} (sum over repeats)"}


def _points(repeats: list[xr.Dataset]) -> tuple[Array, Array, Array]:
    """g2, g2_err and valid of all repeats, each (repeat, q_bin, tau)."""
    g2, g2_err, valid = (np.stack([data[name].values for data in repeats]) for name in ("g2", "g2_err", "valid"))
    return g2, g2_err, valid.astype(bool)


def _over(total: Array, count: Array) -> Array:
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _variance(deviation: Array, count: Array) -> Array:
    """Variance between repeats (q_bin, tau), from their deviations (repeat, q_bin, tau) from the mean: the sum of
    squares over the degrees of freedom, both summed over a delay and its neighbours; NaN without degrees of freedom."""
    half = WINDOW // 2

    def summed(array: Array) -> Array:
        padded = np.pad(array, ((0, 0), (half, half)))
        return np.lib.stride_tricks.sliding_window_view(padded, WINDOW, axis=1).sum(axis=-1)

    freedom = summed(np.maximum(count - 1.0, 0.0))
    return _over(summed((deviation**2).sum(axis=0)), freedom)


def _in_words(labels: Array, used: Array) -> str:
    """Which repeats are left out of which bins, in words."""
    parts = []
    for label, row in zip(labels, used, strict=True):
        bins = np.flatnonzero(~row)
        if bins.size:
            parts.append(str(label) + ("" if bins.size == row.size else f" (bins {', '.join(map(str, bins))})"))
    return "; ".join(parts)

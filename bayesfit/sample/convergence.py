"""R-hat and effective sample size of many series at once, in NumPy.

The definitions are those of Vehtari et al., Bayesian Analysis 16, 667 (2021), which ArviZ computes for one series after
another; tests compare the two. The R-hat of a constant series is NaN, and so is the effective sample size of fewer than
8 draws per chain.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from bayesfit.compute.quantiles import quantiles_in_order

AT_ONCE = 2**16  # numbers, so that arrays stay in the processor's cache

Series = Float[np.ndarray, "*any chain draw"]
Numbers = Float[np.ndarray, "*any"]
Values = Shaped[np.ndarray, "*any place"]
Order = Int[np.ndarray, "*any place"]


def worst(x: Float[np.ndarray, "series chain draw"]) -> tuple[float, float, float]:
    """The largest R-hat, and the smallest bulk and tail effective sample size, of series (series, chain, draw)."""
    rhat, bulk, tail = worst_of(x[None])[0]
    return float(rhat), float(bulk), float(tail)


def worst_of(x: Float[np.ndarray, "bin series chain draw"]) -> Float[np.ndarray, "bin 3"]:
    """`worst` of each of many bins. A bin's numbers have the same bits whatever the others are."""
    bins = max(1, AT_ONCE // max(1, x[:1].size))
    parts = [_worst_of(x[first : first + bins]) for first in range(0, len(x), bins)]
    return np.concatenate([np.zeros((0, 3)), *parts])


def _worst_of(x: Float[np.ndarray, "bin series chain draw"]) -> Float[np.ndarray, "bin 3"]:
    halves = _Ordered.of(_split(x))
    scores = halves.normal_scores
    rhat, tail = _rhat(halves, scores), _ess_tail(x, _in_order(x) if x.shape[-1] % 2 else halves.values)
    return np.stack([np.max(rhat, axis=-1), np.min(_ess(scores), axis=-1), np.min(tail, axis=-1)], axis=-1)


def rhat(x: Series) -> Numbers:
    """The larger of rank-normalised split R-hat and folded rank-normalised split R-hat."""
    halves = _Ordered.of(_split(x))
    return _rhat(halves, halves.normal_scores)


def ess_bulk(x: Series) -> Numbers:
    """Effective sample size of the rank-normalised series."""
    return _ess(_Ordered.of(_split(x)).normal_scores)


def ess_mean(x: Series) -> Numbers:
    """Effective sample size of the mean of the series as it is."""
    return _ess(_split(x))


def ess_tail(x: Series) -> Numbers:
    """The smaller effective sample size of the 5 % and the 95 % quantile."""
    return _ess_tail(x, _in_order(x))


def _in_order(x: Series) -> Values:
    """The values of all chains in ascending order."""
    return np.sort(x.reshape(*x.shape[:-2], -1), axis=-1)


def _ess_tail(x: Series, in_order: Values) -> Numbers:
    levels = quantiles_in_order(in_order, (0.05, 0.95))[..., None, None]
    ess = np.min(_ess(_split(x <= levels).astype(float)), axis=0)
    return np.where(np.isnan(x).any(axis=(-2, -1)), np.nan, ess)


def _split(x: Series) -> Series:
    """Each chain as two halves, the middle draw of an odd number left out; (..., 2 chain, draw // 2)."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., :half], x[..., -half:]], axis=-2)


class _Ordered(NamedTuple):
    """Series of this `shape` in ascending order over all chains, `values`, and where each value stands in the series,
    `order`."""

    values: Float[np.ndarray, "*any place"]
    order: Order
    shape: tuple[int, ...]

    @classmethod
    def of(cls, x: Series) -> _Ordered:
        flat = x.reshape(*x.shape[:-2], -1)
        order = np.argsort(flat, axis=-1)
        return cls(_picked(flat, order), order, x.shape)

    @property
    def folded(self) -> _Ordered:
        """The distances from the median. They fall to it and rise again: two runs, which a merge sort only merges."""
        size = self.values.shape[-1]
        median = np.mean(self.values[..., [(size - 1) // 2, size // 2]], axis=-1, keepdims=True)
        distance = np.abs(self.values - median)
        order = np.argsort(distance, axis=-1, kind="stable")
        return _Ordered(_picked(distance, order), _picked(self.order, order), self.shape)

    @property
    def normal_scores(self) -> Series:
        """Normal scores of the ranks over all chains (Blom's offsets); equal values share their mean rank."""
        scores = np.empty(self.values.shape)
        scores.reshape(-1)[self.order + _begins(self.order)] = _scores_in_order(self.values)
        scores[np.isnan(self.values[..., -1])] = np.nan  # which is sorted to the end
        return scores.reshape(self.shape)


def _picked(values: Values, order: Order) -> Values:
    """The values in this order along the last axis; twice as fast as `np.take_along_axis`."""
    return values.reshape(-1).take(order + _begins(values))


def _begins(values: Values) -> Int[np.ndarray, "*any 1"]:
    """Where each series begins, if all are one after the other."""
    return np.arange(0, values.size, values.shape[-1]).reshape(*values.shape[:-1], 1)


def _rhat(halves: _Ordered, scores: Series) -> Numbers:
    """The same as `rhat`, of half chains and their normal scores."""
    return np.maximum(_plain_rhat(scores), _plain_rhat(halves.folded.normal_scores))


@lru_cache(maxsize=8)
def _scores(count: int) -> Float[np.ndarray, " half_rank"]:
    """Normal score of every half rank; that of rank r has the index 2 r."""
    return ndtri((np.arange(2 * count + 1) / 2 - 0.375) / (count + 0.25))


def _scores_in_order(x: Float[np.ndarray, "*any place"]) -> Float[np.ndarray, "*any place"]:
    """Normal scores of values in ascending order. `length` values that are equal, the first of them at the place
    `first`, have a mean rank (from 1) of which twice is 2 first + length + 1."""
    begins = np.ones(x.shape, bool)
    begins[..., 1:] = x[..., 1:] != x[..., :-1]
    first = np.flatnonzero(begins)
    length = np.diff(first, append=begins.size)
    twice = 2 * (first % x.shape[-1]) + length + 1
    return np.repeat(_scores(x.shape[-1])[twice], length).reshape(x.shape)


def _plain_rhat(x: Series) -> Numbers:
    draws = x.shape[-1]
    between = draws * np.var(x.mean(axis=-1), axis=-1, ddof=1)
    within = np.var(x, axis=-1, ddof=1).mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((between / within + draws - 1) / draws)


def _ess(x: Series) -> Numbers:
    """Effective sample size by Geyer's initial monotone sequence (Stan reference manual, sec. 16.4)."""
    chains, draws = x.shape[-2:]
    covariance = _autocovariance(x)
    within = covariance[..., 0] * draws / (draws - 1)
    total = within * (draws - 1) / draws + (np.var(x.mean(axis=-1), axis=-1, ddof=1) if chains > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within[..., None] - covariance) / total[..., None]
    rho[..., 0] = 1.0
    pairs = draws // 2 - 1
    if pairs < 1:
        return np.full(x.shape[:-2], np.nan)
    even, odd = rho[..., 0 : 2 * pairs : 2], rho[..., 1 : 2 * pairs : 2]
    sums = even + odd
    negative = sums < 0
    first = np.where(negative.any(axis=-1), negative.argmax(axis=-1), pairs - 1)
    kept = np.arange(pairs) < first[..., None]
    monotone = np.minimum.accumulate(np.where(kept, sums, np.inf), axis=-1)
    last = np.take_along_axis(even, first[..., None], axis=-1)[..., 0]
    tail = np.where(negative.any(axis=-1), np.maximum(last, 0.0), last)
    time = -1.0 + 2.0 * np.where(kept, monotone, 0.0).sum(axis=-1) + tail
    size = chains * draws
    ess = size / np.maximum(time, 1.0 / np.log10(size))
    constant = np.ptp(x.reshape(*x.shape[:-2], -1), axis=-1) < np.finfo(float).resolution
    return np.where(constant, float(size), ess)


def _autocovariance(x: Series) -> Float[np.ndarray, "*any lag"]:
    """Autocovariance at every lag, the mean of the chains', biased (divided by the number of draws)."""
    draws = x.shape[-1]
    length = next_fast_len(2 * draws)
    centred = np.zeros((*x.shape[:-1], length))
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=centred[..., :draws])
    spectrum = rfft(centred)
    return irfft((spectrum.real**2 + spectrum.imag**2).mean(axis=-2), n=length)[..., :draws] / draws

"""R-hat and effective sample size of many series at once, in NumPy.

The definitions are those of Vehtari et al., Bayesian Analysis 16, 667 (2021), which ArviZ computes for one series after
another; tests compare the two. The R-hat of a constant series is NaN, and so is the effective sample size of fewer than
8 draws per chain.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

Series = Float[np.ndarray, "*any chain draw"]
Numbers = Float[np.ndarray, "*any"]


def worst(x: Float[np.ndarray, "series chain draw"]) -> tuple[float, float, float]:
    """The largest R-hat, and the smallest bulk and tail effective sample size, of series (series, chain, draw)."""
    scores = _rank_normal(_split(x))
    return float(np.max(_rhat(x, scores))), float(np.min(_ess(scores))), float(np.min(ess_tail(x)))


def rhat(x: Series) -> Numbers:
    """The larger of rank-normalised split R-hat and folded rank-normalised split R-hat."""
    return _rhat(x, _rank_normal(_split(x)))


def _rhat(x: Series, scores: Series) -> Numbers:
    """The same, given the normal scores of the half chains."""
    split = _split(x)
    folded = np.abs(split - np.median(split, axis=(-2, -1), keepdims=True))
    return np.maximum(_plain_rhat(scores), _plain_rhat(_rank_normal(folded)))


def ess_bulk(x: Series) -> Numbers:
    """Effective sample size of the rank-normalised series."""
    return _ess(_rank_normal(_split(x)))


def ess_mean(x: Series) -> Numbers:
    """Effective sample size of the mean of the series as it is."""
    return _ess(_split(x))


def ess_tail(x: Series) -> Numbers:
    """The smaller effective sample size of the 5 % and the 95 % quantile."""
    levels = np.quantile(x, [0.05, 0.95], axis=(-2, -1), keepdims=True)
    ess = np.min(_ess(_split((x <= levels).astype(float))), axis=0)
    return np.where(np.isnan(x).any(axis=(-2, -1)), np.nan, ess)


def _split(x: Series) -> Series:
    """Each chain as two halves, the middle draw of an odd number left out; (..., 2 chain, draw // 2)."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., :half], x[..., -half:]], axis=-2)


def _rank_normal(x: Series) -> Series:
    """Normal scores of the ranks over all chains (Blom's offsets); equal values share their mean rank."""
    flat = x.reshape(*x.shape[:-2], -1)
    order = np.argsort(flat, axis=-1)
    scores = np.empty(flat.shape)
    np.put_along_axis(scores, order, _scores(flat.shape[-1])[_twice_ranks(flat, order)], axis=-1)
    scores[np.isnan(flat).any(axis=-1)] = np.nan
    return scores.reshape(x.shape)


@lru_cache(maxsize=8)
def _scores(count: int) -> Float[np.ndarray, " half_rank"]:
    """Normal score of every half rank; that of rank r has the index 2 r."""
    return ndtri((np.arange(2 * count + 1) / 2 - 0.375) / (count + 0.25))


def _twice_ranks(
    x: Float[np.ndarray, "*any draw"], order: Int[np.ndarray, "*any draw"]
) -> Int[np.ndarray, "*any draw"]:
    """Twice the ranks (from 1) of the values in ascending order, which `order` sorts along the last axis: twice, so
    that they are integers also where values share their mean rank."""
    ordered = np.take_along_axis(x, order, axis=-1)
    place = np.arange(x.shape[-1])
    rises = np.diff(ordered, axis=-1) != 0
    if rises.all():
        return np.broadcast_to(2 * place + 2, x.shape)
    edge = np.ones((*x.shape[:-1], 1), bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, rises], axis=-1), place, 0), axis=-1)
    last = np.where(np.concatenate([rises, edge], axis=-1), place, x.shape[-1])
    last = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    return first + last + 2


def _plain_rhat(x: Series) -> Numbers:
    draws = x.shape[-1]
    between = draws * np.var(x.mean(axis=-1), axis=-1, ddof=1)
    within = np.var(x, axis=-1, ddof=1).mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((between / within + draws - 1) / draws)


def _ess(x: Series) -> Numbers:
    """Effective sample size by Geyer's initial monotone sequence (Stan reference manual, sec. 16.4)."""
    chains, draws = x.shape[-2:]
    covariance = _autocovariance(x).mean(axis=-2)
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


def _autocovariance(x: Series) -> Series:
    """Autocovariance of each chain at every lag, biased (divided by the number of draws)."""
    draws = x.shape[-1]
    length = next_fast_len(2 * draws)
    spectrum = rfft(x - x.mean(axis=-1, keepdims=True), n=length)
    return irfft(np.abs(spectrum) ** 2, n=length)[..., :draws] / draws

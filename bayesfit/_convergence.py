"""R-hat and effective sample size of many series at once, in NumPy.

Definitions of Vehtari et al., Bayesian Analysis 16, 667 (2021), as ArviZ computes them one series after another; the
tests hold the two together. Arrays have shape (..., chain, draw). A constant series has R-hat NaN.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

Array = np.ndarray


def rhat(x: Array) -> Array:
    """The larger of rank-normalised split R-hat and folded rank-normalised split R-hat; (...)."""
    split = _split(x)
    folded = np.abs(split - np.median(split, axis=(-2, -1), keepdims=True))
    return np.maximum(_plain_rhat(_rank_normal(split)), _plain_rhat(_rank_normal(folded)))


def ess_bulk(x: Array) -> Array:
    """Effective sample size of the rank-normalised series; (...)."""
    return _ess(_rank_normal(_split(x)))


def ess_tail(x: Array) -> Array:
    """The smaller effective sample size of the 5 % and the 95 % quantile; (...)."""
    low, high = np.quantile(x, [0.05, 0.95], axis=(-2, -1), keepdims=True)
    ess = np.minimum(_ess(_split((x <= low).astype(float))), _ess(_split((x <= high).astype(float))))
    return np.where(np.isnan(x).any(axis=(-2, -1)), np.nan, ess)


def _split(x: Array) -> Array:
    """Each chain as two halves, the middle draw of an odd number left out; (..., 2 chain, draw // 2)."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., :half], x[..., -half:]], axis=-2)


def _rank_normal(x: Array) -> Array:
    """Normal scores of the ranks over all chains (Blom's offsets)."""
    flat = x.reshape(*x.shape[:-2], -1)
    ranks = _ranks(flat)
    return ndtri((ranks - 0.375) / (flat.shape[-1] + 0.25)).reshape(x.shape)


def _ranks(x: Array) -> Array:
    """Ranks from 1 along the last axis; equal values share their mean rank."""
    order = np.argsort(x, axis=-1)
    ordered = np.take_along_axis(x, order, axis=-1)
    place = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    rises = np.diff(ordered, axis=-1) != 0
    edge = np.ones((*x.shape[:-1], 1), bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, rises], axis=-1), place, 0), axis=-1)
    last = np.where(np.concatenate([rises, edge], axis=-1), place, x.shape[-1])
    last = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    ranks = np.empty(x.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=-1)
    ranks[np.isnan(x).any(axis=-1)] = np.nan
    return ranks


def _plain_rhat(x: Array) -> Array:
    draws = x.shape[-1]
    between = draws * np.var(x.mean(axis=-1), axis=-1, ddof=1)
    within = np.var(x, axis=-1, ddof=1).mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((between / within + draws - 1) / draws)


def _ess(x: Array) -> Array:
    """Effective sample size by Geyer's initial monotone sequence (Stan reference manual, sec. 16.4)."""
    chains, draws = x.shape[-2:]
    covariance = _autocovariance(x).mean(axis=-2)
    within = covariance[..., 0] * draws / (draws - 1)
    total = within * (draws - 1) / draws + (np.var(x.mean(axis=-1), axis=-1, ddof=1) if chains > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within[..., None] - covariance) / total[..., None]
    rho[..., 0] = 1.0
    pairs = draws // 2 - 1
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


def _autocovariance(x: Array) -> Array:
    """Autocovariance of each chain at every lag, biased (divided by the number of draws)."""
    draws = x.shape[-1]
    length = next_fast_len(2 * draws)
    spectrum = rfft(x - x.mean(axis=-1, keepdims=True), n=length)
    return irfft(np.abs(spectrum) ** 2, n=length)[..., :draws] / draws

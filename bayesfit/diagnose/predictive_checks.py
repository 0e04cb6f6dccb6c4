"""Posterior predictive checks of one bin: do its residuals scatter as the noise model says?

Where mean curve and noise model are right, the normal scores of the residuals at each posterior draw are independent
standard normal variables. The distribution of a statistic of replicated data then has a closed form, and nothing needs
to be simulated. Each p-value is the median over the draws of the probability that a replicate is as extreme (Gelman,
Meng & Stern 1996 take the mean, which a few draws far from the data would make insensitive). Where it falls with the
statistic, it is computed at the two draws in the middle alone.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from bayesfit.modelling.noise import CORRELATED, SPECKLE, share_at

FEWEST_POINTS = 8
FEWEST_FOR_KURTOSIS = 20

SHARES = (0.2, 0.5, 0.8, 0.95)
RANGES = (0.03, 0.1, 0.3, 1.0)  # decades
TIMES = 6  # over the delay window

TINY = np.finfo(float).tiny

Scores = Float[np.ndarray, "draw point"]
OfDraws = Float[np.ndarray, " draw"]

CHECKS = {
    "p_chi2": "probability of a sum of squared residuals as far from its expectation, under the noise model",
    "p_correlation": "probability of residuals of neighbouring delays that correlate as strongly",
    "p_tails": "probability of tails as heavy, or of a point as far out",
    "p_trend": "probability of residuals that grow or shrink as much with the delay",
}


def check(scores: Scores) -> dict[str, float]:
    """The p-values named in `CHECKS`, from the normal scores of one bin's valid points in order of delay; NaN where
    there are too few points."""
    if scores.shape[1] < FEWEST_POINTS or not np.all(np.isfinite(scores)):
        return dict.fromkeys(CHECKS, float("nan"))
    squares = scores**2
    values = (_chi2(squares), _correlation(scores), _tails(scores), _trend(squares))
    return dict(zip(CHECKS, (float(_middle(p).sum() / 2.0) for p in values), strict=True))


def speckle_log_ratio(
    scores: Float[np.ndarray, "bin tau"], valid: Bool[np.ndarray, "bin tau"], tau: Float[np.ndarray, " tau"]
) -> Float[np.ndarray, " bin"]:
    """The log likelihood of each bin's scores with the correlations of noise "speckle", minus that with the
    correlations of noise "correlated".

    Each is the largest over a few strengths and ranges of the correlation, with the scale profiled out. `tau` has unit
    s.
    """
    share, length = map(np.ravel, np.meshgrid(SHARES, RANGES))
    memory = np.exp(-CORRELATED.layout(tau) / length)
    log_range = _likelihoods(scores, valid, np.broadcast_to(share, memory.shape), memory)
    share, time = map(np.ravel, np.meshgrid(SHARES, np.geomspace(tau[0], tau[-1], TIMES, endpoint=False)))
    gap, spacing = SPECKLE.layout(tau).T[:, :, None]
    speckle = _likelihoods(scores, valid, share_at(share, spacing), np.exp(-gap / time))
    return np.max(speckle, axis=1) - np.max(log_range, axis=1)


def _likelihoods(
    scores: Float[np.ndarray, "bin tau"],
    valid: Bool[np.ndarray, "bin tau"],
    share: Float[np.ndarray, "tau process"],
    memory: Float[np.ndarray, "tau process"],
) -> Float[np.ndarray, "bin process"]:
    """Log likelihoods of scores under several Ornstein-Uhlenbeck processes with added white noise, by a Kalman filter
    (see `ornstein_uhlenbeck`).

    At each delay, `share` is the process's share of the variance and `memory` its correlation with the delay before.
    The scale is profiled out, and terms that all processes have in common are left out.
    """
    shape = len(scores), share.shape[1]
    mean, variance, square, volume = np.zeros(shape), np.ones(shape), np.zeros(shape), np.zeros(shape)
    for place, load in enumerate(np.sqrt(share)):
        mean, variance = memory[place] * mean, 1.0 - memory[place] ** 2 * (1.0 - variance)
        total = share[place] * variance + 1.0 - share[place]
        here = valid[:, place, None]
        off = np.where(here, scores[:, place, None] - load * mean, 0.0)
        square, volume = square + off**2 / total, volume + here * np.log(total)
        gain = here * load * variance / total
        mean, variance = mean + gain * off, (1.0 - gain * load) * variance
    return -0.5 * (valid.sum(axis=1)[:, None] * np.log(np.maximum(square, TINY)) + volume)


def neighbour_correlation(scores: Scores) -> OfDraws:
    """The correlation of neighbouring scores at each draw."""
    total = np.vecdot(scores, scores)
    return np.vecdot(scores[:, 1:], scores[:, :-1]) / np.where(total > 0, total, 1.0)


def _middle(values: OfDraws) -> Float[np.ndarray, " 2"]:
    """The two values in the middle of their order, the same one twice if their number is odd."""
    last = values.size - 1
    return np.sort(values)[[last // 2, (last + 1) // 2]]


def _chi2(squares: Scores) -> OfDraws:
    """The two-sided p-value of a chi-square variable with one degree of freedom per point."""
    above = special.chdtrc(squares.shape[1], np.sum(squares, axis=1))
    return 2.0 * np.minimum(above, 1.0 - above)


def _correlation(scores: Scores) -> OfDraws:
    """The two-sided p-value of the first serial correlation, which for n independent standard normal variables has mean
    0 and variance (n - 1) / (n (n + 2)) (Moran 1948). Further lags would add nothing, since a fit absorbs slow
    variations."""
    count = scores.shape[1]
    sd = np.sqrt((count - 1) / (count * (count + 2.0)))
    return 2.0 * special.ndtr(-_middle(np.abs(neighbour_correlation(scores))) / sd)


def _tails(scores: Scores) -> OfDraws:
    """The smaller of two p-values, of the farthest point and of the kurtosis (Anscombe & Glynn 1983), times 2
    (Bonferroni). The kurtosis finds outliers that have widened the inferred scale of the noise."""
    count = scores.shape[1]
    farthest = -np.expm1(count * np.log1p(-2.0 * special.ndtr(-np.max(np.abs(scores), axis=1))))
    if count < FEWEST_FOR_KURTOSIS:
        return farthest
    return np.minimum(2.0 * np.minimum(farthest, heavy_tails(scores)), 1.0)


def heavy_tails(scores: Scores) -> OfDraws:
    """The one-sided p-value of the sample kurtosis b of normal variables, by the normal score of F. J. Anscombe & W. J.
    Glynn, Biometrika 70, 227 (1983): a function of b that has their first three moments."""
    n, square = scores.shape[1], (scores - np.mean(scores, axis=1, keepdims=True)) ** 2
    kurtosis = n * np.vecdot(square, square) / np.sum(square, axis=1) ** 2
    mean, variance = 3.0 * (n - 1) / (n + 1), 24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    skewness = (
        6.0 * (n**2 - 5 * n + 2) / ((n + 7) * (n + 9)) * np.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    )
    freedom = 6.0 + 8.0 / skewness * (2.0 / skewness + np.sqrt(1.0 + 4.0 / skewness**2))
    scaled = 1.0 + (kurtosis - mean) / np.sqrt(variance) * np.sqrt(2.0 / (freedom - 4.0))
    root = np.cbrt((1.0 - 2.0 / freedom) / scaled)
    return special.ndtr(-(1.0 - 2.0 / (9.0 * freedom) - root) / np.sqrt(2.0 / (9.0 * freedom)))


def _trend(squares: Scores) -> OfDraws:
    """The two-sided p-value of the slope of the squared residuals over the order of the delays (the score test of Cook
    & Weisberg 1983).

    A squared score is a chi-square variable, with mean 1, variance 2 and fourth cumulant 48; the places have mean 0, so
    that the former drops out; the slope, a weighted sum of them, is approximated by a Student-t variable with the same
    variance and fourth cumulant.
    """
    places = np.arange(squares.shape[1]) - (squares.shape[1] - 1) / 2.0
    slope = _middle(np.abs(np.vecdot(squares, places))) / np.sqrt(2.0 * np.sum(places**2))
    freedom = 4.0 + 0.5 * np.sum(places**2) ** 2 / np.sum(places**4)
    return 2.0 * special.stdtr(freedom, -slope * np.sqrt(freedom / (freedom - 2.0)))

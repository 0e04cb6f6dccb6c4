"""Posterior predictive checks of one bin: do its residuals scatter as the noise model says?

Where mean curve and noise are right, the normal scores of the residuals at each posterior draw are independent standard
normal variables, so that the replicated statistic's distribution is known and needs no simulation. Each p-value is the
mean over the draws of the probability that a replicate is as extreme (Gelman, Meng & Stern 1996; Rubin 1984).
"""

from __future__ import annotations

import numpy as np
from scipy import special, stats

FEWEST_POINTS = 8
FAR = 2.5  # standard deviations from which a point counts as one in the tails

CHECKS = {
    "p_chi2": "probability of a sum of squared residuals as far from its expectation, under the noise model",
    "p_correlation": "probability of residuals of neighbouring delays that correlate as strongly",
    "p_tails": "probability of as many points, or one as far out, in the tails",
    "p_trend": "probability of residuals that grow or shrink as much with the delay",
}


def check(scores: np.ndarray) -> dict[str, float]:
    """The p-values named in `CHECKS`, from the normal scores (draw, point) of one bin's valid points in order of delay;
    NaN where there are too few points."""
    if scores.shape[1] < FEWEST_POINTS or not np.all(np.isfinite(scores)):
        return dict.fromkeys(CHECKS, float("nan"))
    values = (_chi2(scores), _correlation(scores), _tails(scores), _trend(scores))
    return dict(zip(CHECKS, (float(np.mean(p)) for p in values), strict=True))


def neighbour_correlation(scores: np.ndarray) -> np.ndarray:
    """Correlation of neighbouring scores at each draw (draw,)."""
    total = np.sum(scores**2, axis=1)
    return np.sum(scores[:, 1:] * scores[:, :-1], axis=1) / np.where(total > 0, total, 1.0)


def _chi2(scores: np.ndarray) -> np.ndarray:
    """Two-sided, of a chi-square variable with a degree of freedom a point."""
    total, count = np.sum(scores**2, axis=1), scores.shape[1]
    return 2.0 * np.minimum(stats.chi2.sf(total, count), stats.chi2.cdf(total, count))


def _correlation(scores: np.ndarray) -> np.ndarray:
    """Two-sided; the first serial correlation of n independent normal variables has mean 0 and, times sum of squares
    over itself, variance (n - 1) / (n (n + 2)) (Moran 1948, about a known mean)."""
    count = scores.shape[1]
    sd = np.sqrt((count - 1) / (count * (count + 2.0)))
    return 2.0 * special.ndtr(-np.abs(neighbour_correlation(scores)) / sd)


def _tails(scores: np.ndarray) -> np.ndarray:
    """The smaller of two p-values, of the farthest point and of the number of far ones, times 2 (Bonferroni)."""
    size, count = np.abs(scores), scores.shape[1]
    farthest = -np.expm1(count * np.log1p(-2.0 * special.ndtr(-np.max(size, axis=1))))
    many = stats.binom.sf(np.sum(size > FAR, axis=1) - 1, count, 2.0 * special.ndtr(-FAR))
    return np.minimum(2.0 * np.minimum(farthest, many), 1.0)


def _trend(scores: np.ndarray) -> np.ndarray:
    """Two-sided, of the rank correlation of the residuals' size with the delay: variance 1 / (n - 1) (Kendall)."""
    count = scores.shape[1]
    ranks = np.argsort(np.argsort(np.abs(scores), axis=1), axis=1)
    places = np.arange(count) - (count - 1) / 2.0
    correlation = (ranks - (count - 1) / 2.0) @ places / np.sum(places**2)
    return 2.0 * special.ndtr(-np.abs(correlation) * np.sqrt(count - 1.0))

"""Whether the residuals of all bins have one shape, as a wrong curve makes them and no noise of the bins' own does."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

SHUFFLES = 1999
MOST_BINS = 1000  # that are compared
MOST_PLACES = 512  # at which they are, in units of the decay
FEWEST_BINS = 9  # of fewer, chance alone can make all alike: 8 of 9 signs may be chosen, 2^8 > 1 / LEAST_P

OfPoints = Float[np.ndarray, "q_bin tau"]


def p_one_shape(residual: OfPoints, mean: OfPoints, tau: Float[np.ndarray, " tau"]) -> float:
    """The probability that residuals of all bins are so much alike, if each bin has noise of its own; NaN for too few
    bins.

    Noise that is as likely as its opposite leaves all signs of the bins equally probable, however it correlates within
    a bin. So the square of the sum over bins is compared with those for random signs (a randomisation test; Lehmann &
    Romano, Testing Statistical Hypotheses, 3rd ed. (2005), section 15.2). Bins are laid over each other twice, by
    delay, and by the delay in units of the one at which each mean curve has fallen by half; the smaller p-value counts
    twice (Bonferroni).

    Args:
        residual: the residuals in standard deviations; NaN where there is none.
        mean: the posterior mean curve.
        tau: the delays, or any x.
    """
    known = np.flatnonzero(np.isfinite(residual).any(axis=1) & np.isfinite(mean).all(axis=1))
    if known.size < FEWEST_BINS:
        return float("nan")
    known = known[np.linspace(0, known.size - 1, min(known.size, MOST_BINS)).astype(int)]
    rows = np.nan_to_num(residual[known])
    rows = rows / np.maximum(np.sqrt(np.mean(rows**2, axis=1, keepdims=True)), 1e-12)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (SHUFFLES, known.size))
    laid = (rows, _from_half(rows, mean[known], tau)) if np.all(tau > 0) else (rows,)
    return min(1.0, len(laid) * min(_p(each, signs) for each in laid))


def _p(rows: Float[np.ndarray, "bin place"], signs: Float[np.ndarray, "shuffle bin"]) -> float:
    """Share of the random signs with which the rows add up to as large a sum, in square."""
    sums = np.sum((signs @ rows) ** 2, axis=1)
    return float((1 + np.sum(sums >= np.sum(rows.sum(axis=0) ** 2))) / (1 + len(signs)))


def _from_half(rows: OfPoints, mean: OfPoints, tau: Float[np.ndarray, " tau"]) -> Float[np.ndarray, "bin place"]:
    """The rows at equal steps in the logarithm of the delay over that at which the mean curve has fallen by half."""
    log_tau = np.log(tau)
    middle = 0.5 * (mean.max(axis=1, keepdims=True) + mean.min(axis=1, keepdims=True))
    half = log_tau[np.argmin(np.abs(mean - middle), axis=1)]
    first, last = log_tau[0] - half.max(), log_tau[-1] - half.min()
    places = np.arange(first, last, max(np.median(np.diff(log_tau)), (last - first) / MOST_PLACES))
    return np.array([np.interp(places, log_tau - at, row, 0.0, 0.0) for at, row in zip(half, rows, strict=True)])

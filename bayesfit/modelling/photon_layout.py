"""What the program of noise "photons" must know of each bin: columns of an array (tau, column), computed in NumPy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from bayesfit.modelling.neighbour_whitening import BAND, neighbour_weights, whitened_data

RARE = 10.0  # pairs: where fewer are expected, there is no dispersion
GROUPS = 8  # of points of nearly the same dispersion

# The columns: E; diagonal of R; log probability of the pairs seen where as many are expected, per unit of standardised
# g2; logarithm of the first weight; white data, and white column of the baseline; in the first rows, of each group of
# points the mean share that dispersion has in their variance, their number, and the sum of their squared white deviance
# residuals; and from the last one on, the weights that whiten.
PAIRS, VARIANCE, AT_BEST, LOG_WEIGHTS, WHITE_DATA, WHITE_ONES, SHARE, POINTS, SQUARES, WEIGHTS = range(10)
COLUMNS = WEIGHTS + BAND + 1


def deviance_of(n: Float[np.ndarray, " tau"], mu: Float[np.ndarray, " tau"]) -> Float[np.ndarray, " tau"]:
    """Deviance residuals sign(n - mu) sqrt(2 (n log(n / mu) - n + mu)) of Poisson numbers n."""
    return np.sign(n - mu) * np.sqrt(2.0 * np.maximum(special.xlogy(n, n / mu) - n + mu, 0.0))


def uncorrelated(
    pairs: Float[np.ndarray, "q_bin tau"], seen: Float[np.ndarray, "q_bin tau"], valid: Bool[np.ndarray, "q_bin tau"]
) -> Float[np.ndarray, "q_bin tau column"]:
    """The layout of bins of which only the counting of pairs is known: R = 1, and g2_err = E^(-1/2).

    Args:
        pairs, seen: expected where g2 = 1, and found; n log n - n - log n! is the log probability at mu = n.
        valid: which points count.
    """
    layout = np.zeros((*pairs.shape, COLUMNS))
    layout[..., PAIRS], layout[..., VARIANCE], layout[..., WEIGHTS] = pairs, 1.0, 1.0
    layout[..., AT_BEST] = special.xlogy(seen, seen) - seen - special.gammaln(seen + 1.0)
    layout[..., AT_BEST] += 0.5 * np.log(np.where(pairs > 0, pairs, 1.0))
    for bin, own in enumerate(valid):
        layout[bin, :GROUPS, SHARE : SQUARES + 1] = _grouped(pairs[bin, own], np.ones(own.sum()))
    return layout


def with_white_data(
    layout: Float[np.ndarray, "q_bin tau column"],
    y: Float[np.ndarray, "q_bin tau"],
    inverse_error: Float[np.ndarray, "q_bin tau"],
) -> Float[np.ndarray, "q_bin tau column"]:
    """The layouts of bins with these standardised data, 0 where not valid."""
    layout = layout.copy()
    for column, data in ((WHITE_DATA, y), (WHITE_ONES, inverse_error)):
        layout[..., column] = np.where(inverse_error > 0, whitened_data(data, layout[..., WEIGHTS:]), 0.0)
    return layout


def with_theory(
    layout: Float[np.ndarray, "tau column"],
    correlation: Float[np.ndarray, "delay delay"],
    valid: Bool[np.ndarray, " tau"],
    deviance: Float[np.ndarray, " delay"],
) -> Float[np.ndarray, "tau column"]:
    """The layout of a bin with R, the correlation matrix of its first delays, of which the valid ones count, and with
    deviance residuals at an estimate, 0 where not valid."""
    layout, size, sd = layout.copy(), len(correlation), np.sqrt(np.diag(correlation))
    weights = neighbour_weights(correlation / np.outer(sd, sd), valid[:size])
    white = whitened_data(deviance / sd, weights)[valid[:size]]
    layout[:size, VARIANCE], layout[:size, WEIGHTS:] = sd**2, weights
    layout[:size, LOG_WEIGHTS] = np.log(np.where(valid[:size], weights[:, 0], 1.0))
    layout[:GROUPS, SHARE : SQUARES + 1] = _grouped(layout[:size, PAIRS][valid[:size]], white)
    return layout


def _grouped(pairs: Float[np.ndarray, " point"], white: Float[np.ndarray, " point"]) -> Float[np.ndarray, "group 3"]:
    """Points in groups of nearly the same share E / (E + 10): their mean share, number, and sum of squares."""
    share = np.sort(pairs / (pairs + RARE))
    squares = (white**2)[np.argsort(pairs, kind="stable")]
    parts = np.array_split(np.arange(share.size), GROUPS)
    return np.array([[share[part].mean() if part.size else 0.0, part.size, squares[part].sum()] for part in parts])


def residual_correlation(
    mean: Float[np.ndarray, " tau"], covariance: Float[np.ndarray, "tau tau"], pairs: Float[np.ndarray, " tau"]
) -> Float[np.ndarray, "tau tau"]:
    """R, from theory's mean of g2 and its covariance without the counting of pairs."""
    size = np.sqrt(pairs / mean)  # 0 where no pair is expected
    values, vectors = np.linalg.eigh(covariance * size[:, None] * size)
    return np.eye(pairs.size) + (vectors * np.maximum(values, 0.0)) @ vectors.T

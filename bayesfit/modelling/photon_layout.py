"""What the programs of noise "photons" must know of each bin: columns of an array (tau, column), computed in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from bayesfit.modelling.averaged_delays import NEIGHBOURS
from bayesfit.modelling.neighbour_whitening import BAND, neighbour_weights, whitened_data

RARE = 10.0  # pairs: where fewer are expected, there is no dispersion
GROUPS = 8  # of points of nearly the same dispersion
UNKNOWN = 1e-4  # part of the variance by theory that is taken to be of each delay alone: quadrature is no better
NEARLY = 0.02  # variance below zero that makes no difference beside the 1 of counted pairs

# The columns: E; diagonal of R; log probability of the pairs seen where as many are expected, per unit of
# standardised g2; logarithm of the first weight; white data, and white column of the baseline; in the first rows, of
# each group of points the mean share that dispersion has in their variance, their number, and the sums of their
# squared white residuals at an estimate, those of pairs and those of the normal approximation; the factors by which the
# curve is averaged about each delay; and from the last one on, the weights that whiten.
PAIRS, VARIANCE, AT_BEST, LOG_WEIGHTS, WHITE_DATA, WHITE_ONES, SHARE, POINTS, OF_PAIRS, SQUARES, AVERAGING = range(11)
WEIGHTS = AVERAGING + NEIGHBOURS
COLUMNS = WEIGHTS + BAND + 1

OfBins = Float[np.ndarray, "bin tau column"]
OfPoints = Float[np.ndarray, "bin tau"]
Points = Float[np.ndarray, " point"]
Matrices = Float[np.ndarray, "bin tau tau"]


class Pairs(NamedTuple):
    """Pairs of bins: those seen, and those expected at an estimate and by theory, which are positive."""

    seen: OfPoints
    expected: OfPoints
    by_theory: OfPoints


def pair_residuals(n: OfPoints, mu: OfPoints, variance: OfPoints) -> OfPoints:
    """Residuals of n pairs where mu are expected, of these variances by theory; see `modelling/photons.py`."""
    deviance = np.sign(n - mu) * np.sqrt(2.0 * np.maximum(special.xlogy(n, n / mu) - n + mu, 0.0))
    return deviance / variance + (1.0 - 1.0 / variance) * 2.0 * (np.sqrt(n) - np.sqrt(mu))


def uncorrelated(
    pairs: OfPoints,
    seen: OfPoints,
    valid: Bool[np.ndarray, "bin tau"],
    averaging: Float[np.ndarray, "delay neighbour"],
) -> OfBins:
    """The layout of bins of which only the counting of pairs is known: R = 1, and g2_err = E^(-1/2).

    Args:
        pairs, seen: expected where g2 = 1, and found; n log n - n - log n! is the log probability at mu = n.
        valid: which points count.
        averaging: factors of the average about each of the first delays.
    """
    layout = np.zeros((*pairs.shape, COLUMNS))
    layout[:, : len(averaging), AVERAGING:WEIGHTS] = averaging
    layout[..., PAIRS], layout[..., VARIANCE], layout[..., WEIGHTS] = pairs, 1.0, 1.0
    layout[..., AT_BEST] = special.xlogy(seen, seen) - seen - special.gammaln(seen + 1.0)
    layout[..., AT_BEST] += 0.5 * np.log(np.where(pairs > 0, pairs, 1.0))
    for bin, own in enumerate(valid):
        layout[bin, :GROUPS, SHARE : SQUARES + 1] = _grouped(pairs[bin, own], *np.ones((2, own.sum())))
    return layout


def with_white_data(layout: OfBins, y: OfPoints, inverse_error: OfPoints) -> OfBins:
    """The layouts of bins with these standardised data, 0 where not valid."""
    layout, weights = layout.copy(), layout[..., WEIGHTS:]
    for column, data in ((WHITE_DATA, y), (WHITE_ONES, inverse_error)):
        layout[..., column] = np.where(inverse_error > 0, whitened_data(data, weights), 0.0)
    return layout


def with_theory(layout: OfBins, correlation: Matrices, valid: Bool[np.ndarray, "bin delay"], pairs: Pairs) -> OfBins:
    """The layouts of bins with R of their first delays, of which the valid ones count, and with residuals at an
    estimate."""
    layout, size = with_errors(layout, correlation, valid), correlation.shape[1]
    variance, weights = layout[:, :size, VARIANCE], layout[:, :size, WEIGHTS:]
    n, mu, by_theory = pairs
    residuals = pair_residuals(n, mu, variance), (n - mu) / np.sqrt(by_theory)
    white = [whitened_data(np.where(valid, each / np.sqrt(variance), 0.0), weights) for each in residuals]
    for bin, own in enumerate(valid):
        expected = layout[bin, :size, PAIRS][own]
        layout[bin, :GROUPS, SHARE : SQUARES + 1] = _grouped(expected, *(each[bin, own] for each in white))
    return layout


def with_errors(layout: OfBins, correlation: Matrices, valid: Bool[np.ndarray, "bin delay"]) -> OfBins:
    """The layouts of bins with the diagonal of R of their first delays, and the weights that whiten these."""
    layout, size = layout.copy(), correlation.shape[1]
    variance = np.diagonal(correlation, axis1=1, axis2=2)
    sd = np.sqrt(variance)
    weights = neighbour_weights(correlation / (sd[:, :, None] * sd[:, None, :]), valid)
    layout[:, :size, VARIANCE], layout[:, :size, WEIGHTS:] = variance, weights
    layout[:, :size, LOG_WEIGHTS] = np.where(valid, np.log(np.where(valid, weights[..., 0], 1.0)), 0.0)
    return layout


def _grouped(pairs: Points, *residuals: Points) -> Float[np.ndarray, "group column"]:
    """Points in groups of nearly the same share E / (E + 10): their mean share, number, and sums of squared
    residuals."""
    share, order = pairs / (pairs + RARE), np.argsort(pairs, kind="stable")
    columns = np.stack([share, *(each**2 for each in residuals)])[:, order]
    parts = np.array_split(columns, GROUPS, axis=1)
    means = [part[0].mean() if part.size else 0.0 for part in parts]
    return np.array([[mean, part.shape[1], *part[1:].sum(axis=1)] for mean, part in zip(means, parts, strict=True)])


def residual_correlation(mean: OfPoints, covariance: Matrices, pairs: OfPoints) -> Matrices:
    """R of bins, from theory's mean of g2 and its covariance without the counting of pairs."""
    size = np.sqrt(pairs / mean)  # 0 where no pair is expected
    scaled = covariance * size[:, :, None] * size[:, None, :]
    found = np.eye(pairs.shape[1]) + _positive(scaled)
    return found + UNKNOWN * np.eye(pairs.shape[1]) * np.diagonal(scaled, axis1=1, axis2=2)[:, None]


def _positive(matrices: Matrices) -> Matrices:
    """The matrices without their negative eigenvalues, which quadrature leaves."""
    if _are_positive(matrices):
        return matrices
    return np.stack([matrix if _are_positive(matrix) else _without_negative(matrix) for matrix in matrices])


def _are_positive(matrices: Float[np.ndarray, "*bins tau tau"]) -> bool:
    try:
        np.linalg.cholesky(matrices + NEARLY * np.eye(matrices.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True


def _without_negative(matrix: Float[np.ndarray, "tau tau"]) -> Float[np.ndarray, "tau tau"]:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T

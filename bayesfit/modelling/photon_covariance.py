"""What theory says of the noise of g2: the covariance of a correlation function measured with few photons and speckles.

A pixel sees M = 1 / contrast equal, independent modes of a Gaussian field. With the field's correlation gamma(s), a
pixel's intensity (mean 1) has moments that are sums over permutations of the times: a cycle of n times contributes the
product of its gammas over M^(n-1), and both directions of a cycle count. With kappa(s) = gamma(s)^2 / M,

    <I_0 I_j>         = 1 + kappa(j)
    <I_0 I_j I_s>     = 1 + kappa(j) + kappa(s) + kappa(s - j) + 2 / M^2 gamma(j) gamma(s) gamma(s - j)
    <I_0 I_j I_s I_t> : likewise with pairs of pairs, four triples (2 / M^2 each), three 4-cycles (2 / M^3 each).

The covariance of the mean products at the delays j and k is the sum over the shift s of the four-point moment at
0, j, s, s + k less the product of the two means. A photon that both products share adds 1 / c times a three-point
moment, in four ways; two shared photons are the counting noise of pairs, which is kept apart. The symmetric
normalisation by the mean intensity enters by the delta method. Sums over the shift are functions of one delay,

    A(d) = sum_s gamma(s)^2 gamma(s + d)^2,    B(d) = sum_s gamma(s) gamma(s + d),

but for one of the 4-cycles. Delays at which m frames are summed see gamma^2 averaged over a triangle of half width m.
Of two delays with other sums each, A and B are the means of those that either sees (see `_pairs_of_lags`).

All is computed for many bins at once. Functions of the lag are tables, see `lag_sums.py`, side by side where all of
them are needed at the same lags.

K. Schaetzel, Quantum Opt. 2, 287 (1990); K. Schaetzel, M. Drewel & S. Stimac, J. Mod. Opt. 35, 711 (1988).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayesfit.data.counting import Counting
from bayesfit.modelling.lag_sums import LagSums, Places, Table, at, extended, lag_sums, places_of

AT_ONCE = 2048  # pairs of lags

OfPairs = Float[np.ndarray, "pair bin"]
OfBins = Float[np.ndarray, " bin"]


def speckle_covariance(
    squared: Float[np.ndarray, "point bin"], contrast: OfBins, counting: Counting
) -> tuple[Float[np.ndarray, "bin tau"], Float[np.ndarray, "bin tau tau"]]:
    """Mean g2 of bins, and its covariance without the counting noise of pairs, whose variance is mean / pairs.

    Args:
        squared: gamma^2 = |g1|^2 of each bin at `lag_grid(counting.frames)`.
        contrast: 1 / M.
        counting: what was counted in these bins.
    """
    lags, sums, exact = counting.lags, lag_sums(counting.frames), extended(squared)
    crossed = sums.crossed(np.sqrt(exact), lags)
    windows, parts = _pairs_of_lags(counting.frames, tuple(lags.tolist()), tuple(counting.summed.tolist()))
    tables, total = np.concatenate([_tables(sums, exact, window) for window in windows]), sums.total(exact)
    decay, covariance = np.empty((lags.size, contrast.size)), np.empty((lags.size, lags.size, contrast.size))
    for part in parts:
        j, k = part.pairs
        pairs = Pairs(total, contrast, at(tables, part.places), crossed[j, k])
        covariance[j, k] = covariance[k, j] = pairs.covariance(counting.counts)
        decay[j], decay[k] = pairs.squared[:2]
    products = np.maximum(np.maximum.outer(counting.frame_pairs, counting.frame_pairs), 1.0)[..., None]
    covariance /= products * counting.pixels * counting.repeats
    return (1.0 + contrast * decay).T, np.ascontiguousarray(np.moveaxis(covariance, -1, 0))


class PairsOfLags(NamedTuple):
    """Some pairs of lags j, k, and the places of j, k, k - j and j + k in the tables of all levels, one below the
    other."""

    pairs: Int[np.ndarray, "2 pair"]
    places: Places


@lru_cache(maxsize=16)
def _pairs_of_lags(
    frames: float, lags: tuple[float, ...], summed: tuple[float, ...]
) -> tuple[tuple[float, ...], list[PairsOfLags]]:
    """How many frames the levels of a correlator sum, and all pairs of lags, some at a time.

    Between products of two levels, gamma^2 is averaged over the frames of either. A function that varies little over
    these is that by the mean of the two levels, since the variances of such averages add."""
    grid, lag = lag_sums(frames).grid, np.array(lags)
    windows, level = np.unique(summed, return_inverse=True)
    every, found = np.stack(np.triu_indices(lag.size)), []
    for pairs in np.array_split(every, np.arange(AT_ONCE, every.shape[1], AT_ONCE), axis=1):
        j, k = pairs
        places = places_of(grid, np.stack([lag[j], lag[k], lag[k] - lag[j], lag[j] + lag[k]]))
        levels = np.stack([level[[j, k, j, k]], level[[j, k, k, j]]])
        found.append(PairsOfLags(pairs, places.of_tables(levels.reshape(2, -1))))
    return tuple(windows.tolist()), found


def _tables(sums: LagSums, exact: Table, window: float) -> Float[np.ndarray, "point 4*bin"]:
    """gamma^2, gamma, A(d) and B(d) of all bins, as the level sees them at which so many frames are summed."""
    squared = sums.averaged(exact, window)
    both = np.concatenate([squared, np.sqrt(np.maximum(squared, 0.0))], axis=1)  # interpolation may round below 0
    return np.concatenate([both, sums.convolved(both)], axis=1)


class Pairs:
    """Pairs of lags j and k: the tables at j, k, k - j and j + k, of which the moments are made, each (pair, bin); and
    the moments. `total` is the sum of gamma^2 over all shifts."""

    def __init__(
        self, total: OfBins, contrast: OfBins, tables: Float[np.ndarray, "4 pair 4*bin"], crossed: OfPairs
    ) -> None:
        self.total, self.contrast, self.crossed = total, contrast, crossed
        of_tables = np.moveaxis(tables.reshape(*tables.shape[:2], 4, -1), 2, 0)
        self.squared, self.field, (*_, apart, together), self.of_fields = of_tables
        self.of_squares = apart, together

    def covariance(self, counts: OfBins) -> OfPairs:
        """Covariance of normalised products, times the number of products and of pixels."""
        mean_j, mean_k = (1.0 + self.contrast * squared for squared in self.squared[:2])
        products = self._four_points() + self._shared_photon() / counts
        with_mean_j, with_mean_k = (self._with_mean(place, counts) for place in (0, 1))
        of_mean = self.contrast * self.total + 1.0 / counts
        return products - 2.0 * mean_k * with_mean_j - 2.0 * mean_j * with_mean_k + 4.0 * mean_j * mean_k * of_mean

    def _four_points(self) -> OfPairs:
        """Sum over shifts of the connected four-point moment of the intensity."""
        c, (field_j, field_k, *_) = self.contrast, self.field
        sum_j, sum_k, sum_apart, sum_together = self.of_fields
        pairs = 4.0 * c * self.total + c**2 * sum(self.of_squares)
        triples = 4.0 * c**2 * (field_j * sum_j + field_k * sum_k)
        cycles = field_j * field_k * (sum_together + sum_apart) + self.crossed
        return pairs + triples + 2.0 * c**3 * cycles

    def _shared_photon(self) -> OfPairs:
        """Three-point moments of the intensity where one photon belongs to both products: the two first photons, the
        two last, or the last of one and the first of the other, either way."""
        (squared_j, squared_k, *squared), (field_j, field_k, *field) = self.squared, self.field
        pairs = 2.0 * (squared_j + squared_k) + sum(squared)
        return 4.0 + 2.0 * self.contrast * pairs + 4.0 * self.contrast**2 * field_j * field_k * sum(field)

    def _with_mean(self, place: int, counts: OfBins) -> OfPairs:
        """Covariance of the product at j (place 0) or k (1) with the mean intensity."""
        triple = 2.0 * self.contrast**2 * self.field[place] * self.of_fields[place]
        of_photons = 2.0 * (1.0 + self.contrast * self.squared[place]) / counts
        return 2.0 * self.contrast * self.total + triple + of_photons

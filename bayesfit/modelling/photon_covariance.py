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

All is computed for many bins at once. Functions of the lag are tables, see `lag_sums.py`, side by side where all of
them are needed at the same lags.

K. Schaetzel, Quantum Opt. 2, 287 (1990); K. Schaetzel, M. Drewel & S. Stimac, J. Mod. Opt. 35, 711 (1988).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayesfit.data.counting import Counting
from bayesfit.modelling.lag_sums import LagSums, Places, Table, at, extended, lag_sums, places_of

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
    decay, covariance = np.empty((lags.size, contrast.size)), np.empty((lags.size, lags.size, contrast.size))
    for of_level in _pairs_of_lags(counting.frames, tuple(lags.tolist()), tuple(counting.summed.tolist())):
        level, (j, k) = Level(sums, sums.averaged(exact, of_level.window)), of_level.pairs
        decay[of_level.own] = at(level.squared, of_level.of_own)
        pairs = Pairs(level, contrast, at(level.tables, of_level.of_pairs), crossed[j, k])
        covariance[j, k] = covariance[k, j] = pairs.covariance(counting.counts)
    products = np.maximum(np.maximum.outer(counting.frame_pairs, counting.frame_pairs), 1.0)[..., None]
    covariance /= products * counting.pixels * counting.repeats
    return (1.0 + contrast * decay).T, np.ascontiguousarray(np.moveaxis(covariance, -1, 0))


class PairsOfLags(NamedTuple):
    """The lags of a level of the correlator, at which so many frames are summed, and the pairs of lags j, k whose
    coarser one is of this level: where the lags lie, and where j, k, k - j and j + k do."""

    window: float
    own: Int[np.ndarray, " own"]
    pairs: Int[np.ndarray, "2 pair"]
    of_own: Places
    of_pairs: Places


@lru_cache(maxsize=16)
def _pairs_of_lags(frames: float, lags: tuple[float, ...], summed: tuple[float, ...]) -> list[PairsOfLags]:
    grid, lag = lag_sums(frames).grid, np.array(lags)
    windows, number = np.unique(summed, return_inverse=True)
    coarser, found = np.triu(np.maximum.outer(number, number) + 1) - 1, []
    for place, window in enumerate(windows.tolist()):
        own, pairs = np.flatnonzero(number == place), np.array(np.nonzero(coarser == place))
        j, k = lag[pairs]
        of_pairs = places_of(grid, np.stack([j, k, k - j, j + k]))
        found.append(PairsOfLags(window, own, pairs, places_of(grid, lag[own]), of_pairs))
    return found


@dataclass(frozen=True)
class Level:
    """One level of the correlator, for many bins: tables of gamma^2 as it sees it, and of the sums over shifts."""

    sums: LagSums
    squared: Table

    @cached_property
    def total(self) -> OfBins:
        """Sum of gamma^2 over all shifts."""
        return self.sums.total(self.squared)

    @cached_property
    def tables(self) -> Float[np.ndarray, "point 4*bin"]:
        """gamma^2, gamma, A(d) and B(d) of all bins, see the module."""
        field = np.sqrt(np.maximum(self.squared, 0.0))  # interpolation may round below 0
        both = np.concatenate([self.squared, field], axis=1)
        return np.concatenate([both, self.sums.convolved(both)], axis=1)


class Pairs:
    """Pairs of lags j and k of a level: the tables at j, k, k - j and j + k, of which the moments are made, each
    (pair, bin); and the moments."""

    def __init__(
        self, level: Level, contrast: OfBins, tables: Float[np.ndarray, "4 pair 4*bin"], crossed: OfPairs
    ) -> None:
        self.level, self.contrast, self.crossed = level, contrast, crossed
        of_tables = np.moveaxis(tables.reshape(*tables.shape[:2], 4, -1), 2, 0)
        self.squared, self.field, (*_, apart, together), self.of_fields = of_tables
        self.of_squares = apart, together

    def covariance(self, counts: OfBins) -> OfPairs:
        """Covariance of normalised products, times the number of products and of pixels."""
        mean_j, mean_k = (1.0 + self.contrast * squared for squared in self.squared[:2])
        products = self._four_points() + self._shared_photon() / counts
        with_mean_j, with_mean_k = (self._with_mean(place, counts) for place in (0, 1))
        of_mean = self.contrast * self.level.total + 1.0 / counts
        return products - 2.0 * mean_k * with_mean_j - 2.0 * mean_j * with_mean_k + 4.0 * mean_j * mean_k * of_mean

    def _four_points(self) -> OfPairs:
        """Sum over shifts of the connected four-point moment of the intensity."""
        c, (field_j, field_k, *_) = self.contrast, self.field
        sum_j, sum_k, sum_apart, sum_together = self.of_fields
        pairs = 4.0 * c * self.level.total + c**2 * sum(self.of_squares)
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
        return 2.0 * self.contrast * self.level.total + triple + of_photons

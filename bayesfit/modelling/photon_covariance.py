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

K. Schaetzel, Quantum Opt. 2, 287 (1990); K. Schaetzel, M. Drewel & S. Stimac, J. Mod. Opt. 35, 711 (1988).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from bayesfit.data.counting import Detection

Array = np.ndarray
Correlation = Callable[[Array], Array]  # gamma(s)^2 at lags (any,) in frames; even, 1 at 0

GRID = 90  # points of a tabulated function of the lag
NODES = 24  # of a quadrature
EVERY = 16  # frames of which each is a node of the sums over shifts
FINEST = 0.05  # lag in frames, the first point after 0 of a table
UNCHANGED = 0.99  # gamma^2 one window away: windows shorter than that change nothing
NEGLIGIBLE = 0.01  # product of two gammas
SMALL_CYCLE = 0.01  # share of a 4-cycle in the covariance that makes no difference
COARSE_EVERY, COARSE_NODES = 16, 24  # of the quadrature of a 4-cycle, which is a small part


def speckle_covariance(
    correlation: Correlation, contrast: float, detection: Detection
) -> tuple[Float[Array, " tau"], Float[Array, "tau tau"]]:
    """Mean g2 of a bin, and its covariance without the counting noise of pairs, whose variance is mean / pairs.

    Args:
        correlation: gamma^2 = |g1|^2 of the bin at a lag in frames.
        contrast: 1 / M.
        detection: what was counted.
    """
    lags, windows = detection.lags, detection.summed
    longest = 4.0 * detection.frames
    exact = _tabulated(correlation, longest)
    levels = [Sums(exact, longest)]
    level = np.zeros(lags.size, int)
    for window in np.unique(windows)[1:]:
        if (averaged := _averaged(exact, window, longest)) is not exact:
            levels.append(Sums(averaged, longest))
        level[windows == window] = len(levels) - 1
    decay = np.array([levels[place].squared(lag) for lag, place in zip(lags, level, strict=True)])
    mean = 1.0 + contrast * decay
    coarser = np.maximum.outer(level, level)
    covariance = np.zeros(coarser.shape)
    for place, sums in enumerate(levels):
        j, k = np.nonzero(np.triu(coarser == place))
        covariance[j, k] = _of_products(sums, contrast, detection.counts, (lags[j], lags[k]), (mean[j], mean[k]))
    covariance = np.triu(covariance) + np.triu(covariance, 1).T
    products = detection.frames - np.minimum.outer(lags, lags)
    return mean, covariance / (products * detection.pixels * detection.repeats)


def _of_products(
    sums: Sums, contrast: float, counts: float, lags: tuple[Array, Array], means: tuple[Array, Array]
) -> Array:
    """Covariance of normalised products at pairs of lags, times the number of products and of pixels."""
    (j, k), (mean_j, mean_k) = lags, means
    products = _four_points(sums, contrast, j, k) + _shared_photon(sums, contrast, j, k) / counts
    with_mean_j, with_mean_k = (_with_mean(sums, contrast, counts, lag) for lag in (j, k))
    of_mean = contrast * sums.total + 1.0 / counts
    return products - 2.0 * mean_k * with_mean_j - 2.0 * mean_j * with_mean_k + 4.0 * mean_j * mean_k * of_mean


def _four_points(sums: Sums, contrast: float, j: Array, k: Array) -> Array:
    """Sum over shifts of the connected four-point moment of the intensity."""
    gamma_j, gamma_k = sums.field(j), sums.field(k)
    pairs = 4.0 * contrast * sums.total + contrast**2 * (sums.of_squares(k - j) + sums.of_squares(j + k))
    triples = 4.0 * contrast**2 * (gamma_j * sums.of_fields(j) + gamma_k * sums.of_fields(k))
    cycles = gamma_j * gamma_k * (sums.of_fields(j + k) + sums.of_fields(k - j))
    if 2.0 * contrast**2 > SMALL_CYCLE:
        cycles = cycles + sums.crossed(j, k)
    return pairs + triples + 2.0 * contrast**3 * cycles


def _shared_photon(sums: Sums, contrast: float, j: Array, k: Array) -> Array:
    """Three-point moments of the intensity where one photon belongs to both products: the two first photons, the two
    last, or the last of one and the first of the other, either way."""

    def three(a: Array, b: Array, c: Array) -> Array:
        squares = sums.squared(a) + sums.squared(b) + sums.squared(c)
        return 1.0 + contrast * squares + 2.0 * contrast**2 * sums.field(a) * sums.field(b) * sums.field(c)

    return 2.0 * three(j, k, k - j) + 2.0 * three(j, k, j + k)


def _with_mean(sums: Sums, contrast: float, counts: float, lag: Array) -> Array:
    """Covariance of a product with the mean intensity."""
    triple = 2.0 * contrast**2 * sums.field(lag) * sums.of_fields(lag)
    return 2.0 * contrast * sums.total + triple + 2.0 * (1.0 + contrast * sums.squared(lag)) / counts


@dataclass(frozen=True)
class Sums:
    """Sums over the shift, in frames, for one correlation `squared` = gamma^2, which has vanished at `longest`."""

    squared: Correlation
    longest: float

    def field(self, lag: Array) -> Array:
        """gamma at lags (any,)."""
        return np.sqrt(np.maximum(self.squared(lag), 0.0))  # interpolation may round below 0

    @cached_property
    def total(self) -> float:
        """Sum of gamma^2 over all shifts."""
        x, weights = _shifts(self.longest)
        return float(2.0 * np.sum(weights * self.squared(x)))

    @cached_property
    def of_squares(self) -> Correlation:
        """A(d), see the module."""
        return _tabulated(lambda lag: _convolved(self.squared, lag, self.longest), 2.0 * self.longest)

    @cached_property
    def of_fields(self) -> Correlation:
        """B(d), see the module."""
        return _tabulated(lambda lag: _convolved(self.field, lag, self.longest), 2.0 * self.longest)

    def crossed(self, j: Array, k: Array) -> Array:
        """Sum over s of gamma(s) gamma(s - j) gamma(s + k - j) gamma(s + k); it is small where either lag is long."""
        found = np.zeros(j.size)
        some = self.squared(0.5 * (j + k)) > NEGLIGIBLE  # one of the four lags is at least half of j + k
        j, k = j[some], k[some]
        kinks = np.sort(np.stack([-k, np.zeros(j.size), j - k, j]), axis=0)[..., None]

        def product(shift: Array) -> Array:
            field = self.field(shift - kinks[0])
            for kink in kinks[1:]:
                field *= self.field(shift - kink)
            return field

        x, weights = _shifts(self.longest, COARSE_EVERY, COARSE_NODES)
        total = (product(kinks[0] - x) + product(kinks[-1] + x)) @ weights
        x, weights = _fractions(COARSE_NODES)
        for low, high in pairwise(kinks):
            width = high - low
            total += width[:, 0] * ((product(low + width * x) + product(high - width * x)) @ weights)
        found[some] = total
        return found


@lru_cache(maxsize=32)
def _shifts(longest: float, every: int = EVERY, nodes: int = NODES) -> tuple[Array, Array]:
    """Shifts from 0 to `longest`, every frame at first and then evenly in the logarithm, and their weights in a sum
    over all frames in which a shift of 0 counts half."""
    shifts = np.concatenate([np.arange(every), np.geomspace(every, longest, nodes)])
    return shifts, _trapezoid(shifts)


@lru_cache(maxsize=4)
def _fractions(nodes: int = NODES) -> tuple[Array, Array]:
    """Places from 0 to 1/2, closer near 0, and the weights of the trapezoidal rule."""
    places = np.concatenate([[0.0], np.geomspace(1e-4, 0.5, nodes)])
    return places, _trapezoid(places)


def _trapezoid(x: Array) -> Array:
    steps = np.diff(x)
    return 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps))


def _tabulated(function: Correlation, longest: float) -> Correlation:
    """An even function, interpolated between points that are even in the logarithm; 0 beyond the longest."""
    grid = np.concatenate([[0.0], np.geomspace(FINEST, longest, GRID)])
    values = function(grid)
    return lambda lag: np.interp(np.abs(lag), grid, values, right=0.0)


def _averaged(squared: Correlation, window: float, longest: float) -> Correlation:
    """gamma^2 averaged over a triangle of this half width, as two sums of so many frames see it."""
    if squared(np.array(float(window))) > UNCHANGED or window <= 1:
        return squared
    x = np.linspace(0.0, 1.0, NODES)
    triangle = _trapezoid(x) * (1.0 - x)

    def average(lag: Array) -> Array:
        off = window * x
        return np.sum(triangle * (squared(lag[:, None] + off) + squared(lag[:, None] - off)), axis=1)

    return _tabulated(average, longest)


def _convolved(function: Correlation, lag: Array, longest: float) -> Array:
    """Sum over s of f(s) f(s + d) for lags d (any,), of an even function f."""
    x, weights = _shifts(longest)
    outside = 2.0 * np.sum(weights * function(x) * function(x + lag[:, None]), axis=1)
    x, weights = _fractions()
    near, far = function(lag[:, None] * x), function(lag[:, None] * (1.0 - x))
    return outside + 2.0 * lag * np.sum(weights * near * far, axis=1)

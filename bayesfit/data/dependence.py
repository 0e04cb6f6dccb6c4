"""Finds bins whose noise is not independent: one measurement counted twice, or fluctuations that bins share.

A joint fit and a law assume that the noise of different bins is independent. If it is not, as for two columns that saw
the same light, or for an average beside its repeats, the intervals of what the bins have in common are too narrow.

The test uses the data alone, and compares bins that have delays in common:

1. The noise of a bin is what remains of its curve after a cubic regression spline in the logarithm of the delay, whose
   number of terms is chosen by generalised cross-validation (Craven & Wahba, Numer. Math. 31, 377 (1979)). Each point
   is divided by the median absolute value of its neighbours. Stated errors serve only as weights of the points, since
   they can be wrong a thousandfold.
2. Let r be the correlation of the noise of two bins over the n delays that they have in common. If the bins are
   independent, its variance is 1 / m with m = n / (1 + 2 sum_k a_k b_k), where a_k and b_k are the autocorrelations of
   the two at a lag of k points (Bartlett, J. R. Stat. Soc. 98, 536 (1935)). So z = artanh(r) (m - 3)^(1/2) is close to
   a standard normal deviate.
3. Real noise is not quite stationary, so z scatters more. Therefore it is divided by the spread of all negative z, to
   which dependent bins do not contribute (an empirical null: Efron, J. Am. Stat. Assoc. 99, 96 (2004)), or by
   `LEAST_SPREAD` if that is larger.
4. Pairs are called dependent by the one-sided step-up rule of Benjamini & Hochberg (J. R. Stat. Soc. B 57, 289 (1995))
   with a false discovery rate `LEVEL`: if all bins are independent, any pair is called with this probability.

The test does not see noise that varies more slowly than the spline, nor bins that have no delay in common.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import special

from bayesfit.compute.errors import warn
from bayesfit.data.curves import by_bin

Array = np.ndarray

LEVEL = 0.01
LEAST_SPREAD = 1.2  # of z, for independent bins of real light scattering
FEWEST = 12  # delays in common
TERMS = (6, 9, 13, 19, 28, 41, 60)  # of a spline; at most a third of the number of points
NEIGHBOURS = 8  # on either side, from which the size of the noise is estimated
LAGS = 10
LARGEST = 4.5  # typical sizes at which noise is cut off, so that no single point decides
LEAST_NOISE = 1e-4  # in units of the curve's range; less than that may be the error of the spline itself
SHOWN = 4  # groups that a message names


class Dependence(NamedTuple):
    """Which bins are not independent: `correlation` (q_bin, q_bin), 0 for pairs that were not called dependent."""

    correlation: Array
    labels: tuple[str, ...]

    @property
    def groups(self) -> list[Array]:
        """Groups of bins, by their places, that depend on each other directly or through other bins."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        count, group = connected_components(coo_array(self.correlation != 0), directed=False)
        places = [np.flatnonzero(group == number) for number in range(count)]
        return [own for own in places if own.size > 1]

    @property
    def too_narrow(self) -> float:
        """The factor by which an interval of the mean over all bins, with equal weights, is too narrow."""
        bins = len(self.correlation)
        return float(np.sqrt(1.0 + self.correlation.sum() / bins)) if bins else 1.0

    @property
    def words(self) -> str:
        """The groups with their correlations, and the remedy; "" if all bins are independent."""
        if not self.groups:
            return ""
        named = [self._named(own) for own in self.groups[:SHOWN]]
        more = f" and {len(self.groups) - SHOWN} more groups" if len(self.groups) > SHOWN else ""
        return (
            f"the noise of {', '.join(named)}{more} is not independent, so that intervals of what bins have in common "
            f"are too narrow, about {self.too_narrow:.2g} times; keep one of each group, or average it"
        )

    def _named(self, own: Array) -> str:
        found = self.correlation[np.ix_(own, own)]
        found = found[found > 0]
        low, high = f"{found.min():.2f}", f"{found.max():.2f}"
        names = [self.labels[place] for place in own[:SHOWN]]
        ending = f" and {own.size - SHOWN} more" if own.size > SHOWN else ""
        return f"bins {', '.join(names)}{ending} (correlation {low if low == high else f'{low} to {high}'})"


def dependence(curves: xr.Dataset) -> Dependence:
    """Which bins of a dataset are not independent of each other, from their data alone."""
    data = by_bin(curves)
    found = _called(*_correlations(_in_typical_sizes(noise_of(data))))
    found[_identical(data)] = 1.0
    np.fill_diagonal(found, 0.0)
    return Dependence(found, _labels(data))


def warned_of(curves: xr.Dataset) -> Dependence:
    """As `dependence`, with a warning that names the bins."""
    found = dependence(curves)
    if found.words:
        warn(found.words)
    return found


def noise_of(data: xr.Dataset) -> Float[np.ndarray, "q_bin tau"]:
    """What is left of each curve (q_bin, tau) after a smooth one; NaN where a point does not count, or a bin has few
    points, or no noise."""
    return np.array([_noise(*bin) for bin in _points(data)]).reshape(data.sizes["q_bin"], -1)


def _points(data: xr.Dataset) -> list[tuple[Array, ...]]:
    """For each bin: the axis on which its curve is smooth, g2, the weights, and which points count."""
    tau = data.tau.values
    axis = np.log(np.where(tau > 0, tau, np.nan)) if data.attrs.get("delays", 1) else tau
    valid = data.valid.values & np.isfinite(axis)
    weight = 1.0 / data.g2_err.where(valid, 1.0).values
    return [(axis, *bin) for bin in zip(data.g2.values, weight, valid, strict=True)]


def _noise(axis: Array, g2: Array, weight: Array, valid: Array) -> Array:
    """What remains of one curve (tau,) after a spline; NaN where a point does not count, or if the bin has no noise."""
    noise = np.full(g2.shape, np.nan)
    x, y, w = axis[valid], g2[valid], weight[valid]
    if np.unique(x).size < FEWEST:
        return noise
    best = np.inf
    for terms in TERMS:
        if terms > max(x.size // 3, TERMS[0]):
            break
        left = y - _spline(x, y, w, terms)
        score = np.sum((w * left) ** 2) / (x.size - terms) ** 2
        if score < best:
            best, noise[valid] = score, left
    return noise if np.nanstd(noise) > LEAST_NOISE * np.ptp(y) else np.full(g2.shape, np.nan)


def _spline(x: Array, y: Array, weight: Array, terms: int) -> Array:
    """The values at x of the weighted cubic regression spline with this number of terms and knots at quantiles of x."""
    basis = _basis(tuple(x.tolist()), terms)
    return basis @ np.linalg.lstsq(weight[:, None] * basis, weight * y, rcond=None)[0]


@lru_cache(maxsize=64)
def _basis(x: tuple[float, ...], terms: int) -> Array:
    """The values of this number of cubic B-splines (point, spline)."""
    from scipy.interpolate import BSpline

    inner = np.quantile(x, np.linspace(0.0, 1.0, terms - 2)[1:-1])
    return BSpline.design_matrix(x, np.concatenate([[x[0]] * 4, inner, [x[-1]] * 4]), 3).toarray()


def _in_typical_sizes(noise: Array) -> Array:
    """Noise (q_bin, tau) divided by the median absolute value of the point and its neighbours, and cut off at
    `LARGEST`; 0 where there is none."""
    padded = np.pad(np.abs(noise), ((0, 0), (NEIGHBOURS, NEIGHBOURS)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1, axis=1)
    size = np.ma.median(np.ma.masked_invalid(windows), axis=2).filled(np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip(np.nan_to_num(noise / size, nan=0.0), -LARGEST, LARGEST)


def _correlations(noise: Array) -> tuple[Array, Array]:
    """For each pair of bins (q_bin, q_bin): the correlation, and the number of independent points that it is based
    on."""
    counts = (noise != 0).astype(float)
    squares = noise**2
    scale = np.sqrt((squares @ counts.T) * (counts @ squares.T))
    found = (noise @ noise.T) / np.where(scale > 0, scale, 1.0)
    own = np.maximum(squares.sum(axis=1), np.finfo(float).tiny)
    lags = range(1, min(LAGS, noise.shape[1] - 1) + 1)
    auto = np.array([(noise[:, lag:] * noise[:, :-lag]).sum(axis=1) / own for lag in lags]).reshape(len(lags), -1)
    number = counts @ counts.T
    return found, np.where(number >= FEWEST, number / np.maximum(1.0 + 2.0 * auto.T @ auto, 1.0), 0.0)


def _called(found: Array, number: Array) -> Array:
    """The correlations of pairs that are called dependent; 0 for all others."""
    one, other = np.nonzero(np.triu(number > 4.0, 1))
    called = np.zeros(found.shape)
    if not one.size:
        return called
    z = np.arctanh(np.clip(found[one, other], -0.9999, 0.9999)) * np.sqrt(number[one, other] - 3.0)
    negative = z[z < 0]
    spread = np.sqrt(np.mean(negative**2)) if negative.size >= FEWEST else 0.0
    sure = discovered(special.ndtr(-z / max(spread, LEAST_SPREAD)))
    called[one[sure], other[sure]] = found[one[sure], other[sure]]
    return called + called.T


def discovered(p: Array) -> Array:
    """Which of many p-values are findings, with a false discovery rate of LEVEL (Y. Benjamini & Y. Hochberg, J. R.
    Stat. Soc. B 57, 289 (1995)): the smallest k, for the largest k of which all are below LEVEL k / n."""
    ordered = np.sort(p)
    below = np.flatnonzero(ordered * p.size < LEVEL * np.arange(1, p.size + 1))
    return p <= ordered[below[-1]] if below.size else np.zeros(p.size, bool)


def _identical(data: xr.Dataset) -> Array:
    """Which pairs of bins (q_bin, q_bin) have the same valid delays, more than two, with equal values."""
    values = np.where(data.valid, data.g2, np.inf)
    _, same = np.unique(values, axis=0, return_inverse=True)
    some = data.valid.values.sum(axis=1) > 2
    return (same[:, None] == same) & some[:, None] & some


def _labels(data: xr.Dataset) -> tuple[str, ...]:
    """The names of the bins: their numbers, with the dataset that they come from if there are several."""
    numbers = [str(number) for number in data.q_bin.values.tolist()]
    if "source" not in data.coords:
        return tuple(numbers)
    return tuple(f"{number} ({source})" for number, source in zip(numbers, data.source.values.tolist(), strict=True))

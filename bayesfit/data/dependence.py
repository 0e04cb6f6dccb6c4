"""Bins whose noise is not independent: one measurement counted twice, or fluctuations that bins share.

A joint fit and a law take the noise of different bins as independent. Where it is not, as of two columns of the same
light, or of an average beside its repeats, what the bins have in common is stated too narrowly.

The test looks at the data alone, at bins that have delays in common:

1. A bin's noise is what is left of its curve after a cubic regression spline in the logarithm of the delay, with as
   many terms as generalised cross-validation takes (Craven & Wahba, Numer. Math. 31, 377 (1979)), each point over the
   median absolute value of its neighbours. Stated errors only weigh the points, since they can be wrong a thousandfold.
2. The correlation r of two bins' noise, over the n delays they have in common, has under independence the variance
   1 / m with m = n / (1 + 2 sum_k a_k b_k), a_k and b_k being the autocorrelations of either at a lag of k points
   (Bartlett, J. R. Stat. Soc. 98, 536 (1935)). So z = artanh(r) (m - 3)^(1/2) is close to a standard normal deviate.
3. Real noise is not quite stationary, so that z scatters more. It is divided by the spread of all negative z, which
   bins that depend on each other do not reach (an empirical null: Efron, J. Am. Stat. Assoc. 99, 96 (2004)), and by
   `LEAST_SPREAD` at least.
4. Pairs are called by the step-up rule of Benjamini & Hochberg (J. R. Stat. Soc. B 57, 289 (1995)) with a share
   `LEVEL` of false ones, one-sided: of a dataset whose bins are all independent, this share is called.

Noise that is slower than the spline is not seen, nor is that of bins without a delay in common.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.interpolate import BSpline
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import false_discovery_control, norm

from bayesfit.compute.errors import BayesfitWarning
from bayesfit.data.curves import by_bin

Array = np.ndarray

LEVEL = 0.01
LEAST_SPREAD = 1.2  # as independent bins of real light scattering have
FEWEST = 12  # delays in common
TERMS = (6, 9, 13, 19, 28, 41, 60)  # of a spline, at most a third of the points
NEIGHBOURS = 8  # on either side, of which the size of the noise is told
LAGS = 10
LARGEST = 4.5  # typical sizes at which noise is cut off, so that no single point tells
LEAST_NOISE = 1e-4  # of a curve's range; below, a spline's own error might be taken for noise
TOO_NARROW = 1.1  # factor from which a statement about all bins is not to be trusted
SHOWN = 4  # groups that are named


class Dependence(NamedTuple):
    """Which bins are not independent: `correlation` (q_bin, q_bin), 0 for pairs that were not called."""

    correlation: Array
    labels: tuple[str, ...]

    @property
    def groups(self) -> list[Array]:
        """Places of bins that depend on each other, directly or through others."""
        count, group = connected_components(coo_array(self.correlation != 0), directed=False)
        places = [np.flatnonzero(group == number) for number in range(count)]
        return [own for own in places if own.size > 1]

    @property
    def too_narrow(self) -> float:
        """How many times too narrow an interval of the mean over all bins is, were they of equal weight."""
        bins = len(self.correlation)
        return float(np.sqrt(1.0 + self.correlation.sum() / bins)) if bins else 1.0

    @property
    def words(self) -> str:
        """The groups with their correlations, and the remedy; "" where all bins are independent."""
        if not self.groups:
            return ""
        named = [self._named(own) for own in self.groups[:SHOWN]]
        more = f" and {len(self.groups) - SHOWN} more groups" if len(self.groups) > SHOWN else ""
        return (
            f"the noise of {', '.join(named)}{more} is not independent, so that intervals of what bins have in common "
            f"are too narrow, about {self.too_narrow:.2g} times; keep one of each group, or average it"
        )

    def judged(self, verdict: str, reason: str) -> tuple[str, str]:
        """The verdict and reason on what bins have in common, given those that know nothing of this: a misfit where
        intervals are `TOO_NARROW`, and in any case named."""
        if not self.words:
            return verdict, reason
        if verdict in ("ok", "not_identified") and self.too_narrow > TOO_NARROW:
            return "misfit", self.words if verdict == "ok" else f"{self.words}; {reason}"
        return verdict, f"{reason}; {self.words}"

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


def warned_of(curves: xr.Dataset, stacklevel: int) -> Dependence:
    """As `dependence`, with a warning that names the bins; a `stacklevel` of 1 is the caller."""
    found = dependence(curves)
    if found.words:
        warnings.warn(found.words, BayesfitWarning, stacklevel=stacklevel + 1)
    return found


def noise_of(data: xr.Dataset) -> Float[np.ndarray, "q_bin tau"]:
    """What is left of each curve (q_bin, tau) after a smooth one; NaN where a point does not count, or a bin has few
    points, or no noise."""
    return np.array([_noise(*bin) for bin in _points(data)]).reshape(data.sizes["q_bin"], -1)


def _points(data: xr.Dataset) -> list[tuple[Array, ...]]:
    """Of each bin the axis on which its curve is smooth, g2, weights, and which points count."""
    tau = data.tau.values
    axis = np.log(np.where(tau > 0, tau, np.nan)) if data.attrs.get("delays", 1) else tau
    valid = data.valid.values & np.isfinite(axis)
    weight = 1.0 / data.g2_err.where(valid, 1.0).values
    return [(axis, *bin) for bin in zip(data.g2.values, weight, valid, strict=True)]


def _noise(axis: Array, g2: Array, weight: Array, valid: Array) -> Array:
    """What is left of one curve (tau,) after a spline; NaN where a point does not count, or the bin has no noise."""
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
    """The weighted cubic regression spline with so many terms, knots at quantiles of x, at x."""
    basis = _basis(tuple(x.tolist()), terms)
    return basis @ np.linalg.lstsq(weight[:, None] * basis, weight * y, rcond=None)[0]


@lru_cache(maxsize=64)
def _basis(x: tuple[float, ...], terms: int) -> Array:
    """The values of so many cubic B-splines (point, spline)."""
    inner = np.quantile(x, np.linspace(0.0, 1.0, terms - 2)[1:-1])
    return BSpline.design_matrix(x, np.concatenate([[x[0]] * 4, inner, [x[-1]] * 4]), 3).toarray()


def _in_typical_sizes(noise: Array) -> Array:
    """Noise (q_bin, tau) over the median absolute value of it and its neighbours, cut off; 0 where there is none."""
    padded = np.pad(np.abs(noise), ((0, 0), (NEIGHBOURS, NEIGHBOURS)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1, axis=1)
    size = np.ma.median(np.ma.masked_invalid(windows), axis=2).filled(np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip(np.nan_to_num(noise / size, nan=0.0), -LARGEST, LARGEST)


def _correlations(noise: Array) -> tuple[Array, Array]:
    """Of each pair of bins the correlation (q_bin, q_bin), and how many independent points it is of."""
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
    """The correlations of pairs that are not independent; 0 for all others."""
    one, other = np.nonzero(np.triu(number > 4.0, 1))
    called = np.zeros(found.shape)
    if not one.size:
        return called
    z = np.arctanh(np.clip(found[one, other], -0.9999, 0.9999)) * np.sqrt(number[one, other] - 3.0)
    negative = z[z < 0]
    spread = np.sqrt(np.mean(negative**2)) if negative.size >= FEWEST else 0.0
    p = norm.sf(z / max(spread, LEAST_SPREAD))
    sure = false_discovery_control(p) < LEVEL
    called[one[sure], other[sure]] = found[one[sure], other[sure]]
    return called + called.T


def _identical(data: xr.Dataset) -> Array:
    """Which pairs of bins (q_bin, q_bin) hold the same numbers at the same delays, `FEWEST` of them or fewer."""
    values = np.where(data.valid, data.g2, np.inf)
    _, same = np.unique(values, axis=0, return_inverse=True)
    some = data.valid.values.sum(axis=1) > 2
    return (same[:, None] == same) & some[:, None] & some


def _labels(data: xr.Dataset) -> tuple[str, ...]:
    """The bins by number, and by the dataset they come from where there are several."""
    numbers = [str(number) for number in data.q_bin.values.tolist()]
    if "source" not in data.coords:
        return tuple(numbers)
    return tuple(f"{number} ({source})" for number, source in zip(numbers, data.source.values.tolist(), strict=True))

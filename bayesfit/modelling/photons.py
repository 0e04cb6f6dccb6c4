"""The likelihood of counted photon pairs, whose delays correlate by speckles and shared photons as theory says.

With E pairs expected where g2 = 1, the pairs seen are n = E g2 and those expected are mu = E mean(tau). Their deviance
residual

    r = sign(n - mu) sqrt(2 (n log(n / mu) - n + mu))

turns the Poisson distribution into a normal one: log Poisson(n | mu) = -r^2 / 2 + a term of n alone, exactly, for any
number of pairs. Where many pairs are seen r is (n - mu) / sqrt(mu). Speckles, and photons that two pairs share, make
the residuals of different delays correlate, with a covariance R that is 1 where only pairs matter:

    r ~ Normal(0, D R D),    R = I + covariance of g2 without pair counting, in units of sqrt(mean / E),

so that one expression holds from a hundredth of a pair per delay to millions. R is computed at an estimate of the
parameters and kept; each residual is whitened by the residuals of the BAND delays before it (A. V. Vecchia, J. R. Stat.
Soc. B 50, 297 (1988)). D^2 = 1 + (dispersion - 1) E / (E + 10) allows for what theory leaves out (hot pixels, unequal
modes, neighbouring pixels in one speckle); where pairs are rare, only counting is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaincc, ndtri
from jaxtyping import Array, Bool, Float
from scipy import special

BAND = 24  # delays before a delay with which it correlates by itself
RARE = 10.0  # pairs: where fewer are expected, there is no dispersion
SMALLEST = 1e-12  # pairs expected, at least
SERIES = 0.01  # relative distance of n from mu below which the deviance is taken from its Taylor series
ORDER = 9  # of that series
FEW = 100.0  # pairs, below which residuals are told by the distribution function
LOG_DISPERSION_SD = 0.5


def deviance_residual(n: Any, mu: Any) -> Any:
    """sign(n - mu) sqrt(2 (n log(n / mu) - n + mu)), smooth also at n = mu."""
    return _deviance(n, jnp.maximum(mu, SMALLEST))


@jax.custom_jvp
def _deviance(n: Any, mu: Any) -> Any:
    return _with_slope(n, mu)[0]


@_deviance.defjvp
def _deviance_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    """Only in mu: n are data."""
    value, slope = _with_slope(*primals)
    return value, slope * tangents[1]


def _with_slope(n: Any, mu: Any) -> tuple[Any, Any]:
    """The deviance residual r, and dr / dmu = (1 - n / mu) / r = -1 / sqrt(mu f) with f = r^2 mu / (n - mu)^2."""
    root = jnp.sqrt(mu * _relative_deviance((n - mu) / mu))
    return (n - mu) / mu * root, -1.0 / root


def _relative_deviance(x: Any) -> Any:
    """2 ((1 + x) log(1 + x) - x) / x^2 for x >= -1; 1 at 0."""
    near = jnp.abs(x) < SERIES
    small, large = jnp.where(near, x, 0.0), jnp.where(near, 1.0, x)
    series = jnp.zeros_like(x)
    for k in range(ORDER, 1, -1):
        series = 2.0 / (k * (k - 1.0)) - small * series
    ratio = 1.0 + large
    logarithm = jnp.log(jnp.maximum(ratio, jnp.finfo(x.dtype).tiny))
    return jnp.where(near, series, 2.0 * (ratio * logarithm - large) / large**2)


def _level(n: Any, mu: Any, place: Any) -> Any:
    """A place from 0 to 1 between the distribution function below n and at n, of Poisson numbers of at most FEW."""
    n = jnp.minimum(n, 10.0 * FEW)
    at, below = gammaincc(n + 1.0, mu), jnp.where(n > 0, gammaincc(jnp.maximum(n, 1.0), mu), 0.0)
    return jnp.clip(below + place * (at - below), 1e-300, 1.0 - 1e-16)


@dataclass(frozen=True)
class PairScatter:
    """How the pairs of one bin scatter about those expected: a `Scatter` whose residuals are no linear function of the
    data.

    `dispersion`: variance of the counts over theory's; `pairs` (tau,): E; `variance` (tau,): diagonal of R; `at_best`
    (tau,): log probability of the pairs seen where as many are expected, per unit of standardised g2; `weights` (tau,
    BAND + 1): factors of each residual and of those before it, of which the white one is the sum; `log_weights` (tau,)
    of each residual itself.
    """

    dispersion: Any
    pairs: Float[Array, " tau"]
    variance: Float[Array, " tau"]
    at_best: Float[Array, " tau"]
    log_weights: Float[Array, " tau"]
    weights: Float[Array, "tau band"]
    scale: float = 1.0
    correlation: None = None
    freedom: None = None

    @property
    def relative(self) -> Float[Array, " tau"]:
        """Standard deviation of each residual by dispersion alone, D."""
        return jnp.sqrt(1.0 + (self.dispersion - 1.0) * self.pairs / (self.pairs + RARE))

    def whiten(self, bin: Any, residual: Any, *columns: Any) -> tuple[Any, ...]:
        """White residuals (tau,), of unit scale, from (g2 - mean) / g2_err; 0 where not valid. Columns of amplitudes
        are 0, since these are sampled."""
        return (self._white(self._deviance(bin, residual), bin), *columns)

    def _pairs(self, bin: Any, standardised: Any) -> Any:
        """Numbers of pairs (tau,) from g2 / g2_err; 1 where not valid."""
        return jnp.where(bin.valid, standardised * self.pairs / jnp.where(bin.valid, bin.inverse_error, 1.0), 1.0)

    def _deviance(self, bin: Any, residual: Any) -> Any:
        found = deviance_residual(self._pairs(bin, bin.y), self._pairs(bin, bin.y - residual))
        return jnp.where(bin.valid, found, 0.0)

    def _white(self, deviance: Any, bin: Any) -> Any:
        standardised = jax.lax.optimization_barrier(deviance / self.relative)  # or it is computed for every term again
        before = jnp.concatenate([jnp.zeros(BAND), standardised])
        size = deviance.size
        shifted = (self.weights[:, off] * before[BAND - off : BAND - off + size] for off in range(BAND + 1))
        return jnp.where(bin.valid, sum(shifted), 0.0)

    def log_volume(self, bin: Any) -> Any:
        """Log determinant of the map from white residuals to deviance residuals."""
        return jnp.sum(jnp.where(bin.valid, jnp.log(self.relative) - self.log_weights, 0.0))

    def log_likelihood(self, white: Any, bin: Any) -> Any:
        """Log probability of the pairs, for white residuals (tau,), per unit of standardised g2."""
        density = self.at_best - 0.5 * white**2
        return jnp.sum(jnp.where(bin.valid, density, 0.0)) - self.log_volume(bin)

    def pointwise(self, residual: Any, bin: Any) -> Any:
        """Log probability of each point (tau,) given all others of the bin; 0 where not valid."""
        root = jnp.where(bin.valid[:, None], self._matrix(), 0.0)
        precision = jnp.where(bin.valid, jnp.sum(root**2, axis=0), 1.0)
        white = root.T @ self._white(self._deviance(bin, residual), bin)
        normal = -0.5 * white**2 / precision + 0.5 * jnp.log(precision)
        return jnp.where(bin.valid, normal - jnp.log(self.relative) + self.at_best, 0.0)

    def _matrix(self) -> Float[Array, "tau tau"]:
        """The whitening as a lower triangular matrix."""
        place = jnp.arange(self.pairs.size)
        off = place[:, None] - place
        inside = (off >= 0) & (off <= BAND)
        return jnp.where(inside, jnp.take_along_axis(self.weights, jnp.clip(off, 0, BAND), axis=1), 0.0)

    def sigma(self, bin: Any) -> Any:
        """Standard deviation of g2 (tau,) where the data lie, NaN where not valid."""
        pairs = self._pairs(bin, bin.inverse_error)
        seen = jnp.maximum(self._pairs(bin, bin.y), 1.0)
        return jnp.where(bin.valid, jnp.sqrt(self.variance * seen) / pairs * self.relative, jnp.nan)

    def scores(self, residual: Any, bin: Any) -> Any:
        """Normal scores (tau,): white residuals; where few pairs are expected, a normal quantile of a place between the
        distribution function below n and at n, so that they are standard normal where the model holds (P. K. Dunn &
        G. K. Smyth, J. Comput. Graph. Stat. 5, 236 (1996)); the places are the same random numbers always."""
        n, mu = self._pairs(bin, bin.y), jnp.maximum(self._pairs(bin, bin.y - residual), SMALLEST)
        places = jax.random.uniform(jax.random.key(0), n.shape)
        level = _level(jnp.round(n), jnp.minimum(mu, FEW), places)
        white = jnp.where(mu < FEW, ndtri(level), self._white(self._deviance(bin, residual), bin))
        return jnp.where(bin.valid, white, 0.0)

    def sample_pairs(self, key: Any, mu: Any) -> Any:
        """Pairs (tau,) where so many are expected: Poisson numbers where they are few, else with R and dispersion."""
        key_counts, key_normal = jax.random.split(key)
        counts = jax.random.poisson(key_counts, jnp.minimum(mu, FEW)).astype(mu.dtype)
        z = jax.random.normal(key_normal, mu.shape)
        root = jnp.where(self.weights[:, :1] == 0.0, jnp.eye(mu.size), self._matrix())
        z = self.relative * jax.scipy.linalg.solve_triangular(root, z, lower=True)
        return jnp.where(mu < FEW, counts, jnp.maximum(mu + jnp.sqrt(mu) * z + z**2 / 6.0, 0.0))


def photons(bin: Any) -> PairScatter:
    """The program of a noise model of counted pairs; `bin.layout` holds all that is known of its counting."""
    log_dispersion = dist.Normal(0.0, LOG_DISPERSION_SD)
    dispersion = numpyro.sample(
        "dispersion", dist.TransformedDistribution(log_dispersion, dist.transforms.ExpTransform())
    )
    return scatter_of(dispersion, bin.layout)


AT_BEST, COLUMNS = 2, 4 + BAND + 1  # of the layout of a bin


def scatter_of(dispersion: Any, layout: Float[Array, "tau column"]) -> PairScatter:
    """The scatter of a bin with this layout."""
    return PairScatter(dispersion, *(layout[:, place] for place in range(4)), layout[:, 4:])


def uncorrelated(
    pairs: Float[np.ndarray, "q_bin tau"], seen: Float[np.ndarray, "q_bin tau"]
) -> Float[np.ndarray, "q_bin tau column"]:
    """The layout of bins of which only the counting of pairs is known: R = 1, and g2_err = E^(-1/2).

    Args:
        pairs, seen: expected where g2 = 1, and found; n log n - n - log n! is the log probability at mu = n.
    """
    layout = np.zeros((*pairs.shape, COLUMNS))
    layout[..., 0], layout[..., 1], layout[..., 4] = pairs, 1.0, 1.0
    layout[..., 2] = special.xlogy(seen, seen) - seen - special.gammaln(seen + 1.0)
    layout[..., 2] += 0.5 * np.log(np.where(pairs > 0, pairs, 1.0))
    return layout


def with_weights(
    layout: Float[np.ndarray, "tau column"],
    correlation: Float[np.ndarray, "delay delay"],
    valid: Bool[np.ndarray, " tau"],
) -> Float[np.ndarray, "tau column"]:
    """The layout of a bin with R, the correlation matrix of its first delays, of which the valid ones count. The
    weights are those of each residual's conditional distribution given the valid ones at most BAND delays before it,
    over its standard deviation."""
    layout, size = layout.copy(), len(correlation)
    layout[:size, 1], layout[:size, 3:] = np.diag(correlation), 0.0
    for place in np.flatnonzero(valid[:size]).tolist():
        first = max(0, place - BAND)
        before = first + np.flatnonzero(valid[first:place])
        factors = np.linalg.solve(correlation[np.ix_(before, before)], correlation[before, place])
        sd = np.sqrt(correlation[place, place] - factors @ correlation[before, place])
        layout[place, 3], layout[place, 4] = -np.log(sd), 1.0 / sd
        layout[place, 4 + place - before] = -factors / sd
    return layout


def residual_correlation(
    mean: Float[np.ndarray, " tau"], covariance: Float[np.ndarray, "tau tau"], pairs: Float[np.ndarray, " tau"]
) -> Float[np.ndarray, "tau tau"]:
    """R, from theory's mean of g2 and its covariance without the counting of pairs."""
    size = np.sqrt(pairs / mean)  # 0 where no pair is expected
    values, vectors = np.linalg.eigh(covariance * size[:, None] * size)
    return np.eye(pairs.size) + (vectors * np.maximum(values, 0.0)) @ vectors.T

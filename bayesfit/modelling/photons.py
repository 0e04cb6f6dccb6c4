"""The likelihood of counted photon pairs, whose delays correlate by speckles and shared photons as theory says.

With E pairs expected where g2 = 1, the pairs seen are n = E g2 and those expected are mu = E mean(tau). Their deviance
residual

    d = sign(n - mu) sqrt(2 (n log(n / mu) - n + mu))

turns the Poisson distribution into a normal one: log Poisson(n | mu) = -d^2 / 2 + a term of n alone, exactly, for any
number of pairs. Where many pairs are seen d is (n - mu) / sqrt(mu). Speckles, and photons that two pairs share, make
the residuals of different delays correlate, with a covariance R that is 1 where only pairs matter:

    r ~ Normal(0, D R D),    R = I + covariance of g2 without pair counting, in units of sqrt(mean / E),

with r = d / R_tt + 2 (sqrt(n) - sqrt(mu)) (1 - 1 / R_tt) at each delay: the term of n is about 1 / sqrt(n), the
derivative of the second residual, which therefore has a normal distribution of any variance without another factor
(F. J. Anscombe, Biometrika 35, 246 (1948)),
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
from jax.scipy.special import gammaincc, gammaln, ndtri, xlogy
from jaxtyping import Array, Float

from bayesfit.modelling.averaged_delays import averaged
from bayesfit.modelling.model import Parameter
from bayesfit.modelling.neighbour_whitening import NeighbourWhitening, banded, whitening_matrix
from bayesfit.modelling.noise_model import Noise
from bayesfit.modelling.photon_layout import (
    AT_BEST,
    AVERAGING,
    COLUMNS,
    GROUPS,
    LOG_WEIGHTS,
    OF_PAIRS,
    PAIRS,
    POINTS,
    RARE,
    SHARE,
    SQUARES,
    VARIANCE,
    WEIGHTS,
    WHITE_DATA,
    WHITE_ONES,
)
from bayesfit.modelling.scatter import Scatter

SMALLEST = 1e-12  # pairs expected, at least
SERIES = 0.01  # relative distance of n from mu below which the deviance is taken from its Taylor series
ORDER = 9  # of that series
FEW = 100.0  # pairs, below which residuals are told by the distribution function
SMALLEST_SHARE = 1e-6
LOG_DISPERSION_SD = 0.5


def pair_residual(n: Any, mu: Any, variance: Any) -> Any:
    """The residual of n pairs where mu are expected, of this variance by theory: the deviance's where only pairs
    matter, 2 (sqrt(n) - sqrt(mu)) where speckles do."""
    mu, share = jnp.maximum(mu, SMALLEST), 1.0 / variance
    return share * _deviance(n, mu) + (1.0 - share) * 2.0 * (jnp.sqrt(n) - jnp.sqrt(mu))


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
    """The deviance residual r, and dr / dmu = (1 - n / mu) / r = -1 / sqrt(mu f) with f = r^2 mu / (n - mu)^2. Without
    the barriers, XLA computes them again for each of the terms that take them."""
    mu = jax.lax.optimization_barrier(mu)
    root = jnp.sqrt(mu * _relative_deviance((n - mu) / mu))
    return jax.lax.optimization_barrier(((n - mu) / mu * root, -1.0 / root))


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
    """A place from 0 to 1 between the distribution function below n and at n, of Poisson numbers with mean mu."""
    n = jnp.minimum(n, 10.0 * FEW)
    at_n = jnp.exp(xlogy(n, mu) - mu - gammaln(n + 1.0))
    return jnp.clip(gammaincc(n + 1.0, mu) - (1.0 - place) * at_n, 1e-300, 1.0 - 1e-16)


@dataclass(frozen=True)
class PairScatter:
    """How the pairs of one bin scatter about those expected: a `Scatter` whose residuals are no linear function of the
    data.

    `dispersion`: variance of the counts over theory's; `pairs` (tau,): E; `variance` (tau,): diagonal of R; `at_best`
    (tau,): log probability of the pairs seen where as many are expected, per unit of standardised g2; `correlation`: of
    the residuals.
    """

    dispersion: Any
    pairs: Float[Array, " tau"]
    variance: Float[Array, " tau"]
    at_best: Float[Array, " tau"]
    correlation: NeighbourWhitening
    scale: float = 1.0
    freedom: None = None

    @property
    def relative(self) -> Float[Array, " tau"]:
        """Standard deviation of each residual: sqrt(R) D."""
        return jnp.sqrt(self.variance * _with_dispersion(self.dispersion, self.pairs))

    def whiten(self, bin: Any, residual: Any, *columns: Any) -> tuple[Any, ...]:
        """White residuals (tau,), of unit scale, from (g2 - mean) / g2_err; 0 where not valid. Columns of amplitudes
        are 0, since these are sampled."""
        return (self._white(self._residuals(bin, residual), bin), *columns)

    def _pairs(self, bin: Any, standardised: Any) -> Any:
        """Numbers of pairs (tau,) from g2 / g2_err; 1 where not valid."""
        return jnp.where(bin.valid, standardised * self.pairs / jnp.where(bin.valid, bin.inverse_error, 1.0), 1.0)

    def _residuals(self, bin: Any, residual: Any) -> Any:
        found = pair_residual(self._pairs(bin, bin.y), self._pairs(bin, bin.y - residual), self.variance)
        return jnp.where(bin.valid, found, 0.0)

    def _white(self, residuals: Any, bin: Any) -> Any:
        return jnp.where(bin.valid, banded(residuals / self.relative, self.correlation.weights), 0.0)

    def log_volume(self, bin: Any) -> Any:
        """Log determinant of the map from white residuals to residuals of pairs."""
        return jnp.sum(jnp.where(bin.valid, jnp.log(self.relative), 0.0)) + self.correlation.log_volume(bin)

    def log_likelihood(self, white: Any, bin: Any) -> Any:
        """Log probability of the pairs, for white residuals (tau,), per unit of standardised g2."""
        density = self.at_best - 0.5 * white**2
        return jnp.sum(jnp.where(bin.valid, density, 0.0)) - self.log_volume(bin)

    def pointwise(self, residual: Any, bin: Any) -> Any:
        """Log probability of each point (tau,) given all others of the bin; 0 where not valid."""
        root = jnp.where(bin.valid[:, None], whitening_matrix(self.correlation.weights), 0.0)
        precision = jnp.where(bin.valid, jnp.sum(root**2, axis=0), 1.0)
        white = root.T @ self._white(self._residuals(bin, residual), bin)
        normal = -0.5 * white**2 / precision + 0.5 * jnp.log(precision)
        return jnp.where(bin.valid, normal - jnp.log(self.relative) + self.at_best, 0.0)

    def sigma(self, bin: Any) -> Any:
        """Standard deviation of g2 (tau,) where the data lie, NaN where not valid."""
        pairs = self._pairs(bin, bin.inverse_error)
        seen = jnp.maximum(self._pairs(bin, bin.y), 1.0)
        return jnp.where(bin.valid, jnp.sqrt(seen) / pairs * self.relative, jnp.nan)

    def scores(self, residual: Any, bin: Any) -> Any:
        """Normal scores (tau,): white residuals; where few pairs are expected, a normal quantile of a place between the
        distribution function below n and at n, so that they are standard normal where the model holds (P. K. Dunn &
        G. K. Smyth, J. Comput. Graph. Stat. 5, 236 (1996)); the places are the same random numbers always."""
        n, mu = self._pairs(bin, bin.y), jnp.maximum(self._pairs(bin, bin.y - residual), SMALLEST)
        places, few = jax.random.uniform(jax.random.key(0), n.shape), mu < FEW
        level = _level(jnp.where(few, jnp.round(n), 1.0), jnp.where(few, mu, 1.0), places)
        white = jnp.where(few, ndtri(level), self._white(self._residuals(bin, residual), bin))
        return jnp.where(bin.valid, white, 0.0)

    def sample(self, key: Any, mean: Any, bin: Any) -> Any:
        """A simulated curve, equal to the mean where points are not valid."""
        pairs = jnp.where(bin.valid, self.pairs, 1.0)
        return jnp.where(bin.valid, self.sample_pairs(key, mean * pairs) / pairs, mean)

    def sample_pairs(self, key: Any, mu: Any) -> Any:
        """Pairs (tau,) where so many are expected: Poisson numbers where they are few, else with R and dispersion."""
        key_counts, key_normal = jax.random.split(key)
        counts = jax.random.poisson(key_counts, jnp.minimum(mu, FEW)).astype(mu.dtype)
        z = jax.random.normal(key_normal, mu.shape)
        z = self.relative * self.correlation.color(z)
        curvature = 1.0 / 4.0 - 1.0 / (12.0 * self.variance)
        return jnp.where(mu < FEW, counts, jnp.maximum(mu + jnp.sqrt(mu) * z + curvature * z**2, 0.0))


def photons(bin: Any) -> Scatter:
    """The program of a noise model of counted pairs, as if they were normal with theory's errors, by which the data are
    standardised; `bin.layout` holds all that is known of their counting."""
    log_dispersion = dist.Normal(0.0, LOG_DISPERSION_SD)
    transform = dist.transforms.ExpTransform()
    dispersion = numpyro.sample("dispersion", dist.TransformedDistribution(log_dispersion, transform))
    scale = jnp.sqrt(1.0 + (dispersion - 1.0) * _mean_share(bin))
    return Scatter(scale, correlation=_correlation(bin.layout), log_factor=_log_factor(dispersion, scale, bin))


def _log_factor(dispersion: Any, scale: Any, bin: Any) -> Any:
    """Log likelihood of the residuals of pairs with the dispersion that each point has, over that of
    (n - mu) / sqrt(mu) with the same scale for all, for the squares found at an estimate; in groups of points of nearly
    the same dispersion."""
    share, points, of_pairs, squares = (bin.layout[:GROUPS, column] for column in (SHARE, POINTS, OF_PAIRS, SQUARES))
    variance = 1.0 + (dispersion - 1.0) * share
    return -0.5 * jnp.sum(of_pairs / variance - squares / scale**2 + points * jnp.log(variance / scale**2))


def _with_dispersion(dispersion: Any, pairs: Any) -> Any:
    """Variance of residuals by dispersion alone, D^2."""
    return 1.0 + (dispersion - 1.0) * pairs / (pairs + RARE)


def counted_pairs(scatter: Scatter, bin: Any) -> PairScatter:
    """The scatter of counted pairs, of which `photons` gives the normal approximation."""
    return scatter_of(1.0 + (scatter.scale**2 - 1.0) / _mean_share(bin), bin.layout)


def _mean_share(bin: Any) -> Any:
    """The mean over the valid points of the share that dispersion has in their variance."""
    share, points = bin.layout[:GROUPS, SHARE], bin.layout[:GROUPS, POINTS]
    return jnp.maximum(jnp.sum(share * points) / jnp.maximum(jnp.sum(points), 1.0), SMALLEST_SHARE)


def scatter_of(dispersion: Any, layout: Float[Array, "tau column"]) -> PairScatter:
    """The scatter of a bin with this layout."""
    pairs, variance, at_best = (layout[:, column] for column in (PAIRS, VARIANCE, AT_BEST))
    return PairScatter(dispersion, pairs, variance, at_best, _correlation(layout))


def _correlation(layout: Float[Array, "tau column"]) -> NeighbourWhitening:
    return NeighbourWhitening(layout[:, WEIGHTS:], layout[:, LOG_WEIGHTS])


def about_each_delay(curve: Any, bin: Any) -> Any:
    """A curve (tau,) as the correlator sees it."""
    return averaged(curve, bin.layout[:, AVERAGING:WEIGHTS])


def white_data(bin: Any) -> tuple[Any, Any]:
    """The standardised data and the column of the baseline, whitened."""
    return bin.layout[:, WHITE_DATA], bin.layout[:, WHITE_ONES]


PHOTONS = Noise(
    name="photons",
    program=photons,
    start=lambda rms, bin: {"dispersion": jnp.clip(rms**2, 0.5, 2.0)},
    delays=True,
    layout=lambda tau: np.zeros((tau.size, COLUMNS)),
    counted=True,
    observed=counted_pairs,
    averaged=about_each_delay,
    parameters=(Parameter("dispersion", "", r"\phi", "variance of the counts over what counting and theory say"),),
    description="photon pairs are counted, correlations of speckles from theory; needs counts, pixels and frames",
    formula="E g2 ~ Poisson(E mean), correlated by speckles, variance times dispersion",
    reference="Schaetzel, Quantum Opt. 2, 287 (1990)",
)

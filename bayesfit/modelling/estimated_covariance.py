"""The likelihood of a curve whose covariance is known from few samples alone.

With the unknown covariance integrated out, K statistics s of mean m, whose covariance was estimated as C from n
samples, have a Student-t distribution (E. Sellentin & A. F. Heavens, MNRAS 456, L132 (2016)),

    p(s | m) proportional to (1 + (s - m)^T C^-1 (s - m) / (n - 1))^(-n / 2).

It is that of normal statistics of covariance u^2 C with one unknown `error_scale` u,

    u^-2 ~ Gamma((n - K) / 2, (n - 1) / 2),

which is how it is written here, so that given u the amplitudes are integrated out as with any normal noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from bayesfit.modelling.compression import COLUMNS, NUMBERS, OF_ROOTS, PLACES, REST, WHITEN
from bayesfit.modelling.model import Parameter
from bayesfit.modelling.noise_model import Noise

OfDelays = Float[Array, " tau"]


@dataclass(frozen=True)
class CompressedScatter:
    """How the statistics of one bin scatter: a `Scatter` of fewer white residuals than there are points. `scale` is
    `error_scale`; `layout` is that of `modelling/compression.py`. White residuals stand where the first valid points
    do, and are 0 elsewhere."""

    scale: Any
    layout: Float[Array, "tau column"]
    correlation: None = None
    freedom: None = None

    @property
    def there(self) -> OfDelays:
        """1 where a statistic stands, else 0."""
        return jnp.sum(self.layout[:, PLACES], axis=1)

    @property
    def relative(self) -> OfDelays:
        """1 / scale where no statistic stands, since there the scale has no part in the likelihood."""
        return jnp.where(self.there > 0, 1.0, 1.0 / self.scale)

    def whiten(self, bin: Any, *columns: OfDelays) -> tuple[OfDelays, ...]:
        """The statistics of standardised columns, white and of the same `scale`."""
        return tuple(self.layout[:, PLACES] @ (self.layout[:, WHITEN].T @ column) for column in columns)

    def log_likelihood(self, white: OfDelays, bin: Any) -> Float[Array, ""]:
        """Log density of the white statistics."""
        return jnp.sum(self.there * (norm.logpdf(white / self.scale) - jnp.log(self.scale)))

    def pointwise(self, residual: OfDelays, bin: Any) -> OfDelays:
        """Log density of each statistic, which are independent of each other; 0 where none stands."""
        (white,) = self.whiten(bin, residual)
        return self.there * (norm.logpdf(white / self.scale) - jnp.log(self.scale))

    def sigma(self, bin: Any) -> OfDelays:
        """Standard deviation of g2 at each delay, NaN where not valid."""
        return jnp.where(bin.valid, self.scale / jnp.where(bin.valid, bin.inverse_error, 1.0), jnp.nan)

    def scores(self, residual: OfDelays, bin: Any) -> OfDelays:
        """Normal scores of the statistics. Where none stands, the points have nothing to say: random numbers, always
        the same, so that the scores of all points are standard normal where the model holds."""
        (white,) = self.whiten(bin, residual)
        other = jax.random.normal(jax.random.key(0), white.shape)
        return jnp.where(bin.valid, jnp.where(self.there > 0, white / self.scale, other), 0.0)

    def sample(self, key: Array, mean: OfDelays, bin: Any) -> OfDelays:
        """A simulated curve with the estimated covariance times the scale squared, equal to the mean where not
        valid."""
        roots, rest = self.layout[:, OF_ROOTS], self.layout[:, REST]
        key_roots, key_rest = jax.random.split(key)
        noise = roots @ jax.random.normal(key_roots, roots.shape[1:])
        noise += rest * jax.random.normal(key_rest, rest.shape)
        return mean + jnp.where(bin.valid, self.scale * noise / jnp.where(bin.valid, bin.inverse_error, 1.0), 0.0)


def covariance(bin: Any) -> CompressedScatter:
    """The program of the noise model."""
    samples, count = jnp.maximum(bin.layout[0, NUMBERS], 2.0), bin.layout[1, NUMBERS]
    precision = dist.Gamma(jnp.maximum(samples - count, 1.0) / 2.0, (samples - 1.0) / 2.0)
    power = dist.transforms.PowerTransform(-0.5)
    return CompressedScatter(numpyro.sample("error_scale", dist.TransformedDistribution(precision, power)), bin.layout)


COVARIANCE = Noise(
    name="covariance",
    program=covariance,
    start=lambda rms, bin: {"error_scale": 1.0},
    delays=True,
    layout=lambda tau: np.zeros((tau.size, COLUMNS)),
    estimated=True,
    parameters=(Parameter("error_scale", "", r"\kappa", "true errors over those of the estimated covariance"),),
    description="Student-t of an estimated covariance of few samples, for a few statistics of the curve; needs g2_cov",
    formula="p(s) ~ (1 + (s - mean)^T C^-1 (s - mean) / (n - 1))^(-n/2), s = A g2, C = A g2_cov A^T of n samples",
    reference="Sellentin & Heavens, MNRAS 456, L132 (2016)",
)

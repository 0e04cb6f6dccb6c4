"""How the measured points of one bin scatter about the mean curve: the likelihood of every fit.

A noise model returns a `Scatter`, and the likelihood, marginal or full, is built from it alone: `whiten` turns
residuals into independent ones of equal scale, and `log_likelihood` says how probable these are. Since whitening is
linear, the amplitudes remain linear after it and can be integrated out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float

SMALLEST_SCALE = 1e-6

AnyArray = Any  # a NumPy array outside of compiled programs, a JAX array inside
OfDelays = Float[AnyArray, " tau"]


class Points(Protocol):
    """What noise models use of a bin's data."""

    @property
    def tau(self) -> Float[AnyArray, " tau"]:
        """Delays, have unit s."""
        ...

    @property
    def inverse_error(self) -> Float[AnyArray, " tau"]:
        """1 / g2_err, 0 where not valid."""
        ...

    @property
    def valid(self) -> Bool[AnyArray, " tau"]:
        """Which points are data."""
        ...

    @property
    def layout(self) -> Float[AnyArray, "tau column"]:
        """What the noise model has computed from the delays (`Noise.layout`)."""
        ...


class Correlation(Protocol):
    """Correlated errors of one curve."""

    def log_volume(self, bin: Points) -> Float[Array, ""]:
        """Log determinant of the map from white residuals to the correlated ones of the valid points."""
        ...

    def whiten(self, columns: Float[Array, "tau column"]) -> Float[Array, "tau column"]:
        """Columns in coordinates where the noise is independent and of unit variance."""
        ...

    def whiten_each(self, bin: Points, columns: tuple[OfDelays, ...]) -> tuple[OfDelays, ...]:
        """The same for a few columns, of which some may be data; 0 where points are not valid."""
        ...

    def color(self, white: OfDelays) -> OfDelays:
        """The column that `whiten` turns into this white one."""
        ...

    def neighbours(self) -> OfDelays:
        """Correlation of each point with the one before."""
        ...


class PointScatter(Protocol):
    """How the points of one bin scatter, as far as results need it."""

    def whiten(self, bin: Points, *columns: OfDelays) -> tuple[OfDelays, ...]:
        """Residuals in coordinates where the noise is independent."""
        ...

    def log_likelihood(self, white: OfDelays, bin: Points) -> Float[Array, ""]:
        """Log density of the standardised residuals of the valid points, from the whitened ones."""
        ...

    def pointwise(self, residual: OfDelays, bin: Points) -> OfDelays:
        """Log density of each standardised residual given all others of the bin; 0 where not valid."""
        ...

    def sigma(self, bin: Points) -> OfDelays:
        """Standard deviation of g2 at each delay, NaN where not valid."""
        ...

    def scores(self, residual: OfDelays, bin: Points) -> OfDelays:
        """Normal scores of the standardised residuals; 0 where not valid."""
        ...

    def sample(self, key: Array, mean: OfDelays, bin: Points) -> OfDelays:
        """A simulated curve, equal to the mean where points are not valid."""
        ...


class Scatter(NamedTuple):
    """How the standardised residuals (g2 - mean) / g2_err of one bin scatter.

    `scale` is the standard deviation (of a Student-t: its scale) that all points have in common, `relative` a further
    factor for each delay, None for 1. `correlation` describes correlated errors, None where they are independent.
    `freedom` is the number of degrees of freedom of a Student-t, None for a normal distribution. `log_factor` is the
    log of a factor of the likelihood that depends on no residual, None for 0.
    """

    scale: Float[Array, ""] | float
    relative: OfDelays | None = None
    correlation: Correlation | None = None
    freedom: Float[Array, ""] | None = None
    log_factor: Float[Array, ""] | None = None

    def whiten(self, bin: Points, *columns: OfDelays) -> tuple[OfDelays, ...]:
        """Columns in coordinates where the noise is independent and has the same `scale` everywhere. A linear map, in
        O(tau); columns stay 0 where points are not valid."""
        if self.relative is not None:
            columns = tuple(column / self.relative for column in columns)
        if self.correlation is None:
            return columns
        return self.correlation.whiten_each(bin, columns)

    def color(self, white: OfDelays) -> OfDelays:
        """The column that `whiten` turns into this white one: its inverse."""
        column = white if self.correlation is None else self.correlation.color(white)
        return column if self.relative is None else column * self.relative

    def sigma(self, bin: Points) -> OfDelays:
        """Standard deviation of g2 (of a Student-t: its scale) at each delay, NaN where not valid."""
        relative = self.scale * (1.0 if self.relative is None else self.relative)
        return jnp.where(bin.valid, relative / jnp.where(bin.valid, bin.inverse_error, 1.0), jnp.nan)

    def log_volume(self, bin: Points) -> Float[Array, ""]:
        """Log determinant of the map from white residuals of unit scale to standardised ones."""
        volume = jnp.sum(bin.valid) * jnp.log(self.scale)
        if self.relative is not None:
            volume += jnp.sum(jnp.where(bin.valid, jnp.log(self.relative), 0.0))
        if self.correlation is not None:
            volume += self.correlation.log_volume(bin)
        return volume

    @property
    def white(self) -> dist.Distribution:
        """Distribution of a white residual of unit scale."""
        return dist.Normal(0.0, 1.0) if self.freedom is None else dist.StudentT(self.freedom, 0.0, 1.0)

    def log_likelihood(self, white: OfDelays, bin: Points) -> Float[Array, ""]:
        """Log density of the standardised residuals of the valid points, from the whitened ones."""
        densities = self.white.log_prob(white * (1.0 / self.scale))
        density = jnp.sum(jnp.where(bin.valid, densities, 0.0)) - self.log_volume(bin)
        return density if self.log_factor is None else density + self.log_factor

    def pointwise(self, residual: OfDelays, bin: Points) -> OfDelays:
        """Log density of each standardised residual given all others of the bin; 0 where not valid.

        With correlations it is that of a normal distribution, whose precision stands on the diagonal of the inverse
        covariance (Buerkner, Gabry & Vehtari 2021, eq. 8).
        """
        sigma = self.scale * (jnp.ones_like(residual) if self.relative is None else self.relative)
        standardised = residual / sigma
        if self.correlation is None:
            density = self.white.log_prob(standardised)
        else:
            root = jnp.where(bin.valid[:, None], self.correlation.whiten(jnp.eye(standardised.size)), 0.0)
            precision = jnp.where(bin.valid, jnp.sum(root**2, axis=0), 1.0)
            density = dist.Normal(0.0, 1.0).log_prob(root.T @ (root @ standardised) / jnp.sqrt(precision))
            density += 0.5 * jnp.log(precision)
        return jnp.where(bin.valid, density - jnp.log(sigma), 0.0)

    def scores(self, residual: OfDelays, bin: Points) -> OfDelays:
        """Normal scores of the standardised residuals: independent standard normal variables if the mean curve and the
        scatter are right; 0 where not valid."""
        white = self.whiten(bin, residual)[0] / self.scale
        if self.freedom is not None:
            tail = jnp.maximum(self.white.cdf(-jnp.abs(white)), jnp.finfo(white.dtype).tiny)
            white = -jnp.sign(white) * ndtri(tail)
        return jnp.where(bin.valid, white, 0.0)

    def sample(self, key: Array, mean: OfDelays, bin: Points) -> OfDelays:
        """A simulated curve, equal to the mean where points are not valid."""
        white = self.white.sample(key, jnp.shape(mean)) * self.scale
        error = jnp.where(bin.valid, 1.0 / jnp.where(bin.valid, bin.inverse_error, 1.0), 0.0)
        return mean + error * self.color(white)


class Observed(dist.Distribution):
    """The distribution of g2 (tau,) about a mean curve (tau,). Only the valid points count."""

    support = dist.constraints.real_vector

    def __init__(self, mean: OfDelays, scatter: PointScatter, bin: Points) -> None:
        self.mean_curve, self.scatter, self.bin = mean, scatter, bin
        super().__init__(event_shape=jnp.shape(mean))

    def log_prob(self, value: OfDelays) -> Float[Array, ""]:
        """Log density of a curve (tau,)."""
        (white,) = self.scatter.whiten(self.bin, (value - self.mean_curve) * self.bin.inverse_error)
        inverse_error = jnp.where(self.bin.valid, self.bin.inverse_error, 1.0)
        return self.scatter.log_likelihood(white, self.bin) + jnp.sum(jnp.log(inverse_error))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*sample tau"]:
        """Simulated curves, equal to the mean where points are not valid."""
        if not sample_shape:
            return self.scatter.sample(key, self.mean_curve, self.bin)
        keys = jax.random.split(key, sample_shape)
        one = lambda key: self.scatter.sample(key, self.mean_curve, self.bin)  # noqa: E731
        return jnp.vectorize(one, signature="()->(t)")(keys)

"""The noise models: how the measured points of one bin scatter about the mean curve.

A noise model is a NumPyro program that returns a `Scatter`. The likelihood of every fit, marginal or full, is built
from it and from nothing else: `whiten` turns residuals into independent ones of unit scale, and `log_likelihood` says
how probable these are. Since whitening is linear, amplitudes can be integrated out whatever the scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from numpyro.distributions.transforms import ExpTransform

from bayesfit._errors import SettingsError, nearest
from bayesfit._model import Parameter

SMALLEST_SCALE = 1e-6
LOG_CORRELATION_RANGE = (math.log(0.3), 0.7)  # decades
SIGMA = (math.log(3e-3), 3.0)


class Scatter(NamedTuple):
    """How the standardised residuals (g2 - mean) / g2_err of one bin scatter.

    `scale`: standard deviation (of a Student-t: scale), one number; `relative` (tau,): a further factor for each delay;
    `share`: how much of the variance is correlated; `memory`, `gain`, `innovation` (tau,): what `chain` makes of it;
    `freedom`: degrees of freedom of a Student-t. None: a factor of 1, no correlation, a normal.
    """

    scale: Any
    relative: Any = None
    share: Any = None
    memory: Any = None
    gain: Any = None
    innovation: Any = None
    freedom: Any = None

    def whiten(self, bin: Any, *columns: Any) -> tuple[Any, ...]:
        """Columns (tau,) in coordinates where the noise is independent and of one `scale`; 0 stays where not valid.

        Linear, and of O(tau): the correlated part is a Markov chain (an Ornstein-Uhlenbeck process), so that a Kalman
        filter's innovations are white (Hartikainen & Sarkka 2010).
        """
        if self.relative is not None:
            columns = tuple(column / self.relative for column in columns)
        if self.share is None:
            return columns

        def step(means: Any, point: tuple[Any, ...]) -> tuple[Any, Any]:
            value, memory, gain = point
            off = value - memory * means
            return memory * means + gain * off, off

        values = jnp.stack(columns, axis=-1)
        _, off = jax.lax.scan(step, jnp.zeros_like(values[0]), (values, self.memory, self.gain))
        white = jnp.where(bin.valid[:, None], off * self.innovation[:, None] ** -0.5, 0.0)
        return tuple(white[:, place] for place in range(len(columns)))

    def color(self, white: Any, bin: Any) -> Any:
        """What `whiten` turns into this column (tau,)."""
        if self.share is not None:

            def step(mean: Any, point: tuple[Any, ...]) -> tuple[Any, Any]:
                off, memory, gain = point
                return memory * mean + gain * off, memory * mean + off

            off = white * jnp.sqrt(self.innovation)
            _, white = jax.lax.scan(step, jnp.zeros_like(white[0]), (off, self.memory, self.gain))
        return white if self.relative is None else white * self.relative

    def sigma(self, bin: Any) -> Any:
        """Standard deviation of g2 (of a Student-t: scale) at each delay (tau,), NaN where not valid."""
        relative = self.scale * (1.0 if self.relative is None else self.relative)
        return jnp.where(bin.valid, relative / jnp.where(bin.valid, bin.unit, 1.0), jnp.nan)

    def log_volume(self, bin: Any) -> Any:
        """Log determinant of the map from white residuals of unit scale to standardised ones."""
        volume = jnp.sum(bin.valid) * jnp.log(self.scale)
        if self.relative is not None:
            volume += jnp.sum(jnp.where(bin.valid, jnp.log(self.relative), 0.0))
        if self.share is not None:
            volume += 0.5 * jnp.sum(jnp.where(bin.valid, jnp.log(self.innovation), 0.0))
        return volume

    @property
    def unit(self) -> dist.Distribution:
        """Distribution of a white residual of unit scale."""
        return dist.Normal(0.0, 1.0) if self.freedom is None else dist.StudentT(self.freedom, 0.0, 1.0)

    def log_likelihood(self, white: Any, bin: Any) -> Any:
        """Log density of the standardised residuals of the valid points, given as whitened (tau,)."""
        return jnp.sum(jnp.where(bin.valid, self.unit.log_prob(white * (1.0 / self.scale)), 0.0)) - self.log_volume(bin)

    def pointwise(self, residual: Any, bin: Any) -> Any:
        """Log density of each standardised residual (tau,) given all others of the bin; 0 where not valid.

        With correlations that is normal with the precision on the diagonal of the inverse covariance (Buerkner, Gabry
        & Vehtari 2021, eq. 8).
        """
        sigma = self.scale * (jnp.ones_like(residual) if self.relative is None else self.relative)
        unit = residual / sigma
        if self.share is None:
            density = self.unit.log_prob(unit)
        else:
            place = jnp.cumsum(-jnp.log(jnp.maximum(self.memory, jnp.finfo(unit.dtype).tiny)))
            both = bin.valid[:, None] & bin.valid
            correlation = jnp.where(both, self.share * jnp.exp(-jnp.abs(place[:, None] - place)), 0.0)
            inverse = jnp.linalg.inv(jnp.where(jnp.eye(len(place), dtype=bool), 1.0, correlation))
            precision = jnp.diagonal(inverse)
            density = dist.Normal(0.0, 1.0).log_prob(inverse @ unit / jnp.sqrt(precision)) + 0.5 * jnp.log(precision)
        return jnp.where(bin.valid, density - jnp.log(sigma), 0.0)

    def scores(self, residual: Any, bin: Any) -> Any:
        """Normal scores (tau,) of the standardised residuals: independent standard normal variables where mean curve
        and scatter are right, 0 where not valid."""
        white = self.whiten(bin, residual)[0] / self.scale
        if self.freedom is not None:
            tail = jnp.maximum(self.unit.cdf(-jnp.abs(white)), jnp.finfo(white.dtype).tiny)
            white = -jnp.sign(white) * ndtri(tail)
        return jnp.where(bin.valid, white, 0.0)


def chain(share: Any, memory: Any, valid: Any) -> dict[str, Any]:
    """The correlated part of a scatter, from its share of the variance and `memory` (tau,), its correlation with the
    delay before: the Kalman filter's gain and variance of the innovation at each delay, over that of a point alone."""

    def step(variance: Any, point: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
        memory, valid = point
        variance = memory**2 * variance + (1.0 - memory) * (1.0 + memory) * share
        total = variance + 1.0 - share
        gain = jnp.where(valid, variance / total, 0.0)
        return (1.0 - gain) * variance, (gain, total)

    _, (gain, innovation) = jax.lax.scan(step, share, (memory, valid))
    return {"share": share, "memory": memory, "gain": gain, "innovation": innovation}


class Observed(dist.Distribution):
    """The distribution of g2 (tau,) about a mean curve (tau,), of which the valid points count."""

    support = dist.constraints.real_vector

    def __init__(self, mean: Any, scatter: Scatter, bin: Any) -> None:
        self.mean_curve, self.scatter, self.bin = mean, scatter, bin
        super().__init__(event_shape=jnp.shape(mean))

    def log_prob(self, value: Any) -> Any:
        """Log density of a curve (tau,)."""
        (white,) = self.scatter.whiten(self.bin, (value - self.mean_curve) * self.bin.unit)
        unit = jnp.where(self.bin.valid, self.bin.unit, 1.0)
        return self.scatter.log_likelihood(white, self.bin) + jnp.sum(jnp.log(unit))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Curves (..., tau); the mean itself where not valid."""
        white = self.scatter.unit.sample(key, (*sample_shape, *self.event_shape)) * self.scatter.scale
        color = jnp.vectorize(lambda w: self.scatter.color(w, self.bin), signature="(t)->(t)")
        error = jnp.where(self.bin.valid, 1.0 / jnp.where(self.bin.valid, self.bin.unit, 1.0), 0.0)
        return self.mean_curve + error * color(white)


@dataclass(frozen=True, eq=False)
class Noise:
    """One noise model.

    Args:
        name: how users call it.
        program: NumPyro program `bin -> Scatter`, for the points of one bin: `tau`, `valid` and `gap`.
        start: `rms -> start values`, from the root mean square standardised residual of a least-squares fit.
        normal: True where whitened residuals are normal, so that the amplitudes can be integrated out in closed form.
        stated: whether residuals are standardised by the stated errors, or left in the units of g2.
        delays: whether it needs delays, positive ones, and not just any x.
        parameters: the sampled parameters, described.
        formula, reference: of the scatter.
    """

    name: str
    program: Callable[[Any], Scatter]
    start: Callable[[Any], dict[str, Any]]
    normal: bool = True
    stated: bool = True
    delays: bool = False
    parameters: tuple[Parameter, ...] = ()
    description: str = ""
    formula: str = ""
    reference: str = ""


def _error_scale() -> Any:
    """One factor a bin, log-normal about 1 with sd 3 in its logarithm: 95 % of the prior lies in 1/360 to 360.

    The floor keeps the posterior proper on noiseless curves, where the likelihood alone would send it to zero.
    """
    log_scale = dist.TruncatedNormal(0.0, 3.0, low=math.log(SMALLEST_SCALE))
    return numpyro.sample("error_scale", dist.TransformedDistribution(log_scale, ExpTransform()))


def _sigma() -> Any:
    """The standard deviation of g2, log-normal about 0.003 with sd 3 in its logarithm: 95 % in 8e-6 to 1."""
    log_sigma = dist.TruncatedNormal(*SIGMA, low=math.log(SMALLEST_SCALE**2))
    return numpyro.sample("sigma", dist.TransformedDistribution(log_sigma, ExpTransform()))


def _smooth(bin: Any) -> Scatter:
    """log sigma is a parabola in the logarithm of the delay, which runs from -1 to 1 over the valid points."""
    low = jnp.min(jnp.where(bin.valid, bin.tau, jnp.inf))
    high = jnp.max(jnp.where(bin.valid, bin.tau, 0.0))
    tau = jnp.clip(bin.tau, low, high)
    x = 2.0 * jnp.log(tau / low) / jnp.maximum(jnp.log(high / low), 1e-6) - 1.0
    sigma = _sigma()
    slope = numpyro.sample("sigma_slope", dist.Normal(0.0, 2.0))
    curvature = numpyro.sample("sigma_curvature", dist.Normal(0.0, 1.0))
    return Scatter(sigma, relative=jnp.exp(slope * x + curvature * (x**2 - 1.0 / 3.0)))


def _correlated(bin: Any) -> Scatter:
    """A share of the variance is independent from point to point (counts), the rest correlates with an exponential
    kernel in log10 of the delay (the finite number of speckles)."""
    log_range = dist.Normal(*LOG_CORRELATION_RANGE)
    length = numpyro.sample("error_range", dist.TransformedDistribution(log_range, ExpTransform()))
    share = numpyro.sample("error_share", dist.Uniform(0.0, 1.0))
    return Scatter(_error_scale(), **chain(share, jnp.exp(-bin.gap / length), bin.valid))


def _robust(bin: Any) -> Scatter:
    return Scatter(_error_scale(), freedom=numpyro.sample("error_freedom", dist.Gamma(2.0, 0.1)))


def _start_scale(rms: Any) -> dict[str, Any]:
    return {"error_scale": jnp.maximum(rms, 2.0 * SMALLEST_SCALE)}


def _start_sigma(rms: Any) -> dict[str, Any]:
    return {"sigma": jnp.maximum(rms, 2.0 * SMALLEST_SCALE**2)}


ERROR_SCALE = Parameter("error_scale", "", r"\kappa", "true error over stated error, one factor a bin")
SIGMA_PARAMETER = Parameter("sigma", "", r"\sigma", "standard deviation of g2 (smooth: at the middle of the delays)")

STATED = Noise(
    name="stated",
    program=lambda bin: Scatter(1.0),
    start=lambda rms: {},
    description="normal with the file's errors as they stand",
    formula="g2 ~ Normal(mean, g2_err)",
)

SCALED = Noise(
    name="scaled",
    program=lambda bin: Scatter(_error_scale()),
    start=_start_scale,
    parameters=(ERROR_SCALE,),
    description="normal with the file's errors times one inferred factor a bin",
    formula="g2 ~ Normal(mean, error_scale g2_err)",
)

INFERRED = Noise(
    name="inferred",
    program=lambda bin: Scatter(_sigma()),
    start=_start_sigma,
    stated=False,
    parameters=(SIGMA_PARAMETER,),
    description="normal with one inferred standard deviation a bin; the file's errors are not looked at",
    formula="g2 ~ Normal(mean, sigma)",
)

SMOOTH = Noise(
    name="smooth",
    program=_smooth,
    start=lambda rms: {**_start_sigma(rms), "sigma_slope": 0.0, "sigma_curvature": 0.0},
    stated=False,
    delays=True,
    parameters=(
        SIGMA_PARAMETER,
        Parameter("sigma_slope", "", "s_1", "slope of log sigma over half the logarithmic delay window"),
        Parameter("sigma_curvature", "", "s_2", "curvature of log sigma over the logarithmic delay window"),
    ),
    description="normal with an inferred standard deviation that varies smoothly with the delay",
    formula="log sigma(tau) = log sigma + sigma_slope x + sigma_curvature (x^2 - 1/3), x from -1 to 1 in log tau",
)

ROBUST = Noise(
    name="robust",
    program=_robust,
    start=lambda rms: {"error_scale": jnp.maximum(0.7 * rms, 2.0 * SMALLEST_SCALE), "error_freedom": 8.0},
    normal=False,
    parameters=(
        ERROR_SCALE,
        Parameter("error_freedom", "", r"\nu", "degrees of freedom of the Student-t; small where there are outliers"),
    ),
    description="Student-t with inferred degrees of freedom, for outliers; the file's errors times one factor a bin",
    formula="g2 ~ StudentT(error_freedom, mean, error_scale g2_err)",
    reference="Juarez & Steel, J. Bus. Econ. Stat. 28, 52 (2010)",
)

CORRELATED = Noise(
    name="correlated",
    program=_correlated,
    start=lambda rms: {**_start_scale(rms), "error_range": math.exp(LOG_CORRELATION_RANGE[0]), "error_share": 0.3},
    delays=True,
    parameters=(
        ERROR_SCALE,
        Parameter("error_range", "decades", r"\ell", "distance in log10 tau over which errors stay correlated"),
        Parameter("error_share", "", "f", "share of the noise's variance that is correlated"),
    ),
    description="normal, errors of neighbouring delays correlate; the file's errors times one factor a bin",
    formula="correlation of two errors = error_share exp(-|log10 tau_1 - log10 tau_2| / error_range)",
    reference="Hartikainen & Sarkka, IEEE MLSP (2010)",
)

NOISES = {noise.name: noise for noise in (SCALED, STATED, INFERRED, SMOOTH, ROBUST, CORRELATED)}


def get_noise(name: str) -> Noise:
    """The noise model of that name.

    Raises:
        SettingsError: no noise model has this name.
    """
    if name not in NOISES:
        raise SettingsError(f"unknown noise model {name!r}", field="noise", remedy=nearest(name, NOISES))
    return NOISES[name]

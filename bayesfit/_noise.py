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
LOG_CORRELATION_RANGE = (math.log(0.1), 1.5)  # decades
SIGMA = (math.log(3e-3), 3.0)


class Scatter(NamedTuple):
    """How the standardised residuals (g2 - mean) / g2_err of one bin scatter.

    `scale`: standard deviation (of a Student-t: scale), one number; `relative` (tau,): a further factor for each delay;
    `correlation` (tau,): with the valid point before, 0 for the first and where not valid; `freedom`: degrees of
    freedom of a Student-t. None: a factor of 1, no correlation, a normal.
    """

    scale: Any
    relative: Any = None
    correlation: Any = None
    freedom: Any = None

    def whiten(self, column: Any, bin: Any) -> Any:
        """A column (tau,) in coordinates where the noise is independent and of one `scale`; 0 stays where not valid.

        Neighbours' correlations make a Markov chain (an Ornstein-Uhlenbeck process), so that its inverse root has two
        diagonals (Rybicki & Press 1995).
        """
        if self.relative is not None:
            column = column / self.relative
        if self.correlation is not None:
            column = (column - self.correlation * column[bin.previous]) * self._innovation() ** -0.5
        return column

    def color(self, white: Any, bin: Any) -> Any:
        """What `whiten` turns into this column (tau,)."""
        if self.correlation is not None:

            def step(done: Any, point: tuple[Any, ...]) -> tuple[Any, None]:
                index, previous, correlation, innovation, noise = point
                return done.at[index].set(correlation * done[previous] + jnp.sqrt(innovation) * noise), None

            points = jnp.arange(white.size), bin.previous, self.correlation, self._innovation(), white
            white, _ = jax.lax.scan(step, jnp.zeros_like(white), points)
        return white if self.relative is None else white * self.relative

    def _innovation(self) -> Any:
        """Variance of each point given the one before, over that of the point alone; never 0."""
        return jnp.maximum((1.0 - self.correlation) * (1.0 + self.correlation), jnp.finfo(jnp.result_type(float)).eps)

    def sigma(self, bin: Any) -> Any:
        """Standard deviation of g2 (of a Student-t: scale) at each delay (tau,), NaN where not valid."""
        relative = self.scale * (1.0 if self.relative is None else self.relative)
        return jnp.where(bin.valid, relative / jnp.where(bin.valid, bin.unit, 1.0), jnp.nan)

    def log_volume(self, bin: Any) -> Any:
        """Log determinant of the map from white residuals of unit scale to standardised ones."""
        volume = jnp.sum(bin.valid) * jnp.log(self.scale)
        if self.relative is not None:
            volume += jnp.sum(jnp.where(bin.valid, jnp.log(self.relative), 0.0))
        if self.correlation is not None:
            volume += 0.5 * jnp.sum(jnp.where(bin.valid, jnp.log(self._innovation()), 0.0))
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

        With correlations that is normal with the precision on the diagonal of the inverse covariance, here of three
        diagonals (Buerkner, Gabry & Vehtari 2021, eq. 8).
        """
        white = self.whiten(residual, bin) / self.scale
        relative = 1.0 if self.relative is None else self.relative
        sigma = jnp.broadcast_to(self.scale * relative, residual.shape)
        if self.correlation is None:
            density = self.unit.log_prob(white) - jnp.log(sigma)
        else:
            root = self._innovation() ** -0.5
            back = jnp.where(bin.valid, -self.correlation * root, 0.0)
            product = (root * white).at[bin.previous].add(back * white)
            precision = (root**2).at[bin.previous].add(back**2)
            density = dist.Normal(0.0, 1.0).log_prob(product / jnp.sqrt(precision))
            density = density + 0.5 * jnp.log(precision) - jnp.log(sigma)
        return jnp.where(bin.valid, density, 0.0)

    def scores(self, residual: Any, bin: Any) -> Any:
        """Normal scores (tau,) of the standardised residuals: independent standard normal variables where mean curve
        and scatter are right, 0 where not valid."""
        white = self.whiten(residual, bin) / self.scale
        if self.freedom is not None:
            tail = jnp.maximum(self.unit.cdf(-jnp.abs(white)), jnp.finfo(white.dtype).tiny)
            white = -jnp.sign(white) * ndtri(tail)
        return jnp.where(bin.valid, white, 0.0)


class Observed(dist.Distribution):
    """The distribution of g2 (tau,) about a mean curve (tau,), of which the valid points count."""

    support = dist.constraints.real_vector

    def __init__(self, mean: Any, scatter: Scatter, bin: Any) -> None:
        self.mean_curve, self.scatter, self.bin = mean, scatter, bin
        super().__init__(event_shape=jnp.shape(mean))

    def log_prob(self, value: Any) -> Any:
        """Log density of a curve (tau,)."""
        white = self.scatter.whiten((value - self.mean_curve) * self.bin.unit, self.bin)
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
        program: NumPyro program `bin -> Scatter`, for the points of one bin: `tau`, `valid`, `gap` and `previous`.
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
    """The correlation of two points falls exponentially with their distance in log10 of the delay."""
    log_range = dist.Normal(*LOG_CORRELATION_RANGE)
    length = numpyro.sample("error_range", dist.TransformedDistribution(log_range, ExpTransform()))
    linked = bin.previous != jnp.arange(bin.tau.size)
    return Scatter(_error_scale(), correlation=jnp.where(linked, jnp.exp(-bin.gap / length), 0.0))


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
    start=lambda rms: {**_start_scale(rms), "error_range": math.exp(LOG_CORRELATION_RANGE[0])},
    delays=True,
    parameters=(
        ERROR_SCALE,
        Parameter("error_range", "decades", r"\ell", "distance in log10 tau over which errors stay correlated"),
    ),
    description="normal, errors of neighbouring delays correlate; the file's errors times one factor a bin",
    formula="correlation of two errors = exp(-|log10 tau_1 - log10 tau_2| / error_range)",
    reference="Rybicki & Press, Phys. Rev. Lett. 74, 1060 (1995)",
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

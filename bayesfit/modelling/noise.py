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

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from numpyro.distributions.transforms import ExpTransform
from scipy import stats

from bayesfit.compute.errors import SettingsError, nearest
from bayesfit.modelling.model import Parameter
from bayesfit.modelling.ornstein_uhlenbeck import Chain, chain

SMALLEST_SCALE = 1e-6
LOG_CORRELATION_RANGE = (math.log(0.3), 0.7)  # decades
SIGMA = (math.log(3e-3), 3.0)


class Scatter(NamedTuple):
    """How the standardised residuals (g2 - mean) / g2_err of one bin scatter.

    `scale`: standard deviation (of a Student-t: scale), one number; `relative` (tau,): a further factor for each delay;
    `chain`: correlations; `freedom`: degrees of freedom of a Student-t. None: a factor of 1, no correlation, a normal.
    """

    scale: Any
    relative: Any = None
    chain: Chain | None = None
    freedom: Any = None

    def whiten(self, bin: Any, *columns: Any) -> tuple[Any, ...]:
        """Columns (tau,) in coordinates where the noise is independent and of one `scale`; 0 stays where not valid.
        Linear, and of O(tau)."""
        if self.relative is not None:
            columns = tuple(column / self.relative for column in columns)
        if self.chain is None:
            return columns
        white = jnp.where(bin.valid[:, None], self.chain.whiten(jnp.stack(columns, axis=-1)), 0.0)
        return tuple(white[:, place] for place in range(len(columns)))

    def color(self, white: Any) -> Any:
        """What `whiten` turns into this column (tau,)."""
        column = white if self.chain is None else self.chain.color(white)
        return column if self.relative is None else column * self.relative

    def sigma(self, bin: Any) -> Any:
        """Standard deviation of g2 (of a Student-t: scale) at each delay (tau,), NaN where not valid."""
        relative = self.scale * (1.0 if self.relative is None else self.relative)
        return jnp.where(bin.valid, relative / jnp.where(bin.valid, bin.inverse_error, 1.0), jnp.nan)

    def log_volume(self, bin: Any) -> Any:
        """Log determinant of the map from white residuals of unit scale to standardised ones."""
        volume = jnp.sum(bin.valid) * jnp.log(self.scale)
        if self.relative is not None:
            volume += jnp.sum(jnp.where(bin.valid, jnp.log(self.relative), 0.0))
        if self.chain is not None:
            volume += 0.5 * jnp.sum(jnp.where(bin.valid, jnp.log(self.chain.innovation), 0.0))
        return volume

    @property
    def white(self) -> dist.Distribution:
        """Distribution of a white residual of unit scale."""
        return dist.Normal(0.0, 1.0) if self.freedom is None else dist.StudentT(self.freedom, 0.0, 1.0)

    def log_likelihood(self, white: Any, bin: Any) -> Any:
        """Log density of the standardised residuals of the valid points, given as whitened (tau,)."""
        return jnp.sum(jnp.where(bin.valid, self.white.log_prob(white * (1.0 / self.scale)), 0.0)) - self.log_volume(
            bin
        )

    def pointwise(self, residual: Any, bin: Any) -> Any:
        """Log density of each standardised residual (tau,) given all others of the bin; 0 where not valid.

        With correlations that is normal with the precision on the diagonal of the inverse covariance (Buerkner, Gabry
        & Vehtari 2021, eq. 8).
        """
        sigma = self.scale * (jnp.ones_like(residual) if self.relative is None else self.relative)
        standardised = residual / sigma
        if self.chain is None:
            density = self.white.log_prob(standardised)
        else:
            root = jnp.where(bin.valid[:, None], self.chain.whiten(jnp.eye(standardised.size)), 0.0)
            precision = jnp.where(bin.valid, jnp.sum(root**2, axis=0), 1.0)
            density = dist.Normal(0.0, 1.0).log_prob(root.T @ (root @ standardised) / jnp.sqrt(precision))
            density += 0.5 * jnp.log(precision)
        return jnp.where(bin.valid, density - jnp.log(sigma), 0.0)

    def scores(self, residual: Any, bin: Any) -> Any:
        """Normal scores (tau,) of the standardised residuals: independent standard normal variables where mean curve
        and scatter are right, 0 where not valid."""
        white = self.whiten(bin, residual)[0] / self.scale
        if self.freedom is not None:
            tail = jnp.maximum(self.white.cdf(-jnp.abs(white)), jnp.finfo(white.dtype).tiny)
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
        (white,) = self.scatter.whiten(self.bin, (value - self.mean_curve) * self.bin.inverse_error)
        inverse_error = jnp.where(self.bin.valid, self.bin.inverse_error, 1.0)
        return self.scatter.log_likelihood(white, self.bin) + jnp.sum(jnp.log(inverse_error))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Curves (..., tau); the mean itself where not valid."""
        white = self.scatter.white.sample(key, (*sample_shape, *self.event_shape)) * self.scatter.scale
        color = jnp.vectorize(self.scatter.color, signature="(t)->(t)")
        error = jnp.where(self.bin.valid, 1.0 / jnp.where(self.bin.valid, self.bin.inverse_error, 1.0), 0.0)
        return self.mean_curve + error * color(white)


@dataclass(frozen=True, eq=False)
class Noise:
    """One noise model.

    Args:
        name: how users call it.
        program: NumPyro program `bin -> Scatter`, for the points of one bin: `tau`, `valid` and `layout`.
        start: `(rms, bin) -> start values`, from the root mean square standardised residual of a least-squares fit.
        normal: True where whitened residuals are normal, so that the amplitudes can be integrated out in closed form.
        stated: whether residuals are standardised by the stated errors, or left in the units of g2.
        delays: whether it needs delays, positive ones, and not just any x.
        layout: `tau -> (tau, columns)`, what the program needs to know of the delays and finds in `bin.layout`.
        parameters: the sampled parameters, described.
        formula, reference: of the scatter.
    """

    name: str
    program: Callable[[Any], Scatter]
    start: Callable[[Any, Any], dict[str, Any]]
    normal: bool = True
    stated: bool = True
    delays: bool = False
    layout: Callable[[np.ndarray], np.ndarray] = lambda tau: np.zeros((tau.size, 0))
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


def _log_gaps(tau: np.ndarray) -> np.ndarray:
    """Distance of each delay from the one before, in decades; (tau, 1)."""
    return np.diff(np.log10(tau), prepend=np.log10(tau[0]))[:, None]


def _correlated(bin: Any) -> Scatter:
    """A share of the variance is independent from point to point, the rest correlates with an exponential kernel in
    log10 of the delay."""
    log_range = dist.Normal(*LOG_CORRELATION_RANGE)
    length = numpyro.sample("error_range", dist.TransformedDistribution(log_range, ExpTransform()))
    share = numpyro.sample("error_share", dist.Uniform(0.0, 1.0))
    memory = jnp.exp(-bin.layout[:, 0] / length)
    return Scatter(_error_scale(), chain=chain(jnp.broadcast_to(share, memory.shape), memory, bin.valid))


def _speckle_layout(tau: np.ndarray) -> np.ndarray:
    """Distance of each delay from the one before in s, and the spacing of the delays about it over the geometric mean
    of all spacings; (tau, 2)."""
    spacing = np.ones(tau.size)
    used = slice(0, np.argmax(tau == tau[-1]) + 1)  # what follows is padding
    if tau[0] < tau[-1]:
        found = np.gradient(tau[used])
        spacing[used] = np.where(found > 0, found, np.min(found[found > 0]))
        spacing /= stats.gmean(spacing[used])
    return np.stack([np.diff(tau, prepend=tau[0]), spacing], axis=-1)


def _middle(tau: Any) -> Any:
    return jnp.sqrt(tau[0] * tau[-1])


def _speckle(bin: Any) -> Scatter:
    """The noise of finitely many photons and finitely many speckles.

    Photon pairs are counted independently at each delay; a correlator that averages over longer times at longer delays
    counts more of them there, so that their part of the variance falls as the delays' spacing grows. Speckles come and
    go in about the time of the decay itself, so that errors of delays that differ by less are the same (Bartlett 1946).
    """
    time = numpyro.sample("speckle_time", dist.LogUniform(bin.tau[0], bin.tau[-1]))
    share = numpyro.sample("speckle_share", dist.Uniform(0.0, 1.0))
    gap, spacing = bin.layout[:, 0], bin.layout[:, 1]
    return Scatter(_error_scale(), chain=chain(share_at(share, spacing), jnp.exp(-gap / time), bin.valid))


def share_at(share: Any, spacing: Any) -> Any:
    """The share of the variance that speckles have at a delay, from that at the mean spacing."""
    return share * spacing / (share * spacing + 1.0 - share)


def _robust(bin: Any) -> Scatter:
    return Scatter(_error_scale(), freedom=numpyro.sample("error_freedom", dist.Gamma(2.0, 0.1)))


def _start_scale(rms: Any, bin: Any) -> dict[str, Any]:
    return {"error_scale": jnp.maximum(rms, 2.0 * SMALLEST_SCALE)}


def _start_sigma(rms: Any, bin: Any) -> dict[str, Any]:
    return {"sigma": jnp.maximum(rms, 2.0 * SMALLEST_SCALE**2)}


ERROR_SCALE = Parameter("error_scale", "", r"\kappa", "true error over stated error, one factor a bin")
SIGMA_PARAMETER = Parameter("sigma", "", r"\sigma", "standard deviation of g2 (smooth: at the middle of the delays)")

STATED = Noise(
    name="stated",
    program=lambda bin: Scatter(1.0),
    start=lambda rms, bin: {},
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
    start=lambda rms, bin: {**_start_sigma(rms, bin), "sigma_slope": 0.0, "sigma_curvature": 0.0},
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
    start=lambda rms, bin: {"error_scale": jnp.maximum(0.7 * rms, 2.0 * SMALLEST_SCALE), "error_freedom": 8.0},
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
    start=lambda rms, bin: {
        **_start_scale(rms, bin),
        "error_range": math.exp(LOG_CORRELATION_RANGE[0]),
        "error_share": 0.3,
    },
    delays=True,
    layout=_log_gaps,
    parameters=(
        ERROR_SCALE,
        Parameter("error_range", "decades", r"\ell", "distance in log10 tau over which errors stay correlated"),
        Parameter("error_share", "", "f", "share of the noise's variance that is correlated"),
    ),
    description="normal, errors of neighbouring delays correlate; the file's errors times one factor a bin",
    formula="correlation of two errors = error_share exp(-|log10 tau_1 - log10 tau_2| / error_range)",
    reference="Hartikainen & Sarkka, IEEE MLSP (2010)",
)

SPECKLE = Noise(
    name="speckle",
    program=_speckle,
    start=lambda rms, bin: {**_start_scale(rms, bin), "speckle_time": _middle(bin.tau), "speckle_share": 0.3},
    delays=True,
    layout=_speckle_layout,
    parameters=(
        ERROR_SCALE,
        Parameter("speckle_time", "s", r"\tau_s", "difference of delays over which errors stay correlated"),
        Parameter("speckle_share", "", "f", "share of the noise's variance that is correlated, at the mean spacing"),
    ),
    description="normal, the noise of finitely many photons and speckles; the file's errors times one factor a bin",
    formula="correlation of two errors = sqrt(f_1 f_2) exp(-|tau_1 - tau_2| / speckle_time), f / (1 - f) in proportion "
    "to the delays' spacing",
    reference="Bartlett, J. R. Stat. Soc. Suppl. 8, 27 (1946); Hartikainen & Sarkka, IEEE MLSP (2010)",
)

NOISES = {noise.name: noise for noise in (SCALED, STATED, INFERRED, SMOOTH, ROBUST, CORRELATED, SPECKLE)}


def get_noise(name: str) -> Noise:
    """The noise model of that name.

    Raises:
        SettingsError: no noise model has this name.
    """
    if name not in NOISES:
        raise SettingsError(f"unknown noise model {name!r}", field="noise", remedy=nearest(name, NOISES))
    return NOISES[name]

"""The noise models: how the measured points of one bin scatter about the mean curve.

A noise model is a NumPyro program that samples the noise's parameters and returns a `Scatter`, from which everything
else follows: likelihood, start values, residuals, simulated data, and what `bayesfit noises` prints. To add one, write
its program and its `Noise` here, and put the latter into `NOISES` at the end. No other file has to be changed; whether
verdicts recommend it is a choice of its own, in `diagnose.advice`.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions.transforms import ExpTransform

from bayesfit.compute.errors import SettingsError, nearest
from bayesfit.modelling.estimated_covariance import COVARIANCE
from bayesfit.modelling.model import Parameter
from bayesfit.modelling.noise_model import Layout, Noise, Real
from bayesfit.modelling.ornstein_uhlenbeck import ornstein_uhlenbeck
from bayesfit.modelling.photons import PHOTONS
from bayesfit.modelling.scatter import SMALLEST_SCALE, AnyArray, Points, Scatter

LOG_CORRELATION_RANGE = (math.log(0.3), 0.7)  # decades
SIGMA = (math.log(3e-3), 3.0)


def _error_scale() -> Real:
    """One factor per bin, log-normal about 1 with sd 3 in its logarithm: 95 % of the prior lies in 1/360 to 360.

    The lower bound keeps the posterior proper on noiseless curves, where the likelihood alone would send the factor to
    zero.
    """
    log_scale = dist.TruncatedNormal(0.0, 3.0, low=math.log(SMALLEST_SCALE))
    return numpyro.sample("error_scale", dist.TransformedDistribution(log_scale, ExpTransform()))


def _start_scale(rms: Real, bin: Points) -> dict[str, Any]:
    return {"error_scale": jnp.maximum(rms, 2.0 * SMALLEST_SCALE)}


ERROR_SCALE = Parameter("error_scale", "", r"\kappa", "true error over stated error, one factor per bin")


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
    description="normal with the file's errors times one inferred factor per bin",
    formula="g2 ~ Normal(mean, error_scale g2_err)",
)


def _sigma() -> Real:
    """The standard deviation of g2, log-normal about 0.003 with sd 3 in its logarithm: 95 % in 8e-6 to 1."""
    log_sigma = dist.TruncatedNormal(*SIGMA, low=math.log(SMALLEST_SCALE**2))
    return numpyro.sample("sigma", dist.TransformedDistribution(log_sigma, ExpTransform()))


def _start_sigma(rms: Real, bin: Points) -> dict[str, Any]:
    return {"sigma": jnp.maximum(rms, 2.0 * SMALLEST_SCALE**2)}


SIGMA_PARAMETER = Parameter("sigma", "", r"\sigma", "standard deviation of g2 (smooth: at the middle of the delays)")


INFERRED = Noise(
    name="inferred",
    program=lambda bin: Scatter(_sigma()),
    start=_start_sigma,
    stated=False,
    parameters=(SIGMA_PARAMETER,),
    description="normal with one inferred standard deviation per bin; the file's errors are not used",
    formula="g2 ~ Normal(mean, sigma)",
)


def _smooth(bin: Points) -> Scatter:
    """log sigma is a parabola in the logarithm of the delay, which runs from -1 to 1 over the valid points."""
    low = jnp.min(jnp.where(bin.valid, bin.tau, jnp.inf))
    high = jnp.max(jnp.where(bin.valid, bin.tau, 0.0))
    tau = jnp.clip(bin.tau, low, high)
    x = 2.0 * jnp.log(tau / low) / jnp.maximum(jnp.log(high / low), 1e-6) - 1.0
    sigma = _sigma()
    slope = numpyro.sample("sigma_slope", dist.Normal(0.0, 2.0))
    curvature = numpyro.sample("sigma_curvature", dist.Normal(0.0, 1.0))
    return Scatter(sigma, relative=jnp.exp(slope * x + curvature * (x**2 - 1.0 / 3.0)))


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


def _robust(bin: Points) -> Scatter:
    """A Student-t with inferred degrees of freedom."""
    return Scatter(_error_scale(), freedom=numpyro.sample("error_freedom", dist.Gamma(2.0, 0.1)))


ROBUST = Noise(
    name="robust",
    program=_robust,
    start=lambda rms, bin: {"error_scale": jnp.maximum(0.7 * rms, 2.0 * SMALLEST_SCALE), "error_freedom": 8.0},
    normal=False,
    parameters=(
        ERROR_SCALE,
        Parameter("error_freedom", "", r"\nu", "degrees of freedom of the Student-t; small where there are outliers"),
    ),
    description="Student-t with inferred degrees of freedom, for outliers; the file's errors times one factor per bin",
    formula="g2 ~ StudentT(error_freedom, mean, error_scale g2_err)",
    reference="Juarez & Steel, J. Bus. Econ. Stat. 28, 52 (2010)",
)


def _log_gaps(tau: np.ndarray) -> Layout:
    """Distance of each delay from the one before, in decades; one column."""
    return np.diff(np.log10(tau), prepend=np.log10(tau[0]))[:, None]


def _correlated(bin: Points) -> Scatter:
    """A share of the variance is independent from point to point, the rest correlates with an exponential kernel in
    log10 of the delay."""
    log_range = dist.Normal(*LOG_CORRELATION_RANGE)
    length = numpyro.sample("error_range", dist.TransformedDistribution(log_range, ExpTransform()))
    share = numpyro.sample("error_share", dist.Uniform(0.0, 1.0))
    memory = jnp.exp(-bin.layout[:, 0] / length)
    correlation = ornstein_uhlenbeck(jnp.broadcast_to(share, memory.shape), memory, bin.valid)
    return Scatter(_error_scale(), correlation=correlation)


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
    description="normal, errors of neighbouring delays correlate; the file's errors times one factor per bin",
    formula="correlation of two errors = error_share exp(-|log10 tau_1 - log10 tau_2| / error_range)",
    reference="Hartikainen & Sarkka, IEEE MLSP (2010)",
)


def _speckle_layout(tau: np.ndarray) -> Layout:
    """Two columns: the distance of each delay from the one before, in s, and the spacing of the delays around it,
    divided by the geometric mean of all spacings."""
    spacing = np.ones(tau.size)
    used = slice(0, np.argmax(tau == tau[-1]) + 1)  # the rest is padding
    if tau[0] < tau[-1]:
        found = np.gradient(tau[used])
        spacing[used] = np.where(found > 0, found, np.min(found[found > 0]))
        spacing /= np.exp(np.mean(np.log(spacing[used])))
    return np.stack([np.diff(tau, prepend=tau[0]), spacing], axis=-1)


def _geometric_middle(tau: Float[Array, " tau"]) -> Real:
    """The square root of the smallest times the largest delay."""
    return jnp.sqrt(tau[0] * tau[-1])


def share_at(share: Float[AnyArray, ""], spacing: Float[AnyArray, " tau"]) -> Float[AnyArray, " tau"]:
    """The share of the variance that speckles have at a delay, from their share where the spacing of the delays is 1
    (their geometric mean): f = share spacing / (share spacing + 1 - share)."""
    return share * spacing / (share * spacing + 1.0 - share)


def _speckle(bin: Points) -> Scatter:
    """The noise of finitely many photons and finitely many speckles.

    Photon pairs are counted independently at each delay. A correlator that averages over longer times at longer delays
    counts more of them there, so that their part of the variance falls as the spacing of the delays grows. Speckles
    come and go in about the time of the decay itself, so that delays that differ by less than that have nearly the same
    error (Bartlett 1946)."""
    time = numpyro.sample("speckle_time", dist.LogUniform(bin.tau[0], bin.tau[-1]))
    share = numpyro.sample("speckle_share", dist.Uniform(0.0, 1.0))
    gap, spacing = bin.layout[:, 0], bin.layout[:, 1]
    correlation = ornstein_uhlenbeck(share_at(share, spacing), jnp.exp(-gap / time), bin.valid)
    return Scatter(_error_scale(), correlation=correlation)


SPECKLE = Noise(
    name="speckle",
    program=_speckle,
    start=lambda rms, bin: {**_start_scale(rms, bin), "speckle_time": _geometric_middle(bin.tau), "speckle_share": 0.3},
    delays=True,
    layout=_speckle_layout,
    parameters=(
        ERROR_SCALE,
        Parameter("speckle_time", "s", r"\tau_s", "difference of delays over which errors stay correlated"),
        Parameter("speckle_share", "", "f", "share of the noise's variance that is correlated, at the mean spacing"),
    ),
    description="normal, the noise of finitely many photons and speckles; the file's errors times one factor per bin",
    formula="correlation of two errors = sqrt(f_1 f_2) exp(-|tau_1 - tau_2| / speckle_time), f / (1 - f) in proportion "
    "to the delays' spacing",
    reference="Bartlett, J. R. Stat. Soc. Suppl. 8, 27 (1946); Hartikainen & Sarkka, IEEE MLSP (2010)",
)


NOISES = {
    noise.name: noise for noise in (SCALED, STATED, INFERRED, SMOOTH, ROBUST, CORRELATED, SPECKLE, PHOTONS, COVARIANCE)
}


def get_noise(name: str) -> Noise:
    """The noise model of that name.

    Raises:
        SettingsError: no noise model has this name.
    """
    if name not in NOISES:
        raise SettingsError(f"unknown noise model {name!r}", field="noise", remedy=nearest(name, NOISES))
    return NOISES[name]

"""The noise models: how a measured point scatters about the mean curve, in units of its stated error.

A noise model is a NumPyro program that returns the scale of the standardised residual (g2 - mean) / g2_err, and the
family of that residual. The likelihood of every fit, marginal or full, is built from these two and from nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import ExpTransform

from bayesfit._errors import SettingsError, nearest
from bayesfit._model import Parameter


@dataclass(frozen=True, eq=False)
class Noise:
    """One noise model.

    Args:
        name: how users call it.
        program: NumPyro program `() -> scale`, in units of the stated error.
        start: `rms -> start values`, from the root mean square standardised residual of a least-squares fit.
        family: distribution of a point given its mean and its sigma, a location and a scale.
        normal: True where the family is normal, so that the amplitudes can be integrated out in closed form.
        parameters: the sampled parameters, described.
    """

    name: str
    program: Callable[[], Any]
    start: Callable[[Any], dict[str, Any]]
    family: Callable[[Any, Any], dist.Distribution] = dist.Normal
    normal: bool = True
    parameters: tuple[Parameter, ...] = ()
    description: str = ""

    def log_likelihood(self, residual: Any, scale: Any, valid: Any) -> Any:
        """Log density of the standardised residuals, summed over the valid points; all of shape (tau,)."""
        unit = self.family(0.0, 1.0).log_prob(residual * (1.0 / scale))
        return jnp.sum(jnp.where(valid, unit, 0.0)) - jnp.sum(valid) * jnp.log(scale)


SMALLEST_SCALE = 1e-6


def _scaled() -> Any:
    """One factor a bin, log-normal about 1 with sd 3 in its logarithm: 95 % of the prior lies in 1/360 to 360.

    The floor keeps the posterior proper on noiseless curves, where the likelihood alone would send it to zero.
    """
    log_scale = dist.TruncatedNormal(0.0, 3.0, low=math.log(SMALLEST_SCALE))
    return numpyro.sample("error_scale", dist.TransformedDistribution(log_scale, ExpTransform()))


STATED = Noise(
    name="stated",
    program=lambda: 1.0,
    start=lambda rms: {},
    description="normal with the file's errors as they stand",
)

SCALED = Noise(
    name="scaled",
    program=_scaled,
    start=lambda rms: {"error_scale": jnp.maximum(rms, 2.0 * SMALLEST_SCALE)},
    parameters=(Parameter("error_scale", "", r"\kappa", "true error over stated error, one factor a bin"),),
    description="normal with the file's errors times one inferred factor a bin",
)

NOISES = {noise.name: noise for noise in (SCALED, STATED)}


def get_noise(name: str) -> Noise:
    """The noise model of that name.

    Raises:
        SettingsError: no noise model has this name.
    """
    if name not in NOISES:
        raise SettingsError(f"unknown noise model {name!r}", field="noise", remedy=nearest(name, NOISES))
    return NOISES[name]

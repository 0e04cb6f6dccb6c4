"""A tiny fit with a known answer: does this machine compute what it should?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.api.fit import fit
from bayesfit.data.curves import curves

TAU = np.geomspace(1e-2, 10.0, 40)  # s
CONTRAST, ERROR, RATE = 0.2, 0.01, 1.0
CELLS = 20_001
FAR = 5.0  # Monte Carlo standard errors from which on draws are wrong


class Check(NamedTuple):
    """Mean and standard deviation of log(rate), as drawn and as they should be, how many independent draws that were,
    and whether the two agree."""

    mean: float
    sd: float
    exact_mean: float
    exact_sd: float
    ess: float
    right: bool


def self_check() -> Check:
    """Fit the rate of one simulated decay, all else being known, and compare its posterior with the integral.

    Whether they agree: to 5 Monte Carlo standard errors.
    """
    result = fit(
        _data(), "single_exponential", noise="stated", fixed={"contrast": CONTRAST, "baseline": 1.0}, draws=300
    )
    log_rate = np.log(result["posterior"].rate.values.ravel())
    mean, sd, ess = float(log_rate.mean()), float(log_rate.std()), float(result["diagnostics"].ess_bulk.item())
    exact_mean, exact_sd = exact()
    far = abs(mean - exact_mean) > FAR * exact_sd / ess**0.5 or abs(sd / exact_sd - 1) > FAR / (2 * ess) ** 0.5
    return Check(mean, sd, exact_mean, exact_sd, ess, bool(ess > 100 and not far))


def exact() -> tuple[float, float]:
    """Mean and standard deviation of log(rate), whose prior is flat, by the integral over a grid."""
    x = np.linspace(-1.0, 1.0, CELLS) + np.log(RATE)
    g2 = 1.0 + CONTRAST * np.exp(-2.0 * np.exp(x)[:, None] * TAU)
    log_density = -0.5 * np.sum(((_g2() - g2) / ERROR) ** 2, axis=1)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = float(weight @ x)
    return mean, float(np.sqrt(weight @ (x - mean) ** 2))


def _data() -> xr.Dataset:
    return curves(TAU, _g2(), np.full(TAU.size, ERROR), q=[0.01])


def _g2() -> Float[np.ndarray, " tau"]:
    """A decay with noise that is the same everywhere and always."""
    noise = np.random.Generator(np.random.PCG64(1)).standard_normal(TAU.size)
    return 1.0 + CONTRAST * np.exp(-2.0 * RATE * TAU) + ERROR * noise

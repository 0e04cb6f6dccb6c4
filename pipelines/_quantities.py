"""Quantities derived from a relaxation rate, as posteriors: times, polydispersity, diffusion coefficient."""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr
from scipy.special import gamma


def relaxation(posterior: xr.Dataset, curves: xr.Dataset) -> xr.Dataset:
    """The quantities that follow from the parameters of the curve, for each draw.

    - relaxation_time = 1/rate [s]
    - mean_relaxation_time [s]: the integral of g1 over tau, for the parameters of a stretched exponential, a double
      exponential or a cumulant expansion (see `MEAN_TIMES`)
    - polydispersity = sqrt(mu2) [1]: the standard deviation of the distribution of rates over its mean; NaN where mu2
      is below 0
    - D = rate/q^2 [angstrom^2/s]; NaN where q is 0 or not given
    """
    derived = xr.Dataset()
    if "rate" not in posterior:
        return derived
    rate = posterior["rate"]
    derived["relaxation_time"] = (1.0 / rate).assign_attrs(units="s", long_name="relaxation time 1/rate")
    for names, mean_time in MEAN_TIMES.items():
        if set(names) <= set(posterior.data_vars):
            mean = mean_time(posterior)
            derived["mean_relaxation_time"] = mean.assign_attrs(
                units="s", long_name="mean relaxation time, the integral of g1"
            )
    if "mu2" in posterior:
        spread = posterior["mu2"].where(posterior["mu2"] >= 0) ** 0.5
        derived["polydispersity"] = spread.assign_attrs(
            units="1", long_name="relative standard deviation of the rate's distribution, sqrt(mu2)"
        )
    q = curves["q"].where(curves["q"] > 0)
    if bool(np.isfinite(q).any()):
        derived["D"] = (rate / q**2).assign_attrs(units="angstrom^2/s", long_name="diffusion coefficient rate/q^2")
    return derived.transpose("chain", "draw", "q_bin", missing_dims="ignore")


def _of_stretched(posterior: xr.Dataset) -> xr.DataArray:
    """Gamma(1/beta) / (beta rate): Lindsey & Patterson, J. Chem. Phys. 73, 3348 (1980)."""
    beta = posterior["beta"]
    return gamma(1.0 / beta) / (beta * posterior["rate"])


def _of_double(posterior: xr.Dataset) -> xr.DataArray:
    """fraction/rate_fast + (1 - fraction)/rate, term by term."""
    fraction = posterior["fraction"]
    return fraction / posterior["rate_fast"] + (1.0 - fraction) / posterior["rate"]


def _of_cumulant(posterior: xr.Dataset) -> xr.DataArray:
    """(1 + mu2 - mu3) / rate, since x^n exp(-x) has the integral n!."""
    return (1.0 + posterior["mu2"] - posterior["mu3"]) / posterior["rate"]


MEAN_TIMES: Mapping[tuple[str, ...], Callable[[xr.Dataset], xr.DataArray]] = {
    ("rate", "beta"): _of_stretched,
    ("rate", "rate_fast", "fraction"): _of_double,
    ("rate", "mu2", "mu3"): _of_cumulant,
}

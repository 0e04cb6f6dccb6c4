"""What users compute from a relaxation rate, as posteriors: times, polydispersity, diffusion coefficient, and what
Stokes and Einstein make of it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import gamma

BOLTZMANN = 1.380649e-23  # J/K, exact (SI 2019)
NM, ANGSTROM = 1e-9, 1e-10  # m
WATER = ((280.68, -1.9), (511.45, -7.7), (61.131, -19.6), (0.45903, -40.0))  # factor [uPa s] and exponent of T/(300 K)
WATER_RANGE = (253.15, 383.15)  # K


def relaxation(posterior: xr.Dataset, curves: xr.Dataset) -> xr.Dataset:
    """What follows from the curve's parameters alone, and with q.

    relaxation_time = 1/rate [s]; mean_relaxation_time [s], the integral of g1 over tau, where the parameters are those
    of a stretched exponential, a double exponential or a cumulant expansion (see `MEAN_TIMES`); polydispersity =
    sqrt(mu2) [1], the standard deviation of the rate's distribution over its mean, NaN where mu2 is below 0; D =
    rate/q^2 [angstrom^2/s], NaN where q is 0 or unknown.
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


def hydrodynamic_radius(diffusion: xr.DataArray, temperature: Any, viscosity: Any) -> xr.DataArray:
    """Stokes-Einstein: R = k_B T / (6 pi eta D) [nm], for D [angstrom^2/s], temperature [K], viscosity [Pa s]."""
    radius = BOLTZMANN * temperature / (6.0 * np.pi * viscosity * ANGSTROM**2 * diffusion) / NM
    return radius.assign_attrs(units="nm", long_name="hydrodynamic radius (Stokes-Einstein)")


def viscosity_of_size(diffusion: xr.DataArray, temperature: Any, radius: Any) -> xr.DataArray:
    """Stokes-Einstein: eta = k_B T / (6 pi R D) [Pa s], for D [angstrom^2/s], temperature [K], radius [nm]."""
    viscosity = BOLTZMANN * temperature / (6.0 * np.pi * radius * NM * ANGSTROM**2 * diffusion)
    return viscosity.assign_attrs(units="Pa s", long_name="viscosity seen by particles of known size (Stokes-Einstein)")


def viscosity_of_water(temperature: Any) -> Any:
    """Viscosity of liquid water at 0.1 MPa [Pa s], at temperature [K] within `WATER_RANGE`.

    The sum over a (T / 300 K)^b of Patek, Hruby, Klomfar, Souckova & Harvey, J. Phys. Chem. Ref. Data 38, 21 (2009),
    which the IAPWS recommends.
    """
    return 1e-6 * sum(a * (temperature / 300.0) ** b for a, b in WATER)

"""What users compute from a relaxation rate, as posteriors: times, diffusion coefficient, hydrodynamic radius."""

import numpy as np
import xarray as xr
from scipy.special import gamma

BOLTZMANN = 1.380649e-23  # J/K, exact (SI 2019)


def relaxation(posterior: xr.Dataset, curves: xr.Dataset) -> xr.Dataset:
    """What follows from the rate alone, and with q.

    relaxation_time = 1/rate [s]; mean_relaxation_time = Gamma(1/beta) / (beta rate) [s] where there is a beta, the
    integral of g1 over tau (Lindsey & Patterson, J. Chem. Phys. 73, 3348 (1980)); D = rate/q^2 [angstrom^2/s], NaN
    where q is 0 or unknown.
    """
    derived = xr.Dataset()
    if "rate" not in posterior:
        return derived
    rate = posterior["rate"]
    derived["relaxation_time"] = (1.0 / rate).assign_attrs(units="s", long_name="relaxation time 1/rate")
    if "beta" in posterior:
        beta = posterior["beta"]
        mean = gamma(1.0 / beta) / (beta * rate)
        derived["mean_relaxation_time"] = mean.assign_attrs(units="s", long_name="mean relaxation time")
    q = curves["q"].where(curves["q"] > 0)
    if bool(np.isfinite(q).any()):
        derived["D"] = (rate / q**2).assign_attrs(units="angstrom^2/s", long_name="diffusion coefficient rate/q^2")
    return derived.transpose("chain", "draw", "q_bin", missing_dims="ignore")


def hydrodynamic_radius(diffusion: xr.DataArray, temperature: float, viscosity: float) -> xr.DataArray:
    """Stokes-Einstein: R = k_B T / (6 pi eta D) [nm], for D [angstrom^2/s], temperature [K], viscosity [Pa s]."""
    radius = 1e9 * BOLTZMANN * temperature / (6.0 * np.pi * viscosity * 1e-20 * diffusion)
    return radius.assign_attrs(units="nm", long_name="hydrodynamic radius (Stokes-Einstein)")

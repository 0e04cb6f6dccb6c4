"""Stokes and Einstein's relation, and the viscosity of water."""

import numpy as np
import xarray as xr

Number = float | xr.DataArray

BOLTZMANN = 1.380649e-23  # J/K, exact (SI 2019)
NM, ANGSTROM = 1e-9, 1e-10  # m
WATER = ((280.68, -1.9), (511.45, -7.7), (61.131, -19.6), (0.45903, -40.0))  # factor [uPa s] and exponent of T/(300 K)
WATER_RANGE = (253.15, 383.15)  # K


def hydrodynamic_radius(diffusion: xr.DataArray, temperature: Number, viscosity: Number) -> xr.DataArray:
    """Stokes-Einstein: R = k_B T / (6 pi eta D) [nm], for D [angstrom^2/s], temperature [K], viscosity [Pa s]."""
    radius = BOLTZMANN * temperature / (6.0 * np.pi * viscosity * ANGSTROM**2 * diffusion) / NM
    return radius.assign_attrs(units="nm", long_name="hydrodynamic radius (Stokes-Einstein)")


def viscosity_of_size(diffusion: xr.DataArray, temperature: Number, radius: Number) -> xr.DataArray:
    """Stokes-Einstein: eta = k_B T / (6 pi R D) [Pa s], for D [angstrom^2/s], temperature [K], radius [nm]."""
    viscosity = BOLTZMANN * temperature / (6.0 * np.pi * radius * NM * ANGSTROM**2 * diffusion)
    return viscosity.assign_attrs(units="Pa s", long_name="viscosity seen by particles of known size (Stokes-Einstein)")


def viscosity_of_water(temperature: Number) -> Number:
    """Viscosity of liquid water at 0.1 MPa [Pa s], at temperature [K] within `WATER_RANGE`.

    The sum over a (T / 300 K)^b of Patek, Hruby, Klomfar, Souckova & Harvey, J. Phys. Chem. Ref. Data 38, 21 (2009),
    which the IAPWS recommends.
    """
    return 1e-6 * sum(a * (temperature / 300.0) ** b for a, b in WATER)

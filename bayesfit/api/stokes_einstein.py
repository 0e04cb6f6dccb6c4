"""Stokes and Einstein: the hydrodynamic radius from a diffusion coefficient, or the viscosity from a known size."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, SettingsError
from bayesfit.api.hydrodynamics import WATER_RANGE, hydrodynamic_radius, viscosity_of_size, viscosity_of_water
from bayesfit.compute.errors import nearest, warn
from bayesfit.compute.kinds import expect_result
from bayesfit.result.datasets import is_series, joined, one_dataset
from bayesfit.result.specimen import GivenQuantity, parse_quantity
from bayesfit.result.units import conversion, how_to_state

GIVEN = ("temperature", "viscosity", "radius")
NAMES = {"temperature": "temperature", "viscosity": "viscosity", "radius": "hydrodynamic_radius"}
DESCRIBED = {
    "temperature": {"units": "K", "long_name": "temperature of the specimen"},
    "viscosity": {"units": "Pa s", "long_name": "viscosity of the medium"},
    "radius": {"units": "nm", "long_name": "hydrodynamic radius, given beforehand"},
}
COEFFICIENTS = ("D0", "D")  # if a result has both, as a joint fit with a law, D0 is that of the particles
UNIT = "angstrom^2/s"
COLDEST = 150.0  # K; liquids that are measured are warmer, and no temperature in degrees Celsius is as large a number
SMALLEST = 0.1  # nm, the radius of an atom
Specimen = dict[str, GivenQuantity | str]


def stokes_einstein(
    result: xr.DataTree,
    *,
    temperature: Any = None,
    viscosity: Any = None,
    radius: Any = None,
    parameter: str | None = None,
    seed: int = 0,
) -> xr.DataTree:
    """Posterior of the hydrodynamic radius, or of the viscosity where the size is known: k_B T = 6 pi eta R D.

    The curves do not determine temperature, viscosity and radius. So each of these is given, as a number or as a prior,
    from which one value is drawn for each draw of the posterior. All bins share this value, so averaging over bins
    reduces the uncertainty that each bin has by itself, but not the uncertainty of what is given. The given quantities
    are independent of each other, except that `viscosity="water"` depends on the temperature.

    Args:
        result: what `fit`, `series` or `law` returned or `load` read, with one D per bin, or with the D of a law or a
            joint fit. In a series, each dataset has the temperature and viscosity that its file states.
        temperature: temperature in K; by default what the file states.
        viscosity: viscosity of the medium in Pa s, or "water" for that of water at the temperature of each draw (Patek
            et al., J. Phys. Chem. Ref. Data 38, 21 (2009)). By default what the file states, unless `radius` is given.
        radius: hydrodynamic radius in nm; if it is given, the viscosity is derived.
        parameter: name of the diffusion coefficient; by default `D0` if the result has it, as with the laws
            "diffusion_extrapolated" and "de_gennes", else `D`.
        seed: the same result and seed give the same draws, to the bit. Results of one shape and seed share the draws
            from a prior, as files share the error of one thermometer; give different seeds if they do not.

    Returns:
        A copy of the result. Its `posterior` has `hydrodynamic_radius` [nm] or `viscosity` [Pa s], with the dims of D
        (NaN where D is), and the drawn values (chain, draw) of each quantity that was given by a prior. The attribute
        `specimen` states what was given, `stokes_einstein_of` from which diffusion coefficient the result follows. A
        radius that the pipeline has derived is replaced.

    Raises:
        SettingsError: a value is impossible, or both `radius` and `viscosity` are given.
        InputError: a value is neither given nor stated in the file; the result has no diffusion coefficient, or one
            without a unit.

    Warns:
        BayesfitWarning: the radius is smaller than that of an atom, as if a viscosity was given in cP.
    """
    expect_result(result, "fit", "series", "law")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise SettingsError(f"got {seed!r}, expected a whole number from 0", field="seed")
    if is_series(result):
        labels = result["steps"].coords["dataset"].values
        given = {"temperature": temperature, "viscosity": viscosity, "radius": radius, "parameter": parameter}
        each = [stokes_einstein(one_dataset(result, label), seed=seed, **given) for label in labels.tolist()]
        return joined(each, labels)
    stated = {name: result.attrs[f"data_{name}"] for name in GIVEN if f"data_{name}" in result.attrs}
    given = {"temperature": temperature, "viscosity": viscosity, "radius": radius}
    specimen = parse_specimen({name: value for name, value in given.items() if value is not None}, stated)
    diffusion = _diffusion(result, parameter)
    values = _values(specimen, diffusion, seed)
    if "radius" in specimen:
        name, derived = "viscosity", viscosity_of_size(diffusion, values["temperature"], values["radius"])
    else:
        name = NAMES["radius"]
        derived = hydrodynamic_radius(diffusion, values["temperature"], values["viscosity"])
        _check_size(derived)
    derived.attrs["long_name"] += f" from {diffusion.name}"
    drawn = {NAMES[quantity]: value for quantity, value in values.items() if value.ndim}
    posterior = result["posterior"].dataset.drop_vars(list(NAMES.values()), errors="ignore")
    tree = result.copy()
    tree["posterior"] = posterior.assign({**drawn, name: derived})
    described = {quantity: value if isinstance(value, str) else value.described for quantity, value in specimen.items()}
    tree.attrs.update(
        stokes_einstein=name, stokes_einstein_of=diffusion.name, specimen=json.dumps(described), specimen_seed=seed
    )
    return tree


def parse_specimen(given: Mapping[str, Any], stated: Mapping[str, Any], file: Any = None) -> Specimen:
    """Temperature, and viscosity or radius, as the user gives them or else as the file states them.

    Raises:
        SettingsError, InputError: as `stokes_einstein` does.
    """
    for name in given:
        if name not in GIVEN:
            raise SettingsError("unknown quantity of the specimen", field=str(name), remedy=nearest(str(name), GIVEN))
    if "radius" in given and "viscosity" in given:
        raise SettingsError("one follows from the other", field="viscosity and radius", remedy="Give one of them")
    needed = ("temperature", "radius" if "radius" in given else "viscosity")
    specimen: Specimen = {}
    for name in needed:
        if name not in given and name not in stated:
            unit = DESCRIBED[name]["units"]
            remedy = f"Give it in {unit}" + (", or the radius in nm" if name == "viscosity" else "")
            raise InputError("is not given, and the data do not state it", file=file, field=name, remedy=remedy)
        value = given.get(name, stated.get(name))
        water = name == "viscosity" and isinstance(value, str) and value.strip() == "water"
        specimen[name] = "water" if water else parse_quantity(value, name)
    _check_kelvin(specimen)
    return specimen


def _check_kelvin(specimen: Specimen) -> None:
    """Refuse temperatures in degrees Celsius, and temperatures at which water is not liquid."""
    temperature = specimen["temperature"]
    assert isinstance(temperature, GivenQuantity)
    draws = temperature.draws((1000,), 0)
    if np.median(draws) < COLDEST:
        raise SettingsError(
            f"expected K, got {np.median(draws):g}", field="temperature", remedy="Add 273.15 to Celsius"
        )
    low, high = WATER_RANGE
    if specimen.get("viscosity") == "water" and not low <= draws.min() <= draws.max() <= high:
        raise SettingsError(f"that of water is known from {low:g} to {high:g} K", field="viscosity")


def _diffusion(result: xr.DataTree, parameter: str | None) -> xr.DataArray:
    """The posterior of the diffusion coefficient, in angstrom^2/s.

    Raises:
        SettingsError: the result has no parameter of this name. InputError: it has no diffusion coefficient.
    """
    posterior = result["posterior"].dataset
    names = [str(name) for name in posterior.data_vars]
    if parameter is not None and parameter not in names:
        close = nearest(str(parameter), names)
        raise SettingsError(f"unknown parameter {parameter!r}", field="parameter", remedy=close)
    found = [parameter] if parameter is not None else [name for name in COEFFICIENTS if name in names]
    if not found:
        remedy = f"Name it, parameter={names[0]!r}" if "law" in result.attrs else "Fit a rate, of curves with q"
        raise InputError("the result has no diffusion coefficient", field="posterior", remedy=remedy)
    array = posterior[found[0]].astype(float)
    return array * _factor(array)


def _factor(array: xr.DataArray) -> float:
    """The factor from the unit of a diffusion coefficient to `UNIT`."""
    name, unit = str(array.name), array.attrs.get("units", "1")
    if unit == "1":
        raise InputError("has no stated unit, and is a diffusion coefficient", field=name, remedy=how_to_state(name))
    try:
        return conversion(unit, UNIT)
    except SettingsError as error:
        remedy = "Fit 'diffusion', or 'power_law' with n = 2" if unit == "angstrom^n/s" else None
        raise InputError(
            f"has the unit {unit}, a diffusion coefficient has {UNIT}", field=name, remedy=remedy
        ) from error


def _values(specimen: Specimen, diffusion: xr.DataArray, seed: int) -> dict[str, xr.DataArray]:
    """What is given, as draws (chain, draw) beside those of D, or as one number ()."""
    shape = (diffusion.sizes["chain"], diffusion.sizes["draw"])
    coords = {name: diffusion.coords[name] for name in ("chain", "draw") if name in diffusion.coords}
    values: dict[str, xr.DataArray] = {}
    for name, given in specimen.items():
        if isinstance(given, GivenQuantity):
            draws = given.draws(shape, seed)
            values[name] = xr.DataArray(draws, coords, ("chain", "draw")) if draws.ndim else xr.DataArray(draws)
        else:
            values[name] = xr.DataArray(viscosity_of_water(values["temperature"]))
        values[name].attrs = DESCRIBED[name]
    return values


def _check_size(radius: xr.DataArray) -> None:
    """Warn if the radius is too small for any particle."""
    made = radius.values[np.isfinite(radius.values)]
    if made.size and np.median(made) < SMALLEST:
        warn(
            f"a hydrodynamic radius of {np.median(made):.2g} nm is less than an atom's: is the viscosity in Pa s (1 cP "
            "is 0.001 Pa s), and q in 1/angstrom?"
        )

"""Stokes and Einstein: the hydrodynamic radius from a diffusion coefficient, or the viscosity from a known size."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, SettingsError
from bayesfit.api.hydrodynamics import WATER_RANGE, hydrodynamic_radius, viscosity_of_size, viscosity_of_water
from bayesfit.compute.errors import BayesfitWarning, nearest
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
COEFFICIENTS = ("D0", "D")  # where there are both, as in a joint fit with such a law, D0 is the particles' own
UNIT = "angstrom^2/s"
COLDEST = 150.0  # K; no liquid that is looked at by light or X-rays is colder, and Celsius never reads as much
SMALLEST = 0.1  # nm, an atom's radius
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

    Temperature, viscosity and radius are known apart from the curves, which say nothing of them: each is a number, or a
    prior that is drawn from once for each draw of the posterior, exactly. All bins share that draw, so that averaging
    over bins narrows what they have each to themselves, and not what comes from here. The three are independent of
    each other, but for `viscosity="water"`.

    Args:
        result: what `fit`, `series` or `law` returned or `load` read: each bin's D, or one of a law or a joint fit. Of
            a series each dataset has the temperature and viscosity that its file states.
        temperature: in K; what the file states where it is not given.
        viscosity: of the medium, in Pa s, what the file states where neither it nor `radius` is given; or "water", at
            each draw's temperature (Patek et al., J. Phys. Chem. Ref. Data 38, 21 (2009)).
        radius: the hydrodynamic radius in nm, where the viscosity is asked for.
        parameter: the diffusion coefficient's name; by default `D0` where there is one, as of "diffusion_extrapolated"
            and "de_gennes", also of a joint fit, else `D`.
        seed: the same result and seed give the same draws, to the bit. Results of one shape and seed share the draws of
            one prior, as files share the error of one thermometer; give other seeds where they do not.

    Returns:
        A copy of the result whose `posterior` has `hydrodynamic_radius` [nm] or `viscosity` [Pa s], with the dims of D
        (NaN where D is), and `temperature` [K], `viscosity` and `hydrodynamic_radius` (chain, draw) as far as they were
        given by priors. What was given is in the attribute `specimen`, the name of the D that was taken in
        `stokes_einstein_of`. A radius that the pipeline derived gives way.

    Raises:
        SettingsError: a value is impossible, or given with another that it follows from.
        InputError: a value is neither given nor stated; the result has no diffusion coefficient, or one without a unit.

    Warns:
        BayesfitWarning: the radius is smaller than an atom's, as where a viscosity is given in cP.
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
    """Temperature, and viscosity or radius, from what a user gives, completed by what the file states.

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
    """Refuse temperatures in degrees Celsius, and water where it is no liquid."""
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
        SettingsError: there is no such parameter. InputError: none is a diffusion coefficient.
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
    """That from the unit of a diffusion coefficient to `UNIT`."""
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
    """Warn where the radius is no particle's."""
    made = radius.values[np.isfinite(radius.values)]
    if made.size and np.median(made) < SMALLEST:
        warnings.warn(
            f"a hydrodynamic radius of {np.median(made):.2g} nm is less than an atom's: is the viscosity in Pa s (1 cP "
            "is 0.001 Pa s), and q in 1/angstrom?",
            BayesfitWarning,
            stacklevel=3,
        )

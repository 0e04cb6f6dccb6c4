"""Units on display: results are kept in the units that their attributes state, and shown in others on request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import xarray as xr

from bayesfit.compute.errors import SettingsError, nearest
from bayesfit.compute.kinds import expect_table

LENGTHS = {"angstrom": 1e-10, "nm": 1e-9, "um": 1e-6, "mm": 1e-3, "cm": 1e-2, "m": 1.0}
TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
PRESSURES = {"uPa": 1e-6, "mPa": 1e-3, "Pa": 1.0}
Powers = dict[str, float]  # kind of quantity to its power, {"length": 2, "time": -1} for a diffusion coefficient
UNITS: dict[str, tuple[float, Powers]] = {
    **{name: (factor, {"length": 1.0}) for name, factor in LENGTHS.items()},
    **{name: (factor, {"time": 1.0}) for name, factor in TIMES.items()},
    **{name: (factor, {"pressure": 1.0}) for name, factor in PRESSURES.items()},
    "cP": (1e-3, {"pressure": 1.0, "time": 1.0}),
    "K": (1.0, {"temperature": 1.0}),
    "1": (1.0, {}),
}
SPELT = {"µ": "u", "μ": "u", "Å": "angstrom", "²": "^2"}


def conversion(of: str, to: str, field: str | None = None) -> float:
    """The factor from one unit to another.

    Raises:
        SettingsError: a unit is unknown, or the two measure different quantities.

    Example:
        >>> round(conversion("angstrom^2/s", "um^2/ms") * 1e11, 6)
        1.0
    """
    (here, powers), (there, wanted) = _read(of, field), _read(to, field)
    if powers != wanted:
        raise SettingsError(f"cannot be shown in {to}", field=field, remedy=f"Its unit is {of}")
    return here / there


def how_to_state(name: str, unit: str = "angstrom^2/s") -> str:
    """The remedy where a parameter of a user's own law or model has no unit."""
    return f'State it: bayesfit.Law("mine", program, parameters=(bayesfit.Parameter("{name}", "{unit}"),))'


def _read(unit: str, field: str | None) -> tuple[float, Powers]:
    """The size in SI units of a unit such as "angstrom^2/s" or "Pa s", and the powers of what it measures."""
    for character, plain in SPELT.items():
        unit = unit.replace(character, plain)
    above, _, below = (unit.strip() or "1").partition("/")
    factor, powers = 1.0, dict[str, float]()
    for part, sign in ((above, 1.0), (below, -1.0)):
        for word in part.split():
            name, power = _split(word, field)
            size, kinds = UNITS[name]
            factor *= size ** (sign * power)
            for kind, times in kinds.items():
                powers[kind] = powers.get(kind, 0.0) + sign * power * times
    return factor, {kind: power for kind, power in powers.items() if power}


def _split(word: str, field: str | None) -> tuple[str, float]:
    """Name and power of "angstrom^2"."""
    name, _, power = word.partition("^")
    if name not in UNITS:
        raise SettingsError(f"unknown unit {name!r}", field=field, remedy=nearest(name, UNITS))
    if power == "n":
        raise SettingsError("its unit depends on n, which is inferred: it is shown as it is", field=field)
    if not re.fullmatch(r"(-?\d+(\.\d+)?)?", power):
        raise SettingsError(f"cannot read the power in {word!r}", field=field, remedy="Write it as um^2/s")
    return name, float(power or 1.0)


def in_units(result: xr.DataTree, units: Mapping[str, str]) -> xr.DataTree:
    """The result with parameters in other units, for display only: priors and all other groups stay as they are.

    Args:
        result: what `fit`, `law` or `load` returned.
        units: parameter to unit, `{"D": "um^2/s"}`.

    Raises:
        SettingsError: there is no such parameter, or its unit cannot be converted to this one.
    """
    expect_table(units, "units")
    if not units:
        return result
    posterior = result["posterior"].dataset
    changed = {}
    for name, unit in units.items():
        if name not in posterior.data_vars:
            raise SettingsError(
                f"unknown parameter {name!r}", field="units", remedy=nearest(name, map(str, posterior.data_vars))
            )
        array = posterior[name]
        factor = _factor_of(name, array.attrs, unit)
        changed[name] = (array.astype(float) * factor).assign_attrs({**array.attrs, "units": unit})
    shown = result.copy()
    shown["posterior"] = posterior.assign(changed)
    return shown


def _factor_of(name: str, attrs: Mapping[str, Any], to: str) -> float:
    """The factor to the unit in which a parameter is to be shown.

    Raises:
        SettingsError: it cannot be shown so, or nobody has described the parameter, so that its unit is not stated.
    """
    of = attrs.get("units", "1")
    if of == "1" and attrs.get("long_name") == "" and _read(to, f"units.{name}")[1]:
        problem = f"cannot be shown in {to}: its unit is not stated"
        raise SettingsError(problem, field=f"units.{name}", remedy=how_to_state(name, to))
    return conversion(of, to, f"units.{name}")

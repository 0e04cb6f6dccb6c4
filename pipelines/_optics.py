"""The scattering vector of an angle: q = 4 pi n / wavelength * sin(angle / 2), where n is the refractive index of the
medium and the wavelength is that in vacuum (Berne & Pecora, Dynamic Light Scattering, 1976, eq. 3.2.9).

The angle is the whole angle between the beam and the direction of the detector. Light scattering calls it `theta`. With
X-rays many call it 2 theta, so there `theta` is refused unless the settings name its column.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from bayesfit import InputError, SettingsError
from bayesfit.compute.errors import nearest
from bayesfit.pipelines._above import Above
from bayesfit.pipelines._sheet import Reading

KNOWN = ("wavelength", "refractive_index", "angle")
PerBin = Float[np.ndarray, " bin"]

LIGHT = 100.0  # nm; shorter wavelengths are X-rays, whose refractive index is 1
USUAL = (10.0, 3000.0)  # nm, the range in which a wavelength is accepted whose unit is not stated
ANGSTROM = 10.0  # angstrom in a nm


@dataclass(frozen=True)
class Optics:
    """Wavelength in vacuum (has unit nm), refractive index, and the angle of all bins (has unit degree), each None if
    nothing states it."""

    wavelength: float | None = None
    refractive_index: float | None = None
    angle: float | None = None

    @property
    def complete(self) -> bool:
        """Whether q follows from an angle."""
        light = self.wavelength is not None and self.wavelength >= LIGHT
        return self.wavelength is not None and not (light and self.refractive_index is None)


def check_optics(given: Mapping[str, object]) -> None:
    """Refuse settings that cannot be used.

    Raises:
        SettingsError: a name is unknown, or a value is no number above 0.
    """
    for name, value in given.items():
        if name not in KNOWN:
            raise SettingsError("unknown setting", field=f"optics.{name}", remedy=nearest(name, KNOWN))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise SettingsError(f"got {value!r}, expected a number above 0", field=f"optics.{name}")


def optics_of(given: Mapping[str, float], reading: Reading, above: Above, path: Path) -> Optics:
    """What the settings say, or else the columns, or else the lines above the table.

    Raises:
        InputError: the unit of the wavelength is neither stated nor clear from its size.
    """
    said = {word: (float(numbers[0]), unit) for word, (numbers, unit) in above.quantities.items() if numbers.size == 1}
    said |= reading.optics
    found = {}
    for name in KNOWN:
        if name in said and name not in given:
            value, unit = said[name]
            found[name] = value * (1.0 if unit is None else unit.factor)
            if name == "wavelength" and unit is None and not USUAL[0] <= value <= USUAL[1]:
                remedy = "--set optics.wavelength=633 (in nm)"
                raise InputError(f"the wavelength {value:g} has no unit that is known", file=path, remedy=remedy)
    return Optics(**{name: float(value) for name, value in {**found, **given}.items()})


def q_of_angles(angle: PerBin, optics: Optics, path: Path, name: str, named: bool) -> PerBin:
    """q (bin,) [1/angstrom] of angles (bin,) [degree]. `name` is the heading of the angles; `named` says whether the
    settings name their column.

    Raises:
        InputError: the wavelength or the refractive index is not stated, or an angle is impossible.
    """
    if np.any(~((angle > 0) & (angle <= 180))):
        raise InputError(
            f"got {angle[~((angle > 0) & (angle <= 180))][0]:g}, expected 0 to 180 degrees", file=path, field="angle"
        )
    if optics.wavelength is None:
        remedy = "--set optics.wavelength=633 --set optics.refractive_index=1.33 (in nm, in vacuum)"
        raise InputError("q of an angle needs the wavelength", file=path, field="angle", remedy=remedy)
    light = optics.wavelength >= LIGHT
    if light and optics.refractive_index is None:
        remedy = "--set optics.refractive_index=1.33 (that of water)"
        raise InputError("q of an angle needs the refractive index", file=path, field="angle", remedy=remedy)
    if not light and "theta" in name.lower() and "2" not in name and "two" not in name.lower() and not named:
        problem = f"{name!r} may be the whole angle or half of it, with X-rays of {optics.wavelength:g} nm"
        raise InputError(
            problem, file=path, field="angle", remedy=f'--set columns.angle="{name}" where it is the whole angle'
        )
    index = 1.0 if optics.refractive_index is None else optics.refractive_index
    return 4.0 * np.pi * index / (optics.wavelength * ANGSTROM) * np.sin(np.radians(angle) / 2.0)

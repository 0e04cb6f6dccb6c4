"""The settings that say how a table is read, checked before the file is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesfit import SettingsError
from bayesfit.compute.errors import nearest
from bayesfit.pipelines._layouts import LAYOUTS
from bayesfit.pipelines._optics import check_optics
from bayesfit.pipelines._unit_names import Unit, accepted, stated_unit, tidy

CONVERTED = ("tau", "q", "angle", "phi")


@dataclass(frozen=True)
class Options:
    """The settings of reading, checked."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, Unit] = field(default_factory=dict)
    layout: str = ""
    sheet: str | int | None = None
    optics: Mapping[str, Any] = field(default_factory=dict)
    minus_one: bool | None = None


def checked(columns: Any, units: Any, layout: str | None, sheet: str | int | None, optics: Any) -> Options:
    """The settings as a record.

    Raises:
        SettingsError: an unknown layout, unit or word.
    """
    if layout is not None and layout not in LAYOUTS:
        raise SettingsError(f"unknown layout {layout!r}", field="layout", remedy=nearest(str(layout), LAYOUTS))
    for name, given in (("columns", columns), ("units", units), ("optics", optics)):
        if not isinstance(given, Mapping):
            raise SettingsError(
                f"got {given!r}, expected a table of names", field=name, remedy=f"Write {name}.NAME = ..."
            )
    check_optics(optics)
    minus_one = _minus_one(units["g2"]) if "g2" in units else None
    of_words = {word: _unit(word, str(text)) for word, text in units.items() if word != "g2"}
    return Options(columns, of_words, layout or "", sheet, optics, minus_one)


def _unit(word: str, text: str) -> Unit:
    if word not in CONVERTED:
        raise SettingsError(f"unknown word {word!r}", field="units", remedy=nearest(word, (*CONVERTED, "g2")))
    unit = stated_unit(word, text)
    if unit is None:
        raise SettingsError(f"unknown unit {text!r}", field=f"units.{word}", remedy=f"Accepted: {accepted(word)}")
    return unit


def _minus_one(text: str) -> bool:
    plain = tidy(text).replace(" ", "")
    if plain not in ("g2", "g2-1"):
        raise SettingsError(f"got {text!r}", field="units.g2", remedy='Accepted: "g2", "g2 - 1"')
    return plain == "g2-1"

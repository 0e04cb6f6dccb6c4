"""Units of delays, q, angles and wavelengths in all usual spellings, with their factors to our units: delays in s, q in
1/angstrom, angles in degree, wavelengths in nm."""

import math
import re
import unicodedata
from dataclasses import dataclass

SPELT = {
    "−": "-",
    "–": "-",
    "—": "-",
    "μ": "u",
    "τ": "tau",
    "λ": "lambda",
    "θ": "theta",
    "ϑ": "theta",
    "φ": "phi",
    "ϕ": "phi",
    "σ": "sigma",
    "δ": "delta ",
    "∆": "delta ",
    "°": " deg",
    "**": "^",
    "mathrm": "",
    "\\": "",
    "$": "",
    "{": "",
    "}": "",
    "_": " ",
}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
LENGTHS = {
    "angstrom": r"(?:å|a)ngstr(?:o|ö)e?ms?|ang|å|aa|a",
    "nm": r"nm|nano ?met(?:er|re)s?",
    "um": r"m?u ?m|microns?|micro ?met(?:er|re)s?",
    "mm": r"mm|milli ?met(?:er|re)s?",
    "cm": r"cm|centi ?met(?:er|re)s?",
    "m": r"m|met(?:er|re)s?",
}
INVERSE = r"(?:1 ?/?|/|per|inverse|inv|reciprocal) ?(?:{0})|(?:{0}) ?(?:\^? ?\(? ?- ?1 ?\)?|\^? ?inv(?:erse)?)"
UNITS = {  # by quantity and unit: factor to our unit, spellings
    "tau": {
        "s": (1.0, r"s|secs?|seconds?"),
        "ms": (1e-3, r"ms|m ?secs?|milli ?sec(?:ond)?s?"),
        "us": (1e-6, r"m?u ?s|m?u ?secs?|micro ?s|micro ?sec(?:ond)?s?"),
        "ns": (1e-9, r"ns|n ?secs?|nano ?sec(?:ond)?s?"),
        "min": (60.0, r"mins?|minutes?"),
        "h": (3600.0, r"hr?s?|hours?"),
    },
    "q": {
        f"1/{length}": (factor, INVERSE.format(LENGTHS[length]))
        for length, factor in {"angstrom": 1.0, "nm": 0.1, "um": 1e-4, "mm": 1e-7, "cm": 1e-8, "m": 1e-10}.items()
    },
    "angle": {"deg": (1.0, r"degs?|degrees?"), "rad": (180.0 / math.pi, r"rads?|radians?")},
    "wavelength": {
        length: (factor, LENGTHS[length])
        for length, factor in {"angstrom": 0.1, "nm": 1.0, "um": 1e3, "m": 1e9}.items()
    },
}
UNITS["q"]["1/nm"] = (0.1, UNITS["q"]["1/nm"][1] + "|nm ?1")  # as in names that allow neither ^ nor -
UNITS["q"]["1/um"] = (1e-4, UNITS["q"]["1/um"][1] + "|um ?1")
UNITS["phi"] = UNITS["angle"]
OURS = {"tau": "s", "q": "1/angstrom", "angle": "deg", "phi": "deg", "wavelength": "nm"}


@dataclass(frozen=True)
class Unit:
    """A unit: its name in messages, and its factor to our unit."""

    name: str
    factor: float


def tidy(text: object) -> str:
    """A heading or a unit with lower-case letters, plain signs and single spaces: `Q (Å⁻¹)` becomes `q (å-1)`."""
    plain = unicodedata.normalize("NFKC", str(text)).strip().strip("\"'").lower()
    for old, new in SPELT.items():
        plain = plain.replace(old, new)
    return " ".join(plain.split())


def unit_of(word: str, text: str) -> Unit | None:
    """The unit of a quantity (tau, q, phi, angle, wavelength) that a text spells; None if it spells none of them."""
    plain = tidy(text)
    while plain[:1] in "([" and plain[-1:] in ")]" and plain:
        plain = plain[1:-1].strip()
    for name, (factor, spellings) in UNITS.get(word, {}).items():
        if re.fullmatch(spellings, plain):
            return Unit(name, factor)
    return None


def stated_unit(word: str, text: str) -> Unit | None:
    """As `unit_of`; the text may also be a multiple of a unit, such as `0.005 s` for delays counted in frames of that
    time."""
    multiple = re.fullmatch(rf"({NUMBER})\s*(.+)", tidy(text))
    if (unit := unit_of(word, text)) is None and multiple and (inner := unit_of(word, multiple[2])):
        return Unit(f"{multiple[1]} {inner.name}", float(multiple[1]) * inner.factor)
    return unit


def accepted(word: str) -> str:
    """The units of a quantity, for messages."""
    return ", ".join(UNITS[word])

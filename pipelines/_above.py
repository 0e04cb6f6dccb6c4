"""What the lines above a table, comments or not, say of it: `wavelength = 633 nm`, `q [1/nm]: 0.1 0.2`, `tau in ms`."""

import re
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from bayesfit.pipelines._unit_names import NUMBER, Unit, tidy, unit_of

LIST = rf"(?P<numbers>{NUMBER}(?:(?:\s*[,;]\s*|\s+){NUMBER})*)"
UNIT = r"[^\s,;\])]+(?: ?\^?- ?1)?"
WITHIN = r"(?:\s*[\[(](?P<within>[^\])]*)[\])])?"
QUANTITY = rf"(?<![a-z0-9|])(?:NAMES){WITHIN}\s*(?:=|:|\bis\b|\s)\s*{LIST}\s*(?P<after>.*)"
SAID = rf"(?<![a-z])(?:NAMES)\s*(?:\b(?:is |are )?in\b|[\[(]|=|:)\s*({UNIT})"
QUANTITIES = {
    "wavelength": r"(?:laser )?wavelength|lambda(?: ?0)?",
    "refractive_index": r"refractive ?index|n",
    "angle": r"(?:scattering |detection )?angles?|2 ?theta",
    "q": r"q(?: ?val(?:ue)?s?)?|scattering vectors?|wave ?vectors?",
    "temperature": r"temperature|temp",
}
SHORT = re.compile(r"[nq]\s+[-+.\d]")  # names so short that a sign, as in `n = 1.33`, must follow them
DELAYS = r"tau|lag ?times?|lags?|delay ?times?|delays?|times?"
UNITS_SAID = {"tau": DELAYS, "q": r"q(?: ?val(?:ue)?s?)?|scattering vectors?|wave ?vectors?"}


@dataclass(frozen=True)
class Above:
    """What the lines above a table state: quantities, each as its numbers and its unit (None if no unit is stated), and
    units of the columns."""

    quantities: dict[str, tuple[Float[np.ndarray, " number"], Unit | None]] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    temperature: float | None = None  # K


def read_above(lines: list[str]) -> Above:
    """What lines of text state; if something is stated twice, the last counts."""
    quantities: dict[str, tuple[np.ndarray, Unit | None]] = {}
    units: dict[str, Unit] = {}
    temperature = None
    for line in map(tidy, lines):
        for word, names in QUANTITIES.items():
            match = re.search(QUANTITY.replace("NAMES", names), line)
            if match is None or SHORT.match(match[0]):
                continue
            numbers = np.array([float(each) for each in re.findall(NUMBER, match["numbers"])])
            said = match["within"] or match["after"]
            if word == "temperature":
                temperature = _kelvin(numbers[0], said, temperature)
            else:
                quantities[word] = numbers, _unit(word, said)
        for word, names in UNITS_SAID.items():
            match = re.search(SAID.replace("NAMES", names), line)
            if match and (unit := unit_of(word, match[1])):
                units[word] = unit
    return Above(quantities, units, temperature)


def _unit(word: str, text: str) -> Unit | None:
    """The unit that a text begins with."""
    words = re.split(r"[\s,;]+", text.strip())
    for count in (2, 1):
        if unit := unit_of(word, " ".join(words[:count])):
            return unit
    return None


def _kelvin(value: float, said: str, default: float | None) -> float | None:
    """A temperature in K, if its unit is stated; else `default`."""
    match = re.match(r"(?:deg ?)?(k|c)(?:elvin|elsius)?\b", said.strip())
    if match is None:
        return default
    return value + (273.15 if match[1] == "c" else 0.0)

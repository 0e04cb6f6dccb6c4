"""What an ALV file says of its photons: mean count rates of the detectors, and how long they were counted.

A frame is the shortest delay, and the whole scattering volume that a detector sees is one pixel. Of an autocorrelation,
photons per frame are those of its detector. Of both orders of a cross-correlation, averaged, they are those of both
detectors, of which only the pairs count whose photons are in different ones; where one detector counts more than the
other, twice the root of the product of their rates gives the number of these pairs. One order alone does not hold all
of these pairs, and instruments' averages do not say what was averaged.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bayesfit.data.counting import summed_at
from bayesfit.pipelines._alv_mode import Column
from bayesfit.pipelines._alv_text import NUMBER, as_number

CANNOT = "photon pairs cannot be counted"
DURATIONS = {"floatdur [ms]": 1e-3, "duration [s]": 1.0}


class Light(NamedTuple):
    """The photons behind one bin, per s, and the number of detectors that were correlated with each other."""

    rate: float
    detectors: int


def counting_of(
    header: Mapping[str, str], columns: Sequence[Column], tau: Float[np.ndarray, " tau"], average: bool
) -> tuple[dict[str, Any], str]:
    """The numbers of counting, as `bayesfit.curves` takes them, of the bins that these columns make at delays [s]; or
    nothing, and a note on why."""
    if average or header.get("runs", "1") != "1":
        return {}, f"{CANNOT}: the curve is an average of several runs"
    lights = [_light_of(column, header) for column in columns]
    if not (known := [light for light in lights if light is not None]) or len(known) < len(lights):
        return {}, f"{CANNOT}: the file lacks count rates of its detectors, or one order of a cross-correlation"
    if len({light.detectors for light in known}) > 1:
        return {}, f"{CANNOT}: the file holds autocorrelations and cross-correlations"
    seconds = next((found for key, unit in DURATIONS.items() if (found := unit * _number(header, key)) > 0), 0.0)
    if not (seconds > tau[0] > 0 and np.all(np.diff(tau) > 0)):
        return {}, f"{CANNOT}: the file does not state how long it was counted"
    counts = np.array([light.rate for light in known]) * tau[0]
    stated = {"frames": seconds / tau[0], "frames_summed": summed_at(tau / tau[0]), "pixels": 1, "counts": counts}
    return stated | {"detectors": known[0].detectors}, ""


def _light_of(column: Column, header: Mapping[str, str]) -> Light | None:
    """The light of one bin; None where it is not known, or where not all pairs of its detectors were counted."""
    names = [curve.detectors for curve in column.curves]
    if column.of_one_detector:
        rates = [_rate(header, one) for one in "".join(names).split("+") if one]
        return Light(sum(rates), 1) if len(names) == 1 and min(rates, default=0.0) > 0 else None
    one, _, other = names[0].partition("/")
    product = _rate(header, one) * _rate(header, other)
    both = sorted(names) == sorted([f"{one}/{other}", f"{other}/{one}"])
    return Light(2.0 * product**0.5, 2) if both and product > 0 else None


def _rate(header: Mapping[str, str], detector: str) -> float:
    """The mean count rate of a detector [1/s]; 0 where there is none."""
    return 1e3 * _number(header, f"meancr{detector} [khz]")


def _number(header: Mapping[str, str], key: str) -> float:
    """The number in a line of the header; 0 where there is none."""
    match = NUMBER.fullmatch(header.get(key, "").strip())
    return max(as_number(match[0]), 0.0) if match else 0.0

"""What the columns of an ALV file are: the line `Mode` says which detectors are correlated with which.

Autocorrelation   one detector with itself: `A-CH0`, `SINGLE AUTO CH0`; `A-CH0+1` and `DUAL AUTO` are one for each of
                  two detectors, `A-(CH0+1)` is one of their sum.
Cross-correlation two detectors that see the same light through a beam splitter ("pseudo"): `C-CH0/1`, `SINGLE CROSS
                  CH0`; `C-CH0/1+1/0` and `DUAL CROSS` are both orders, with one column each.
Both              `A-CH0+1  C-CH0/1+1/0`, `QUAD`: the autocorrelations first.
"""

import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

MULTIPLE = {"single": 1, "dual": 2, "quad": 4}
PART = re.compile(r"\b([ac])-(\(?)ch([\d/+a]+)\)?")
PAIR = re.compile(r"(\d)/(\d)")


class Curve(NamedTuple):
    """One column of the file: an autocorrelation (`auto`) of one detector or of the sum of several, or a
    cross-correlation (`cross`) of two detectors, in the order of the mode line."""

    kind: str
    detectors: str

    @property
    def light(self) -> tuple[str, ...]:
        """The light that was measured: two columns with the same value saw the same light, as both orders of a
        cross-correlation do."""
        return (self.kind, *sorted(self.detectors.split("/")))

    def __str__(self) -> str:
        return f"{self.kind} {self.detectors}"


def curves_of(mode: str) -> list[Curve] | None:
    """The curves that a mode line announces, in the order of their columns; None where it is not understood."""
    text = " ".join(mode.lower().split())
    if parts := PART.findall(text):
        leftover = PART.sub("", text).strip(" ,;&+)")
        return None if leftover else [curve for part in parts for curve in _of_part(*part)]
    return _of_words(text)


def _of_part(kind: str, summed: str, detectors: str) -> list[Curve]:
    """The curves of one part such as `C-CH0/1+1/0`, which some versions write `C-CH0/1a1/0`."""
    if kind == "c":
        return [Curve("cross", f"{one}/{other}") for one, other in PAIR.findall(detectors)]
    numbers = re.findall(r"\d", detectors)
    return [Curve("auto", "+".join(numbers))] if summed else [Curve("auto", number) for number in numbers]


def _of_words(text: str) -> list[Curve] | None:
    """The curves of modes in words, `SINGLE AUTO CH0`, `DUAL CROSS`, `QUAD`."""
    count = next((MULTIPLE[word] for word in text.split() if word in MULTIPLE), 1)
    first = (re.findall(r"ch(\d)", text) or ["0"])[0]
    autos = [Curve("auto", "0"), Curve("auto", "1")]
    crosses = [Curve("cross", "0/1"), Curve("cross", "1/0")]
    if count == 4 or ("auto" in text and "cross" in text):
        return [*autos, *crosses]
    if "cross" in text:
        return crosses if count == 2 else [Curve("cross", "0/1" if first == "0" else "1/0")]
    if "auto" in text:
        return autos if count == 2 else [Curve("auto", first)]
    return None


class Column(NamedTuple):
    """What becomes one bin: its `places` among the columns in use, and the `curves` there; none if the mode line does
    not say what they are."""

    places: list[int]
    curves: tuple[Curve, ...]

    @property
    def words(self) -> str:
        """What is correlated, in words."""
        return " and ".join(map(str, self.curves)) or "columns of unknown mode"

    @property
    def of_one_detector(self) -> bool:
        """Whether it may be the autocorrelation of a detector, which its dead time and afterpulses distort."""
        return not self.curves or self.curves[0].kind == "auto"


def columns_of(mode: str, used: Int[np.ndarray, " used"], one_light: bool) -> list[Column]:
    """The bins that the columns make which are `used` (their places among all columns).

    Columns of the same light are put into one bin, but only if all columns are of one angle (`one_light`). Where the
    mode line does not say what the columns are, each is a bin of its own.
    """
    curves = curves_of(mode) or []
    if used.max() < len(curves):
        curves = [curves[place] for place in used]
    if len(curves) != used.size:
        return [Column([place], ()) for place in range(used.size)]
    if not one_light:
        return [Column([place], (curve,)) for place, curve in enumerate(curves)]
    together: dict[tuple[str, ...], list[int]] = {}
    for place, curve in enumerate(curves):
        together.setdefault(curve.light, []).append(place)
    return [Column(places, tuple(curves[place] for place in places)) for places in together.values()]


def averaged(
    columns: Sequence[Column], g2: Float[np.ndarray, "column tau"], errors: Float[np.ndarray, "column tau"] | None
) -> tuple[Float[np.ndarray, "bin tau"], Float[np.ndarray, "bin tau"] | None]:
    """The mean (bin, tau) over the columns of each bin, from values and errors (column, tau).

    Its error is the root mean square of the errors of the columns, not reduced by their number, since columns of one
    bin share their fluctuations. At each delay, only columns that have a number there count.
    """
    finite = np.where(np.isfinite(g2), g2, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # delays at which no column has a number
        means = np.array([np.nanmean(finite[column.places], axis=0) for column in columns])
        if errors is None:
            return means, None
        return means, np.array([np.sqrt(np.nanmean(errors[column.places] ** 2, axis=0)) for column in columns])

"""The records that all layouts share: a table whose headings are understood, and what is read from it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from bayesfit import InputError
from bayesfit.pipelines._cells import Cells, found
from bayesfit.pipelines._grid import is_empty
from bayesfit.pipelines._headings import Heading
from bayesfit.pipelines._unit_names import Unit

WORDS = ("tau", "g2", "g2_err", "q", "phi", "angle", "bin", "wavelength", "refractive_index")
TELLING = ("q", "phi", "angle", "bin")  # columns that say to which bin a row of a long table belongs
ACCEPTED = (
    "Accepted are tau (or lag time, delay, time, t, dt), q, angle, phi, g2 (or g2 - 1, correlation) and "
    "g2_err (or error, err, sigma, std), with units as in tau [ms]"
)


@dataclass(frozen=True, eq=False)
class Reading:
    """What a table holds, in its own units: tau (tau,), g2 and g2_err (bin, tau), and for each bin (bin,) q, phi, angle
    and label, if the table has them.

    `units` are the units that the headings state, `strange` the stated ones that were not understood. `names` are the
    headings by quantity. `optics` holds wavelength and refractive index, if the table has columns of them.
    """

    layout: str
    tau: Float[np.ndarray, " tau"]
    g2: Float[np.ndarray, "bin tau"]
    g2_err: Float[np.ndarray, "bin tau"] | None = None
    bins: dict[str, Float[np.ndarray, " bin"]] = field(default_factory=dict)
    labels: list[str] | None = None
    units: dict[str, Unit] = field(default_factory=dict)
    minus_one: bool = False
    errors_from: str = ""
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    strange: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    optics: dict[str, tuple[float, Unit | None]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table with its headings understood. `layout` is the one that the user names, "" if none; `units` are the units
    that the user names."""

    cells: Cells
    heads: list[Heading]
    layout: str = ""
    units: Mapping[str, Unit] = field(default_factory=dict)

    def refuse(self, problem: str, remedy: str) -> InputError:
        return InputError(f"{problem}; {found(self.cells)}", file=self.cells.grid.path, remedy=remedy)

    def name(self, place: int) -> str:
        """The name of a column in messages: its heading, or else its number."""
        text = self.heads[place].text
        return repr(text) if text else f"{place + self.cells.grid.first} (without a heading)"

    def places(self, word: str) -> list[int]:
        """The columns whose heading names this quantity and no bin; of several names, those of the first rank."""
        there = [(self.rank(place), place) for place, head in enumerate(self.heads) if head.word == word and head.plain]
        return [place for rank, place in there if rank == min(there)[0]]

    def rank(self, place: int) -> tuple[bool, int]:
        return bool(self.heads[place].strange), self.heads[place].rank

    def stated(self, places: Mapping[str, int]) -> dict[str, Any]:
        """`units`, `strange` and `names` of a reading that takes its quantities from these columns."""
        heads = {word: self.heads[place] for word, place in places.items()}
        return {
            "units": {word: head.unit for word, head in heads.items() if head.unit is not None},
            "strange": {word: head.strange for word, head in heads.items() if head.strange},
            "names": {word: head.text for word, head in heads.items()},
        }

    def unused(self, used: Collection[int]) -> list[str]:
        """The names of all other columns that are not empty."""
        others = [place for place in range(self.cells.width) if place not in used]
        filled = [place for place in others if not all(is_empty(row[place]) for row in self.cells.rows)]
        return [self.name(place) for place in others if place in filled or self.heads[place].text]

    def only(self, word: str) -> int | None:
        """The column of a quantity, None if there is none.

        Raises:
            InputError: several could be it.
        """
        places = self.places(word)
        if len(places) > 1:
            names = " and ".join(self.name(place) for place in places[:4])
            texts = [self.heads[place].text for place in places]
            name = texts[0] if texts.count(texts[0]) == 1 else str(places[0] + self.cells.grid.first)
            raise self.refuse(f"{word}: columns {names} could both be it", naming(word, name))
        return places[0] if places else None


def naming(word: str, name: str = "NAME") -> str:
    return f'Name the column, --set columns.{word}="{name}"'


def check_delays(cells: Cells, tau: Float[np.ndarray, " tau"], column: int) -> None:
    """Refuse a delay that is missing, negative or not finite."""
    bad = ~(np.isfinite(tau) & (tau >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        where = cells.place(row, column)
        raise InputError(f"{where}: got {tau[row]:g}, expected a delay", file=cells.grid.path, field="tau")

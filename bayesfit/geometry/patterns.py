"""Where a pattern's photons are: cells of pixels, small in q and in azimuth, that stand for an image.

The place of a cell is that of its mean radius and azimuth, and its q the mean of its pixels' q where the detector is
taken to stand. If it stands elsewhere, q changes as it does at that place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bayesfit.geometry.detector import Detector, rotation
from bayesfit.geometry.scattering import Pixels, length_of_q

SECTORS = 16  # within which the cosine of the azimuth changes little
BLOCK = 1024  # numbers of cells are multiples of this, so that images share a compiled program
OFF_CENTRE = 1e-9  # pixels: q has no slope at the direct beam

OfCells = Float[np.ndarray, " cell"]
Image = Float[np.ndarray, "row column"]


class Optics(NamedTuple):
    """What a calibration leaves as it is: height and width of a pixel [m], the wave number [1/angstrom], and the third
    tilt [rad]."""

    height: Any
    width: Any
    wave_number: Any
    rot3: Any


class Cells(NamedTuple):
    """Cells of pixels: photons counted, pixels, where they are [pixel], and by how much their mean q exceeds that at
    this place [1/angstrom]. Cells without pixels fill the arrays up."""

    counts: OfCells
    pixels: OfCells
    row: OfCells
    column: OfCells
    excess: OfCells


def optics_of(detector: Detector) -> Optics:
    """The optics of a detector."""
    return Optics(*detector.pixel_size, 2 * np.pi / detector.wavelength, detector.rotations[2])


def q_at(place: Sequence[Any], row: Any, column: Any, optics: Optics, xp: Any = np) -> Any:
    """q [1/angstrom] at these rows and columns of a detector that stands at this `place` (see `Detector.place`)."""
    turned = rotation((place[3], place[4], optics.rot3), xp)
    down = (row - place[0] + OFF_CENTRE) * optics.height
    along = (column - place[1]) * optics.width
    x, y, z = (line[0] * down + line[1] * along for line in (turned[0], turned[1], turned[2]))
    z = z + place[2] / turned[2][2]
    return length_of_q(Pixels(x, y, z, xp.sqrt(x * x + y * y + z * z), optics.wave_number, 0.0, xp))


def cells_of(
    image: Image, good: Bool[np.ndarray, "row column"], detector: Detector, edges: Float[np.ndarray, " edge"]
) -> Cells:
    """The good pixels of an image in cells between these edges in q, where the detector is taken to stand."""
    optics, place = optics_of(detector), detector.place
    row, column = np.nonzero(good)
    q = q_at(place, row, column, optics)
    down, along = (row - place[0]) * optics.height, (column - place[1]) * optics.width
    azimuth = np.arctan2(down, along)
    sector = np.clip((azimuth / (2 * np.pi) + 0.5) * SECTORS, 0, SECTORS - 1).astype(int)
    ring = np.searchsorted(edges, q, side="right") - 1
    inside = (ring >= 0) & (ring < edges.size - 1)
    number = (ring * SECTORS + sector)[inside]

    def summed(values: Any) -> OfCells:
        return np.bincount(number, values[inside], (edges.size - 1) * SECTORS)

    pixels = summed(np.ones(q.size))
    held = pixels > 0
    mean = {name: summed(v)[held] / pixels[held] for name, v in (("q", q), ("a", azimuth))}
    radius = summed(np.hypot(down, along))[held] / pixels[held]
    at = place[0] + radius * np.sin(mean["a"]) / optics.height, place[1] + radius * np.cos(mean["a"]) / optics.width
    excess = mean["q"] - q_at(place, *at, optics)
    found = Cells(summed(image[row, column].astype(float))[held], pixels[held], *at, excess)
    return _filled_up(found)


def _filled_up(cells: Cells) -> Cells:
    """The cells, with empty ones at the place of the first up to a multiple of `BLOCK`."""
    more = -cells.pixels.size % BLOCK
    return Cells(
        *(np.concatenate([array, np.zeros(more)]) for array in cells[:2]),
        *(np.concatenate([array, np.full(more, array[0])]) for array in cells[2:]),
    )

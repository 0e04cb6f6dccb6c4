"""A flat detector, or one flat module of it, and the light that it sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from bayesfit.compute.errors import InputError, SettingsError

ANGSTROM = 1e-10  # m
LENGTHS = {"shape": 2, "pixel_size": 2, "distance": 1, "normal": 2, "wavelength": 1, "rotations": 3}


@dataclass(frozen=True)
class Detector:
    """Where a flat detector stands, and the wavelength.

    Args:
        shape: rows and columns.
        pixel_size: height and width of a pixel [m].
        distance: from the specimen to the plane of the detector, along its normal [m].
        normal: row and column at which the normal through the specimen meets that plane; whole numbers are centres of
            pixels. Without tilts this is where the direct beam arrives.
        wavelength: [angstrom].
        rotations: tilts about the axis along the columns, the axis along the rows, and the beam [rad], with the signs
            of pyFAI's rot1, rot2 and rot3 (J. Kieffer & D. Karkoulis, J. Phys. Conf. Ser. 425, 202012 (2013)).

    Raises:
        SettingsError: a number is impossible; names it.

    Example:
        >>> import bayesfit
        >>> detector = bayesfit.geometry.Detector((512, 512), (75e-6, 75e-6), 5.0, (255.5, 255.5), wavelength=1.24)
        >>> detector.beam_center
        (255.5, 255.5)
    """

    shape: tuple[int, int]
    pixel_size: tuple[float, float]
    distance: float
    normal: tuple[float, float]
    wavelength: float
    rotations: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        for name, count in LENGTHS.items():
            given = getattr(self, name)
            values = np.atleast_1d(np.asarray(given, float))
            above_0 = name not in ("normal", "rotations")
            if values.shape != (count,) or not np.all(np.isfinite(values)) or (above_0 and np.any(values <= 0)):
                remedy = f"Expected {count} number{'s' * (count > 1)}{' above 0' * above_0}"
                raise SettingsError(f"got {given!r}", field=name, remedy=remedy)

    def __repr__(self) -> str:
        rows, columns = self.shape
        height, width = (1e6 * size for size in self.pixel_size)
        tilts = f", rotations {self.rotations} rad" if any(self.rotations) else ""
        at = f"{self.distance:g} m away, normal at {tuple(self.normal)}, {self.wavelength:g} angstrom{tilts}"
        return f"<Detector of {rows} x {columns} pixels of {height:g} x {width:g} um, {at}>"

    @property
    def rotation(self) -> Float[np.ndarray, "3 3"]:
        """The matrix that takes a place in the detector's axes (down its rows, along its columns, along its normal) to
        the laboratory's, of which the third is the beam."""
        (c1, c2, c3), (s1, s2, s3) = np.cos(self.rotations), np.sin(self.rotations)
        first = np.array([[1.0, 0.0, 0.0], [0.0, c1, s1], [0.0, -s1, c1]])
        second = np.array([[c2, 0.0, -s2], [0.0, 1.0, 0.0], [s2, 0.0, c2]])
        third = np.array([[c3, -s3, 0.0], [s3, c3, 0.0], [0.0, 0.0, 1.0]])
        found: Float[np.ndarray, "3 3"] = third @ second @ first
        return found

    @property
    def beam_center(self) -> tuple[float, float]:
        """Row and column at which the direct beam arrives."""
        down, along, ahead = self.rotation[2]
        row, column = (
            start + self.distance * part / ahead / size
            for start, part, size in zip(self.normal, (down, along), self.pixel_size, strict=True)
        )
        return float(row), float(column)


def from_poni(path: str | Path) -> Detector:
    """The detector that pyFAI has calibrated (extra `bayesfit[frames]`).

    Raises:
        SettingsError: pyFAI is not installed. InputError: the file is no calibration, or states no shape or wavelength.
    """
    try:
        import pyFAI
    except ImportError as error:
        remedy = 'Install it: pip install "bayesfit[frames]"'
        raise SettingsError("pyFAI is not installed", field="from_poni", remedy=remedy) from error
    path = Path(path)
    if not path.is_file():
        raise InputError("no such file", file=path)
    try:
        found = pyFAI.load(str(path))
    except Exception as error:  # pyFAI raises whatever its parsers do
        raise InputError(f"is no calibration of pyFAI ({error})", file=path) from error
    if found.detector.shape is None or not found.wavelength:
        missing = "shape of a detector" if found.detector.shape is None else "wavelength"
        raise InputError(f"states no {missing}", file=path)
    sizes = found.pixel1, found.pixel2
    row, column = (place / size - 0.5 for place, size in zip((found.poni1, found.poni2), sizes, strict=True))
    rotations = found.rot1, found.rot2, found.rot3
    shape = int(found.detector.shape[0]), int(found.detector.shape[1])
    return Detector(shape, sizes, found.dist, (row, column), found.wavelength / ANGSTROM, rotations)

"""A flat detector, or one flat module of it, and the light that it sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.kinds import expect_result

ANGSTROM = 1e-10  # m
LENGTHS = {"shape": 2, "pixel_size": 2, "distance": 1, "normal": 2, "wavelength": 1, "rotations": 3}
TURNED = {0: (False, False), 1: (True, True), 2: (True, False), 3: (False, False), 4: (False, True)}  # by orientation
PLACE = ("row", "column", "distance", "rot1", "rot2")  # where a detector stands, as a calibration has it


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
        covariance: that of row and column of the direct beam [pixel], distance [m] and the first two tilts [rad], five
            rows of five numbers, where they are known from a calibration; None where they are taken to be exact.
        mirrored: whether the frames are mirror images, rows upside down: the azimuth then runs the other way.

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
    covariance: tuple[tuple[float, ...], ...] | None = None
    mirrored: bool = False

    def __post_init__(self) -> None:
        for name, count in LENGTHS.items():
            given = getattr(self, name)
            values = np.atleast_1d(np.asarray(given, float))
            above_0 = name not in ("normal", "rotations")
            if values.shape != (count,) or not np.all(np.isfinite(values)) or (above_0 and np.any(values <= 0)):
                remedy = f"Expected {count} number{'s' * (count > 1)}{' above 0' * above_0}"
                raise SettingsError(f"got {given!r}", field=name, remedy=remedy)
        if self.covariance is not None:
            _check_covariance(self.covariance)

    def __repr__(self) -> str:
        rows, columns = self.shape
        height, width = (1e6 * size for size in self.pixel_size)
        tilts = f", rotations {self.rotations} rad" if any(self.rotations) else ""
        turned = ", mirrored" * self.mirrored
        at = f"{self.distance:g} m away, normal at {tuple(self.normal)}, {self.wavelength:g} angstrom{tilts}{turned}"
        return f"<Detector of {rows} x {columns} pixels of {height:g} x {width:g} um, {at}>"

    @property
    def rotation(self) -> Float[np.ndarray, "3 3"]:
        """As `rotation` has it; the first axis of the laboratory is turned round where the detector is mirrored."""
        found: Float[np.ndarray, "3 3"] = rotation(self.rotations)
        return found * [[-1.0], [1.0], [1.0]] if self.mirrored else found

    @property
    def beam_center(self) -> tuple[float, float]:
        """Row and column at which the direct beam arrives."""
        down, along, ahead = self.rotation[2]
        row, column = (
            start + self.distance * part / ahead / size
            for start, part, size in zip(self.normal, (down, along), self.pixel_size, strict=True)
        )
        return float(row), float(column)

    @property
    def place(self) -> tuple[float, ...]:
        """The numbers of `PLACE`: where the direct beam arrives, the distance, and the first two tilts."""
        return *self.beam_center, self.distance, *self.rotations[:2]

    def placed(self, place: Sequence[float], covariance: Any = None) -> Detector:
        """This detector at another `place`, which is known with this covariance."""
        row, column, distance, rot1, rot2 = map(float, place)
        rotations = rot1, rot2, self.rotations[2]
        down, along, ahead = rotation(rotations)[2]
        normal = tuple(
            at - distance * part / ahead / size
            for at, part, size in zip((row, column), (down, along), self.pixel_size, strict=True)
        )
        known = None if covariance is None else tuple(tuple(map(float, line)) for line in covariance)
        return replace(self, distance=distance, normal=normal, rotations=rotations, covariance=known)

    @property
    def deviations(self) -> list[tuple[Detector, Detector]]:
        """Pairs of detectors, one standard deviation to either side along the independent directions of the
        covariance."""
        if self.covariance is None:
            return []
        covariance = np.asarray(self.covariance)
        scale = np.sqrt(np.maximum(np.diagonal(covariance), np.finfo(float).tiny))  # units differ
        values, vectors = np.linalg.eigh(covariance / scale / scale[:, None])
        steps = (scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))).T
        here = np.asarray(self.place)
        return [(self.placed(here + step), self.placed(here - step)) for step in steps if np.any(step)]


def from_calibration(result: xr.DataTree) -> Detector:
    """The detector that `calibrate` has found, at the mean of the posterior and with its covariance.

    Raises:
        ResultError: it is no calibration.
    """
    expect_result(result, "calibration", remedies={})
    stated = json.loads(result.attrs["detector"])
    named: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in stated.items()}
    nominal = Detector(**named)
    posterior = result["posterior"].dataset
    free = [number for number, name in enumerate(PLACE) if name in posterior]
    draws = np.stack([posterior[PLACE[number]].values.ravel() for number in free]).astype(np.float64)
    place, covariance = np.array(nominal.place), np.zeros((len(PLACE),) * 2)
    place[free], covariance[np.ix_(free, free)] = draws.mean(axis=1), np.cov(draws)
    return nominal.placed(place.tolist(), covariance)


def rotation(angles: Sequence[Any], xp: Any = np) -> Any:
    """The matrix that takes a place in the detector's axes (down its rows, along its columns, along its normal) to the
    laboratory's, of which the third is the beam; `angles` as `Detector.rotations`, [rad]."""
    (c1, c2, c3), (s1, s2, s3) = [xp.cos(angle) for angle in angles], [xp.sin(angle) for angle in angles]
    first = xp.asarray([[1.0, 0.0, 0.0], [0.0, c1, s1], [0.0, -s1, c1]])
    second = xp.asarray([[c2, 0.0, -s2], [0.0, 1.0, 0.0], [s2, 0.0, c2]])
    third = xp.asarray([[c3, -s3, 0.0], [s3, c3, 0.0], [0.0, 0.0, 1.0]])
    return third @ second @ first


def _check_covariance(given: Any) -> None:
    """Refuse what is no covariance of five numbers."""
    matrix = np.asarray(given, float)
    right = matrix.shape == (len(PLACE),) * 2 and np.all(np.isfinite(matrix)) and np.allclose(matrix, matrix.T)
    if not right or np.any(np.diagonal(matrix) < 0):
        raise SettingsError("is no covariance", field="covariance", remedy=f"It is that of {', '.join(PLACE)}")


def from_poni(path: str | Path) -> Detector:
    """The detector that pyFAI has calibrated (extra `bayesfit[frames]`), in any of pyFAI's orientations 1 to 4.

    The azimuth is pyFAI's chi, whose axes are those of orientation 3: in reflection the surface faces against the rows
    of frames in that orientation. The detector's gaps are not carried; a mask of them, True where a pixel is good, goes
    to `partition(mask=...)`: `pyFAI.load(path).detector.mask == 0`, where pyFAI's mask is not None.

    Raises:
        SettingsError: pyFAI is not installed. InputError: the file is no calibration, states no shape or wavelength, or
            the detector is not a flat one of equal pixels.
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
    _check_pixels(found.detector, path)
    return _oriented(found)


def _check_pixels(own: Any, path: Path) -> None:
    """Refuse a detector of pyFAI whose pixels are not those of a `Detector`."""
    if not (own.uniform_pixel and own.IS_FLAT and own.CORNERS == 4):
        problem = f"the pixels of {own.name} are not equal rectangles in a plane"
        remedy = "Have pyFAI.distortion put the frames on such pixels, and calibrate those"
        raise InputError(problem, file=path, field="Detector", remedy=remedy)
    if int(own.orientation) not in TURNED:
        problem, remedy = f"got {int(own.orientation)}", "Expected 1, 2, 3 or 4"
        raise InputError(problem, file=path, field="Detector_config: orientation", remedy=remedy)


def _oriented(found: Any) -> Detector:
    """The detector of a geometry of pyFAI. Where rows or columns run backwards, so do the tilts about the other axis,
    and half a turn about the beam and a mirror bring the axes back."""
    shape = int(found.detector.shape[0]), int(found.detector.shape[1])
    sizes, backwards = (found.pixel1, found.pixel2), TURNED[int(found.detector.orientation)]
    places = [place / size - 0.5 for place, size in zip((found.poni1, found.poni2), sizes, strict=True)]
    row, column = (many - 1 - at if back else at for many, at, back in zip(shape, places, backwards, strict=True))
    rows, columns = backwards
    mirrored = rows != columns
    rot3 = (np.pi if columns else 0.0) + (-found.rot3 if mirrored else found.rot3)
    rotations = -found.rot1 if columns else found.rot1, -found.rot2 if rows else found.rot2, rot3
    wavelength = found.wavelength / ANGSTROM
    return Detector(shape, sizes, found.dist, (row, column), wavelength, rotations, mirrored=mirrored)

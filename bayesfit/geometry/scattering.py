"""The wave vector and the angles of every pixel.

A pixel at (x, y, z) from the specimen, z along the beam, R away, scatters by 2 theta with 1 - cos(2 theta) =
rho^2 / (R (R + z)), rho^2 = x^2 + y^2, so that q = 2 k sin(theta) needs no trigonometry:

    q^2 = 2 k^2 rho^2 / (R (R + z)),    k = 2 pi / wavelength,

which also loses no digits at small angles, as 1 - z / R would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from bayesfit.backends.choice import get_backend
from bayesfit.backends.protocol import BackendProtocol
from bayesfit.compute.errors import SettingsError
from bayesfit.compute.kinds import in_words
from bayesfit.geometry.detector import Detector

DEGREE = 180.0 / math.pi


def qmap(
    detector: Detector | Sequence[Detector], *, incidence: float | None = None, backend: str | None = None
) -> QMap:
    """The wave vectors and angles of all pixels of a detector, or of several modules.

    Args:
        detector: where it stands; or where each of several modules stands, which have the same number of columns: the
            maps then hold their rows one below the other, as frames of such a detector do.
        incidence: in reflection, the angle between the beam and the surface [degree]. The surface faces up, against the
            rows. None: transmission.
        backend: "numpy", "jax" or "auto"; by default the one that was chosen.

    Raises:
        SettingsError: the incidence is not above 0 and at most 90, modules differ in their columns, or there is no such
            backend.

    Example:
        >>> import bayesfit
        >>> detector = bayesfit.geometry.Detector((3, 5), (1e-3, 1e-3), 1.0, (1, 2), wavelength=1.0)
        >>> [round(float(q), 5) for q in bayesfit.geometry.qmap(detector, backend="numpy").q[1]]
        [0.01257, 0.00628, 0.0, 0.00628, 0.01257]
    """
    if incidence is not None and not 0 < incidence <= 90:
        raise SettingsError(f"got {incidence!r}", field="incidence", remedy="Expected degrees above 0, up to 90")
    modules = (detector,) if isinstance(detector, Detector) else tuple(detector)
    if not modules or not all(isinstance(each, Detector) for each in modules):
        raise SettingsError(f"got {in_words(detector)}, expected detectors", field="detector")
    if len({each.shape[1] for each in modules}) > 1:
        problem = f"modules of {sorted({each.shape[1] for each in modules})} columns do not stand below each other"
        raise SettingsError(problem, field="detector", remedy="Call qmap for each")
    return QMap(modules, incidence, get_backend(backend))


@dataclass(frozen=True)
class QMap:
    """What the pixels of all modules see, in transmission or at an angle of incidence [degree]: arrays (row, column) of
    the backend, in double precision, each of which is computed when it is first asked for."""

    modules: tuple[Detector, ...]
    incidence: float | None
    backend: BackendProtocol

    def __repr__(self) -> str:
        how = "in transmission" if self.incidence is None else f"at an incidence of {self.incidence:g} degree"
        return f"<QMap {how} of {', '.join(map(repr, self.modules))}>"

    @cached_property
    def q(self) -> Any:
        """The length of the wave vector [1/angstrom]."""
        return self._computed(length_of_q)

    @cached_property
    def q_err(self) -> Any:
        """The standard error of q by the covariance of a calibrated detector, 0 where it is exact [1/angstrom]."""
        xp: Any = self.backend.xp
        root = self.backend.jit(lambda none, shifts: xp.sqrt(sum((shift * shift for shift in shifts), none)))
        return root(self.backend.jit(xp.zeros_like)(self.q), self.q_shifts())

    def q_shifts(self) -> list[Any]:
        """By how much q is off, one standard deviation along each independent direction of the covariance; modules
        are taken to be off together [1/angstrom]."""
        pairs = zip(*(each.deviations for each in self.modules), strict=True)
        return [self._difference(pair) for pair in pairs]

    def _difference(self, pair: tuple[tuple[Detector, Detector], ...]) -> Any:
        one, other = (QMap(tuple(side), self.incidence, self.backend) for side in zip(*pair, strict=True))
        halved: Any = self.backend.jit(lambda a, b: 0.5 * (a - b))
        return halved(one.q, other.q)

    @cached_property
    def phi(self) -> Any:
        """The azimuth, from -180 to 180: 0 along the columns, 90 down the rows [degree]."""
        return self._computed(_phi)

    @cached_property
    def two_theta(self) -> Any:
        """The angle of scattering [degree]."""
        return self._computed(_two_theta)

    @cached_property
    def q_parallel(self) -> Any:
        """In reflection, the part of the wave vector along the surface [1/angstrom]."""
        return self._computed(_q_parallel, in_reflection=True)

    @cached_property
    def q_perpendicular(self) -> Any:
        """In reflection, the part of the wave vector across the surface [1/angstrom]."""
        return self._computed(_q_perpendicular, in_reflection=True)

    @cached_property
    def exit_angle(self) -> Any:
        """In reflection, the angle of the scattered light above the surface [degree]."""
        return self._computed(_exit_angle, in_reflection=True)

    def _computed(self, quantity: Quantity, in_reflection: bool = False) -> Any:
        """One map.

        Raises:
            SettingsError: it is one of reflection, and this is transmission.
        """
        if in_reflection and self.incidence is None:
            raise SettingsError("is needed for what a surface reflects", field="incidence", remedy="Give it to qmap")
        maps = [self._of(module, quantity) for module in self.modules]
        return maps[0] if len(maps) == 1 else self.backend.xp.concat(maps)

    def _of(self, own: Detector, quantity: Quantity) -> Any:
        """The map of one module."""
        made = self.backend.asarray
        numbers = [*own.pixel_size, *own.normal, own.distance, 2 * math.pi / own.wavelength]
        angle = math.radians(self.incidence or 0.0)
        rotation = [[*row] for row in own.rotation]
        return _compiled(self.backend, quantity)(made(rotation), made(numbers), made(angle), shape=own.shape)


class Pixels(NamedTuple):
    """Where the pixels are, x down the rows, y along the columns, z along the beam [m], R `away`; the wave number k
    [1/angstrom], the incidence [rad], and the namespace of the arrays."""

    x: Any
    y: Any
    z: Any
    away: Any
    k: Any
    incidence: Any
    xp: Any

    @property
    def above(self) -> Any:
        """The sine of the exit angle: the normal of the surface is cos(incidence) up less sin(incidence) along the
        beam."""
        return -(self.xp.cos(self.incidence) * self.x + self.xp.sin(self.incidence) * self.z) / self.away


Quantity = Callable[[Pixels], Any]


@lru_cache
def _compiled(backend: BackendProtocol, quantity: Quantity) -> Callable[..., Any]:
    """A map by this backend, compiled once."""
    xp: Any = backend.xp

    def compute(rotation: Any, numbers: Any, incidence: Any, shape: tuple[int, int]) -> Any:
        down = (xp.arange(shape[0], dtype=xp.float64)[:, None] - numbers[2]) * numbers[0]
        along = (xp.arange(shape[1], dtype=xp.float64)[None, :] - numbers[3]) * numbers[1]
        x, y, z = (
            row[0] * down + row[1] * along + row[2] * numbers[4] for row in (rotation[axis] for axis in range(3))
        )
        return quantity(Pixels(x, y, z, xp.sqrt(x * x + y * y + z * z), numbers[5], incidence, xp))

    return backend.jit(compute, static=("shape",))


def length_of_q(at: Pixels) -> Any:
    """The length of the wave vector [1/angstrom]."""
    across = at.x * at.x + at.y * at.y
    return at.k * at.xp.sqrt(2.0 * across / (at.away * (at.away + at.z)))


def _phi(at: Pixels) -> Any:
    return DEGREE * at.xp.atan2(at.x, at.y)


def _two_theta(at: Pixels) -> Any:
    return DEGREE * at.xp.atan2(at.xp.sqrt(at.x * at.x + at.y * at.y), at.z)


def _q_perpendicular(at: Pixels) -> Any:
    return at.k * (at.above + at.xp.sin(at.incidence))


def _q_parallel(at: Pixels) -> Any:
    cosine, sine = at.xp.cos(at.incidence), at.xp.sin(at.incidence)
    forward = (cosine * at.z - sine * at.x) / at.away - cosine
    return at.k * at.xp.sqrt(forward**2 + (at.y / at.away) ** 2)


def _exit_angle(at: Pixels) -> Any:
    return DEGREE * at.xp.asin(at.xp.clip(at.above, -1.0, 1.0))

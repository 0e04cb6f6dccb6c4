"""The wave vector and the angles of every pixel.

A pixel at (x, y, z) from the specimen, z along the beam, R away, scatters by 2 theta with 1 - cos(2 theta) =
rho^2 / (R (R + z)), rho^2 = x^2 + y^2, so that q = 2 k sin(theta) needs no trigonometry:

    q^2 = 2 k^2 rho^2 / (R (R + z)),    k = 2 pi / wavelength,

which also loses no digits at small angles, as 1 - z / R would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from bayesfit.backends.choice import get_backend
from bayesfit.backends.protocol import BackendProtocol
from bayesfit.compute.errors import SettingsError
from bayesfit.geometry.detector import Detector


class QMap(NamedTuple):
    """What each pixel sees, arrays (row, column) of the backend: `q` [1/angstrom]; `phi` [degree], 0 along the columns
    and 90 down the rows; `two_theta` [degree]. In reflection also the parts of q along the surface and across it
    [1/angstrom], and the angle of the scattered light above the surface [degree]; else None."""

    q: Any
    phi: Any
    two_theta: Any
    q_parallel: Any = None
    q_perpendicular: Any = None
    exit_angle: Any = None


def qmap(detector: Detector, *, incidence: float | None = None, backend: str | None = None) -> QMap:
    """The wave vector and angles of all pixels of a detector; of several modules, call it for each.

    Args:
        detector: where it stands.
        incidence: in reflection, the angle between the beam and the surface [degree]. The surface faces up, against the
            rows. None: transmission.
        backend: "numpy", "jax" or "auto"; by default the one that was chosen.

    Returns:
        Arrays (row, column) of the backend, in double precision.

    Raises:
        SettingsError: the incidence is not above 0 and at most 90, or there is no such backend.

    Example:
        >>> import bayesfit
        >>> detector = bayesfit.geometry.Detector((3, 5), (1e-3, 1e-3), 1.0, (1, 2), wavelength=1.0)
        >>> [round(float(q), 5) for q in bayesfit.geometry.qmap(detector, backend="numpy").q[1]]
        [0.01257, 0.00628, 0.0, 0.00628, 0.01257]
    """
    if incidence is not None and not 0 < incidence <= 90:
        raise SettingsError(f"got {incidence!r}", field="incidence", remedy="Expected degrees above 0, up to 90")
    chosen = get_backend(backend)
    directions = [[*detector.rotation[axis]] for axis in range(3)]
    numbers = [*detector.pixel_size, *detector.normal, detector.distance, 2 * math.pi / detector.wavelength]
    found = _compiled(chosen, _of_pixels)(chosen.asarray(directions), chosen.asarray(numbers), shape=detector.shape)
    if incidence is None:
        return QMap(*found[:3])
    angle = chosen.asarray(math.radians(incidence))
    return QMap(*found[:3], *_compiled(chosen, _of_surface)(angle, *found[3:], numbers[-1]))


@lru_cache
def _compiled(backend: BackendProtocol, of_backend: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """A function of this backend's arrays, compiled once."""
    return backend.jit(of_backend(backend.xp), static=("shape",) if of_backend is _of_pixels else ())


def _of_pixels(xp: Any) -> Callable[..., tuple[Any, ...]]:
    def maps(rotation: Any, numbers: Any, shape: tuple[int, int]) -> tuple[Any, ...]:
        """q, phi and two_theta; then the direction of each pixel, of length 1."""
        down = (xp.arange(shape[0], dtype=xp.float64)[:, None] - numbers[2]) * numbers[0]
        along = (xp.arange(shape[1], dtype=xp.float64)[None, :] - numbers[3]) * numbers[1]
        x, y, z = (
            rotation[axis, 0] * down + rotation[axis, 1] * along + rotation[axis, 2] * numbers[4] for axis in range(3)
        )
        across = x * x + y * y
        away = xp.sqrt(across + z * z)
        q = numbers[5] * xp.sqrt(2.0 * across / (away * (away + z)))
        degree = 180.0 / math.pi
        two_theta = degree * xp.atan2(xp.sqrt(across), z)
        return q, degree * xp.atan2(x, y), two_theta, x / away, y / away, z / away

    return maps


def _of_surface(xp: Any) -> Callable[..., tuple[Any, ...]]:
    def parts(incidence: Any, x: Any, y: Any, z: Any, k: Any) -> tuple[Any, ...]:
        """q along and across a surface whose normal is cos(incidence) up less sin(incidence) along the beam."""
        cosine, sine = xp.cos(incidence), xp.sin(incidence)
        above = -cosine * x - sine * z
        forward = cosine * z - sine * x
        q_parallel = k * xp.sqrt((forward - cosine) ** 2 + y * y)
        exit_angle = 180.0 / math.pi * xp.asin(xp.clip(above, -1.0, 1.0))
        return q_parallel, k * (above + sine), exit_angle

    return parts

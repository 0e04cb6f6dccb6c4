"""The posterior of where a detector stands, given the photons of an isotropic pattern, as a NumPyro program.

A cell of P pixels holds a Poisson number of photons with mean P I(q), I the intensity a pixel. Where a calibrant's
rings are known, at q_k,

    I(q) = b(q) + sum_k A_k v((q - q_k) / w_k),    w_k = w (q_k / q_1)^s,
    v(u) = m / (1 + u^2) + (1 - m) 2^(-u^2),

over the nearest rings, with a background b whose logarithm is piecewise linear in log q, and half widths w_k at half
the height; v is the pseudo-Voigt shape of Wertheim et al., Rev. Sci. Instrum. 45, 1369 (1974). If nothing but the
symmetry is known, log I is a cubic spline in q.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from bayesfit.geometry.detector import PLACE, Detector
from bayesfit.geometry.patterns import Cells, Optics, optics_of, q_at
from bayesfit.posterior.coordinates import Override

OF_CENTRE = 0.1  # sd of the prior of the direct beam's place, of the longer side
OF_DISTANCE = 0.05  # of the logarithm of the distance
OF_TILT = 0.05  # rad
OF_INTENSITY = 5.0  # of the logarithm of photons per pixel, about 1
OF_BROADENING = 1.0
LEAST_WIDTH, LARGEST_WIDTH = 0.25, 0.5  # of rings, in pixels and in distances of rings

OfQ = Float[Array, " cell"]


class Scene(NamedTuple):
    """What the program takes beside the cells: the optics, the nominal place and the sd of its prior, the range of q,
    and the q of known rings [1/angstrom]."""

    optics: Optics
    nominal: Float[Any, " 5"]
    sd: Float[Any, " 5"]
    q_range: Float[Any, " 2"]
    rings: Float[Any, " ring"]
    width_range: Float[Any, " 2"]


@dataclass(frozen=True)
class Rings:
    """So many rings at known q, on a background."""

    count: int
    places = PLACE

    def __call__(self, q: OfQ, scene: Scene) -> OfQ:
        """Photons per pixel at each q [1/angstrom]."""
        rings = scene.rings
        height = _sampled_logs("log_height", self.count)
        low, high = scene.width_range
        width = numpyro.sample("width", dist.LogUniform(low, high))
        widths = width * (rings / rings[0]) ** numpyro.sample("broadening", dist.Normal(0.0, OF_BROADENING))
        mixing = numpyro.sample("mixing", dist.Uniform(0.0, 1.0))
        background, knots = _sampled_logs("log_background", self.count + 1), self.knots(scene)
        zone = jnp.clip(jnp.searchsorted(knots, q) - 1, 0, self.count - 1)
        slope = jnp.diff(background) / jnp.diff(jnp.log(knots))
        found = jnp.exp(background[zone] + slope[zone] * jnp.log(q / knots[zone]))
        for step in (-1, 0, 1):  # farther rings are part of the background
            ring = zone + step
            there = jnp.clip(ring, 0, self.count - 1)
            u2 = ((q - rings[there]) / widths[there]) ** 2
            shape = mixing / (1.0 + u2) + (1.0 - mixing) * jnp.exp2(-u2)
            found = found + jnp.where(ring == there, jnp.exp(height)[there] * shape, 0.0)
        return found

    def knots(self, scene: Scene) -> Any:
        """Where the background is known: between rings, and at the ends of the range."""
        between = jnp.sqrt(scene.rings[1:] * scene.rings[:-1])
        return jnp.concatenate([scene.q_range[:1], between, scene.q_range[1:]])


@dataclass(frozen=True)
class Smooth:
    """Any smooth function of q: the exponential of a cubic spline with so many coefficients."""

    count: int
    places = tuple(name for name in PLACE if name != "distance")

    def __call__(self, q: OfQ, scene: Scene) -> OfQ:
        """Photons per pixel at each q [1/angstrom]."""
        low, high = scene.q_range
        return jnp.exp(spline(_sampled_logs("log_intensity", self.count), (q - low) / (high - low)))


def spline(values: Float[Array, " knot"], x: Float[Array, " cell"]) -> Float[Array, " cell"]:
    """The uniform cubic B-spline with these coefficients at x from 0 to 1; beyond, as at the ends."""
    place = jnp.clip(x, 0.0, 1.0) * (values.size - 3)
    first = jnp.clip(jnp.floor(place), 0, values.size - 4).astype(int)
    t = place - first
    weights = (1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3
    return sum((weight * values[first + step] for step, weight in enumerate(weights)), jnp.zeros_like(t)) / 6.0


def _sampled_logs(name: str, count: int) -> Float[Array, " count"]:
    return numpyro.sample(name, dist.Normal(0.0, OF_INTENSITY).expand([count]).to_event(1))


class Pattern(NamedTuple):
    """An image of photons and its good pixels (row, column), the nominal detector, what is known beside the photons,
    how the intensity depends on q, and the numbers of `PLACE` that are inferred."""

    image: Float[np.ndarray, "row column"]
    good: Bool[np.ndarray, "row column"]
    nominal: Detector
    scene: Scene
    profile: Rings | Smooth
    free: tuple[str, ...]


def scene_of(detector: Detector, rings: Float[np.ndarray, " ring"], q_range: tuple[float, float]) -> Scene:
    """The scene of a nominal detector. Priors depend on it and on nothing measured."""
    longer = OF_CENTRE * max(detector.shape)
    sd = np.array([longer, longer, OF_DISTANCE, OF_TILT, OF_TILT])
    optics = optics_of(detector)
    pixel = optics.wave_number * max(detector.pixel_size) / detector.distance
    apart = np.min(np.diff(rings)) if rings.size > 1 else rings[0] / 2 if rings.size else pixel
    widths = np.array([LEAST_WIDTH * pixel, max(LARGEST_WIDTH * apart, pixel)])
    return Scene(optics, np.array(detector.place), sd, np.array(q_range), rings, widths)


def _place(scene: Scene, free: tuple[str, ...]) -> list[Any]:
    """The numbers of `PLACE`, those that are free sampled."""
    found = []
    for number, name in enumerate(PLACE):
        middle, sd = scene.nominal[number], scene.sd[number]
        prior = dist.LogNormal(jnp.log(middle), sd) if name == "distance" else dist.Normal(middle, sd)
        found.append(numpyro.sample(name, prior) if name in free else middle)
    return found


def program_of(
    profile: Rings | Smooth, free: tuple[str, ...], priors: Mapping[str, dist.Distribution]
) -> Callable[[Scene, Cells], None]:
    """The program `(scene, cells)`, of which the `free` numbers of `PLACE` are sampled, from `priors` where given."""

    def program(scene: Scene, cells: Cells) -> None:
        place = _place(scene, free)
        q = q_at(place, cells.row, cells.column, scene.optics, jnp) + cells.excess
        intensity = numpyro.deterministic("_intensity", profile(q, scene))
        numpyro.factor("_photons", jnp.sum(cells.counts * jnp.log(intensity) - cells.pixels * intensity))

    return Override(program, {}, priors)

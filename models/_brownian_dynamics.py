"""Brownian dynamics: a simulator of particles that repel each other, for `bayesfit.surrogate` to learn.

Formula     dr_i = D / kT F_i dt + sqrt(2 D dt) w_i,  w standard normal;
            U / kT = strength exp(-screening (r/d - 1)) / (r/d),  F_i = -grad_i sum_j U(r_ij);
            rho(t) = sum_j exp(i q.r_j(t)),  g1(tau) = Re <rho(t + tau) rho*(t)> / <|rho|^2>
Symbols     r positions, d = (number density)^(-1/3) the mean distance of particles [angstrom]; D diffusion
            coefficient of a particle alone [angstrom^2/s]; strength potential energy of two particles at the distance d
            over kT [1]; screening d over the screening length [1]; q [1/angstrom]; tau delay [s]
Validity    Coherent scattering from a repulsive Yukawa fluid (charged colloids) without hydrodynamic interactions, in a
            periodic cube of some hundred particles. The potential ends at half of the cube's side: screening times half
            of the number of particles along it should be well above 1. Time steps are a twentieth of the fastest
            relaxation. Without forces, g1 = exp(-D q^2 tau); with them it begins with the rate D q^2 / S(q). From what
            is left of the correlation at long delays, |g1|^2 is too large by about its variance.
Reference   Ermak & McCammon, J. Chem. Phys. 69, 1352 (1978); Pusey in Liquids, Freezing and Glass Transition (North-
            Holland, 1991), ch. 10, for the rate D q^2 / S(q).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Complex, Float, Int

STEP = 0.05  # of the time of the fastest relaxation
NEIGHBOURS = 12
LARGEST_SHIFT = 0.1  # by forces in one step on the way to equilibrium, in units of d
DECAYED = 0.1  # of g1, at the longest delay that is simulated

Positions = Float[np.ndarray, "3 particle"]


class Simulated(NamedTuple):
    """What one simulation gives, in units where d = D = 1: the lags, g1 at these, and the structure factor S(q)."""

    lag: Float[np.ndarray, " lag"]
    g1: Float[np.ndarray, " lag"]
    structure: float


class Box(NamedTuple):
    """A periodic cube with this `side`, in units of d, that holds so many `particles`, and the `waves` (wave, 3) of
    length q that fit into it."""

    side: float
    particles: int
    waves: Float[np.ndarray, "wave 3"]


@dataclass(frozen=True, eq=False)
class BrownianDynamics:
    """A simulator of |g1|^2 (tau,) of repelling particles; call it with a table of its parameters.

    Args:
        q, spacing: the length of the wave vector [1/angstrom], and the particles' mean distance d [angstrom].
        tau: delays (tau,), have unit s.
        screening: d over the screening length, where it is no parameter.
        particles: about how many there are in the cube, whose side is such that waves of length q fit into it.
        relaxations: how long is simulated, in units of the time 1 / (D q^2).
        seed: of the random numbers; None for new ones in each call, as an honest surrogate needs them.

    The parameters are `D` [angstrom^2/s] and `strength`, and, if they are given, `screening` and `q`.

    Raises:
        ValueError: g1 has not decayed at the longest delay that is simulated, half of the relaxations.
    """

    q: float
    tau: Any
    spacing: float
    screening: float = 4.0
    particles: int = 125
    relaxations: float = 60.0
    seed: int | None = None

    def __call__(self, parameters: Mapping[str, float]) -> Float[np.ndarray, " tau"]:
        """|g1|^2 at the delays."""
        made = self.simulated(parameters)
        lag = parameters["D"] / self.spacing**2 * np.asarray(self.tau, float)
        if lag.max() > made.lag[-1] and np.abs(made.g1[-1]) > DECAYED:
            raise ValueError(f"g1 is still {made.g1[-1]:.2g} at the longest delay simulated: more relaxations")
        return np.interp(lag, made.lag, made.g1, right=0.0) ** 2

    def simulated(self, parameters: Mapping[str, float]) -> Simulated:
        """One simulation, whose time is in units of d^2 / D."""
        q = parameters.get("q", self.q) * self.spacing
        strength, screening = parameters["strength"], parameters.get("screening", self.screening)
        box, rng = box_of(q, self.particles), np.random.default_rng(self.seed)
        curvature = strength * NEIGHBOURS * screening**2 / 3.0
        step = STEP / (q**2 + curvature)
        count = int(np.ceil(self.relaxations / q**2 / step))
        x = equilibrated(rng, box, strength, screening) if strength else rng.uniform(0, box.side, (3, box.particles))
        rho = np.empty((count, len(box.waves)), complex)
        for place in range(count):
            rho[place] = np.exp(1j * (box.waves @ x)).sum(axis=1)
            x = x + np.sqrt(2.0 * step) * rng.standard_normal(x.shape)
            if strength:
                x += step * forces(x, box.side, strength, screening)
        g1 = correlation(rho)
        return Simulated(step * np.arange(g1.size), g1, float(np.mean(np.abs(rho) ** 2) / box.particles))


def box_of(q: float, particles: int) -> Box:
    """The cube that holds about so many particles, of number density 1, into which waves of length q fit."""
    wanted = (q * particles ** (1.0 / 3.0) / (2.0 * np.pi)) ** 2  # squared length of the waves' whole numbers
    reach = int(np.sqrt(wanted)) + 2
    numbers = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    numbers = numbers[len(numbers) // 2 + 1 :]  # one of each pair of opposite ones
    squared: Int[np.ndarray, " number"] = np.sum(numbers**2, axis=1)
    nearest = squared[np.argmin(np.abs(squared - wanted))]
    side = 2.0 * np.pi * np.sqrt(nearest) / q
    return Box(side, max(round(side**3), 2), 2.0 * np.pi / side * numbers[squared == nearest])


def forces(x: Positions, side: float, strength: float, screening: float) -> Positions:
    """The force on every particle, from the nearest image of each other one, in units of kT / d."""
    apart = x[:, :, None] - x[:, None, :]
    apart -= side * np.round(apart / side)
    squared = np.sum(apart**2, axis=0)
    np.fill_diagonal(squared, np.inf)
    squared[squared > (side / 2.0) ** 2] = np.inf
    inverse = 1.0 / np.sqrt(squared)
    with np.errstate(invalid="ignore"):
        size = np.exp(-screening * (np.sqrt(squared) - 1.0)) * (inverse + screening) * inverse**2
    return strength * np.sum(apart * size, axis=2)


def equilibrated(rng: np.random.Generator, box: Box, strength: float, screening: float) -> Positions:
    """Positions that have forgotten the random ones from which they began, by steps that forces cannot make long."""
    x = rng.uniform(0.0, box.side, (3, box.particles))
    step = STEP / (strength * NEIGHBOURS * screening**2 / 3.0 + (2.0 * np.pi) ** 2)
    for _ in range(int(0.5 / step)):
        shift = step * forces(x, box.side, strength, screening)
        x = x + np.clip(shift, -LARGEST_SHIFT, LARGEST_SHIFT) + np.sqrt(2.0 * step) * rng.standard_normal(x.shape)
    return x


def correlation(rho: Complex[np.ndarray, "step wave"]) -> Float[np.ndarray, " lag"]:
    """g1 at the first half of all lags: the products of rho at both ends over the mean of the squares at both ends,
    which bounds it by 1; averaged over waves and times."""
    count = len(rho)
    lags = np.arange(count // 2)
    transformed = np.fft.fft(rho, 2 * count, axis=0)
    products = np.fft.ifft(np.sum(np.abs(transformed) ** 2, axis=1)).real[lags]
    square = np.concatenate([[0.0], np.cumsum(np.sum(np.abs(rho) ** 2, axis=1))])
    return products / (0.5 * (square[count - lags] + square[-1] - square[lags]))

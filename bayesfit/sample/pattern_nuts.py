"""A pattern's posterior as one large target: its mode by damped Newton steps, then NumPyro's NUTS in the coordinates of
the curvature there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, UInt32
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from bayesfit.compute.work import Report, Stop
from bayesfit.sample.draws import Arrays, Schedule
from bayesfit.sample.law_nuts import chain_keys
from bayesfit.sample.loop import sample_until_reached, statistics
from bayesfit.sample.numpyro_nuts import NumPyroNuts, Plan
from bayesfit.sample.preconditioner import Preconditioner, Start, root
from bayesfit.sample.target import LargeTarget, Target

WARMUP = 150
TARGET_ACCEPT = 0.8
MOST_STEPS = 100
SETTLED = 1e-6  # nats
LEAST_DAMPING, LARGEST_DAMPING = 1e-6, 1e12
SPREAD = 1.0  # of the chains' starts about the mode, in sd

Vector = Float[np.ndarray, " param"]


class PatternSampler:
    """NUTS on a program `(scene, cells)`; compiled once for data of one shape. `draws` is the number of kept draws per
    chain."""

    def __init__(self, program: Callable[..., None], draws: int, chains: int) -> None:
        self.program = program
        self.schedule = Schedule(chains, draws, WARMUP, TARGET_ACCEPT)
        self._target: Target | None = None
        self._slope = jax.jit(lambda z, data: jax.value_and_grad(self.target.potential)(z, data))
        self._curvature = jax.jit(lambda z, data: jax.hessian(self.target.potential)(z, data))

    @property
    def target(self) -> Target:
        """The posterior, once `begin` has seen data."""
        assert self._target is not None
        return self._target

    def begin(self, values: dict[str, Any], *data: Any) -> Vector:
        """The position at which the sites have these values; others are ignored."""
        seeded = numpyro.handlers.seed(self.program, 0)
        trace = numpyro.handlers.trace(seeded).get_trace(*data)
        sites = [name for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]]
        unconstrained = unconstrain_fn(self.program, data, {}, {name: jnp.asarray(values[name]) for name in sites})
        flat, by_name = ravel_pytree(unconstrained)
        if self._target is None:

            def potential(z: Float[Array, " param"], data: Any) -> Float[Array, ""]:
                return potential_energy(self.program, data, {}, by_name(z))

            def constrain(z: Float[Array, " param"], data: Any, _: Any) -> dict[str, Array]:
                return constrain_fn(self.program, data, {}, by_name(z), return_deterministic=False)

            names = tuple(sorted(unconstrained))
            self._target = Target(flat.size, names, potential, constrain, None, kept_on_disk=False)
        return np.asarray(flat)

    def mode(self, z: Vector, *data: Any) -> Vector:
        """The mode reached from a position, by Newton steps that are damped as Levenberg and Marquardt do, with the
        absolute values of the curvature's eigenvalues."""
        damping = 1e-2
        value, slope = self._slope(z, data)
        values, vectors = self._axes(z, data)
        for _ in range(MOST_STEPS):
            step = vectors @ ((vectors.T @ np.asarray(slope)) / (values * (1 + damping) + damping))
            tried, slope_there = self._slope(z - step, data)
            gain = float(value - tried)
            if not gain > 0:
                damping *= 10
                if damping > LARGEST_DAMPING or abs(gain) < SETTLED:
                    break
                continue
            z, value, slope, damping = z - step, tried, slope_there, max(damping / 10, LEAST_DAMPING)
            if gain < SETTLED:
                break
            values, vectors = self._axes(z, data)
        return z

    def _axes(self, z: Vector, data: Any) -> tuple[Vector, Float[np.ndarray, "param param"]]:
        """Absolute eigenvalues and eigenvectors of the curvature."""
        values, vectors = np.linalg.eigh(np.nan_to_num(np.asarray(self._curvature(z, data))))
        return np.abs(values) + 1e-9, vectors

    def values(self, z: Vector, *data: Any) -> dict[str, np.ndarray]:
        """The values of the sites at a position."""
        return {name: np.asarray(value) for name, value in self.target.constrain(jnp.asarray(z), data, None).items()}

    def intensity(self, z: Vector, *data: Any) -> Float[np.ndarray, " cell"]:
        """Photons per pixel that are expected in each cell."""
        by_name = {name: jnp.asarray(value) for name, value in self.values(z, *data).items()}
        seeded = numpyro.handlers.seed(numpyro.handlers.substitute(self.program, by_name), 0)
        return np.asarray(numpyro.handlers.trace(seeded).get_trace(*data)["_intensity"]["value"])

    def __call__(
        self, key: UInt32[Array, " 2"], mode: Vector, *data: Any, report: Report = lambda progress: None
    ) -> tuple[Arrays, Arrays]:
        """Draws (chain, draw, ...) of every site, and the statistics of the chains (chain, draw)."""
        data = jax.tree.map(jnp.asarray, data)
        starting, sampling = jax.random.split(key)
        large = LargeTarget(self.target, data, 1)
        coordinates = Preconditioner(mode, root(np.asarray(self._curvature(mode, data))))
        chains = self.schedule.chains
        u = SPREAD * np.asarray(jax.random.normal(starting, (chains, mode.size)))
        potential, slope = jax.vmap(self._slope, (0, None))(coordinates.vector(u), data)
        gradient = np.stack([coordinates.gradient(line) for line in np.asarray(slope)])
        start = Start(coordinates, u, np.asarray(potential), gradient, True, "the mode")
        driver = NumPyroNuts(large, start, chain_keys(sampling, chains), self.schedule, Plan(dense=False))
        sample_until_reached(driver, report, Stop())
        stats = statistics(driver.kept, driver.size)
        whole = {"n_steps": stats["n_steps"].astype(int), "diverging": stats["diverging"].astype(bool)}
        return driver.values(), stats | whole

    def prior(self, key: UInt32[Array, " 2"], count: int, *data: Any) -> dict[str, np.ndarray]:
        """Draws (count,) of the scalar sites from their priors."""

        def draw(key: UInt32[Array, " 2"], data: Any) -> dict[str, Array]:
            trace = numpyro.handlers.trace(numpyro.handlers.seed(self.program, key)).get_trace(*data)
            sampled = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
            return {name: value for name, value in sampled.items() if value.ndim == 0}

        drawn = jax.jit(jax.vmap(draw, (0, None)))(jax.random.split(key, count), data)
        return {name: np.asarray(array) for name, array in drawn.items()}

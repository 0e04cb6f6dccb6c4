"""A law in q as one large target, sampled by NumPyro's NUTS on the NumPyro program of its second stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, UInt32
from numpyro.infer.util import constrain_fn, log_density, potential_energy, unconstrain_fn

from bayesfit.compute.errors import InputError
from bayesfit.compute.work import Stop
from bayesfit.sample.draws import Arrays, Schedule
from bayesfit.sample.loop import sample_until_reached, statistics
from bayesfit.sample.numpyro_nuts import NumPyroNuts, Plan
from bayesfit.sample.preconditioner import Start, none
from bayesfit.sample.target import LargeTarget, Target

WARMUP = 500
TARGET_ACCEPT = 0.95
PRIOR_DRAWS = 1000
REFINING = 200  # steps of BFGS
WORSE = 10.0  # nats: a chain whose mode is so far above the best one begins at the best one

Values = dict[str, Array]


class LawSampler:
    """NUTS on a program whose arguments are its data; compiled once for all data of one shape. `draws` is the number of
    kept draws per chain."""

    def __init__(self, program: Callable[..., None], draws: int, chains: int) -> None:
        self.program, self.chains = program, chains
        self.schedule = Schedule(chains, draws, WARMUP, TARGET_ACCEPT)
        self.prior = jax.jit(self._draw_prior)
        self._modes = jax.jit(self.modes)
        self._target: Target | None = None

    def __call__(self, key: UInt32[Array, " 2"], *data: Any) -> tuple[Arrays, Arrays]:
        """Draws (chain, draw, ...) of every site, deterministic ones included, and the statistics of the chains (chain,
        draw).

        Raises:
            InputError: no draw of the prior has a likelihood.
        """
        data = jax.tree.map(jnp.asarray, data)
        starting, sampling = jax.random.split(key)
        modes, finite = self._modes(starting, *data)
        if not bool(finite):
            raise InputError(
                "the law has no likelihood at any draw of its prior", field="law", remedy="Widen its prior"
            )
        large = LargeTarget(self._target_of(modes), data, int(data[-1].centre.shape[0]))
        driver = NumPyroNuts(
            large, _start(large, modes), chain_keys(sampling, self.chains), self.schedule, Plan(dense=True)
        )
        sample_until_reached(driver, lambda progress: None, Stop())
        stats = statistics(driver.kept, driver.size)
        whole = {"n_steps": stats["n_steps"].astype(int), "diverging": stats["diverging"].astype(bool)}
        return driver.values(), stats | whole

    def _target_of(self, modes: Values) -> Target:
        """The program's posterior as one target, whose positions hold its sites' coordinates in order of their
        names."""
        if self._target is None:
            flat, by_name = ravel_pytree(jax.tree.map(lambda z: z[0], modes))

            def potential(z: Float[Array, " param"], data: Any) -> Float[Array, ""]:
                return potential_energy(self.program, data, {}, by_name(z))

            def constrain(z: Float[Array, " param"], data: Any, _: Any) -> Values:
                return constrain_fn(self.program, data, {}, by_name(z), return_deterministic=True)

            names = tuple(sorted(modes))
            self._target = Target(flat.size, names, potential, constrain, None, kept_on_disk=False, by_site=by_name)
        return self._target

    def _draw_prior(self, key: UInt32[Array, " 2"], *data: Any) -> Values:
        """Draws (PRIOR_DRAWS,) of every sampled site from its prior."""

        def draw(key: UInt32[Array, " 2"]) -> Values:
            trace = numpyro.handlers.trace(numpyro.handlers.seed(self.program, key)).get_trace(*data)
            return {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}

        return jax.vmap(draw)(jax.random.split(key, PRIOR_DRAWS))

    def modes(self, key: UInt32[Array, " 2"], *data: Any) -> tuple[Values, Bool[Array, ""]]:
        """Where the chains begin, on the unconstrained scale (chain, ...): the modes reached from the best prior draws;
        and whether the potential is finite at the best of these."""
        drawn = self._draw_prior(key, *data)
        potential = jax.vmap(lambda values: -log_density(self.program, data, {}, values)[0])(drawn)
        best = jnp.argsort(jnp.where(jnp.isfinite(potential), potential, jnp.inf))[: self.chains]
        first = jax.tree.map(lambda x: x[best], drawn)
        unconstrained = jax.vmap(lambda values: unconstrain_fn(self.program, data, {}, values))(first)
        modes, energies = jax.vmap(lambda z: self._refined(z, data))(unconstrained)
        lowest = jnp.argmin(jnp.where(jnp.isfinite(energies), energies, jnp.inf))
        kept = energies < energies[lowest] + WORSE
        starts = jax.tree.map(lambda x: jnp.where(kept, x, x[lowest]), modes)
        return starts, jnp.isfinite(energies[lowest])

    def _refined(self, z: Values, data: Any) -> tuple[Values, Float[Array, ""]]:
        """The mode reached from a position by BFGS, or the position itself if that is lower; and the potential."""

        import optimistix

        def energy(z: Values, _: Any = None) -> Float[Array, ""]:
            return potential_energy(self.program, data, {}, z)

        solver: Any = optimistix.BFGS(rtol=1e-6, atol=1e-6)
        found = optimistix.minimise(energy, solver, z, max_steps=REFINING, throw=False).value
        before, after = energy(z), energy(found)
        better = after < before
        return jax.tree.map(lambda a, b: jnp.where(better, a, b), found, z), jnp.where(better, after, before)


def _start(large: LargeTarget, modes: Values) -> Start:
    """Starting points at the modes, without a preconditioner."""
    u = jax.vmap(lambda z: ravel_pytree(z)[0])(modes)
    potential, gradient = jax.vmap(jax.value_and_grad(lambda z: large.target.potential(z, large.data)))(u)
    return Start(none(large.target.size), np.asarray(u), np.asarray(potential), np.asarray(gradient), False, "modes")


def chain_keys(key: UInt32[Array, " 2"], chains: int) -> UInt32[np.ndarray, "chain 2"]:
    """The data of one random key per chain."""
    keys = jax.random.split(key, chains) if chains > 1 else key[None]
    return np.asarray(jax.vmap(jax.random.split)(keys)[:, 0])

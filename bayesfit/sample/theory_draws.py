"""Noise "photons": the draws that theory's errors ask for, if they are those of each draw and not of an estimate.

Where the likelihood differs little by that, draws with errors kept are accepted or rejected by a table of theory's
errors. Where it differs much, few of them would be: walkers then sample the posterior with the table's errors, in steps
that are differences of two other walkers (C. J. F. ter Braak, Stat. Comput. 16, 239 (2006)), half of the walkers at a
time (Foreman-Mackey et al., PASP 125, 306 (2013)).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bayesfit.compute.devices import on_one_device
from bayesfit.posterior.bin_data import Bin, first_of
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem
from bayesfit.sample import convergence as _convergence
from bayesfit.sample.draws import LARGEST_RHAT, LEAST_ESS, Draws
from bayesfit.sample.redrawn import delayed, redrawn
from bayesfit.sample.theory_tables import OwnErrors, Table, evenly, table_coordinates, whole

EXAMINED = 16  # draws, at which the table's likelihood is compared with theory's
GOOD = 0.1  # difference of the log likelihood, beyond which the table is made again
ELSEWHERE = 0.1  # weight of points that are not from the posterior, when it is
WALKERS = 32  # in each half
BURNED, APART = 300, 40  # steps before the first draw, and from one to the next
FIRST = 100  # steps after which the table is made again
LARGE = 10  # every so many steps a step is the whole difference, from one mode to another
SPREAD = 1e-4  # of a step, beside the difference
LEAST_SPREAD = 20.0  # effective number of draws that walkers start from, at least

Rng = np.random.Generator


class Sampled(NamedTuple):
    """The draws of one bin, and how much their log likelihood is still off, but for a constant: a standard
    deviation."""

    draws: Draws
    off: float

    def suffices(self, before: Draws, least: float) -> bool:
        """Whether the draws are what verdicts ask for, or mix as well as those before."""
        rhat, *ess = self.draws.convergence[0]
        return bool(rhat <= max(LARGEST_RHAT, before.convergence[0, 0]) and min(ess) >= least and self.off <= GOOD)


def with_own_errors(problem: Problem, draws: Draws, rng: Rng, least: float = LEAST_ESS) -> Sampled:
    """Draws of the posterior of one bin with theory's errors at each draw, from those with errors kept. Chains that
    were stopped, and draws whose coordinates are not finite, stay as they are."""
    shape = next(iter(draws.values.values())).shape[1:]
    if draws.done[0] < shape[1]:
        return Sampled(draws, np.inf)
    points = OwnErrors(problem, {name: array.reshape(-1) for name, array in draws.values.items()})
    if not points.finite:
        return Sampled(draws, np.inf)
    names = (*problem.posterior.names, *problem.posterior.marginal)
    some = points.of_draws(points.some())
    made = Made(some.coordinates, some.theory())
    table = made.table()
    ratio = points.ratio(table)
    places, _ = delayed(ratio.reshape(shape), rng)
    chosen = Sampled(redrawn(draws, places[None], names), _off(points.of_draws(places.reshape(-1)), table))
    if chosen.suffices(draws, least):
        return chosen
    return _walked(problem, draws, points.z[_started(ratio, shape[0], rng)], made, rng)


class Made(NamedTuple):
    """Points at which theory's errors were computed."""

    coordinates: Float[np.ndarray, "draw coordinate"]
    layouts: Float[np.ndarray, "draw tau column"]

    def table(self, more: OwnErrors | None = None) -> Table:
        """The table of their errors, and of those at more points, which are from the posterior."""
        if more is None:
            return Table.of(*self)
        weights = np.repeat([ELSEWHERE, 1.0], [len(self.coordinates), len(more.z)])
        joined = np.concatenate([self.coordinates, more.coordinates]), np.concatenate([self.layouts, more.theory()])
        return Table.of(*joined, weights)


def _off(points: OwnErrors, table: Table) -> float:
    """How far off a table's likelihood is at these points."""
    some = points.of_draws(evenly(len(points.z), EXAMINED))
    exact = some.log_likelihood(some.theory()) - some.log_likelihood()
    return float(np.std(exact - some.ratio(table)))


def _started(log_ratio: Float[np.ndarray, " draw"], chains: int, rng: Rng) -> Int[np.ndarray, "chain walker"]:
    """The draws at which walkers start: weighted, but by so much less than the ratio says that many of them count."""
    relative, power = np.where(np.isfinite(log_ratio), log_ratio - np.nanmax(log_ratio), -np.inf), 1.0
    while (w := np.exp(power * relative)).sum() ** 2 / (w**2).sum() < LEAST_SPREAD and power > 1e-3:
        power *= 0.8
    return rng.choice(w.size, size=(chains, 2 * WALKERS), p=w / w.sum())


def _walked(
    problem: Problem, draws: Draws, z: Float[np.ndarray, "chain walker param"], made: Made, rng: Rng
) -> Sampled:
    """Draws of walkers that start at z; the table is made again where they are after some steps."""
    chains, count = next(iter(draws.values.values())).shape[1:]
    z = z + SPREAD * rng.standard_normal(z.shape) * z.std(axis=(0, 1))
    kept = -(-count // (2 * WALKERS))

    def walk(z: np.ndarray, table: Table, steps: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        keys = rng.integers(2**32, size=(chains, 2), dtype=np.uint32)
        walkers, values = on_one_device(
            _walk, z, table, keys, np.arange(steps), first_of(problem.bins), static=(whole(problem.posterior),)
        )
        return np.asarray(walkers), {name: np.asarray(value) for name, value in values.items()}

    def points(values: dict[str, np.ndarray]) -> OwnErrors:
        found = OwnErrors(problem, {name: value.reshape(-1) for name, value in values.items()})
        return found.of_draws(found.some())

    table = made.table()
    for steps in (FIRST, BURNED - FIRST):
        z, values = walk(z, table, steps)
        table = made.table(points(values))
    snapshots = []
    for _ in range(kept):
        z, values = walk(z, table, APART)
        snapshots.append(values)
    drawn = {name: _rows([each[name] for each in snapshots], count)[None] for name in snapshots[0]}
    posterior = problem.posterior
    series = np.stack([drawn[name][0] for name in (*posterior.names, *posterior.marginal)])
    found = replace(draws, values=drawn, convergence=np.array([_convergence.worst(series)]))
    return Sampled(found, _off(points(values), table))


def _rows(snapshots: list[Float[np.ndarray, "chain walker"]], count: int) -> Float[np.ndarray, "chain draw"]:
    """The values of all walkers of a chain, one walker after the other."""
    rows = np.stack(snapshots, axis=-1)
    return rows.reshape(len(rows), -1)[:, :count]


def _walk(
    z: Float[Array, "chain walker param"],
    table: Table,
    keys: Any,
    steps: Int[Array, " step"],
    bin: Bin,
    posterior: Posterior,
) -> tuple[Array, dict[str, Array]]:
    """The walkers of each chain after these steps, and every parameter there."""

    def density(z: Array) -> Array:
        values = posterior.constrain(z, bin, jax.random.key(0))
        coordinates = table_coordinates(posterior, z, values, bin)
        found = posterior.log_density(z, bin._replace(layout=table.layout(coordinates, bin.layout)))
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    densities = jax.vmap(density)

    def chain(z: Array, key: Any) -> Array:
        key = jax.random.wrap_key_data(key)
        halves = z[:WALKERS], z[WALKERS:]
        at = tuple((half, densities(half)) for half in halves)

        def step(at: Any, number: Array) -> tuple[Any, None]:
            key_first, key_second = jax.random.split(jax.random.fold_in(key, number))
            whole_step = number % LARGE == 0
            first = _moved(key_first, at[0], at[1][0], whole_step, densities)
            return (first, _moved(key_second, at[1], first[0], whole_step, densities)), None

        (first, second), _ = jax.lax.scan(step, at, steps)
        return jnp.concatenate([first[0], second[0]])

    moved = jax.lax.map(lambda given: chain(*given), (z, keys))
    return moved, jax.vmap(jax.vmap(lambda each: posterior.constrain(each, bin, jax.random.key(0))))(moved)


def _moved(key: Key[Array, ""], at: Any, others: Array, whole_step: Array, densities: Any) -> Any:
    """Half of the walkers after a step, each along the difference of two of the others."""
    (z, log_density), (count, size) = at, at[0].shape
    key_first, key_second, key_spread, key_accept = jax.random.split(key, 4)
    first = jax.random.randint(key_first, (count,), 0, count)
    second = (first + jax.random.randint(key_second, (count,), 1, count)) % count
    length = jnp.where(whole_step, 1.0, 2.38 / np.sqrt(2.0 * size))
    spread = SPREAD * jnp.std(others, axis=0) * jax.random.normal(key_spread, z.shape)
    proposed = z + length * (others[first] - others[second]) + spread
    new = densities(proposed)
    accepted = jnp.log(jax.random.uniform(key_accept, (count,))) < new - log_density
    return jnp.where(accepted[:, None], proposed, z), jnp.where(accepted, new, log_density)

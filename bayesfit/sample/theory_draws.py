"""Noise "photons": the draws that theory's errors ask for, if they are those of each draw and not of an estimate.

Where the likelihood does not differ by that at some of the draws, they are kept. Where it differs little, draws with
errors kept are accepted or rejected by a table of theory's errors. Where it differs much, few of them would be: walkers
then sample the posterior with the table's errors. So they do where chains have not converged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from bayesfit.compute.devices import on_one_device
from bayesfit.modelling.settings import LEAST_ESS
from bayesfit.posterior.bin_data import Bin, first_of
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem
from bayesfit.sample import convergence as _convergence
from bayesfit.sample.draws import LARGEST_RHAT, Draws
from bayesfit.sample.redrawn import delayed, proposed, redrawn
from bayesfit.sample.theory_tables import OwnErrors, Table, evenly, table_coordinates, whole
from bayesfit.sample.walkers import Pool, walked

EXAMINED = 16  # draws, at which another likelihood is compared with theory's
KEPT, GOOD = 0.2, 0.1  # sd of the difference of logarithms, up to which errors kept will do, and a table
CHOICES = 2  # among draws: by a table made at the draws, and by one made at those that are chosen
LONGER = 3  # times that walkers walk on, as long as before, where they have too few effective draws
FAR_APART = 1.1  # R-hat of chains, above which nothing is made of their draws
ELSEWHERE = 0.1  # weight of points that are not from the posterior, when it is
WALKERS = 64  # of each chain
STRETCH = 20  # steps from one draw of a walker to the next
BURNED = 3, 5  # stretches before the first draw; after each of these two parts the table is made again
APART_AT_FIRST = 1e-4  # of the sd: two walkers may start at the same draw
LEAST_SPREAD = 20.0  # effective number of draws that walkers start from, at least

Rng = np.random.Generator


class Sampled(NamedTuple):
    """The draws of one bin, and how much their log likelihood is still off, but for a constant: a standard
    deviation."""

    draws: Draws
    off: float

    def mixes(self, least: float) -> bool:
        """Whether R-hat is what verdicts ask for, and effective sample sizes are this large."""
        rhat, *ess = self.draws.convergence[0]
        return bool(rhat <= LARGEST_RHAT and min(ess) >= least)


def with_own_errors(problem: Problem, draws: Draws, rng: Rng, least: float = LEAST_ESS) -> Sampled:
    """Draws of the posterior of one bin with theory's errors at each draw, from those with errors kept. Chains that
    were stopped, and draws whose coordinates are not finite or that have no likelihood, stay as they are."""
    shape = next(iter(draws.values.values())).shape[1:]
    if draws.done[0] < shape[1]:
        return Sampled(draws, np.inf)
    points = OwnErrors(problem, {name: array.reshape(-1) for name, array in draws.values.items()})
    if not points.finite:
        return Sampled(draws, np.inf)
    kept = Sampled(draws, _off(points))
    if (kept.off <= KEPT and kept.mixes(least)) or not draws.convergence[0, 0] <= FAR_APART:
        return kept
    some = points.of_draws(points.some())
    choice = Choice(points, draws, Made(some.coordinates, some.theory()))
    table = choice.made.table()
    for _ in range(CHOICES):
        ratio = points.ratio(table)
        if not np.isfinite(ratio).any():
            return Sampled(draws, np.inf)
        places, _ = delayed(ratio.reshape(shape), rng)
        chosen = choice.at(places, table)
        if not chosen.mixes(least):
            break
        if chosen.off <= GOOD:
            return chosen
        table = choice.table_at(places)
    walk = Walk(points, _started(ratio, shape[0], rng), rng, jumps=kept.mixes(least))
    found = _walked(walk, draws, choice.made, least)
    if found.mixes(least) or walk.kept is None:
        return found
    walk.kept = None  # jumps mix no better than the draws that they lead to
    alone = _walked(walk, draws, choice.made, least)
    return alone if alone.mixes(least) else found


class Tabled(NamedTuple):
    """A bin, the table of its errors, and draws (draw, param) with errors kept, if walkers jump to them."""

    table: Table
    bin: Bin
    kept: Float[Any, "draw param"] | None


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


class Choice(NamedTuple):
    """Draws to choose among: `points` of them, and at some of these theory's errors, as far as they are `made`."""

    points: OwnErrors
    draws: Draws
    made: Made

    def at(self, places: Int[np.ndarray, "chain draw"], table: Table) -> Sampled:
        """The draws at these places, chosen by a table."""
        posterior = self.points.problem.posterior
        found = redrawn(self.draws, places[None], (*posterior.names, *posterior.marginal))
        return Sampled(found, _off(self.points.of_draws(places.reshape(-1)), table))

    def table_at(self, places: Int[np.ndarray, "chain draw"]) -> Table:
        """A table made at some of the draws at these places."""
        chosen = self.points.of_draws(places.reshape(-1))
        return self.made.table(chosen.of_draws(chosen.some()))


def _off(points: OwnErrors, table: Table | None = None) -> float:
    """How far off the likelihood by a table, or with errors kept, is at these points."""
    some = points.of_draws(evenly(len(points.z), EXAMINED))
    exact = some.log_likelihood(some.theory()) - some.log_likelihood()
    return float(np.std(exact if table is None else exact - some.ratio(table)))


def _started(log_ratio: Float[np.ndarray, " draw"], chains: int, rng: Rng) -> Int[np.ndarray, "chain walker"]:
    """The draws at which walkers start: weighted, but by so much less than the ratio says that many of them count."""
    finite, power = np.where(np.isfinite(log_ratio), log_ratio, -np.inf), 1.0
    relative = finite - finite.max()
    while (w := np.exp(power * relative)).sum() ** 2 / (w**2).sum() < LEAST_SPREAD and power > 1e-3:
        power *= 0.8
    return rng.choice(w.size, size=(chains, WALKERS), p=w / w.sum())


class Walk:
    """The walkers of one bin: `z` (chain, walker, param), the random numbers of their steps, and draws (draw, param)
    with errors `kept` to which they jump, if they do. Jumps hand on what chains that do not mix have made of them."""

    def __init__(self, points: OwnErrors, started: Int[np.ndarray, "chain walker"], rng: Rng, *, jumps: bool) -> None:
        self.problem, self.rng, z = points.problem, rng, points.z[started]
        self.kept = points.z if jumps else None
        self.z = z + APART_AT_FIRST * rng.standard_normal(z.shape) * z.std(axis=(0, 1))

    def on(self, table: Table) -> dict[str, Float[np.ndarray, "chain walker"]]:
        """Every parameter at the walkers after a stretch of steps with a table's errors."""
        keys = self.rng.integers(2**32, size=(len(self.z), 2), dtype=np.uint32)
        given = self.z, keys, np.arange(STRETCH), Tabled(table, first_of(self.problem.bins), self.kept)
        z, values = on_one_device(_walk, *given, static=(whole(self.problem.posterior),))
        self.z = np.asarray(z)
        return {name: np.asarray(value) for name, value in values.items()}

    def burned(self, made: Made) -> Table:
        """The table in the end, after walkers have left where they began; it is made again where they are."""
        table = made.table()
        for stretches in BURNED:
            values = [self.on(table) for _ in range(stretches)][-1]
            table = made.table(self.points(values))
        return table

    def points(self, values: dict[str, Float[np.ndarray, "chain walker"]]) -> OwnErrors:
        """Some of the walkers, as many as a table needs."""
        found = OwnErrors(self.problem, {name: value.reshape(-1) for name, value in values.items()})
        return found.of_draws(found.some())


def _walked(walk: Walk, draws: Draws, made: Made, least: float) -> Sampled:
    """Draws of walkers, in place of these; statistics of trajectories stay those of the draws with errors kept. Where
    the effective number of draws is too small, walkers walk on, and every other draw is kept."""
    table, count = walk.burned(made), next(iter(draws.values.values())).shape[2]
    stretches, snapshots = 1, [walk.on(table) for _ in range(-(-count // WALKERS))]
    found = _seen(walk, draws, snapshots, table)
    for _ in range(LONGER):
        if found.mixes(least):
            break
        stretches, length = 2 * stretches, len(snapshots)
        snapshots = snapshots[length % 2 :: 2] if length > 1 else []
        while len(snapshots) < length:
            snapshots.append([walk.on(table) for _ in range(stretches)][-1])
        found = _seen(walk, draws, snapshots, table)
    return found


def _seen(walk: Walk, draws: Draws, snapshots: list[dict[str, np.ndarray]], table: Table) -> Sampled:
    """The draws that snapshots of walkers are, in place of these."""
    count, posterior = next(iter(draws.values.values())).shape[2], walk.problem.posterior
    drawn = {name: _rows([each[name] for each in snapshots], count)[None] for name in snapshots[0]}
    series = np.stack([drawn[name][0] for name in (*posterior.names, *posterior.marginal)])
    reached = _convergence.worst(series)
    if walk.kept is not None:
        reached = proposed(draws.convergence[0], reached, series[0].size)
    found = replace(draws, values=drawn, convergence=np.array([reached]))
    return Sampled(found, _off(walk.points(snapshots[-1]), table))


def _rows(snapshots: list[Float[np.ndarray, "chain walker"]], count: int) -> Float[np.ndarray, "chain draw"]:
    """The values of all walkers of a chain, one walker after the other."""
    rows = np.stack(snapshots, axis=-1)
    return rows.reshape(len(rows), -1)[:, :count]


def _walk(z: Array, keys: Array, steps: Array, tabled: Tabled, posterior: Posterior) -> tuple[Array, dict[str, Array]]:
    """The walkers (chain, walker, param) of each chain after these steps, and every parameter there."""
    table, bin, kept = tabled

    def values(z: Array) -> dict[str, Array]:
        return posterior.constrain(z, bin, jax.random.key(0))

    def density(z: Array) -> Array:
        coordinates = table_coordinates(posterior, z, values(z), bin)
        return posterior.log_density(z, bin._replace(layout=table.layout(coordinates, bin.layout)))

    pool = None if kept is None else Pool(kept, lambda z: posterior.log_density(z, bin))
    moved = jax.vmap(lambda z, key: walked(density, z, key, steps, pool))(z, keys)
    return moved, jax.vmap(jax.vmap(values))(moved)

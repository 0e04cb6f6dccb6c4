"""Noise "photons": walkers that sample the posterior of one bin with theory's errors at each point, from a table.

They start at points of a mixture that is aimed at this posterior, by weights of points drawn before (population Monte
Carlo: O. Cappe et al., J. Comput. Graph. Stat. 13, 907 (2004)), and every other step is a jump to a draw from it. The
table is made again where the posterior turns out to be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from bayesfit.compute.devices import on_one_device
from bayesfit.posterior.bin_data import Bin, first_of
from bayesfit.posterior.density import Posterior
from bayesfit.sample import convergence as _convergence
from bayesfit.sample.draws import LARGEST_RHAT, STATS, Draws
from bayesfit.sample.importance_weights import systematic
from bayesfit.sample.mixture import KERNELS, fit_components, inverses, mixture, outwards
from bayesfit.sample.starts import BESIDE_FITTED
from bayesfit.sample.theory_points import effective, evened
from bayesfit.sample.theory_tables import Made, OwnErrors, Table, evenly, table_coordinates, whole
from bayesfit.sample.walkers import Jumps, Walkers, of_all, walked

WALKERS = 64  # of each chain
STRETCH = 4  # steps from one draw of a walker to the next
BURNED = 8  # steps before the first draw
TABLES, WELL = 2, 0.5  # times that walkers are sampled, until the sd of the difference by a table is at most this
LONGER = 6  # times that walkers walk on, as long as before, where they have too few effective draws
AIMED, POINTS = 2, 1024  # times that the mixture is aimed, and points that are drawn from it each time
APART_AT_FIRST = 1e-4  # of the sd: two walkers may start at the same point
LEAST_SPREAD = 20.0  # effective number of points that a mixture is fitted to or walkers start from, at least
FITTED_TO, STEPS = 1000, 12  # points that a mixture is fitted to, at most, and steps of its fit

Rng = np.random.Generator
OfWalkers = Float[np.ndarray, "chain walker"]


class Sampled(NamedTuple):
    """The draws of one bin, and how much their log likelihood is still off, but for a constant: a standard deviation;
    and the lowest potential at walkers, NaN where there are none."""

    draws: Draws
    off: float
    lowest: float = np.nan

    def mixes(self, least: float) -> bool:
        """Whether R-hat is what verdicts ask for, and effective sample sizes are this large."""
        rhat, *ess = self.draws.convergence[0]
        return bool(rhat <= LARGEST_RHAT and min(ess) >= least)


class Weighted(NamedTuple):
    """Points of a posterior, with logarithms of weights."""

    z: Float[np.ndarray, "point param"]
    log_weights: Float[np.ndarray, " point"]

    @property
    def any(self) -> bool:
        """Whether any point has a weight."""
        return bool(np.isfinite(self.log_weights).any())

    @property
    def weights(self) -> Float[np.ndarray, " point"]:
        """Weights of sum 1, made so equal that enough points count."""
        return evened(self.log_weights, LEAST_SPREAD)

    def of_chain(self, chain: int, chains: int) -> Weighted:
        """Those of one chain; all, where none of them has a weight."""
        own = Weighted(self.z[chain::chains], self.log_weights[chain::chains])
        return own if own.any else self

    def aimed(self) -> Jumps:
        """The mixture that these points are drawn from, by their weights."""
        weights = self.weights
        count = int(np.clip(effective(weights), KERNELS, FITTED_TO))
        chosen = self.z[systematic(0.5, weights, count)]
        location = chosen.mean(axis=0)
        covariance = np.atleast_2d(np.cov(chosen.T))
        factor = np.linalg.cholesky(covariance + APART_AT_FIRST**2 * np.diag(np.diag(covariance) + 1e-12))
        to_u = inverses(factor[None])[0]
        u = outwards((chosen - location) @ to_u.T)
        kernels = u[evenly(len(u), KERNELS)]
        return Jumps(location, factor, to_u, mixture(kernels, fit_components(u, STEPS), BESIDE_FITTED))


class Aimed(NamedTuple):
    """A bin, the table of its errors, and the mixture that is aimed at its posterior."""

    bin: Bin
    table: Table
    jumps: Jumps


class Walk:
    """The walkers of one bin: `z` (chain, walker, param) once they have started, the random numbers of their steps, the
    `table` of their errors, the points where errors were `made`, and `jumps`, a mixture aimed at the points `seen`, or
    at where walkers have `been`."""

    def __init__(self, points: OwnErrors, made: Made, log_ratio: Float[np.ndarray, " draw"], rng: Rng) -> None:
        self.problem, self.made, self.rng = points.problem, made, rng
        self.seen, self.table, self.walked = Weighted(points.z, log_ratio), made.table(), 0
        self.been: list[Float[np.ndarray, "point param"]] = []

    def aim(self) -> None:
        """Points from a mixture that is fitted to those before, weighted with errors of the table that is made at some
        of those before."""
        for time in range(AIMED):
            self.jumps = self.seen.aimed()
            z, values, log_weights = self._made_by(_drawn, self._keys(POINTS))
            self.seen = Weighted(z, log_weights)
            if not self.seen.any:
                return
            if time + 1 < AIMED:
                self.make_table(values, systematic(0.5, self.seen.weights, POINTS))

    def start(self, chains: int) -> None:
        """Each chain's walkers are at points of its own, by their weights."""
        own = [self.seen.of_chain(chain, chains) for chain in range(chains)]
        places = [self.rng.permutation(systematic(self.rng.random(), each.weights, WALKERS)) for each in own]
        self.z = np.stack([each.z[chosen] for each, chosen in zip(own, places, strict=True)])
        self.z = self.z + APART_AT_FIRST * self.rng.standard_normal(self.z.shape) * self.z.std(axis=(0, 1))

    def on(self, steps: int) -> dict[str, OfWalkers]:
        """Every parameter, and the `potential`, at the walkers after so many steps."""
        between = np.array([self.walked, self.walked + steps])
        self.z, values, log_density = self._made_by(_walk, self.z, self._keys(len(self.z)), between)
        self.walked += steps
        self.been.append(self.z.reshape(-1, self.z.shape[-1]))
        return {**values, "potential": -log_density}

    def aim_again(self) -> None:
        """The mixture is fitted again, where walkers have been of late."""
        z = np.concatenate(self.been[len(self.been) // 2 :])
        self.jumps = Weighted(z, np.zeros(len(z))).aimed()

    def off(self, values: dict[str, OfWalkers]) -> float:
        """How much the log likelihood at some walkers is off by the table."""
        return self._points(values).off(self.table)

    def _made_by(self, program: Any, *given: np.ndarray) -> Any:
        aimed, posterior = Aimed(first_of(self.problem.bins), self.table, self.jumps), whole(self.problem.posterior)
        return jax.tree.map(np.array, on_one_device(program, *given, aimed, static=(posterior,)))

    def _keys(self, count: int) -> np.ndarray:
        return self.rng.integers(2**32, size=(count, 2), dtype=np.uint32)

    def make_table(self, values: dict[str, Any], chosen: Any = slice(None)) -> None:
        """Make the table again, at some of the points with these values."""
        nearest = Made.at(self._points(values, chosen))
        self.table, self.made = self.made.table(nearest), self.made.and_(nearest)

    def _points(self, values: dict[str, Any], chosen: Any = slice(None)) -> OwnErrors:
        """Some of the points with these values, as many as a table needs."""
        found = OwnErrors(self.problem, {n: v.reshape(-1)[chosen] for n, v in values.items() if n != "potential"})
        return found.of_draws(found.some())


def walked_draws(walk: Walk, draws: Draws, least: float) -> Sampled:
    """Draws of walkers, in place of these. Where their likelihood is off by the table, it is made again once."""
    walk.aim()
    if not walk.seen.any:
        return Sampled(draws, np.inf)
    walk.start(len(next(iter(draws.values.values()))[0]))
    found = Sampled(draws, np.inf)
    for number in range(TABLES):
        values = walk.on(BURNED)
        if number:
            walk.make_table(values)
            walk.on(BURNED)
        found = _sampled(walk, draws, least)
        if found.off <= WELL:
            break
    return found


def _sampled(walk: Walk, draws: Draws, least: float) -> Sampled:
    """Draws of walkers where they are. Where the effective number of draws is too small, walkers walk on, by a mixture
    that is fitted again, and every other draw is kept."""
    count = next(iter(draws.values.values())).shape[2]
    stretch, snapshots = STRETCH, [walk.on(STRETCH) for _ in range(-(-count // WALKERS))]
    found = _seen(walk, draws, snapshots)
    for _ in range(LONGER):
        if found.mixes(least):
            break
        walk.aim_again()
        stretch, length = 2 * stretch, len(snapshots)
        snapshots = snapshots[length % 2 :: 2] if length > 1 else []
        while len(snapshots) < length:
            snapshots.append(walk.on(stretch))
        found = _seen(walk, draws, snapshots)
    return found._replace(off=walk.off(snapshots[-1]))


def _seen(walk: Walk, draws: Draws, snapshots: list[dict[str, OfWalkers]]) -> Sampled:
    """The draws that snapshots of walkers are, in place of these; of statistics there is only the potential."""
    count, posterior = next(iter(draws.values.values())).shape[2], walk.problem.posterior
    drawn = {name: _rows([each[name] for each in snapshots], count)[None] for name in snapshots[0]}
    stats = {name: np.full_like(array, STATS[name]) for name, array in draws.stats.items()}
    stats["potential"] = drawn.pop("potential")
    series = np.stack([drawn[name][0] for name in (*posterior.names, *posterior.marginal)])
    reached = np.array([_convergence.worst(series)])
    made = replace(draws, values=drawn, stats=stats, convergence=reached)
    return Sampled(made, np.inf, float(stats["potential"].min()))


def _rows(snapshots: list[OfWalkers], count: int) -> Float[np.ndarray, "chain draw"]:
    """The values of all walkers of a chain, one walker after the other."""
    rows = np.stack(snapshots, axis=-1)
    return rows.reshape(len(rows), -1)[:, :count]


def _values(posterior: Posterior, bin: Bin, z: Array) -> dict[str, Array]:
    return posterior.constrain(z, bin, jax.random.key(0))


def _density(posterior: Posterior, aimed: Aimed, z: Array) -> Array:
    """Log density of a point with errors of its own."""
    bin = aimed.bin
    layout = aimed.table.layout(table_coordinates(posterior, z, bin), bin.layout)
    return posterior.log_density(z, bin._replace(layout=layout))


def _drawn(keys: Array, aimed: Aimed, posterior: Posterior) -> tuple[Array, dict[str, Array], Array]:
    """Points drawn from a mixture, every parameter there, and logarithms of their weights."""
    z = aimed.jumps.drawn(jax.vmap(jax.random.wrap_key_data)(keys))
    log_density = of_all(lambda z: _density(posterior, aimed, z))(z)
    return z, jax.vmap(lambda z: _values(posterior, aimed.bin, z))(z), log_density - aimed.jumps.log_density(z)


def _walk(
    z: Array, keys: Array, between: Array, aimed: Aimed, posterior: Posterior
) -> tuple[Array, dict[str, Array], Array]:
    """The walkers (chain, walker, param) of each chain after the steps between these numbers, every parameter there,
    and the log density."""

    def density(z: Array) -> Array:
        return _density(posterior, aimed, z)

    def of_chain(given: tuple[Array, Array]) -> Walkers:
        z, key = given
        first, last = between
        return walked(density, Walkers(z, of_all(density)(z)), key, (first, last), aimed.jumps)

    moved = jax.lax.map(of_chain, (z, keys))
    values = jax.vmap(jax.vmap(lambda z: _values(posterior, aimed.bin, z)))(moved.z)
    return moved.z, values, moved.log_density

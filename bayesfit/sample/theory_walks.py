"""Noise "photons": walkers that sample the posterior of one bin with theory's errors at each point, from a table.

They start at draws of the posterior that is an estimate's, with errors kept and normal noise. Where few of these have a
weight, walkers go from one posterior to the other by some between them (sequential Monte Carlo: P. Del Moral, A. Doucet
& A. Jasra, J. R. Stat. Soc. B 68, 411 (2006)), and the table is made again where they are. Every other step is a jump
to a draw from a mixture that is fitted to walkers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesfit.modelling.model import AMPLITUDES
from bayesfit.posterior.bin_data import Bin, first_of
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem
from bayesfit.sample import convergence as _convergence
from bayesfit.sample.draws import LARGEST_RHAT, STATS, Draws
from bayesfit.sample.importance_weights import systematic
from bayesfit.sample.modes import profiled
from bayesfit.sample.theory_clouds import FITTED_TO, Rng, Weighted, of_mixture
from bayesfit.sample.theory_points import evened, power_for
from bayesfit.sample.theory_tables import Made, OwnErrors, Table, evenly, of_posterior, table_coordinates, whole
from bayesfit.sample.walkers import Jumps, Walkers, of_all, walked

WALKERS, OF_INTRICATE = 100, 300  # of each chain, and where a shape may hide modes
STRETCH = 4  # steps from one draw of a walker to the next
BURNED, DOUBLED = 3, 6  # steps before the first draw, at least, and times that they are doubled, at most
STEADY = 1.01  # R-hat of walkers at two times, up to which they are where they will be
GOOD, WELL = 0.1, 0.2  # sd of the difference by a table, up to which it is left as it is, and up to which it will do
LONGER = 6  # times that walkers walk on, as long as before, where they have too few effective draws
BETWEEN, MOVED = 40, 4  # posteriors on the way from errors kept to a table, at most, and steps in each of them
LEAST_SHARE = 0.2  # effective number of walkers on the way, as a share of all, at least
DEPTH = 30.0  # of the log likelihood of an estimate below its highest, at most
POINTS, AT_A_TIME = 5, 100  # that walkers start from, for each walker of a chain, and that are weighted at a time

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


class Aimed(NamedTuple):
    """A bin, the table of its errors, the mixture that is aimed at its posterior (None where nothing jumps), the share
    that the likelihood with the table's errors has beside that of the estimate, and the smallest log likelihood that
    the latter is given."""

    bin: Bin
    table: Table
    jumps: Jumps | None
    share: Float[Any, ""]
    floor: Float[Any, ""]


class Settled(NamedTuple):
    """Where walkers have been since half of the last steps, how far the table is off there, and their R-hat to where
    they were before these."""

    snapshots: list[dict[str, OfWalkers]]
    off: float
    rhat: float


class Walk:
    """The `walkers` of one bin, once they have started, with log densities that are NaN where they are not known; the
    random numbers of their steps, the `table` of their errors, and whether it was `checked` on their way, the points
    where errors were `made`, and `jumps`, a mixture aimed at where walkers start, or at where they have `been`."""

    def __init__(self, problem: Problem, jumps: Jumps, rng: Rng, made: Made | None = None) -> None:
        self.problem, self.jumps, self.rng = problem, jumps, rng
        self.posterior, self.bin, self.walked, self.share = problem.posterior, first_of(problem.bins), 0, 0.0
        self.checked = False
        self.count = OF_INTRICATE if profiled(self.posterior) else WALKERS
        points = self._of_estimate()
        self.made = Made.at(points.some()) if made is None else made
        self.table = self.made.table()
        self.cloud = self._weighted(points.z)
        self.been = [points.z]

    def _of_estimate(self) -> OwnErrors:
        """Draws of the estimate's posterior: points of its mixture, by their weights."""
        count = POINTS * self.count
        values, log_weights, log_likelihood = self._made_by(of_mixture, self._keys(count, 2), self.bin, self.jumps)
        weights = evened(log_weights, 0.0)
        chosen = self.rng.permutation(systematic(self.rng.random(), weights, count))
        self.floor = np.max(log_likelihood, where=weights > 0.0, initial=-np.inf) - DEPTH
        return OwnErrors(self.problem, {name: value[chosen] for name, value in values.items()})

    def _weighted(self, z: Float[np.ndarray, "*points param"]) -> Weighted:
        """Points with the weights that the table gives them."""
        parts = z.reshape(-1, AT_A_TIME, z.shape[-1])
        return Weighted(
            parts.reshape(-1, z.shape[-1]), np.concatenate([self._made_by(gains, z, self._aimed(None)) for z in parts])
        )

    def start(self, chains: int) -> None:
        """Walkers of each chain from points of its own, by way of posteriors between that of the estimate and that with
        errors of the table."""
        for number in range(BETWEEN + 1):
            least, left = LEAST_SHARE * chains * self.count, 1.0 - self.share
            step = left if number == BETWEEN else power_for(self.cloud.log_weights, least, left)
            self.share = 1.0 if step == left else self.share + step
            z = self.cloud.to_power(step).drawn(chains, self.count, self.rng)
            self.walkers = _unknown(z)
            self.been.append(z.reshape(-1, z.shape[-1]))
            self.aim()
            if self.share == 1.0:
                break
            self.check_table(self.on(MOVED))
            self.checked = True
            self.cloud = self._weighted(self.walkers.z)

    def on(self, steps: int) -> dict[str, OfWalkers]:
        """Every parameter, and the `potential`, at the walkers after so many steps."""
        between = np.array([self.walked, self.walked + steps])
        given = self.walkers, self._keys(len(self.walkers.z)), between, self._aimed(self.jumps)
        self.walkers, values = self._made_by(after_steps, *given)
        self.walked += steps
        self.been.append(self.walkers.z.reshape(-1, self.walkers.z.shape[-1]))
        return {**values, "potential": -self.walkers.log_density}

    def settle(self) -> Settled:
        """Go on, each time for twice as long, until walkers stay where they are and the table is right there."""
        names, before = (*self.posterior.names, *self.posterior.marginal), None
        for number in range(DOUBLED + 1):
            parts = 2 if number else 1
            snapshots = [self.on(BURNED * 2**number // parts) for _ in range(parts)]
            now = np.stack([snapshots[-1][name].ravel() for name in names])
            apart = np.inf if before is None else float(_convergence.worst(np.stack([before, now], axis=1))[0])
            off = self.check_table(snapshots[-1]) if number or not self.checked else np.inf
            settled = Settled(snapshots, off, apart)
            if settled.off <= WELL and settled.rhat <= STEADY:
                break
            before = now
            self.aim()
        return settled

    def aim(self) -> None:
        """Fit the mixture again: half to where walkers are, half to where they and the points they come from have
        been."""
        before = np.concatenate(self.been[:-1])
        parts = (part[evenly(len(part), FITTED_TO // 2)] for part in (before, self.been[-1]))
        self.jumps = Weighted.equally(np.concatenate([*parts])).aimed()

    def _aimed(self, jumps: Jumps | None) -> Aimed:
        return Aimed(self.bin, self.table, jumps, np.array(self.share), self.floor)

    def _made_by(self, program: Any, *given: Any) -> Any:
        return jax.tree.map(np.array, of_posterior(self.posterior, program, *given))

    def _keys(self, *shape: int) -> np.ndarray:
        return self.rng.integers(2**32, size=(*shape, 2), dtype=np.uint32)

    def check_table(self, values: dict[str, OfWalkers]) -> float:
        """How much the log likelihood by the table is off at some of the walkers with these values. Where that is much,
        the table is made again there, and where it is too much at more of them."""
        points = self._points(values)
        examined = points.examined()
        nearest = Made.at(examined)
        off = examined.apart(nearest.layouts, self.table)
        if not off <= WELL:
            nearest = nearest.and_(Made.at(points.others()))
        if not off <= GOOD:
            self.table, self.walkers = self.made.table(nearest), _unknown(self.walkers.z)
        self.made = self.made.and_(nearest)
        return off

    def _points(self, values: dict[str, OfWalkers]) -> OwnErrors:
        return OwnErrors(self.problem, {name: v.reshape(-1) for name, v in values.items() if name != "potential"})


def walked_draws(walk: Walk, draws: Draws, least: float) -> Sampled:
    """Draws of walkers, in place of these. The table is made again where walkers are, until it is right there."""
    if not walk.cloud.any:
        return Sampled(draws, np.inf)
    walk.start(len(next(iter(draws.values.values()))[0]))
    settled = walk.settle()
    found = _sampled(walk, settled.snapshots, draws, least)
    found.draws.convergence[0, 0] = max(found.draws.convergence[0, 0], settled.rhat)
    return found._replace(off=settled.off)


def _sampled(walk: Walk, snapshots: list[dict[str, OfWalkers]], draws: Draws, least: float) -> Sampled:
    """Draws of walkers where they are, which begin with these snapshots. Where the effective number of draws is too
    small, walkers walk on, by a mixture that is fitted again, and every other draw is kept."""
    stretch, length = STRETCH, -(-next(iter(draws.values.values())).shape[2] // walk.count)
    snapshots = snapshots[-length:]
    snapshots += [walk.on(stretch) for _ in range(length - len(snapshots))]
    found = _seen(walk, draws, snapshots)
    for _ in range(LONGER):
        if found.mixes(least):
            break
        walk.aim()
        stretch = 2 * stretch
        snapshots = snapshots[length % 2 :: 2] if length > 1 else []
        while len(snapshots) < length:
            snapshots.append(walk.on(stretch))
        found = _seen(walk, draws, snapshots)
    return found


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
    """So many values of all walkers of a chain, one walker after the other."""
    rows = np.stack(snapshots, axis=-1)
    return rows.reshape(len(rows), -1)[:, evenly(rows[0].size, count)]


def _unknown(z: Float[np.ndarray, "chain walker param"]) -> Walkers:
    """Walkers whose log density is not known."""
    return Walkers(z, np.full(z.shape[:-1], np.nan))


def _values(posterior: Posterior, bin: Bin, z: Array) -> dict[str, Array]:
    return whole(posterior).constrain(z, bin, jax.random.key(0))


def _own(posterior: Posterior, aimed: Aimed, z: Array) -> Array:
    """Log density of a point with errors of its own."""
    sites, bin = whole(posterior), aimed.bin
    layout = aimed.table.layout(table_coordinates(sites, z, bin), bin.layout)
    return sites.log_density(z, bin._replace(layout=layout))


def _of_estimate(posterior: Posterior, aimed: Aimed, z: Array) -> Array:
    """Log density of a point in the posterior of an estimate, with errors kept and normal noise, up to a constant. The
    likelihood is not less than a smallest one: where few pairs are seen, normal noise thinks them impossible."""
    sites, bin, split = whole(posterior), aimed.bin, len(posterior.curve_names)
    found = sites.at(z, bin)
    at = posterior.at(jnp.concatenate([z[:split], z[len(sites.curve_names) :]]), bin)
    contrast, baseline = (found.values[name] if name in posterior.marginal else jnp.zeros(()) for name in AMPLITUDES)
    per_unit = jnp.sum(jnp.log(jnp.where(bin.valid, bin.inverse_error, 1.0)))  # of g2, as other likelihoods are
    log_likelihood = at.scatter.log_likelihood(at.columns.residual(contrast, baseline), bin) + per_unit
    return found.log_prior + jnp.maximum(log_likelihood, aimed.floor)


def gains(z: Array, aimed: Aimed, posterior: Posterior) -> Array:
    """Log density of points with errors of their own, over that of the estimate."""
    return of_all(lambda z: _own(posterior, aimed, z) - _of_estimate(posterior, aimed, z))(z)


def _density(posterior: Posterior, aimed: Aimed, z: Array) -> Array:
    """Log density of a point on the way from the estimate to errors of its own."""
    own, share = _own(posterior, aimed, z), aimed.share

    def between() -> Array:
        return share * own + (1.0 - share) * _of_estimate(posterior, aimed, z)

    return jax.lax.cond(share < 1.0, between, lambda: own)


def after_steps(
    walkers: Walkers, keys: Array, between: Array, aimed: Aimed, posterior: Posterior
) -> tuple[Walkers, dict[str, Array]]:
    """The walkers of each chain after the steps between these numbers, and every parameter there."""
    known = ~jnp.isnan(walkers.log_density[0, 0])

    def density(z: Array) -> Array:
        return _density(posterior, aimed, z)

    def of_chain(given: tuple[Walkers, Array]) -> Walkers:
        before, key = given
        now = jax.lax.cond(known, lambda: before.log_density, lambda: of_all(density)(before.z))
        first, last = between
        return walked(density, Walkers(before.z, now), key, (first, last), aimed.jumps)

    moved = jax.lax.map(of_chain, (walkers, keys))
    return moved, jax.vmap(jax.vmap(lambda z: _values(posterior, aimed.bin, z)))(moved.z)

"""A joint fit as one large target, sampled by NumPyro's NUTS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from bayesfit.compute.keys import AMPLITUDES, key_for
from bayesfit.compute.work import Report, Stop
from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.joint import Joint
from bayesfit.sample import numpyro_nuts
from bayesfit.sample.draws import STATS, Arrays, Draws, Schedule
from bayesfit.sample.loop import sample_until_reached, statistics
from bayesfit.sample.numpyro_nuts import TREE_DEPTH, NumPyroNuts, Plan
from bayesfit.sample.preconditioner import Preconditioner, Start
from bayesfit.sample.target import LargeTarget, Target

WARMUP = {True: 200, False: 500}  # with a preconditioner from the full Hessian at a mode, and without
TARGET_ACCEPT = 0.8
FEW = 30  # dimensions up to which the mass matrix is dense if the preconditioner is diagonal
LONGEST = 8  # transitions per kept draw
CHAINS, NORMAL, DRAWS = 1, 2, 3  # the uses of the fit's random key: the chains, the fitted normal, constrained draws


class JointData(NamedTuple):
    """The data of a joint fit's target: the joint posterior, and the data of the bins' random keys and of the fit's."""

    joint: Joint
    bin_keys: UInt32[Any, "bin 2"]
    key: UInt32[Any, " 2"]

    def key_for(self, use: int) -> Key[Array, ""]:
        """The fit's random key for one use."""
        return jax.random.fold_in(jax.random.wrap_key_data(self.key), use)


def joint_target(joint: Joint, bin_keys: UInt32[np.ndarray, "bin 2"], seed: int) -> LargeTarget:
    """The joint posterior as one target. Its `constrain` gives every parameter of every bin (bin,), amplitudes drawn,
    and what the bins have in common."""
    key = np.asarray(jax.random.key_data(jax.random.key(seed)))
    target = Target(joint.dimensions, tuple(joint.shapes), _potential, _constrain, joint.identity)
    return LargeTarget(target, JointData(joint, np.asarray(bin_keys), key), joint.count)


def _potential(z: Float[Array, " param"], data: JointData) -> Float[Array, ""]:
    return data.joint.potential(data.joint.point(z))


def _constrain(z: Float[Array, " param"], data: JointData, number: Int[Array, ""]) -> tuple[Values, Values]:
    each = jax.vmap(lambda key: key_for(key, AMPLITUDES, number))(data.bin_keys)
    key = jax.random.fold_in(data.key_for(DRAWS), number)
    return data.joint.draw(data.joint.point(z), each, key)


def plan_for(large: LargeTarget, start: Start) -> Plan:
    """How to sample this target from this start."""
    return Plan(dense=not start.turned and large.target.size <= FEW, longest=LONGEST)


def start_compiling(large: LargeTarget, turned: bool, schedule: Schedule) -> None:
    """Begin to compile in the background, for a preconditioner that is `turned` or diagonal."""
    size, chains = large.target.size, schedule.chains
    factor = np.ones((size, size)) if turned else np.ones(size)
    start = Start(
        Preconditioner(np.zeros(size), factor),
        np.zeros((chains, size)),
        np.zeros(chains),
        np.zeros((chains, size)),
        turned,
        "",
    )
    numpyro_nuts.start_compiling(large, start, _scheduled(schedule, start), plan_for(large, start))


def _scheduled(schedule: Schedule, start: Start) -> Schedule:
    """The schedule of a joint fit from this start."""
    return replace(schedule, warmup=WARMUP[start.turned], target_accept=TARGET_ACCEPT)


def sample_joint(
    large: LargeTarget, start: Start, schedule: Schedule, report: Report, stop: Stop
) -> tuple[Draws, Arrays]:
    """Draws of every parameter of every bin, and of what the bins have in common (chain, draw, ...). A run whose worst
    parameter misses the schedule's target goes on to chains of twice the length, of which every second draw is kept,
    and so on; if earlier draws were good enough and better, these are kept. After a stop, draws that were not made are
    NaN."""
    schedule = _scheduled(schedule, start)
    keys = np.asarray(jax.random.key_data(jax.random.split(large.data.key_for(CHAINS), len(start.u))))
    driver = NumPyroNuts(large, start, keys, schedule, plan_for(large, start))
    sample_until_reached(driver, report, stop)
    values, common = driver.values()
    return _draws(driver, values), common


def _draws(driver: NumPyroNuts, values: Arrays) -> Draws:
    """The record of the draws of all bins, from values (chain, draw, bin); the statistics of the chains are the same in
    all bins."""
    bins, chains, done = driver.large.bins, *driver.kept.shape[:2]
    stats = {name: np.full((bins, chains, driver.schedule.draws), not_made) for name, not_made in STATS.items()}
    for name, array in statistics(driver.kept, driver.size).items():
        stats[name][:, :, :done] = array
    each = np.ones(bins, int)
    best = driver.run.best
    convergence = np.full((bins, 3), np.nan) if best is None else np.tile(best.convergence, (bins, 1))
    return Draws(by_bin(values), stats, done * each, driver.thin * each, each, TREE_DEPTH * each, convergence)


def by_bin(values: Arrays) -> Arrays:
    """Arrays (bin, chain, draw) from arrays (chain, draw, bin)."""
    return {name: np.moveaxis(array, -1, 0) for name, array in values.items()}

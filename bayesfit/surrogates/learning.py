"""From a simulator to what is learnt of it: first runs that ask whether it can be learnt, then the design."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import SettingsError, warn
from bayesfit.surrogates.allowance import WIDENS, how_far_off, nearby
from bayesfit.surrogates.files import with_hash
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.runs import Runs, warn_of
from bayesfit.surrogates.space import Space

PLACES = 2  # at which every parameter is moved
NO_CHANGE = 1e-9  # of |g1|^2
BATCHES = 4  # of runs near measured curves
INWARD = 0.7  # coordinates between which a parameter is moved
IDLE = 2.5  # errors of the mean; two independent ones differ by 1.4

Points = Float[np.ndarray, "run param"]
Curves = Float[np.ndarray, "run tau"]


class Asked(NamedTuple):
    """What is to be learnt: the `space`, the delays, the number of true runs, the seed of the design, and the measured
    curves near which it is learnt, if any."""

    space: Space
    tau: Float[np.ndarray, " tau"]
    budget: int
    seed: int
    data: xr.Dataset | None = None

    @property
    def least(self) -> int:
        """The smallest budget."""
        return 10 * (self.space.size + 1)

    @property
    def of_design(self) -> int:
        """The runs of the design: all that the first ones leave, or half of the budget where curves are given."""
        first = 1 + PLACES * self.space.size
        return self.budget - first if self.data is None else max(self.least, self.budget // 2) - first


def learn(asked: Asked, runs: Runs, name: str) -> Learnt:
    """Run the simulator, and learn it under a name. Call it with x64 on.

    Raises:
        SettingsError: the budget is too small, or a parameter does nothing. InputError: too many runs fail.
    """
    if asked.budget < asked.least:
        problem = f"{asked.budget} runs are too few for {asked.space.size} parameters"
        raise SettingsError(problem, field="budget", remedy=f"Give {asked.least} or more")
    design = asked.space.design(asked.of_design, asked.seed)
    points, curves, noise = _first(asked, runs, design)
    made, failed = runs.curves(design)
    points, curves = _with(points, curves, design, made)
    warn_of(failed, len(design))
    learnt = _learnt(asked, runs, (points, curves), noise)
    learnt = learnt if asked.data is None else _near(learnt, asked, runs)
    _warn_of_idle(learnt)
    return with_hash(replace(learnt, about={**learnt.about, "name": name}))


def _learnt(asked: Asked, runs: Runs, made: tuple[Points, Curves], noise: float) -> Learnt:
    simulator, (points, curves) = runs.simulator, made
    about = {
        "simulator": {"name": simulator.name, "sha256": simulator.sha256},
        "budget": asked.budget,
        "seed": asked.seed,
        "simulator_noise": noise,
    }
    curves = curves if noise else np.clip(curves, 0.0, 1.0)  # noise that is cut off has another mean
    return Learnt.of_runs(asked.space, asked.tau, (points, curves), about)


def _first(asked: Asked, runs: Runs, design: Points) -> tuple[Points, Curves, float]:
    """The first runs: where the simulator is run twice, and where each parameter alone is moved by half of its prior.
    Also the rms difference of |g1|^2 between the two runs at one place, over sqrt(2): 0 if nothing is random.

    Raises:
        SettingsError: a parameter does nothing.
    """
    size = asked.space.size
    base = design[:PLACES]
    moved = np.repeat(base, size, axis=0)
    for place in range(len(moved)):
        far = asked.space.at_quantiles(np.full((1, size), 0.75 if _low(asked, moved[place], place % size) else 0.25))
        moved[place, place % size] = far[0, place % size]
    curves, failed = runs.curves(np.concatenate([base, moved]))
    twice = np.flatnonzero(np.isfinite(curves[:PLACES]).all(axis=1))[:1]
    again, _ = runs.curves(base[twice], repeat=1, beside=curves)
    noise = float(np.sqrt(np.sum((again - curves[twice]) ** 2) / (2.0 * asked.tau.size)))
    noise = noise if noise > NO_CHANGE else 0.0
    change = np.abs(curves[PLACES:].reshape(PLACES, size, -1) - curves[:PLACES, None]).max(axis=(0, 2))
    for still in np.flatnonzero(change <= NO_CHANGE):
        problem = "does nothing: the curve is the same when it alone changes"
        remedy = "Leave it out of the space, and give the simulator a constant"
        raise SettingsError(problem, field=f"space.{asked.space.names[still]}", remedy=remedy)
    warn_of(failed, len(curves))
    kept = np.isfinite(curves[PLACES:]).all(axis=1)
    return moved[kept], curves[PLACES:][kept], noise


def _low(asked: Asked, point: Float[np.ndarray, " param"], place: int) -> bool:
    """Whether a parameter is in the lower half of its prior."""
    middle = asked.space.at_quantiles(np.full((1, asked.space.size), 0.5))[0]
    return bool(point[place] < middle[place])


def _with(points: Points, curves: Curves, more: Points, made: Curves) -> tuple[Points, Curves]:
    """All runs that gave a curve, the design before the first runs."""
    kept = np.isfinite(made).all(axis=1)
    return np.concatenate([more[kept], points]), np.concatenate([made[kept], curves])


def _warn_of_idle(learnt: Learnt) -> None:
    """Warn of parameters with which the mean of a random simulator does not change by more than its own error."""
    if not learnt.random:
        return
    size, middle = learnt.space.size, np.zeros(learnt.space.size)
    shape = jax.jit(lambda x: learnt.shape(x, jnp.asarray(learnt.tau)))
    for name, step in zip(learnt.space.names, INWARD * np.eye(size), strict=True):
        two = middle - step, middle + step
        change = np.mean(np.subtract(*(shape(x) for x in two)) ** 2)
        error = np.mean([learnt.error_at(x, learnt.tau) ** 2 for x in two])
        if change < IDLE**2 * error:
            warn(f"space.{name}: does nothing that the noise of the simulator does not hide; leave it out?")


def _near(learnt: Learnt, asked: Asked, runs: Runs) -> Learnt:
    """Learn again with runs at draws from the posterior of measured curves, until the surrogate is good there or the
    budget is spent."""
    data = asked.data
    assert data is not None
    spent, rng = len(learnt.points) + 1, np.random.default_rng(asked.seed)
    batch = max((asked.budget - spent) // BATCHES, 1)
    for round in range(BATCHES):
        if round and how_far_off(learnt, data).worst < WIDENS / 2.0:
            break
        found = [near.coordinates for near in nearby(learnt, data, asked.seed + round) if near is not None]
        every = np.concatenate([np.zeros((0, asked.space.size)), *found])
        chosen = every[rng.permutation(len(every))[:batch]]
        points = asked.space.points(np.clip(chosen, -1.0, 1.0))
        made, failed = runs.curves(points)
        warn_of(failed, len(points))
        both = _with(learnt.points, learnt.curves, points, made)
        learnt = _learnt(asked, runs, both, learnt.about["simulator_noise"])
    return learnt

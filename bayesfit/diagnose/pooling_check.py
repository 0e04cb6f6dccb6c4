"""How a pooling fares in a joint fit: its curve over q, every bin's distance from it, and whether these refute it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from bayesfit.compute.devices import on_one_device
from bayesfit.diagnose.profile_likelihood import Freed, freed_bins, scale_back, scale_to
from bayesfit.diagnose.residual_checks import NUMBERS, law_refuted, numbers_of, refuted
from bayesfit.diagnose.rules import LEAST_P
from bayesfit.posterior.coordinates import Override, Values
from bayesfit.posterior.joint import Joint
from bayesfit.posterior.pooling import Pooling
from bayesfit.sample.draws import Draws
from bayesfit.sample.least_squares import PointEstimate

CURVE_POINTS = 100
LEVELS = (0.025, 0.975)
LEAST_TELLING = 2.0  # sd of a bin's own value, on the pooling's scale: a bin that knows less says nothing by itself

Array = np.ndarray
Arrays = dict[str, Array]


class Checked(NamedTuple):
    """One pooling and the bins that were used. `q` (point,) and `curve` (3, point), or (3, point, group): mean and central
    95 % band of the law without scatter, or of what stands in its place; `common` (q_bin,): that in each bin;
    `residual` (q_bin,): the bins' distances from it, standard normal where the pooling holds, NaN for "smooth", which
    knows no common value; `own` (3, q_bin): the bins' own values, each freed from the pooling, with 95 % intervals;
    `numbers`: see `NUMBERS`."""

    pooling: Pooling
    q: Array
    curve: Array
    common: Array
    residual: Array
    own: Array
    numbers: dict[str, float]


def check_pooling(
    pooling: Pooling, joint: Joint, q: Array, points: PointEstimate, freedom: Array, draws: Draws, shared: Arrays
) -> Checked:
    """How one pooling of a joint fit fares.

    Args:
        q: of the bins (q_bin,), NaN where it is not known.
        points, freedom: the bins' least-squares fits, and their degrees of freedom (q_bin,).
        draws, shared: what `sample_joint` returned.
    """
    grid = np.geomspace(q.min(), q.max(), CURVE_POINTS) if np.all(q > 0) else np.full(2, np.nan)
    values, curves = _common(pooling, q, grid, draws, _finite(shared))
    curve = np.stack([curves.mean(axis=0), *np.quantile(curves, LEVELS, axis=0)])
    kind, name = _kind(pooling, values), pooling.parameter
    common = np.asarray(scale_back(kind, joint, name, np.mean(scale_to(kind, joint, name, values), axis=0)))
    if pooling.kind == "smooth" or not np.all(np.isfinite(common)):
        nothing = np.full((4, common.size), np.nan)
        return Checked(pooling, grid, curve, common, nothing[0], nothing[1:], dict.fromkeys(NUMBERS, np.nan))
    freed = _freed(pooling, joint, kind, common, points, draws, shared)
    residual = freed.residual / _wrong_errors(joint, points, freedom)
    telling = np.where(freed.sd < LEAST_TELLING, freed.sd, np.nan)
    middle = np.asarray(scale_to(kind, joint, name, common)) + freed.distance
    sds = (0.0, *stats.norm.ppf(LEVELS))
    own = np.stack([np.asarray(scale_back(kind, joint, name, middle + sd * telling)) for sd in sds])
    return Checked(pooling, grid, curve, common, residual, own, numbers_of(residual, _inferred(pooling, joint), q))


def described(pooling: Pooling) -> str:
    """How the pooling's parameter is pooled, in words."""
    if pooling.law is not None:
        return f"{pooling.law.name} with scatter" if pooling.scatter else pooling.law.name
    return pooling.kind if pooling.groups is None else f"{pooling.kind} by group"


def pooling_refuted(checked: Checked, bins: Array) -> str:
    """In words what refutes a pooling, with the bins (q_bin,) that are farthest off; "" where nothing does."""
    pooling = checked.pooling
    words, remedy = {
        "law": law_refuted(pooling.parameter, pooling.law.name if pooling.law else "", pooling.scatter),
        "shared": (f"the bins do not share {pooling.parameter}", "'pooled'"),
        "pooled": (f"the bins' {pooling.parameter} has no common normal distribution", "'smooth'"),
        "smooth": ("", ""),
    }[pooling.kind]
    return refuted(words, remedy, checked.numbers, checked.residual, bins)


def _finite(shared: Arrays) -> Arrays:
    """Draws (sample, ...) of what the bins have in common, those alone that were made; one of NaN where none was."""
    flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in shared.items()}
    made = np.all([np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in flat.values()], axis=0)
    made[0] |= not made.any()
    return {name: array[made] for name, array in flat.items()}


def _common(pooling: Pooling, q: Array, grid: Array, draws: Draws, shared: Arrays) -> tuple[Array, Array]:
    """Draws of what stands for the pooling in each bin (sample, q_bin), and over the grid (sample, point) or (sample,
    point, group)."""
    name, points = pooling.parameter, grid.size
    if pooling.kind == "law":
        both = _of_law(pooling, np.concatenate([q, grid]), shared)
        return both[:, : q.size], both[:, q.size :]
    if pooling.kind == "smooth":
        values = np.moveaxis(draws.values[name], 0, -1).reshape(-1, q.size)
        made = np.isfinite(values).all(axis=1)
        made[0] |= not made.any()
        values = values[made]
        return values, values @ _interpolation(np.log(q), np.log(grid)).T
    value = shared[name if pooling.kind == "shared" else f"{name}_mean"]
    assert pooling.group is not None
    if pooling.groups is not None:
        return value[:, pooling.group], np.repeat(value[:, None], points, axis=1)
    return np.repeat(value[:, None], q.size, axis=1), np.repeat(value[:, None], points, axis=1)


def _of_law(pooling: Pooling, q: Array, shared: Arrays) -> Array:
    """The law's values (sample, q) without scatter."""
    scalars = {name: array for name, array in shared.items() if array.ndim == 1}
    return np.asarray(on_one_device(_law_at, pooling, q, scalars, identity=pooling.identity))


def _law_at(pooling: Pooling, q: Any, scalars: Values) -> Any:
    assert pooling.law is not None
    program = pooling.law.program
    return jax.vmap(lambda values: Override(program, values, {})(q, pooling.tau))(scalars)


def _interpolation(x: Array, wanted: Array) -> Array:
    """Weights (wanted, x) of the linear interpolation between the x, which a walk's mean follows between its steps."""
    return np.stack([np.interp(wanted, np.sort(x), row) for row in np.eye(x.size)[np.argsort(x)].T], axis=1)


def _kind(pooling: Pooling, values: Array) -> str:
    """The scale of the pooling's deviations: the unconstrained one of its prior where bins are pooled, else the logarithm,
    or the value itself where it may be negative."""
    if pooling.kind == "pooled":
        return "pooled"
    return "log" if np.all(values > 0) and not pooling.additive else "plain"


def _freed(
    pooling: Pooling, joint: Joint, kind: str, common: Array, points: PointEstimate, draws: Draws, shared: Arrays
) -> Freed:
    means = {name: np.nanmean(values, axis=(1, 2)) for name, values in draws.values.items()}
    pooled = {other.parameter: means[other.parameter] for other in joint.all_poolings} | {pooling.parameter: common}
    spread = shared.get(f"{pooling.parameter}_{'spread' if pooling.kind == 'pooled' else 'scatter'}")
    scatter = 0.0 if spread is None or not (pooling.scatter or pooling.kind == "pooled") else float(np.nanmean(spread))
    nothing = np.full(common.size, np.nan)
    guess = tuple(
        np.asarray(table.get(pooling.parameter, nothing)) for table in (points.solution.values, points.solution.sd)
    )
    own = {name: means[name] for name in joint.own.names}
    return freed_bins(joint, pooled, pooling.parameter, kind, scatter, own, (guess[0], guess[1]))


def _wrong_errors(joint: Joint, points: PointEstimate, freedom: Array) -> Array:
    """By how much residuals are too large where the stated errors are taken as they are and the bin's own best curve
    refutes them, (q_bin,): the square root of its reduced chi-square; else 1."""
    chi2 = np.asarray(points.solution.chi2)
    if joint.own.noise.parameters:
        return np.ones(chi2.size)
    wrong = stats.chi2.sf(chi2, freedom) < LEAST_P
    return np.where(wrong, np.sqrt(chi2 / freedom), 1.0)


def _inferred(pooling: Pooling, joint: Joint) -> int:
    """How many numbers the pooling infers, the bins' own deviations aside."""
    _, handler = replace(joint, poolings=(pooling,)).run(key=jax.random.key(0))
    return sum(int(np.size(z)) for name, z in handler.z.items() if not name.endswith("_unit"))

"""The point estimate of every bin: the classical least-squares fit, by optimistix.

Prior draws scout for starts, ranked by the residual sum of squares with the amplitudes profiled out. Gauss-Newton from
the best of them settles nearly every bin in some ten steps. The others are fitted by Levenberg-Marquardt, which is
slower and hardly fails, from where that ended and from the best scout in each quantile of the first parameter (the
rate, in most models), so that every part of the delay window is looked at. A model that names its own starts goes to
Levenberg-Marquardt with these.

optimistix is imported where a program is traced: one that is found on disk does without.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import Spread, batches, devices_for, named, place, stream, take
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior

QUICK_BINS, CAREFUL_STARTS = 64, 16  # on each device side by side
SCOUTS, SEARCHED = 256, 128  # prior draws, and how many of them are looked at for starts
STARTS = 6
QUICK_STEPS, CAREFUL_STEPS, GIVEN_STEPS = 20, 50, 10_000  # NIST's MGH10 takes 4,762 from its far start
QUICK_TOLERANCE, CAREFUL_TOLERANCE, GIVEN_TOLERANCE = 1e-7, 1e-8, 1e-10


class Solution(NamedTuple):
    """A least-squares fit: coordinates `z` (param,) of the curve's parameters; `values`, `sd`: parameter name to value
    and to standard error for errors as stated; `chi2`: residual sum of squares; `converged`: True where the solver says
    so. With a leading axis, of many bins."""

    z: Any
    values: Any
    sd: Any
    chi2: Any
    converged: Any


class PointEstimate(NamedTuple):
    """The best `solution` of one bin; with a leading axis, of many.

    `starts` (start, param): coordinates of the curve's parameters from which to look for modes: every solution found,
    and the best scout in each quantile where none was looked for; `scouts` (scout, param): coordinates drawn from the
    prior, the noise's with them; `prior_values`: parameter name to its values there (scout,).
    """

    solution: Solution
    starts: Any
    scouts: Any
    prior_values: Any


def with_scaled_errors(points: PointEstimate, posterior: Posterior, counts: np.ndarray) -> PointEstimate:
    """The same with standard errors that the residuals have scaled, where the noise has a scale of its own; `counts`
    (bin,): valid points."""
    solution = points.solution
    if not posterior.noise.parameters:
        return points
    factor = np.sqrt(solution.chi2 / np.maximum(counts - len(solution.sd), 1))
    with np.errstate(invalid="ignore"):  # an infinite error of a curve without residuals
        return points._replace(solution=solution._replace(sd={name: sd * factor for name, sd in solution.sd.items()}))


def start_compiling(posterior: Posterior, bins: Bin) -> PointEstimate:
    """Begin to compile in the background; returns the shapes of what is made of one batch."""
    count = len(bins.y)
    devices = devices_for(count, QUICK_BINS)
    index = next(batches(count, QUICK_BINS, devices))
    arguments = place(take(bins, index), devices), place(np.zeros((index.size, 2), np.uint32), devices)
    return _quick(posterior).start(*arguments).shapes(*arguments)


def point_estimates(posterior: Posterior, bins: Bin, keys: np.ndarray, report: Report, stop: Stop) -> PointEstimate:
    """Point estimates of all bins (leading axis), as NumPy arrays; NaN for those that a stop came before."""
    count = len(bins.y)
    devices = devices_for(count, QUICK_BINS)
    quick = stream(_quick(posterior), count, QUICK_BINS, devices, lambda i: (take(bins, i), keys[i]), stop)
    found = filled([part for _, part in quick], count)
    done = ~np.isnan(found.solution.chi2)
    rest = np.flatnonzero(done & ~found.solution.converged)
    if rest.size and not stop.asked:
        solutions = _with_care(posterior, take(bins, rest), found.starts[rest], stop)
        made = ~np.isnan(solutions.chi2).any(axis=1)
        rest, solutions = rest[made], take(solutions, made)
        best = np.arange(rest.size), np.argmin(solutions.chi2, axis=1)
        found.starts[rest] = solutions.z
        jax.tree.map(lambda whole, part: whole.__setitem__(rest, part[best]), found.solution, solutions)
    report(Progress("point estimate", count, int(done.sum())))
    return found


def _with_care(posterior: Posterior, bins: Bin, starts: np.ndarray, stop: Stop) -> Solution:
    """Solutions (bin, start) by Levenberg-Marquardt from each of the starts (bin, start, param)."""
    count, many = starts.shape[:2]
    bin, start = np.divmod(np.arange(count * many), many)
    devices = devices_for(bin.size, CAREFUL_STARTS)

    def chosen(index: np.ndarray) -> tuple[Bin, np.ndarray]:
        return take(bins, bin[index]), starts[bin[index], start[index]]

    parts = stream(_careful(posterior), bin.size, CAREFUL_STARTS, devices, chosen, stop)
    each = filled([part for _, part in parts], bin.size)
    return jax.tree.map(lambda array: array.reshape(count, many, *array.shape[1:]), each)


@lru_cache(maxsize=32)
def _quick(posterior: Posterior) -> Spread:
    """What every bin goes through."""
    first = given if posterior.model.starts else quick
    return Spread(
        lambda bin, key: first(posterior, bin, _keys.key_for(key, _keys.PRIOR_DRAWS)),
        named("point", posterior.identity),
    )


@lru_cache(maxsize=32)
def _careful(posterior: Posterior) -> Spread:
    return Spread(lambda bin, start: careful(posterior, bin, start), named("careful", posterior.identity))


def filled(parts: list[Any], count: int) -> Any:
    """Batches put together, cut to `count` items; NaN or False where these are fewer.

    Raises:
        KeyboardInterrupt: there is no batch at all.
    """
    if not parts:
        raise KeyboardInterrupt

    def join(*arrays: np.ndarray) -> np.ndarray:
        array = np.concatenate(arrays)[:count]
        missing = np.full((count - len(array), *array.shape[1:]), False if array.dtype == bool else np.nan)
        return np.concatenate([array, missing.astype(array.dtype)])

    return jax.tree.map(join, *parts)


def quick(posterior: Posterior, bin: Bin, key: Any) -> PointEstimate:
    """Gauss-Newton from the best scout; not converged where it ends higher than it began."""
    import optimistix as optx

    scouts, prior_values = _scouts(posterior, bin, key)
    places = posterior.with_regression(scouts[:SEARCHED, : len(posterior.curve_names)])
    before = chi2_at(posterior, bin, places)
    start = places[jnp.argmin(before)]
    z, chi2, converged = _solve(posterior, bin, optx.GaussNewton(QUICK_TOLERANCE, QUICK_TOLERANCE), QUICK_STEPS, start)
    better = chi2 <= jnp.min(before)
    z, chi2 = jnp.where(better, z, start), jnp.minimum(chi2, jnp.min(before))
    starts = jnp.concatenate([z[None], best_in_quantiles(places, before, STARTS - 1)])
    solution = Solution(z, *posterior.least_squares(z, bin), chi2, better & converged)
    return PointEstimate(solution, starts, scouts, prior_values)


def given(posterior: Posterior, bin: Bin, key: Any) -> PointEstimate:
    """The model's own starts as they are, not converged; an amplitude that they do not name, and that the noise model
    has sampled, starts at the median of its prior."""
    scouts, prior_values = _scouts(posterior, bin, key)
    middle = {name: jnp.median(values) for name, values in prior_values.items()}
    named = [{**middle, **start, **bin.fixed} for start in posterior.model.starts]
    starts = jnp.stack([posterior.unconstrain_curve(values, bin) for values in named])
    chi2 = chi2_at(posterior, bin, starts)
    z = starts[jnp.argmin(chi2)]
    solution = Solution(z, *posterior.least_squares(z, bin), jnp.min(chi2), jnp.array(False))
    return PointEstimate(solution, starts, scouts, prior_values)


def careful(posterior: Posterior, bin: Bin, start: Any) -> Solution:
    """Levenberg-Marquardt from one start (param,)."""
    import optimistix as optx

    alone = bool(posterior.model.starts)
    steps, tolerance = (GIVEN_STEPS, GIVEN_TOLERANCE) if alone else (CAREFUL_STEPS, CAREFUL_TOLERANCE)
    solver: Any = optx.LevenbergMarquardt(tolerance, tolerance)
    z, chi2, converged = _solve(posterior, bin, solver, steps, start)
    return Solution(z, *posterior.least_squares(z, bin), jnp.nan_to_num(chi2, nan=jnp.inf), converged)


def _scouts(posterior: Posterior, bin: Bin, key: Any) -> tuple[Any, Any]:
    """Coordinates (scout, param) drawn from the prior, and the curve's parameters there by name."""
    keys = jax.random.split(key, SCOUTS)
    scouts, values = jax.vmap(lambda k: posterior.draw_prior(k, bin))(keys)
    return scouts, {name: values[name] for name in posterior.curve_names}


def chi2_at(posterior: Posterior, bin: Bin, places: Any) -> Any:
    """Residual sum of squares at each place, infinite where it is not a number."""
    chi2 = jax.vmap(lambda z: jnp.sum(posterior.residual(z, bin) ** 2))(places)
    return jnp.nan_to_num(chi2, nan=jnp.inf)


def best_in_quantiles(points: Any, cost: Any, count: int, along: int = 0) -> Any:
    """The points (param,) of least cost in each of `count` quantiles of one coordinate; (count, param)."""
    size = len(points) // count * count
    order = jnp.argsort(points[:, along])[:size].reshape(count, -1) if points.shape[1] else jnp.zeros((count, 1), int)
    best = jnp.argmin(cost[order], axis=1)
    return points[jnp.take_along_axis(order, best[:, None], axis=1)[:, 0]]


def _solve(posterior: Posterior, bin: Bin, solver: Any, steps: int, start: Any) -> tuple[Any, Any, Any]:
    """Solution (param,), its residual sum of squares, and whether the solver says that it converged."""
    import optimistix as optx

    if start.size == 0:
        return start, jnp.sum(posterior.residual(start, bin) ** 2), jnp.array(True)
    solution: Any = optx.least_squares(
        lambda z, bin: posterior.residual(z, bin), solver, start, args=bin, max_steps=steps, throw=False
    )
    chi2 = jnp.sum(posterior.residual(solution.value, bin) ** 2)
    return solution.value, chi2, solution.result == optx.RESULTS.successful

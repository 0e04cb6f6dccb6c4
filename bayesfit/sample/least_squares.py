"""The point estimate of every bin: the classical least-squares fit, by optimistix.

Draws from the prior are ranked by their residual sum of squares, with the amplitudes at their least-squares values.
Gauss-Newton from the best of them settles nearly every bin in some ten steps. The other bins are fitted by
Levenberg-Marquardt, which is slower and hardly ever fails, from where Gauss-Newton ended and from the best prior draw
in each quantile of the first parameter (the rate, in most models), so that every part of the delay window is searched.
If a model names starts of its own, Levenberg-Marquardt begins at these.

optimistix is imported only when a program is traced; a program that is found on disk does not need it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from bayesfit.compute import keys as _keys
from bayesfit.compute.batches import Batches, devices_for, stream
from bayesfit.compute.devices import Spread, named, place, take
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior

QUICK_BINS, CAREFUL_STARTS = 64, 16  # side by side on each device
PRIOR_DRAWS, SEARCHED = 256, 128  # prior draws, and how many of these are searched for starts
STARTS = 6
HARD = 5  # sampled parameters of a curve from which on Gauss-Newton does not settle all bins
QUICK_STEPS, CAREFUL_STEPS, GIVEN_STEPS = 20, 50, 10_000  # NIST's MGH10 takes 4,762 from its far start
QUICK_TOLERANCE, CAREFUL_TOLERANCE, GIVEN_TOLERANCE = 1e-7, 1e-8, 1e-10
RELATIVE_OFFSET = 1e-6  # Bates and Watts take 1e-3

Vector = Float[Array, " param"]
Points = Float[Array, "point param"]


class Solution(NamedTuple):
    """A least-squares fit of one bin; with a leading axis, of many.

    `z` are the coordinates of the curve's parameters, `values` the parameters by name, `sd` their standard errors for
    errors as stated, `chi2` the residual sum of squares, and `converged` is True where the solver says so.
    """

    z: Float[Any, " param"]
    values: dict[str, Float[Any, ""]]
    sd: dict[str, Float[Any, ""]]
    chi2: Float[Any, ""]
    converged: Bool[Any, ""]


class PointEstimate(NamedTuple):
    """The best `solution` of one bin; with a leading axis, of many.

    `starts` are coordinates of the curve's parameters from which modes are searched for: the Gauss-Newton solution and
    the best prior draw in each quantile, or all Levenberg-Marquardt solutions if there are any. `prior_draws` are
    coordinates, those of the noise included, drawn from the prior, and `prior_values` the curve's parameters there by
    name.
    """

    solution: Solution
    starts: Float[Any, "start param"]
    prior_draws: Float[Any, "draw param"]
    prior_values: dict[str, Float[Any, " draw"]]


def with_scaled_errors(points: PointEstimate, posterior: Posterior, counts: Int[np.ndarray, " bin"]) -> PointEstimate:
    """The point estimates with standard errors scaled by sqrt(chi^2 / (n - p)) if the noise model infers a scale;
    `counts` is n, the number of valid points per bin, and p the number of parameters."""
    solution = points.solution
    if not posterior.noise.parameters:
        return points
    factor = np.sqrt(solution.chi2 / np.maximum(counts - len(solution.sd), 1))
    with np.errstate(invalid="ignore"):  # a curve without residuals may have an infinite error
        return points._replace(solution=solution._replace(sd={name: sd * factor for name, sd in solution.sd.items()}))


def start_compiling(posterior: Posterior, bins: Bin) -> PointEstimate:
    """Begin to compile in the background; returns the shapes of the estimates of one batch."""
    count = len(bins.y)
    devices = devices_for(count, QUICK_BINS)
    index = next(Batches(count, QUICK_BINS, devices).indices())
    arguments = place(take(bins, index), devices), place(np.zeros((index.size, 2), np.uint32), devices)
    return _quick(posterior).start(*arguments).shapes(*arguments)


def start_compiling_careful(posterior: Posterior, bins: Bin) -> None:
    """Begin to compile in the background what bins go through that Gauss-Newton has not settled, if the curve has so
    many parameters that there will be some."""
    size = len(posterior.curve_names)
    if size < HARD:
        return
    devices = devices_for(len(bins.y) * STARTS, CAREFUL_STARTS)
    index = next(Batches(1, CAREFUL_STARTS, devices).indices())
    _careful(posterior).start(place(take(bins, index), devices), place(np.zeros((index.size, size)), devices))


def point_estimates(
    posterior: Posterior, bins: Bin, keys: UInt32[np.ndarray, "bin 2"], report: Report, stop: Stop
) -> PointEstimate:
    """Point estimates of all bins (leading axis), as NumPy arrays; NaN for bins that were not reached before a stop.

    Raises:
        KeyboardInterrupt: no bin was reached before the stop.
    """
    count = len(bins.y)
    devices = devices_for(count, QUICK_BINS)
    quick = stream(_quick(posterior), Batches(count, QUICK_BINS, devices), lambda i: (take(bins, i), keys[i]), stop)
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


def _with_care(posterior: Posterior, bins: Bin, starts: Float[np.ndarray, "bin start param"], stop: Stop) -> Solution:
    """Solutions (bin, start) by Levenberg-Marquardt from each of the starts."""
    count, many = starts.shape[:2]
    bin, start = np.divmod(np.arange(count * many), many)
    devices = devices_for(bin.size, CAREFUL_STARTS)

    def chosen(index: Int[np.ndarray, " item"]) -> tuple[Bin, np.ndarray]:
        return take(bins, bin[index]), starts[bin[index], start[index]]

    parts = stream(_careful(posterior), Batches(bin.size, CAREFUL_STARTS, devices), chosen, stop)
    each = filled([part for _, part in parts], bin.size)
    return jax.tree.map(lambda array: array.reshape(count, many, *array.shape[1:]), each)


@lru_cache(maxsize=32)
def _quick(posterior: Posterior) -> Spread:
    """The program that every bin goes through."""
    first = given if posterior.model.starts else quick
    return Spread(
        lambda bin, key: first(posterior, bin, _keys.key_for(key, _keys.PRIOR_DRAWS)),
        named("point", posterior.identity),
    )


@lru_cache(maxsize=32)
def _careful(posterior: Posterior) -> Spread:
    """The program for bins that the first one has not solved."""
    return Spread(lambda bin, start: careful(posterior, bin, start), named("careful", posterior.identity))


def filled(parts: list[Any], count: int) -> Any:
    """Batches joined and cut to `count` items; if there are fewer, the rest is NaN or False.

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


def quick(posterior: Posterior, bin: Bin, key: Key[Array, ""]) -> PointEstimate:
    """Gauss-Newton from the best prior draw; not converged if it ends higher than it began."""
    import optimistix as optx

    prior_draws, prior_values = _from_prior(posterior, bin, key)
    points = posterior.with_regression(prior_draws[:SEARCHED, : len(posterior.curve_names)])
    before = chi2_at(posterior, bin, points)
    start = points[jnp.argmin(before)]
    z, chi2, converged = _solve(posterior, bin, optx.GaussNewton(QUICK_TOLERANCE, QUICK_TOLERANCE), QUICK_STEPS, start)
    better = chi2 <= jnp.min(before)
    z, chi2 = jnp.where(better, z, start), jnp.where(better, chi2, jnp.min(before))  # chi2 may be NaN
    starts = jnp.concatenate([z[None], best_in_quantiles(points, before, STARTS - 1)])
    solution = Solution(z, *posterior.least_squares(z, bin), chi2, better & converged)
    return PointEstimate(solution, starts, prior_draws, prior_values)


def given(posterior: Posterior, bin: Bin, key: Key[Array, ""]) -> PointEstimate:
    """The model's own starts as they are, not converged. An amplitude that they do not name starts at the median of its
    prior if it is sampled under this noise model."""
    prior_draws, prior_values = _from_prior(posterior, bin, key)
    medians = {name: jnp.median(values) for name, values in prior_values.items()}
    starts = [{**medians, **start, **bin.fixed} for start in posterior.model.starts]
    points = jnp.stack([posterior.unconstrain_curve(values, bin) for values in starts])
    chi2 = chi2_at(posterior, bin, points)
    z = points[jnp.argmin(chi2)]
    solution = Solution(z, *posterior.least_squares(z, bin), jnp.min(chi2), jnp.array(False))
    return PointEstimate(solution, points, prior_draws, prior_values)


def careful(posterior: Posterior, bin: Bin, start: Vector) -> Solution:
    """Levenberg-Marquardt from one start."""
    import optimistix as optx

    given_alone = bool(posterior.model.starts)
    steps, tolerance = (GIVEN_STEPS, GIVEN_TOLERANCE) if given_alone else (CAREFUL_STEPS, CAREFUL_TOLERANCE)
    solver: Any = optx.LevenbergMarquardt(tolerance, tolerance)
    z, chi2, converged = _solve(posterior, bin, solver, steps, start)
    if given_alone:  # steps that change the sum of squares by its rounding errors alone may be refused for ever
        converged |= _relative_offset(posterior, bin, z) < RELATIVE_OFFSET
    return Solution(z, *posterior.least_squares(z, bin), jnp.nan_to_num(chi2, nan=jnp.inf), converged)


def _relative_offset(posterior: Posterior, bin: Bin, z: Vector) -> Float[Array, ""]:
    """The share of the residuals that a Gauss-Newton step would still take away, |Q^T r| / |r| where Q spans the
    columns of the Jacobian; NaN where there are no residuals (Bates and Watts, Technometrics 23, 179, 1981)."""
    residual = posterior.residual(z, bin)
    q, _ = jnp.linalg.qr(jax.jacfwd(posterior.residual)(z, bin))
    return jnp.linalg.norm(q.T @ residual) / jnp.linalg.norm(residual)


def _from_prior(
    posterior: Posterior, bin: Bin, key: Key[Array, ""]
) -> tuple[Points, dict[str, Float[Array, " point"]]]:
    """Coordinates drawn from the prior, and the curve's parameters there by name."""
    keys = jax.random.split(key, PRIOR_DRAWS)
    z, values = jax.vmap(lambda k: posterior.draw_prior(k, bin))(keys)
    return z, {name: values[name] for name in posterior.curve_names}


def chi2_at(posterior: Posterior, bin: Bin, points: Points) -> Float[Array, " point"]:
    """The residual sum of squares at each point, infinite where it is not a number."""
    chi2 = jax.vmap(lambda z: jnp.sum(posterior.residual(z, bin) ** 2))(points)
    return jnp.nan_to_num(chi2, nan=jnp.inf)


def best_in_quantiles(points: Points, cost: Float[Array, " point"], count: int, along: int = 0) -> Points:
    """The point of least cost in each of `count` quantiles of one coordinate; (count, param)."""
    size = len(points) // count * count
    order = jnp.argsort(points[:, along])[:size].reshape(count, -1) if points.shape[1] else jnp.zeros((count, 1), int)
    best = jnp.argmin(cost[order], axis=1)
    return points[jnp.take_along_axis(order, best[:, None], axis=1)[:, 0]]


def _solve(
    posterior: Posterior, bin: Bin, solver: Any, steps: int, start: Vector
) -> tuple[Vector, Float[Array, ""], Bool[Array, ""]]:
    """The solution, its residual sum of squares, and whether the solver says that it has converged."""
    import optimistix as optx

    if start.size == 0:
        return start, jnp.sum(posterior.residual(start, bin) ** 2), jnp.array(True)
    solution: Any = optx.least_squares(
        lambda z, bin: posterior.residual(z, bin), solver, start, args=bin, max_steps=steps, throw=False
    )
    chi2 = jnp.sum(posterior.residual(solution.value, bin) ** 2)
    return solution.value, chi2, solution.result == optx.RESULTS.successful

"""Noise "photons": theory's errors at every point of a bin's posterior, from a table.

The sampler keeps theory's errors as they are at an estimate. At a few draws they are computed; between these, the
logarithms of variances and the weights that whiten are interpolated by a Gaussian process over the shape's parameters,
as their innermost distributions have them, and the logarithm of the contrast (kriging: C. E. Rasmussen & C. K. I.
Williams, Gaussian Processes for Machine Learning, 2006, section 2.2). Unlike a polynomial it stays within bounds where
the posterior has a second mode far away. With the table, the likelihood has errors of its own at each point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayesfit.compute.devices import on_one_device, start_on_one_device
from bayesfit.modelling.model import AMPLITUDES
from bayesfit.modelling.noise_model import without_approximation
from bayesfit.modelling.photon_layout import LOG_WEIGHTS, VARIANCE, WEIGHTS
from bayesfit.posterior.bin_data import Bin, first_of
from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.photon_noise import CONTRAST, WIDTH, layouts_at
from bayesfit.posterior.prepare import Problem

TableCoordinates = Float[np.ndarray, "draw coordinate"]
Layouts = Float[np.ndarray, "draw tau column"]
OfDraws = Float[np.ndarray, " draw"]
Places = Int[np.ndarray, " chosen"]

BATCHES = 2  # of points at which theory's errors are computed, at least; one less than there are coordinates, if more
TIMES = 2  # as many points a table holds, when it is made again
AT_ONCE = 256  # draws
EXAMINED = 16  # draws, at which another likelihood is compared with theory's
COMPONENTS = 16  # principal ones, in which errors differ
RANGE = 4.0  # of the Gaussian process, in standard deviations of the points, times the root of their dimension
NUGGET = 1e-6  # of its variance: points may coincide
SMALLEST_SCALE = 1e-9
SMALLEST_PART = 1e-14  # of the squares of the first component, below which another one is rounding


class Table(NamedTuple):
    """Errors of one bin between points: of what `_numbers` says of a layout, the `mean` (number,), and principal
    `components` (component, number), whose sizes are `weights` (point, component) times the correlations with the
    `points` (point, coordinate), in coordinates that are standardised by `centre` and `scale`."""

    centre: Float[Any, " coordinate"]
    scale: Float[Any, " coordinate"]
    points: Float[Any, "point coordinate"]
    weights: Float[Any, "point component"]
    mean: Float[Any, " number"]
    components: Float[Any, "component number"]

    @classmethod
    def of(cls, coordinates: TableCoordinates, layouts: Layouts) -> Table:
        """The one that holds theory's errors at these points, with room for as many as it may have when it is made
        again."""
        centre, scale = coordinates.mean(axis=0), np.maximum(coordinates.std(axis=0), SMALLEST_SCALE)
        points, numbers = (coordinates - centre) / scale, _numbers(layouts)
        mean = numbers.mean(axis=0)
        sizes, components = _principal(numbers - mean)
        nugget, room = NUGGET * np.eye(len(points)), ((0, TIMES * _count(coordinates) - len(points)), (0, 0))
        weights = np.linalg.solve(_correlation(points[:, None], points, np) + nugget, sizes)
        return cls(centre, scale, np.pad(points, room), np.pad(weights, room), mean, components)

    def layout(self, coordinates: Float[Array, " coordinate"], like: Float[Array, "tau column"]) -> Array:
        """The layout (tau, column) at a point, the same as another one but for what theory says."""
        correlation = _correlation((coordinates - self.centre) / self.scale, self.points, jnp)
        sizes = jax.lax.optimization_barrier(correlation) @ self.weights  # without barriers, all is computed more often
        numbers = jax.lax.optimization_barrier(self.mean + jax.lax.optimization_barrier(sizes) @ self.components)
        log_variance, log_first, rest = jnp.split(numbers, [len(like), 2 * len(like)])
        first = jnp.where(like[:, WEIGHTS] != 0.0, jnp.exp(log_first), 0.0)[:, None]
        of_variance = like[:, :VARIANCE], jnp.exp(log_variance)[:, None], like[:, VARIANCE + 1 : LOG_WEIGHTS]
        of_weights = log_first[:, None], like[:, LOG_WEIGHTS + 1 : WEIGHTS], first, rest.reshape(len(like), -1) * first
        return jnp.concatenate([*of_variance, *of_weights], axis=1)


def _correlation(one: Any, others: Any, numpy: Any) -> Any:
    """Matern's correlation of index 5/2 of standardised points (..., coordinate)."""
    size = others.shape[-1]
    squares = sum((one[..., place] - others[..., place]) ** 2 for place in range(size)) * (5.0 / (RANGE**2 * size))
    distance = numpy.sqrt(squares)
    return (1.0 + distance + squares / 3.0) * numpy.exp(-distance)


def _principal(rows: Float[np.ndarray, "draw number"]) -> tuple[Float[np.ndarray, "draw component"], np.ndarray]:
    """Sizes of principal components in rows, and the components (component, number); zeros where there are fewer."""
    squares, u = np.linalg.eigh(rows @ rows.T)  # far fewer rows than numbers
    squares, u = squares[::-1][:COMPONENTS], u[:, ::-1][:, :COMPONENTS]
    size = np.sqrt(np.maximum(squares, SMALLEST_PART * squares[0]))
    u = np.where(squares > SMALLEST_PART * squares[0], u, 0.0)
    lacking = max(COMPONENTS - len(size), 0)
    components = u.T @ rows / np.maximum(size, SMALLEST_SCALE)[:, None]
    return np.pad(u * size, ((0, 0), (0, lacking))), np.pad(components, ((0, lacking), (0, 0)))


def _numbers(layouts: Layouts) -> Float[np.ndarray, "draw number"]:
    """Logarithms of variances and of first weights, and the other weights over the first, which is 0 where a point is
    not valid."""
    first = layouts[..., WEIGHTS]
    rest = layouts[..., WEIGHTS + 1 :] / np.where(first == 0.0, 1.0, first)[..., None]
    columns = np.log(layouts[..., VARIANCE]), layouts[..., LOG_WEIGHTS], rest.reshape(len(layouts), -1)
    return np.concatenate(columns, axis=1)


def _count(coordinates: TableCoordinates) -> int:
    """How many points theory's errors are computed at."""
    return WIDTH * max(BATCHES, coordinates.shape[1] - 1)


def of_posterior(posterior: Posterior, function: Callable[..., Any], *given: Any) -> Any:
    """What a function makes of arrays and, after them, the posterior; compiled once, and kept on disk."""
    return on_one_device(_with_posterior(function, posterior), *given, identity=posterior.identity)


def start_of_posterior(posterior: Posterior, function: Callable[..., Any], *given: Any) -> None:
    """Begin to compile what `of_posterior` calls for arrays of these shapes; returns at once."""
    start_on_one_device(_with_posterior(function, posterior), *given, identity=posterior.identity)


@lru_cache(maxsize=64)
def _with_posterior(function: Callable[..., Any], posterior: Posterior) -> Callable[..., Any]:
    """The function with its last argument, under its own name: that is what kept programs go by."""
    return wraps(function)(lambda *given: function(*given, posterior))


def whole(posterior: Posterior) -> Posterior:
    """The same posterior with nothing integrated out or approximated."""
    names = posterior.curve_names + posterior.marginal
    return replace(posterior, noise=without_approximation(posterior.noise), curve_names=names)


def table_coordinates(posterior: Posterior, z: Float[Array, " param"], bin: Bin) -> Array:
    """The coordinates of a table at a point of a posterior with nothing integrated out: the shape's parameters as their
    innermost distributions have them, and the logarithm of the contrast. Unlike coordinates z, the former do not go to
    infinity at a bound, where errors hardly change."""
    names = posterior.curve_names
    at = posterior.curve_at(z[: len(names)], bin)
    at(bin)
    shape = [at.innermost[name] for name in names if name not in AMPLITUDES]
    contrast = {**bin.fixed, **at.values}["contrast"]
    return jnp.stack([*shape, jnp.log(jnp.clip(contrast, *CONTRAST))])


class OwnErrors:
    """Points of one bin's posterior: `values` by name (draw,), coordinates `z` (draw, param) of the posterior with
    nothing integrated out, and those of tables."""

    def __init__(self, problem: Problem, values: Mapping[str, OfDraws]) -> None:
        self.problem, self.values, self.bin = problem, values, first_of(problem.bins)
        found = of_posterior(whole(problem.posterior), _coordinates, values, self.bin)
        self.z, self.coordinates = (np.asarray(array) for array in found)

    @property
    def finite(self) -> bool:
        """Whether all coordinates are."""
        return bool(np.isfinite(self.z).all())

    def some(self) -> OwnErrors:
        """As many of the points as a table needs: those that are examined, and others."""
        return self.of_draws(self._some())

    def examined(self) -> OwnErrors:
        """Some of the points, evenly over all, at which another likelihood is compared with theory's."""
        return self.of_draws(self._even()[:EXAMINED])

    def others(self) -> OwnErrors:
        """Those that make as many as a table needs with those that are examined."""
        return self.of_draws(self._some()[EXAMINED:])

    def _even(self) -> Places:
        """Places evenly over all draws, half as many as a table needs; the first ones are examined."""
        count = _count(self.coordinates) // 2
        placed, few = evenly(len(self.z), count), evenly(count, EXAMINED)
        return np.concatenate([placed[few], np.delete(placed, few)])

    def _some(self) -> Places:
        """As many as a table needs: those evenly over all draws, and as many where they are farthest apart: in every
        mode."""
        return apart(self.coordinates, _count(self.coordinates), self._even())

    def of_draws(self, draws: np.ndarray) -> OwnErrors:
        """Some of the points."""
        own = object.__new__(OwnErrors)
        own.problem, own.bin, own.z, own.coordinates = self.problem, self.bin, self.z[draws], self.coordinates[draws]
        own.values = {name: value[draws] for name, value in self.values.items()}
        return own

    def theory(self) -> Layouts:
        """The layouts at these points, but for what theory says those of the data as they are standardised."""
        return layouts_at(self.problem.of_bins(np.zeros(len(self.z), int)), self.values)

    def off(self, table: Table) -> float:
        """How far off the likelihood by a table is at some of these points."""
        some = self.examined()
        return some.apart(some.theory(), table)

    def apart(self, layouts: Layouts, table: Table | None = None) -> float:
        """How far the likelihood by a table, or with errors kept, is from that with these layouts: the standard
        deviation of the difference of logarithms over these points."""
        by_other = self.log_likelihood() if table is None else self.log_likelihood_by(table)
        return float(np.std(self.log_likelihood(layouts) - by_other))

    def log_likelihood(self, layouts: Layouts | None = None) -> OfDraws:
        """Log likelihood with these layouts, by default with errors kept."""
        if layouts is None:
            layouts = np.broadcast_to(self.bin.layout, (len(self.z), *self.bin.layout.shape))
        given = self.values, layouts, self.bin
        return np.asarray(of_posterior(self.problem.posterior, _log_likelihoods, *given))

    def log_likelihood_by(self, table: Table) -> OfDraws:
        """Log likelihood with the errors that a table gives at each point."""
        given = self.values, self.coordinates, table, self.bin
        return np.asarray(of_posterior(self.problem.posterior, by_table, *given))


class Made(NamedTuple):
    """Points at which theory's errors were computed."""

    coordinates: TableCoordinates
    layouts: Layouts

    @classmethod
    def at(cls, points: OwnErrors) -> Made:
        """These points, at which they are computed now."""
        return cls(points.coordinates, points.theory())

    def and_(self, more: Made) -> Made:
        """These points, and more."""
        return Made(*(np.concatenate(both) for both in zip(self, more, strict=True)))

    def table(self, nearest: Made | None = None) -> Table:
        """The table of their errors, and of those at points that are from the posterior; if these are too many, of
        those farthest apart."""
        made = self if nearest is None else nearest.and_(self)
        first, most = np.arange(len((nearest or self).coordinates)), TIMES * _count(made.coordinates)
        if len(made.coordinates) > most:
            made = Made(*(array[apart(made.coordinates, most, first)] for array in made))
        return Table.of(*made)


def evenly(size: int, count: int) -> Places:
    """So many places, evenly over all."""
    return np.linspace(0, size - 1, count).astype(int)


def apart(points: TableCoordinates, count: int, first: Places) -> Places:
    """So many places: the first ones, and then always that of the point farthest from all before, in standard
    deviations (T. F. Gonzalez, Theor. Comput. Sci. 38, 293 (1985))."""
    x = (points - points.mean(axis=0)) / np.maximum(points.std(axis=0), SMALLEST_SCALE)
    chosen = list(first[:count])
    squares = np.min(np.sum((x[:, None] - x[chosen]) ** 2, axis=-1), axis=1)
    while len(chosen) < count:
        chosen.append(int(np.argmax(squares)))
        squares = np.minimum(squares, np.sum((x - x[chosen[-1]]) ** 2, axis=-1))
    return np.array(chosen)


def _coordinates(values: Values, bin: Bin, posterior: Posterior) -> tuple[Array, Array]:
    def one(values: Values) -> tuple[Array, Array]:
        z = jnp.concatenate([posterior.unconstrain_curve(values, bin), posterior.unconstrain_noise(values, bin)])
        return z, table_coordinates(posterior, z, bin)

    return jax.vmap(one)(values)


def _log_likelihoods(values: Values, layouts: Array, bin: Bin, posterior: Posterior) -> Array:
    return jax.vmap(lambda own, layout: posterior.log_likelihood(own, bin._replace(layout=layout)))(values, layouts)


def by_table(values: Values, coordinates: Array, table: Table, bin: Bin, posterior: Posterior) -> Array:
    """Log likelihood of points with the errors that a table gives at each (draw,)."""

    def one(given: tuple[Values, Array]) -> Array:
        return posterior.log_likelihood(given[0], bin._replace(layout=table.layout(given[1], bin.layout)))

    return jax.lax.map(one, (values, coordinates), batch_size=AT_ONCE)

"""Noise "photons": theory's errors at every draw of a bin, from a table, and the draws that these errors ask for.

The sampler keeps theory's errors as they are at an estimate. At a few draws they are computed; between these, the
logarithms of variances and the weights that whiten are quadratic in the coordinates of the curve's shape and in the
logarithm of the contrast, by least squares. The table gives the likelihood of every draw with errors of its own, and by
that over the likelihood with errors kept, draws are accepted or rejected.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt32

from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import Spread, named
from bayesfit.modelling.photon_layout import LOG_WEIGHTS, VARIANCE, WEIGHTS
from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.photon_noise import CONTRAST, WIDTH, of_bins, with_theory
from bayesfit.posterior.prepare import Problem
from bayesfit.sample.draws import Draws
from bayesfit.sample.redrawn import delayed, joined, redrawn
from bayesfit.sample.theory_points import likelihoods

Keys = UInt32[np.ndarray, "bin 2"]
Places = Int[np.ndarray, " chosen"]
Coordinates = Float[np.ndarray, "draw coordinate"]
Layouts = Float[np.ndarray, "draw tau column"]

POINTS = 48  # at which theory's errors are computed, at least
POINTS_PER_TERM = 3  # of the quadratic
EXAMINED = 16  # of the draws that are chosen, at which theory's errors are computed in the end
GOOD = 0.1  # difference of the log likelihood by the table from that by theory, beyond which it is made again
ELSEWHERE = 0.1  # weight of points that are not from the posterior, when it is
SMALLEST_SCALE = 1e-9
AT_ONCE = 256  # draws
OF_DRAWS = 2**16  # in keys, beside the rounds of estimates


class Table(NamedTuple):
    """Errors of one bin between points of coordinates (point, coordinate): coefficients (term, number) of what
    `_numbers` says of a layout, in coordinates that are standardised."""

    centre: Float[np.ndarray, " coordinate"]
    scale: Float[np.ndarray, " coordinate"]
    coefficients: Float[np.ndarray, "term number"]

    @classmethod
    def of(cls, coordinates: Coordinates, layouts: Layouts, weights: Float[np.ndarray, " draw"] | float = 1.0) -> Table:
        """The weighted least-squares fit to theory's errors at these points."""
        centre, scale = coordinates.mean(axis=0), np.maximum(coordinates.std(axis=0), SMALLEST_SCALE)
        weights = np.broadcast_to(np.sqrt(weights), len(coordinates))[:, None]
        terms = _terms((coordinates - centre) / scale)
        return cls(centre, scale, np.linalg.lstsq(weights * terms, weights * _numbers(layouts), rcond=1e-10)[0])

    def layouts(self, coordinates: Coordinates, like: Float[np.ndarray, "tau column"]) -> Layouts:
        """The layouts at these points, the same as another one but for what theory says."""
        variance, log_first, rest = np.split(
            _terms((coordinates - self.centre) / self.scale) @ self.coefficients, [len(like), 2 * len(like)], axis=1
        )
        layouts, counts = np.repeat(like[None], len(coordinates), axis=0), like[:, WEIGHTS] != 0.0
        layouts[..., VARIANCE], layouts[..., LOG_WEIGHTS] = np.exp(variance), log_first
        first = np.where(counts, np.exp(log_first), 0.0)
        layouts[..., WEIGHTS] = first
        layouts[..., WEIGHTS + 1 :] = rest.reshape(*first.shape, -1) * first[..., None]
        return layouts


def _terms(x: Coordinates) -> Float[np.ndarray, "draw term"]:
    """1, each coordinate, and each product of two."""
    products = [x[:, i] * x[:, j] for i, j in combinations_with_replacement(range(x.shape[1]), 2)]
    return np.stack([np.ones(len(x)), *x.T, *products], axis=1)


def _numbers(layouts: Layouts) -> Float[np.ndarray, "draw number"]:
    """Logarithms of variances and of first weights, and the other weights over the first, which is 0 where a point is
    not valid."""
    first = layouts[..., WEIGHTS]
    rest = layouts[..., WEIGHTS + 1 :] / np.where(first == 0.0, 1.0, first)[..., None]
    columns = np.log(layouts[..., VARIANCE]), layouts[..., LOG_WEIGHTS], rest.reshape(len(layouts), -1)
    return np.concatenate(columns, axis=1)


def with_own_errors(
    problem: Problem, draws: Draws, keys: Keys, thin: int = 1
) -> tuple[Draws, Float[np.ndarray, " bin"]]:
    """Draws of the posterior with theory's errors at each draw, chosen among those with errors kept, of which every
    `thin`-th is kept; and how much the log likelihood is still off, but for a constant: a standard deviation.

    The draws are those of a problem with noise "photons", in all its bins.
    """
    each = [np.array([bin]) for bin in range(len(keys))]
    made = [
        Redrawing(problem.of_bins(bin), draws.of_bins(bin)).made(
            np.random.default_rng((*keys[bin[0]], _keys.WITH_THEORY, OF_DRAWS)), thin
        )
        for bin in each
    ]
    return joined([found for found, _ in made]), np.array([off for _, off in made])


class Redrawing:
    """The draws of one bin, while they are chosen again: `values` by name, and `coordinates`, of all of them."""

    def __init__(self, problem: Problem, draws: Draws) -> None:
        self.problem, self.draws = problem, draws
        self.shape = next(iter(draws.values.values())).shape[1:]
        self.values = {name: array.reshape(-1) for name, array in draws.values.items()}
        bins = self._bins(self.shape[0] * self.shape[1])
        self.coordinates = _curve_coordinates(bins, self.values)
        self.log_likelihood = _log_likelihood(bins, self.values)

    def made(self, rng: np.random.Generator, thin: int) -> tuple[Draws, float]:
        """The draws that are chosen, every `thin`-th of them, and how far off the table is. Chains that were stopped,
        and draws whose coordinates are not finite, stay as they are."""
        every = np.arange(self.coordinates.shape[0]).reshape(self.shape)
        chosen, off = every, np.inf
        if self.draws.done[0] == every.shape[1] and np.isfinite(self.coordinates).all():
            chosen, off = self._by_table(rng)
        names = (*self.problem.posterior.names, *self.problem.posterior.marginal)
        return redrawn(self.draws, chosen[None], names, thin), off

    def _by_table(self, rng: np.random.Generator) -> tuple[Int[np.ndarray, "chain draw"], float]:
        """The draws that are chosen, and how far off the table is, which is made again if it is far off."""
        some = _evenly(len(self.coordinates), self._count)
        layouts = self._theory(some)
        chosen, off = self._chosen(Table.of(self.coordinates[some], layouts), rng)
        if off > GOOD:
            there = chosen.reshape(-1)[_evenly(chosen.size, self._count)]
            layouts, both = np.concatenate([layouts, self._theory(there)]), np.concatenate([some, there])
            weights = np.repeat([ELSEWHERE, 1.0], self._count)
            chosen, off = self._chosen(Table.of(self.coordinates[both], layouts, weights), rng)
        return chosen, off

    @property
    def _count(self) -> int:
        """How many points theory's errors are computed at."""
        terms = _terms(self.coordinates[:1]).shape[1]
        return -(-max(POINTS, POINTS_PER_TERM * terms) // WIDTH) * WIDTH

    def _theory(self, draws: Places) -> Layouts:
        """The layouts at these draws, but for what theory says those of the data as they are standardised."""
        layouts, bins = with_theory(self._bins(draws.size), self._at(draws)).bins.layout, self._bins(draws.size).bins
        columns = [VARIANCE, LOG_WEIGHTS, *range(WEIGHTS, layouts.shape[-1])]
        bins.layout[..., columns] = layouts[..., columns]
        return bins.layout

    def _chosen(self, table: Table, rng: np.random.Generator) -> tuple[Int[np.ndarray, "chain draw"], float]:
        """The draws that are chosen by a table, and how far off it is at some of these."""
        ratio = self._ratio(table.layouts(self.coordinates, self.problem.bins.layout[0]))
        chosen, _ = delayed(ratio.reshape(self.shape), rng)
        some = chosen.reshape(-1)[_evenly(chosen.size, EXAMINED)]
        return chosen, float(np.std(self._ratio(self._theory(some), some) - ratio[some]))

    def _ratio(self, layouts: Layouts, draws: Places | None = None) -> Float[np.ndarray, " draw"]:
        """Log likelihood of draws, by default of all, with errors of their own over that with errors kept."""
        draws = np.arange(len(self.coordinates)) if draws is None else draws
        bins = self._bins(draws.size)
        bins = replace(bins, bins=bins.bins._replace(layout=layouts))
        return _log_likelihood(bins, self._at(draws)) - self.log_likelihood[draws]

    def _bins(self, count: int) -> Problem:
        """The bin, so many times."""
        return self.problem.of_bins(np.zeros(count, int))

    def _at(self, draws: Places) -> dict[str, Float[np.ndarray, " draw"]]:
        return {name: value[draws] for name, value in self.values.items()}


def _evenly(size: int, count: int) -> Places:
    """So many places, evenly over all."""
    return np.linspace(0, size - 1, count).astype(int)


def _log_likelihood(problem: Problem, values: Values) -> Float[np.ndarray, " draw"]:
    return of_bins(likelihoods(problem.posterior), problem.bins, values, width=AT_ONCE)


def _curve_coordinates(problem: Problem, values: Values) -> Coordinates:
    """The coordinates of the curve's shape at draws of a bin, and the logarithm of its contrast."""
    contrast = values.get("contrast", np.asarray(problem.bins.fixed.get("contrast", 1.0)))
    shape = of_bins(_shapes(problem.posterior), problem.bins, values, width=AT_ONCE)
    return np.concatenate([shape, np.log(np.clip(contrast, *CONTRAST))[:, None]], axis=1)


@lru_cache(maxsize=32)
def _shapes(posterior: Posterior) -> Spread:
    """The program of the coordinates of the curve at parameters by name."""
    return Spread(
        lambda bin, values: posterior.unconstrain_curve(values, bin)[: posterior.shape_size],
        named("shape coordinates", posterior.identity),
    )

"""Sums over shifts of functions of the lag, for many bins at once.

A function of the lag is a table (point + 1, bin) of its values at `lag_grid`, with a last row of zeros for all lags
beyond. Where the lags of a sum lie on the grid is the same for all bins, so that it is known beforehand (`Places`), and
a sum is a product of rows of tables. Sums over frames are exact for the first frames, and quadratures beyond.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:  # a slow import, which a fit without counted photons does not need
    from scipy.sparse import csr_array

GRID = 90  # points of a table
OF_DECADE = 50, 14, 8, 3  # more of points, nodes, coarse lags and few nodes, for each decade of frames beyond USUAL
USUAL = 10**4.5  # frames
FINEST = 0.05  # lag in frames, the first point after 0
EVERY, NODES = 16, 24  # frames of which each is a node of a sum, and nodes beyond
SHORTEST = 1e-4  # part of an interval, below which there is one node
FEW = 12  # nodes of what is a small part
EVERY_OTHER = 2  # points of the grid, at each of which a convolution is computed
COARSE = 16  # lags at which a function of two lags is tabulated

Table = Float[np.ndarray, "point bin"]
Weights = Float[np.ndarray, "*any"]


class Sizes(NamedTuple):
    """How many points a table has, how many nodes a sum has beyond the first frames, how many lags a coarse table has,
    and how many nodes what is a small part."""

    grid: int
    nodes: int
    coarse: int
    few: int


def sizes_for(frames: float) -> Sizes:
    """The sizes for series of this many frames: more for long ones, whose lags span more decades."""
    beyond = max(np.log10(frames / USUAL), 0.0)
    usual = GRID, NODES, COARSE, FEW
    return Sizes(*(own + round(more * beyond) for own, more in zip(usual, OF_DECADE, strict=True)))


def lag_grid(frames: float) -> Float[np.ndarray, " point"]:
    """Lags in frames, of which the first is 0, and the last so long that every correlation has vanished."""
    return np.concatenate([[0.0], np.geomspace(FINEST, 4.0 * frames, sizes_for(frames).grid)])


def extended(values: Float[np.ndarray, "point bin"]) -> Table:
    """A table of values at `lag_grid`."""
    return np.concatenate([values, np.zeros((1, values.shape[1]))])


class Places(NamedTuple):
    """Where lags of this `shape` lie: the `matrix` that takes a table to its values there, linear between points."""

    matrix: csr_array
    shape: tuple[int, ...]


def places_of(grid: Float[np.ndarray, " point"], lag: Float[np.ndarray, "*any"]) -> Places:
    """Places of lags of either sign."""
    from scipy.sparse import csr_array

    flat = np.abs(lag).reshape(-1)
    before = np.clip(np.searchsorted(grid, flat, side="right") - 1, 0, grid.size - 2)
    share = (flat - grid[before]) / (grid[before + 1] - grid[before])
    beyond = share > 1.0  # there the last row of the table is the value
    before, share = np.where(beyond, grid.size - 1, before), np.where(beyond, 1.0, share)
    values, columns = np.stack([1.0 - share, share], axis=1), np.stack([before, before + 1], axis=1)
    given = values.reshape(-1), columns.reshape(-1), 2 * np.arange(flat.size + 1)
    return Places(csr_array(given, shape=(flat.size, grid.size + 1)), np.shape(lag))


def at(table: Table, places: Places) -> Float[np.ndarray, "*any bin"]:
    """The function at these places."""
    return (places.matrix @ table).reshape(*places.shape, -1)


class LagSums:
    """The sums over shifts s of series of this many `frames`: a shift counts 1 - |s| / frames times."""

    def __init__(self, frames: float) -> None:
        self.frames = frames
        self.grid = lag_grid(frames)
        x, weights = _shifts(frames, sizes_for(frames).nodes)
        self._all = 2.0 * (weights * self._counted(x)) @ places_of(self.grid, x).matrix
        lag = self.grid[_some(self.grid)][:, None]
        self._between = _cubic(self.grid)
        outside = 2.0 * weights * self._counted(x + 0.5 * lag)  # shifts beyond 0 and -lag, by symmetry
        part, part_weights = _fractions(sizes_for(frames).nodes)
        between = 2.0 * lag * part_weights * self._counted(lag * (0.5 - part))
        first = np.concatenate([np.broadcast_to(x, outside.shape), lag * part], axis=1)
        second = np.concatenate([x + lag, lag * (1.0 - part)], axis=1)
        self._convolved = places_of(self.grid, np.stack([first, second]))
        self._convolved_weights = np.concatenate([outside, between], axis=1)[..., None]

    def _counted(self, shift: Weights) -> Weights:
        return np.maximum(1.0 - np.abs(shift) / self.frames, 0.0)

    def total(self, table: Table) -> Float[np.ndarray, " bin"]:
        """sum_s f(s)."""
        return np.sum(self._all[:, None] * table, axis=0)

    def convolved(self, table: Table) -> Table:
        """sum_s f(s) f(s + d) as a function of d."""
        product, second = at(table, self._convolved)
        product *= second
        product *= self._convolved_weights
        return extended(self._between @ product.sum(axis=1))

    def averaged(self, table: Table, window: float) -> Table:
        """The function averaged over a triangle of this half width, as two sums of so many frames see it."""
        if window <= 1:
            return table
        return extended(_averages(self.frames, window) @ table)

    def crossed(self, table: Table, lags: Float[np.ndarray, " tau"]) -> Float[np.ndarray, "tau tau bin"]:
        """sum_s f(s) f(s - j) f(s + k - j) f(s + k) for all pairs of lags j, k, from a coarse table of them. Longer
        lags than frames, which a slice of ages has, count as the longest: the sum is a small part there."""
        factors, weights, (row, column) = _cycles(self.frames)
        size = sizes_for(self.frames).coarse
        product = at(table, factors[0])
        for factor in factors[1:]:
            product *= at(table, factor)
        product *= weights
        coarse = np.empty((size, size, table.shape[1]))
        coarse[row, column] = coarse[column, row] = product.sum(axis=1)
        places = places_of(np.log(_coarse_lags(self.frames)), np.log(np.clip(lags, 1.0, self.frames)))
        rows = at(extended(coarse.reshape(size, -1)), places).reshape(lags.size, size, -1)
        columns = at(extended(rows.swapaxes(0, 1).reshape(size, -1)), places)
        return columns.reshape(lags.size, lags.size, -1).swapaxes(0, 1)


@lru_cache(maxsize=8)
def lag_sums(frames: float) -> LagSums:
    """The sums for series of this many frames."""
    return LagSums(frames)


@lru_cache(maxsize=64)
def _averages(frames: float, window: float) -> csr_array:
    """The matrix that takes a table to its averages over a triangle about every lag of the grid."""
    from scipy.sparse import eye_array, kron

    grid, (x, weights) = lag_grid(frames), np.polynomial.legendre.leggauss(sizes_for(frames).few)
    x, triangle = 0.5 * (1.0 + x), 0.25 * weights * (1.0 - x)
    later, earlier = (places_of(grid, grid[:, None] + sign * window * x).matrix for sign in (1.0, -1.0))
    return (kron(eye_array(grid.size), triangle[None]) @ (later + earlier)).tocsr()


def _some(grid: Float[np.ndarray, " point"]) -> Int[np.ndarray, " some"]:
    """The first points of the grid, every other of the rest, and the last."""
    return np.unique(np.concatenate([[0], np.arange(1, grid.size, EVERY_OTHER), [grid.size - 1]]))


def _cubic(grid: Float[np.ndarray, " point"]) -> csr_array:
    """The matrix that takes values at some points of the grid to all of them: a cubic spline in the logarithm of the
    lag, constant before the first one after 0. It is kept as others are, whose products of one bin do not depend on
    how many bins there are."""
    from scipy.interpolate import CubicSpline
    from scipy.sparse import csr_array

    some, logarithm = _some(grid), np.log(grid[1:])
    spline = CubicSpline(np.log(grid[some[1:]]), np.eye(some.size - 1))
    return csr_array(np.block([[np.eye(1, some.size)], [np.zeros((grid.size - 1, 1)), spline(logarithm)]]))


def _coarse_lags(frames: float) -> Float[np.ndarray, " coarse"]:
    return np.geomspace(1.0, frames, sizes_for(frames).coarse)


@lru_cache(maxsize=8)
def _cycles(frames: float) -> tuple[list[Places], Weights, tuple[np.ndarray, np.ndarray]]:
    """For each pair of coarse lags, the places of the four factors at the nodes of the sum, its weights, and the pair.

    The nodes are denser at the four shifts where a factor has its kink. They lie on one side of the middle of these,
    since the sum is the same on either."""
    row, column = np.triu_indices(sizes_for(frames).coarse)
    lags = _coarse_lags(frames)
    j, k = lags[row], lags[column]
    kinks = np.sort(np.stack([-k, np.zeros(j.size), j - k, j]), axis=0)
    x, x_weights = _shifts(frames, sizes_for(frames).few)
    part, part_weights = _fractions(sizes_for(frames).few)
    first, second, third, _ = kinks[..., None]
    shifts = [first - x, first + (second - first) * part, second - (second - first) * part]
    shifts.append(second + (third - second) * part)
    outer, inner = (np.broadcast_to(x_weights, shifts[0].shape), (second - first) * part_weights)
    weights = [2.0 * each for each in (outer, inner, inner, (third - second) * part_weights)]
    shift = np.concatenate(shifts, axis=1)
    grid = lag_grid(frames)
    factors = [places_of(grid, shift - kink[:, None]) for kink in kinks]
    return factors, np.concatenate(weights, axis=1)[..., None], (row, column)


def _shifts(frames: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Shifts from 0 on, every frame at first, and their weights in a sum over all frames in which a shift of 0 counts
    half."""
    first = np.ones(EVERY + 1)
    first[0] = first[-1] = 0.5
    beyond, weights = _logarithmic(EVERY, 4.0 * frames, nodes)
    return np.concatenate([np.arange(EVERY + 1), beyond]), np.concatenate([first, weights])


def _fractions(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Places from 0 to 1/2, closer near 0, and their weights in an integral."""
    places, weights = _logarithmic(SHORTEST, 0.5, nodes)
    return np.concatenate([[0.5 * SHORTEST], places]), np.concatenate([[SHORTEST], weights])


def _logarithmic(low: float, high: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a Gauss-Legendre quadrature in the logarithm."""
    x, weights = np.polynomial.legendre.leggauss(nodes)
    half = 0.5 * np.log(high / low)
    places = np.sqrt(low * high) * np.exp(half * x)
    return places, half * weights * places

"""Sums over shifts of functions of the lag, for many bins at once.

A function of the lag is a table (point + 1, bin) of its values at `lag_grid`, with a last row of zeros for all lags
beyond. Where the lags of a sum lie on the grid is the same for all bins, so that it is known beforehand (`Places`), and
a sum is a product of rows of tables. Sums over frames are exact for the first frames, and quadratures beyond.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:  # a slow import, which a fit without counted photons does not need
    from scipy.sparse import csr_array

GRID = 90  # points of a table
OF_DECADE = 50, 14, 8, 3  # more of points, nodes, coarse lags and few nodes, for each decade of frames beyond USUAL
USUAL = 10**4.5  # frames
EVERY, NODES = 16, 24  # first frames, each of which is a point of a table and a node of a sum, and nodes beyond
SHORTEST = 1e-4  # part of an interval, below which there is one node
FEW = 12  # nodes of what is a small part
EVERY_OTHER = 2  # points of the grid, at each of which a convolution is computed
NEIGHBOURS = 4  # points of a table that its values between points follow from
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
    """Lags in frames: every one at first, from 0 on, and the last so long that every correlation has vanished."""
    beyond = np.geomspace(EVERY, max(4.0 * frames, 2.0 * EVERY), sizes_for(frames).grid + 1 - EVERY)
    return np.concatenate([np.arange(EVERY), beyond])


def extended(values: Float[np.ndarray, "point bin"]) -> Table:
    """A table of values at `lag_grid`."""
    return np.concatenate([values, np.zeros((1, values.shape[1]))])


class Places(NamedTuple):
    """Where lags of this `shape` lie: the `matrix` that takes a table to its values there, cubic between points."""

    matrix: csr_array
    shape: tuple[int, ...]

    def of_tables(self, numbers: Int[np.ndarray, "2 place"]) -> Places:
        """The same in tables one below the other: at each place, the mean of the values of two of them, which may be
        one."""
        from scipy.sparse import csr_array

        matrix, points = self.matrix, self.matrix.shape[1]
        each = np.diff(matrix.indptr)
        columns = [matrix.indices + points * np.repeat(number, each) for number in numbers]
        size = matrix.shape[0], points * (numbers.max() + 1)
        one, other = (csr_array((matrix.data, own, matrix.indptr), shape=size) for own in columns)
        return Places((0.5 * (one + other)).tocsr(), self.shape)


def places_of(grid: Float[np.ndarray, " point"], lag: Float[np.ndarray, "*any"]) -> Places:
    """Places of lags of either sign."""
    from scipy.sparse import csr_array

    flat = np.abs(lag).reshape(-1)
    beyond = flat > grid[-1]  # there the last row of the table is the value
    first = np.clip(np.searchsorted(grid, flat, side="right") - NEIGHBOURS // 2, 0, grid.size - NEIGHBOURS)
    columns = first[:, None] + np.arange(NEIGHBOURS)
    values = _lagrange(grid[columns], flat)
    values[beyond], columns[beyond] = np.eye(1, NEIGHBOURS), grid.size
    given = values.reshape(-1), columns.reshape(-1), NEIGHBOURS * np.arange(flat.size + 1)
    return Places(csr_array(given, shape=(flat.size, grid.size + 1)), np.shape(lag))


def _lagrange(nodes: Float[np.ndarray, "any node"], x: Float[np.ndarray, " any"]) -> Float[np.ndarray, "any node"]:
    """The factors of values at nodes in the value at x of the polynomial through them."""
    factors = np.ones(nodes.shape)
    for own in range(nodes.shape[1]):
        for other in range(nodes.shape[1]):
            if own != other:
                factors[:, own] *= (x - nodes[:, other]) / (nodes[:, own] - nodes[:, other])
    return factors


def at(table: Table, places: Places) -> Float[np.ndarray, "*any bin"]:
    """The function at these places."""
    return (places.matrix @ table).reshape(*places.shape, -1)


class LagSums:
    """The sums over shifts s of series of this many `frames`: a shift counts 1 - |s| / frames times."""

    def __init__(self, frames: float) -> None:
        self.frames = frames
        self.grid = lag_grid(frames)
        x, weights = _shifts(frames, sizes_for(frames).nodes)
        self._outer = places_of(self.grid, x)
        self._all = 2.0 * (weights * self._counted(x)) @ self._outer.matrix
        lag = self.grid[_some(self.grid)][:, None]
        self._between = _cubic(self.grid)
        self._shifted = places_of(self.grid, x + lag)
        self._outside = (2.0 * weights * self._counted(x + 0.5 * lag))[..., None]  # beyond 0 and -lag, by symmetry
        inner, inner_weights = _inner_shifts(lag, sizes_for(frames).nodes)
        self._inner = places_of(self.grid, np.stack([inner, lag - inner]))
        self._inside = (inner_weights * self._counted(0.5 * lag - inner))[..., None]

    def _counted(self, shift: Weights) -> Weights:
        return np.maximum(1.0 - np.abs(shift) / self.frames, 0.0)

    def total(self, table: Table) -> Float[np.ndarray, " bin"]:
        """sum_s f(s)."""
        return np.sum(self._all[:, None] * table, axis=0)

    def convolved(self, table: Table) -> Table:
        """sum_s f(s) f(s + d) as a function of d."""
        outside, (inside, second) = at(table, self._shifted), at(table, self._inner)
        outside *= at(table, self._outer)
        outside *= self._outside
        inside *= second
        inside *= self._inside
        return extended(self._between @ (outside.sum(axis=1) + inside.sum(axis=1)))

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
    """The matrix that takes a table to its averages over a triangle about every lag of the grid: a sum over the first
    shifts, frame by frame, where the function has its peak, and integrals from one kink of the triangle to the next."""
    from scipy.sparse import csr_array

    grid = lag_grid(frames)
    lag = grid[:, None]
    kinks = np.sort(np.concatenate([np.abs(lag - window), lag, lag + window], axis=1), axis=1)
    starts = np.concatenate([np.where(lag < window, 0.0, kinks[:, :1]), kinks[:, :-1]], axis=1)
    by_frame = (lag <= EVERY) | (lag < window)
    low, high = (np.maximum(each, np.where(by_frame, EVERY, 1.0))[..., None] for each in (starts, kinks))
    beyond = (each.reshape(grid.size, -1) for each in _logarithmic(low, high, sizes_for(frames).nodes))
    near = (each * np.ones(lag.shape) for each in _first())
    nodes, weights = (np.concatenate(both, axis=1) for both in zip(near, beyond, strict=True))
    weights[:, : EVERY + 1] *= by_frame
    triangles = sum(np.maximum(1.0 - np.abs(nodes + sign * lag) / window, 0.0) for sign in (1.0, -1.0))
    given = (weights * triangles / window).reshape(-1)
    at_nodes = np.arange(nodes.size), nodes.shape[1] * np.arange(grid.size + 1)
    return csr_array((given, *at_nodes), shape=(grid.size, nodes.size)) @ places_of(grid, nodes).matrix


def _some(grid: Float[np.ndarray, " point"]) -> Int[np.ndarray, " some"]:
    """The first points of the grid, every other of the rest, and the last."""
    return np.unique(np.concatenate([np.arange(EVERY), np.arange(EVERY, grid.size, EVERY_OTHER), [grid.size - 1]]))


def _cubic(grid: Float[np.ndarray, " point"]) -> csr_array:
    """The matrix that takes values at some points of the grid to all of them: a cubic spline in the logarithm of the
    lag, but for 0. It is kept as others are, whose products of one bin do not depend on how many bins there are."""
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
    (near, first), (beyond, weights) = _first(), _logarithmic(EVERY, 4.0 * frames, nodes)
    return np.concatenate([near, beyond]), np.concatenate([first, weights])


def _first() -> tuple[np.ndarray, np.ndarray]:
    """The first shifts, every frame, and their weights: the ends count half."""
    weights = np.ones(EVERY + 1)
    weights[0] = weights[-1] = 0.5
    return np.arange(EVERY + 1.0), weights


def _inner_shifts(lag: Float[np.ndarray, "some 1"], nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Shifts from 0 to each of these lags, and their weights in a sum in which both ends count half: every frame up to
    a lag of EVERY; by symmetry those beyond the middle of a longer one are left out, and the others count twice."""
    part, weights = _fractions(nodes)
    shift, weights = lag * part, 2.0 * lag * weights
    frame = np.arange(part.size)
    each = np.where(frame > lag, 0.0, np.where((frame == 0) | (frame == lag), 0.5, 1.0))
    short = lag <= EVERY
    return np.where(short, np.minimum(frame, lag), shift), np.where(short, each * (lag > 0), weights)


def _fractions(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Places from 0 to 1/2, closer near 0, and their weights in an integral."""
    places, weights = _logarithmic(SHORTEST, 0.5, nodes)
    return np.concatenate([[0.5 * SHORTEST], places]), np.concatenate([[SHORTEST], weights])


def _logarithmic(low: Any, high: Any, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a Gauss-Legendre quadrature in the logarithm; for ends (..., 1), so many of each."""
    x, weights = np.polynomial.legendre.leggauss(nodes)
    half = 0.5 * np.log(high / low)
    places = np.sqrt(low * high) * np.exp(half * x)
    return places, half * weights * places

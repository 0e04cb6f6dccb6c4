"""Groups of a result that are made on request: log likelihood, log prior, and predictive draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, UInt32

from bayesfit.compute import keys as _keys
from bayesfit.compute.batches import Batches, devices_for, stream
from bayesfit.compute.devices import Spread, named, take
from bayesfit.compute.errors import SettingsError, nearest
from bayesfit.compute.single_precision import in_single
from bayesfit.modelling.scatter import Observed
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem
from bayesfit.result.predictions import BINS

AT_ONCE = 100  # draws in one call of a program
PRIOR_DRAWS = 1000
DIMS = ("chain", "draw", "q_bin", "tau")
GROUPS = {
    "log_likelihood": "log density of each point given all others of its bin, at each draw",
    "log_prior": "log prior density of each parameter at each draw",
    "posterior_predictive": "a new g2 for each draw",
    "prior": "draws from the prior",
    "prior_predictive": "a new g2 for each of these",
}
OF_POINTS = ("log_likelihood", "posterior_predictive", "prior_predictive")  # groups with a value for each delay

Key = UInt32[Array, "2"]  # data of a random key
Point = dict[str, Float[Array, ""]]  # parameter name to value
Made = dict[str, Float[Array, "..."]]  # variable to its value at one draw, () or (tau,)
Values = dict[str, Float[np.ndarray, "q_bin chain draw"]]


def check_groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of groups that are asked for, in the order in which results hold them.

    Raises:
        SettingsError: there is no such group.
    """
    for name in names:
        if name not in GROUPS:
            raise SettingsError(f"there is no group {name!r}", field="include", remedy=nearest(name, GROUPS))
    return tuple(name for name in GROUPS if name in names)


class Drawn(NamedTuple):
    """Bins with their draws: the `problem` and data (`curves`) of these bins alone, the `keys` of their random numbers,
    and the `values` of every parameter."""

    problem: Problem
    curves: xr.Dataset
    keys: UInt32[np.ndarray, "q_bin 2"]
    values: Values


def group_of(name: str, drawn: Drawn) -> xr.Dataset:
    """The group of this name: variables (chain, draw, q_bin) or (chain, draw, q_bin, tau), those with delays in float32
    where it holds them."""
    shape = (1, PRIOR_DRAWS) if name.startswith("prior") else next(iter(drawn.values.values())).shape[1:]
    dims = DIMS if name in OF_POINTS else DIMS[:3]
    arrays = _Arrays(shape[0] * shape[1], drawn.curves.sizes["q_bin"], drawn.curves.sizes["tau"], {})
    for at, piece in _pieces(name, drawn, arrays.draws):
        arrays.put(at, piece)
    group = xr.Dataset({n: (dims, array.reshape(*shape, *array.shape[1:])) for n, array in arrays.found.items()})
    coords = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1]), **drawn.curves[["q_bin", "tau"]].coords}
    kept = {n: coord for n, coord in coords.items() if n in dims}
    return group.assign_coords(kept).assign_attrs(description=GROUPS[name])


class _Place(NamedTuple):
    """The place of a piece: draws from `start` on, of one `bin`."""

    start: int
    bin: int


@dataclass(frozen=True)
class _Arrays:
    """Arrays by name, `found`, with room for this number of `draws`, `bins` and delays (`length`); filled piece by
    piece."""

    draws: int
    bins: int
    length: int
    found: dict[str, Float[np.ndarray, "draw q_bin *tau"]]

    def put(self, at: _Place, piece: dict[str, Float[np.ndarray, " draw *tau"]]) -> None:
        """Fill in one piece, without the draws and delays that only pad it. Curves are kept in float32 until one is
        beyond that range."""
        end = min(at.start + AT_ONCE, self.draws)
        for name, array in piece.items():
            part = array[: end - at.start, : self.length] if array.ndim == 2 else array[: end - at.start]
            if name not in self.found:
                kind = np.float32 if array.ndim == 2 else np.float64
                self.found[name] = np.full((self.draws, self.bins, *part.shape[1:]), np.nan, kind)
            if self.found[name].dtype == np.float32 and not in_single(array[: end - at.start]):
                self.found[name] = self.found[name].astype(float)
            self.found[name][at.start : end, at.bin] = part


def _pieces(name: str, drawn: Drawn, draws: int) -> Iterator[tuple[_Place, dict[str, np.ndarray]]]:
    """The group piece by piece: `AT_ONCE` draws of one bin in each, the last of a bin padded with its last draw."""
    flat = {n: v.reshape(len(v), draws) for n, v in drawn.values.items() if not name.startswith("prior")}
    parts = -(-draws // AT_ONCE)
    count = len(drawn.keys) * parts

    def arguments(index: Int[np.ndarray, " piece"]) -> tuple[Bin, dict[str, np.ndarray], np.ndarray]:
        bin, part = np.divmod(index, parts)
        picks = np.minimum(part[:, None] * AT_ONCE + np.arange(AT_ONCE), draws - 1)
        values = {n: v[bin[:, None], picks] for n, v in flat.items()}
        return take(drawn.problem.bins, bin), values, _keys.part_keys(drawn.keys[bin], name, part)

    program = _program(drawn.problem.posterior, name)
    for index, made in stream(program, Batches(count, BINS, devices_for(count, BINS)), arguments):
        for row, (bin, part) in enumerate(zip(*np.divmod(index, parts), strict=True)):
            yield _Place(part * AT_ONCE, bin), {n: array[row] for n, array in made.items()}


@lru_cache(maxsize=64)
def _program(posterior: Posterior, group: str) -> Spread:
    """The program of one group: (bin, values of some draws, key) to arrays with a leading axis of draws."""

    def one(bin: Bin, values: dict[str, Float[Array, " draw"]], key: Key) -> Made:
        keys = jax.random.split(key, AT_ONCE)
        return jax.vmap(lambda v, k: PROGRAMS[group](posterior, bin, v, k))(values, keys)

    return Spread(one, named(group, posterior.identity))


def _log_likelihood(posterior: Posterior, bin: Bin, values: Point, key: Key) -> Made:
    residual = bin.y - posterior.mean(values, bin) * bin.inverse_error
    density = posterior.scatter_at(values, bin).pointwise(residual, bin)
    return {"g2": jnp.where(bin.valid, density + jnp.log(jnp.where(bin.valid, bin.inverse_error, 1.0)), jnp.nan)}


def _log_prior(posterior: Posterior, bin: Bin, values: Point, key: Key) -> Made:
    return posterior.log_prior(values, bin)


def _predictive(posterior: Posterior, bin: Bin, values: Point, key: Key) -> Made:
    drawn = Observed(posterior.mean(values, bin), posterior.scatter_at(values, bin), bin).sample(key)
    return {"g2": jnp.where(bin.valid, drawn, jnp.nan)}


def _prior(posterior: Posterior, bin: Bin, values: Point, key: Key) -> Made:
    return posterior.draw_full_prior(key, bin)


def _prior_predictive(posterior: Posterior, bin: Bin, values: Point, key: Key) -> Made:
    return _predictive(posterior, bin, posterior.draw_full_prior(key, bin), jax.random.fold_in(key, 1))


PROGRAMS: dict[str, Callable[[Posterior, Bin, Point, Key], Made]] = {
    "log_likelihood": _log_likelihood,
    "log_prior": _log_prior,
    "posterior_predictive": _predictive,
    "prior": _prior,
    "prior_predictive": _prior_predictive,
}

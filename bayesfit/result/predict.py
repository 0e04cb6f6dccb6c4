"""What the draws of a posterior say about data: fitted curves with bands and residuals; on request log likelihood, log
prior, and predictive draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import FEW, Spread, devices_for, named, stream, take
from bayesfit.compute.errors import SettingsError, nearest
from bayesfit.compute.single_precision import in_single
from bayesfit.modelling.scatter import Observed
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem

BINS = 16
FITTED_DRAWS = 200
TAILS_OF = 10  # draws, of which one is looked at for how far out in its prior it lies
BAND = (0.025, 0.975)
AT_ONCE = 100  # draws in one call of a program
PRIOR_DRAWS = 1000
CURVES = ("chain", "draw", "q_bin", "tau")
GROUPS = {
    "log_likelihood": "log density of each point given all others of its bin, at each draw",
    "log_prior": "log prior density of each parameter at each draw",
    "posterior_predictive": "a new g2 for each draw",
    "prior": "draws from the prior",
    "prior_predictive": "a new g2 for each of these",
}

Values = dict[str, np.ndarray]


def check_groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of groups that can be asked for.

    Raises:
        SettingsError: there is no such group.
    """
    for name in names:
        if name not in GROUPS:
            raise SettingsError(f"there is no group {name!r}", field="include", remedy=nearest(name, GROUPS))
    return tuple(name for name in GROUPS if name in names)


@lru_cache(maxsize=32)
def _fitted(posterior: Posterior) -> Spread:
    def at(bin: Bin, values: Any) -> tuple[Any, Any, Any]:
        mean, scatter = posterior.mean(values, bin), posterior.scatter_at(values, bin)
        return mean, scatter.sigma(bin), scatter.scores(bin.y - mean * bin.inverse_error, bin)

    def one(bin: Bin, values: dict[str, Any]) -> tuple[Any, Any, Any]:
        means, sigmas, scores = jax.vmap(lambda v: at(bin, v))(values)
        lower, upper = jnp.quantile(means, jnp.array(BAND), axis=0)
        some = {name: draws[::TAILS_OF] for name, draws in values.items()}
        tails = jax.vmap(lambda v: posterior.prior_tails(v, bin))(some)
        medians = {name: jnp.median(tail) for name, tail in tails.items()}
        return jnp.stack([jnp.mean(means, axis=0), lower, upper, jnp.mean(sigmas, axis=0)]), scores, medians

    return Spread(one, named("fitted", posterior.identity))


def fitted(problem: Problem, usable: np.ndarray, values: Values, made: np.ndarray) -> Iterator[tuple[int, Any]]:
    """For each bin that has draws: its place among the usable ones, and mean curve, its central 95 % band and the mean
    sigma of a point (4, tau), the residuals' normal scores (draw, tau), at evenly thinned draws, and how far out in its
    prior each parameter of the curve lies, name to probability. `values` hold arrays (bin, chain, draw), of which each
    bin has `made` draws."""
    bins = take(problem.bins, usable)
    some = np.flatnonzero(made > 0)

    def chosen(index: np.ndarray) -> tuple[Bin, Values]:
        index = some[index]
        return take(bins, index), {name: _thinned(array[index], made[index]) for name, array in values.items()}

    devices = devices_for(some.size, FEW)
    for index, part in stream(_fitted(problem.posterior), some.size, BINS, devices, chosen):
        for row, place in enumerate(some[index]):
            yield int(place), jax.tree.map(lambda array, row=row: array[row], part)


def _thinned(array: np.ndarray, made: np.ndarray) -> np.ndarray:
    """About `FITTED_DRAWS` draws of each bin, evenly over chains and draws; (bin, draw)."""
    picks = []
    for row, count in zip(array, made, strict=True):
        flat = row[:, :count].ravel()
        picks.append(flat[np.linspace(0, flat.size - 1, max(FITTED_DRAWS, array.shape[1])).astype(int)])
    return np.array(picks)


@lru_cache(maxsize=64)
def _program(posterior: Posterior, group: str) -> Spread:
    """The program of one group: (bin, values of some draws, key) to arrays with a leading axis of draws."""
    functions: dict[str, Callable[..., Any]] = {
        "log_likelihood": _log_likelihood,
        "log_prior": _log_prior,
        "posterior_predictive": _predictive,
        "prior": _prior,
        "prior_predictive": _prior_predictive,
    }

    def one(bin: Bin, values: dict[str, Any], key: Any) -> Any:
        keys = jax.random.split(key, AT_ONCE)
        return jax.vmap(lambda v, k: functions[group](posterior, bin, v, k))(values, keys)

    return Spread(one, named(group, posterior.identity))


def _log_likelihood(posterior: Posterior, bin: Bin, values: Any, key: Any) -> dict[str, Any]:
    residual = bin.y - posterior.mean(values, bin) * bin.inverse_error
    density = posterior.scatter_at(values, bin).pointwise(residual, bin)
    return {"g2": jnp.where(bin.valid, density + jnp.log(jnp.where(bin.valid, bin.inverse_error, 1.0)), jnp.nan)}


def _log_prior(posterior: Posterior, bin: Bin, values: Any, key: Any) -> dict[str, Any]:
    return posterior.log_prior(values, bin)


def _predictive(posterior: Posterior, bin: Bin, values: Any, key: Any) -> dict[str, Any]:
    drawn = Observed(posterior.mean(values, bin), posterior.scatter_at(values, bin), bin).sample(key)
    return {"g2": jnp.where(bin.valid, drawn, jnp.nan)}


def _prior(posterior: Posterior, bin: Bin, values: Any, key: Any) -> dict[str, Any]:
    return posterior.draw_full_prior(key, bin)


def _prior_predictive(posterior: Posterior, bin: Bin, values: Any, key: Any) -> dict[str, Any]:
    return _predictive(posterior, bin, posterior.draw_full_prior(key, bin), jax.random.fold_in(key, 1))


def groups(
    names: tuple[str, ...], problem: Problem, usable: np.ndarray, keys: np.ndarray, values: Values, curves: xr.Dataset
) -> dict[str, xr.Dataset]:
    """The groups of these names; `values` hold arrays (q_bin, chain, draw), `keys` those of the usable bins."""
    return {name: _group(name, problem, usable, keys, values, curves) for name in names}


def _group(
    name: str, problem: Problem, usable: np.ndarray, keys: np.ndarray, values: Values, curves: xr.Dataset
) -> xr.Dataset:
    """One group, in float32 where it holds curves in that range. The draws go through the program a few at a time."""
    count, length = curves.sizes["q_bin"], curves.sizes["tau"]
    prior = name.startswith("prior")
    shape = (1, PRIOR_DRAWS) if prior else next(iter(values.values())).shape[1:]
    draws = shape[0] * shape[1]
    flat = {} if prior else {n: v[usable].reshape(usable.size, -1) for n, v in values.items()}
    bins = take(problem.bins, usable)
    parts = -(-draws // AT_ONCE)
    whole: dict[str, np.ndarray] = {}

    def chosen(index: np.ndarray) -> tuple[Bin, Values, np.ndarray]:
        bin, part = np.divmod(index, parts)
        picks = np.minimum(part[:, None] * AT_ONCE + np.arange(AT_ONCE), draws - 1)
        chosen_values = {n: v[bin[:, None], picks] for n, v in flat.items()}
        return take(bins, bin), chosen_values, _keys.part_keys(keys[bin], name, part)

    devices = devices_for(usable.size * parts, BINS)
    for index, made in stream(_program(problem.posterior, name), usable.size * parts, BINS, devices, chosen):
        for row, (bin, part) in enumerate(zip(*np.divmod(index, parts), strict=True)):
            start = part * AT_ONCE
            for variable, array in made.items():
                if variable not in whole:
                    size = array.shape[2:] and (length,)
                    whole[variable] = np.full((draws, count, *size), np.nan, np.float32 if size else np.float64)
                end = min(start + AT_ONCE, draws)
                piece = array[row, : end - start]
                if whole[variable].dtype == np.float32 and not in_single(piece):
                    whole[variable] = whole[variable].astype(float)
                whole[variable][start:end, usable[bin]] = piece[:, :length] if piece.ndim == 2 else piece
    dims = CURVES if name in ("log_likelihood", "posterior_predictive", "prior_predictive") else CURVES[:3]
    coords = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1]), "q_bin": curves.q_bin, "tau": curves.tau}
    group = xr.Dataset({n: (dims, array.reshape(*shape, *array.shape[1:])) for n, array in whole.items()})
    kept = {n: c for n, c in coords.items() if n in dims}
    return group.assign_coords(kept).assign_attrs(description=GROUPS[name])

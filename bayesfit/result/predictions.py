"""What the draws of a posterior predict for the data: mean curves with bands, and normal scores of the residuals; and
how far out in its prior each parameter lies, and the range of that prior."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int

from bayesfit.compute.batches import FEW, Batches, devices_for, stream
from bayesfit.compute.devices import Spread, named, place, take
from bayesfit.compute.quantiles import quantiles_in_order
from bayesfit.diagnose.interval import ENDS
from bayesfit.diagnose.outcome import Outcome
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.coordinates import constant_ends, place_in_prior
from bayesfit.posterior.density import Posterior

BINS = 16  # on each device side by side
DRAWS = 200  # of each bin, evenly thinned
TAILS_OF = 10  # for one draw in this many, it is computed how far out in its prior it lies
BAND = ("mean", "lower", "upper", "sigma")

Values = dict[str, Float[np.ndarray, "bin draw"]]


class Predictions(NamedTuple):
    """What the draws predict for the data.

    `band` (q_bin, tau): the posterior mean curve, its central 95 % band, and the mean sigma of a point. By index, of
    the bins that have draws: `scores`, the normal scores of the residuals of its valid points; `tails`, the prior's
    probability of a value as far out as the median draw, of each parameter of the curve; `ranges`, the ends of
    its prior where that is log-uniform, NaN where it is not, and for an end that is no constant.
    """

    band: xr.Dataset
    scores: dict[int, Float[np.ndarray, "draw point"]]
    tails: dict[int, dict[str, float]]
    ranges: dict[int, dict[str, Float[np.ndarray, 2]]]


class _Predicted(NamedTuple):
    """The predictions for one bin, with its padded delays: the mean curve at each draw, and the mean sigma."""

    means: Float[Any, "draw tau"]
    sigma: Float[Any, " tau"]
    scores: Float[Any, "draw tau"]
    tails: Mapping[str, Float[Any, ""]]
    ranges: Mapping[str, Float[Any, 2]]


def start_compiling(posterior: Posterior, bins: Bin, names: Iterable[str], chains: int) -> None:
    """Begin to compile in the background, for draws of parameters with these names, from so many chains."""
    devices = devices_for(len(bins.y), FEW)
    index = next(Batches(1, BINS, devices).indices())
    some, values = take(bins, index), np.zeros((index.size, _thinned_count(chains)))
    _program(posterior).start(place(some, devices), place(dict.fromkeys(names, values), devices))


def predictions_of(outcome: Outcome) -> Predictions:
    """The predictions for every bin; NaN in the band, and nothing else, where a bin has no draws."""
    valid = outcome.curves.valid.values
    arrays = np.full((len(BAND), *valid.shape), np.nan)
    scores: dict[int, np.ndarray] = {}
    tails: dict[int, dict[str, float]] = {}
    ranges: dict[int, dict[str, np.ndarray]] = {}
    for bin, found in _predicted(outcome) if outcome.draws.values else ():
        arrays[:, bin] = _band(found.means[:, : valid.shape[1]], found.sigma[: valid.shape[1]])
        scores[bin] = found.scores[:, : valid.shape[1]].compress(valid[bin], axis=1)
        tails[bin] = {name: float(tail) for name, tail in found.tails.items()}
        ranges[bin] = dict(found.ranges)
    band = xr.Dataset({name: (("q_bin", "tau"), array) for name, array in zip(BAND, arrays, strict=True)})
    return Predictions(band, scores, tails, ranges)


def _band(means: Float[np.ndarray, "draw tau"], sigma: Float[np.ndarray, " tau"]) -> Float[np.ndarray, "4 tau"]:
    """What `BAND` names. The quantiles are found here, since a sort takes ten times as long in a compiled program."""
    lower, upper = quantiles_in_order(np.sort(means.T.copy(), axis=-1), ENDS)
    return np.stack([means.mean(axis=0), lower, upper, sigma])


def _predicted(outcome: Outcome) -> Iterator[tuple[int, _Predicted]]:
    """The place of each bin that has draws, and the predictions for it."""
    draws, bins = outcome.draws, outcome.problem.bins
    sampled = np.flatnonzero(draws.done > 0)

    def arguments(index: np.ndarray) -> tuple[Bin, Values]:
        index = sampled[index]
        return take(bins, index), {
            name: _thinned(array[index], draws.done[index]) for name, array in draws.values.items()
        }

    devices = devices_for(sampled.size, FEW)
    program = _program(outcome.problem.posterior)
    for index, part in stream(program, Batches(sampled.size, BINS, devices), arguments):
        for row, bin in enumerate(sampled[index]):
            yield int(bin), jax.tree.map(lambda array, row=row: array[row], part)


def _thinned(
    array: Float[np.ndarray, "bin chain draw"], made: Int[np.ndarray, " bin"]
) -> Float[np.ndarray, "bin thinned"]:
    """About `DRAWS` draws of each bin, evenly over chains and the `made` draws of each."""
    picks = []
    for row, count in zip(array, made, strict=True):
        flat = row[:, :count].ravel()
        picks.append(flat[np.linspace(0, flat.size - 1, _thinned_count(array.shape[1])).astype(int)])
    return np.array(picks)


def _thinned_count(chains: int) -> int:
    """How many draws are taken of a bin."""
    return max(DRAWS, chains)


@lru_cache(maxsize=32)
def _program(posterior: Posterior) -> Spread:
    """The program of the predictions: (bin, parameter name to draws) to `_Predicted`."""

    def at(bin: Bin, values: dict[str, Float[Array, ""]]) -> tuple[Array, Array, Array]:
        mean, scatter = posterior.mean(values, bin), posterior.scatter_at(values, bin)
        return mean, scatter.sigma(bin), scatter.scores(bin.y - mean * bin.inverse_error, bin)

    def one(bin: Bin, values: dict[str, Float[Array, " draw"]]) -> _Predicted:
        means, sigmas, scores = jax.vmap(lambda v: at(bin, v))(values)
        some = {name: draws[::TAILS_OF] for name, draws in values.items()}
        places = jax.vmap(lambda v: posterior.of_priors(place_in_prior, v, bin))(some)
        medians = {name: jnp.median(tails) for name, (tails, _) in places.items()}
        ranges = {name: constant_ends(ends) for name, (_, ends) in places.items()}
        return _Predicted(means, jnp.mean(sigmas, axis=0), scores, medians, ranges)

    return Spread(one, named("fitted", posterior.identity))

"""Noise "photons": what theory says of the errors of each bin at an estimate of its parameters.

Size and correlations of the errors depend on the decay and on the contrast, but little. They are computed at an
estimate, again at a better one, and then kept, so that the sampler evaluates no integrals. Where they differ within the
posterior (`sample/theory_points.py`), they are those of its mean square signal, since they are quadratic in the signal
where speckles matter most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from bayesfit.compute.batches import Batches, stream
from bayesfit.compute.devices import Spread, named, place, take
from bayesfit.data.counting import Counting
from bayesfit.modelling import photon_layout as theory
from bayesfit.modelling.averaged_delays import averages
from bayesfit.modelling.lag_sums import at, extended, lag_grid, places_of
from bayesfit.modelling.photon_covariance import speckle_covariance
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.coordinates import Override
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem

Array = np.ndarray
OfBins = Float[np.ndarray, " q_bin"]
OfDelays = Float[np.ndarray, "bin tau"]
Values = Mapping[str, OfBins]

CONTRAST = 1e-3, 1.0  # bounds of the contrast that theory is given
SMALLEST = 1e-12  # pairs
WIDTH = 16  # bins at a time, at most
UNCHANGED = 0.05  # change of the decay, in units of the contrast, that leaves the errors as they are


class Signals(NamedTuple):
    """contrast |g1|^2 of bins at `lag_grid` (bin, point); it begins at the contrast. `baseline` (bin,)."""

    signal: Float[np.ndarray, "bin point"]
    baseline: OfBins

    @property
    def finite(self) -> Bool[np.ndarray, " bin"]:
        """The bins of which all is known."""
        return np.isfinite(self.signal).all(axis=1) & np.isfinite(self.baseline)

    def errors(self, counting: Counting) -> tuple[Float[np.ndarray, "bin tau"], Float[np.ndarray, "bin tau tau"]]:
        """Mean g2, and R."""
        contrast = np.clip(self.signal[:, 0], *CONTRAST)
        decay = np.clip(self.signal / contrast[:, None], 0.0, 1.0)
        mean, covariance = speckle_covariance(decay.T, contrast, counting)
        return mean, theory.residual_correlation(mean, covariance, counting.pairs)

    def curve(self, counting: Counting) -> Float[np.ndarray, "bin tau"]:
        """g2 at the delays."""
        places = places_of(lag_grid(counting.frames), counting.lags)
        return self.baseline[:, None] + at(extended(self.signal.T), places).T


class Cloud(NamedTuple):
    """Points of the posterior of each bin: every parameter by name, and weights of sum 1, each (bin, point)."""

    values: Mapping[str, Float[np.ndarray, "bin point"]]
    weights: Float[np.ndarray, "bin point"]


def with_theory(problem: Problem, values: Values, cloud: Cloud | None = None) -> Problem:
    """The problem with the errors that theory gives at these values of the curve's parameters, by name.

    The data are standardised by these errors, and the noise model's program finds their correlations in `Bin.layout`.
    A bin whose values are not finite keeps what it has.

    Args:
        problem: with noise "photons".
        values: every parameter of the model, and `contrast`.
        cloud: points of the posterior whose mean square signal theory is given; by default the signal at `values`.
    """
    if (counted := problem.counting) is None:
        return problem
    signals, bins = _signals(problem, values), problem.bins
    at = signals if cloud is None else signals._replace(signal=_root_mean_square(problem, cloud))
    layout, inverse_error, size = bins.layout.copy(), bins.inverse_error.copy(), counted.lags.size
    for own in _batches(signals.finite):
        counting, valid = counted.of_bins(own), bins.valid[own, :size]
        mean, correlation = take(at, own).errors(counting)
        curve = averages(take(signals, own).curve(counting), layout[own, :size, theory.AVERAGING : theory.WEIGHTS])
        pairs = _pairs(take(bins, own), curve, mean)
        layout[own] = theory.with_theory(layout[own], correlation, valid, pairs)
        variance = np.diagonal(correlation, axis1=1, axis2=2) * mean / np.maximum(counting.pairs, SMALLEST)
        inverse_error[own, :size] = np.where(valid, variance**-0.5, 0.0)
    return _standardised(problem, bins._replace(layout=layout), inverse_error)


def layouts_at(problem: Problem, values: Values) -> Float[np.ndarray, "bin tau column"]:
    """The layouts of bins with the size and the correlations of the errors that theory gives at these values, while
    all else is as at an estimate; where values are not finite, as they are."""
    signals, layout, counted = _signals(problem, values), problem.bins.layout.copy(), problem.counting
    assert counted is not None
    for own in _batches(signals.finite):
        _, correlation = take(signals, own).errors(counted.of_bins(own))
        layout[own] = theory.with_errors(layout[own], correlation, problem.bins.valid[own, : counted.lags.size])
    return layout


def _root_mean_square(problem: Problem, cloud: Cloud) -> Float[np.ndarray, "bin point"]:
    """The root of the mean square signal over a cloud."""
    total = 0.0
    for point, weights in enumerate(cloud.weights.T):
        signal = _signals(problem, {name: value[:, point] for name, value in cloud.values.items()}).signal
        total = total + weights[:, None] * np.where(np.isfinite(signal), signal, 0.0) ** 2
    return np.sqrt(total)


def _batches(there: Bool[np.ndarray, " bin"]) -> Iterator[Int[np.ndarray, " width"]]:
    """The bins that are there, some at a time: two at least, since a bin's bits do not depend on how many there are
    beside it, but on whether there are any."""
    places = np.flatnonzero(there)
    for first in range(0, places.size, WIDTH):
        own = places[first : first + WIDTH]
        yield own if own.size > 1 else np.repeat(own, 2)


def _pairs(bins: Bin, *curves: OfDelays) -> theory.Pairs:
    """The pairs of bins, seen, and expected at g2 of an estimate and of theory; 1 where not valid."""
    size = curves[0].shape[1]
    valid, expected = bins.valid[:, :size], bins.layout[:, :size, theory.PAIRS]
    seen = np.where(valid, bins.y[:, :size] / np.where(valid, bins.inverse_error[:, :size], 1.0) * expected, 1.0)
    return theory.Pairs(seen, *(np.where(valid, np.maximum(expected * curve, SMALLEST), 1.0) for curve in curves))


def _standardised(problem: Problem, bins: Bin, inverse_error: Float[Array, "q_bin tau"]) -> Problem:
    """The problem with these bins, their data divided by other errors."""
    ratio = np.where(bins.valid, inverse_error, 1.0) / np.where(bins.valid, bins.inverse_error, 1.0)
    bins.layout[..., theory.AT_BEST] -= np.log(ratio)  # a density per unit of standardised g2
    y = bins.y * ratio
    layout = theory.with_white_data(bins.layout, y, inverse_error)
    bins = bins._replace(y=y, inverse_error=inverse_error, layout=layout)
    return replace(problem, bins=bins._replace(log_constant=problem.posterior.log_constant(bins)))


def moved(problem: Problem, before: Values, after: Values) -> Bool[Array, " q_bin"]:
    """The bins whose decay differs so much between these two choices of values that theory's errors do."""
    return distance(problem, before, after) >= UNCHANGED


def distance(problem: Problem, before: Values, after: Values) -> OfBins:
    """How far the signal is at these values from that at those before, in units of the contrast; 0 where not finite."""
    old, new = (_signals(problem, values).signal for values in (before, after))
    difference, size = (np.max(np.abs(each), axis=1) for each in (new - old, old))
    relative = difference / np.maximum(size, CONTRAST[0])
    return np.where(np.isfinite(new).all(axis=1), np.where(np.isfinite(relative), relative, np.inf), 0.0)


def _signals(problem: Problem, values: Values) -> Signals:
    """What theory must know of the bins at these values."""
    given, *_ = arguments = _arguments(problem, values)
    found = of_bins(_decay(problem.posterior), *arguments)
    decay = np.concatenate([np.ones((len(found), 1)), found], axis=1)
    return Signals(np.clip(given["contrast"], *CONTRAST)[:, None] * decay, given["baseline"])


def _arguments(problem: Problem, values: Values) -> tuple[Values, Float[np.ndarray, "bin tau"]]:
    """What the program of the decay takes: the parameters of the curve, and delays."""
    counting, noise = problem.counting, {parameter.name for parameter in problem.posterior.noise.parameters}
    assert counting is not None
    given = {**problem.bins.fixed, **values}
    grid = lag_grid(counting.frames)[1:] * counting.frame_time
    delays = np.broadcast_to(grid, (len(problem.bins.y), grid.size))
    return {name: np.asarray(given[name], float) for name in given if name not in noise}, delays


def start_compiling(problem: Problem, names: Iterable[str]) -> None:
    """Begin to compile in the background, for values of the curve's parameters with these names."""
    count = len(problem.bins.y)
    arguments = _arguments(problem, {name: np.ones(count) for name in names})
    index = next(Batches(count, WIDTH, 1).indices())
    _decay(problem.posterior).start(*(place(take(argument, index), 1) for argument in arguments))


def values_at(problem: Problem, z: Float[Array, "q_bin param"]) -> dict[str, OfBins]:
    """Every parameter of each bin at its coordinates."""
    return of_bins(_constrained(problem.posterior), problem.bins, z)


def of_bins(program: Spread, *arguments: PyTree) -> PyTree:
    """What a program makes of every bin, so many at a time that no bin's bits depend on the number of bins."""
    count = len(jax.tree.leaves(arguments[-1])[0])
    parts = stream(program, Batches(count, WIDTH, 1), lambda index: tuple(take(each, index) for each in arguments))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays)[:count], *(part for _, part in parts))


@lru_cache(maxsize=32)
def _decay(posterior: Posterior) -> Spread:
    """The program of the decay at parameters by name, and delays."""
    program = posterior.model.program
    return Spread(
        lambda values, delays: Override(program, dict(values), {})(delays), named("decay", posterior.identity)
    )


@lru_cache(maxsize=32)
def _constrained(posterior: Posterior) -> Spread:
    """The program of the parameters at coordinates."""
    return Spread(
        lambda bin, z: posterior.constrain(z, bin, jax.random.key(0)), named("parameters", posterior.identity)
    )

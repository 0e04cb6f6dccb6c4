"""Noise "photons": what theory says of the errors of each bin at an estimate of its parameters.

Size and correlations of the errors depend on the decay and on the contrast, but little. They are computed at an
estimate, again at a better one, and then kept, so that the sampler evaluates no integrals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, PyTree

from bayesfit.compute.devices import Batches, Spread, named, stream, take
from bayesfit.modelling import photon_layout as theory
from bayesfit.modelling.photon_covariance import speckle_covariance
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.coordinates import Override
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem

Array = np.ndarray
OfBins = Float[np.ndarray, " q_bin"]

POINTS = 200  # delays at which the decay is tabulated
SHORTEST = 1e-3  # frames, the shortest of them
CONTRAST = 1e-3, 1.0  # bounds of the contrast that theory is given
SMALLEST = 1e-300  # pairs
WIDTH = 16  # bins at a time
UNCHANGED = 0.05  # change of the decay, in units of the contrast, that leaves the errors as they are


def with_theory(problem: Problem, values: Mapping[str, OfBins]) -> Problem:
    """The problem with the errors that theory gives at these values of the curve's parameters, by name.

    The data are standardised by these errors, and the noise model's program finds their correlations in `Bin.layout`.
    A bin whose values are not finite keeps what it has.

    Args:
        problem: with noise "photons".
        values: every parameter of the model, and `contrast`.
    """
    counting, posterior, bins = problem.counting, problem.posterior, problem.bins
    if counting is None or posterior.model.form != "siegert":
        return problem
    lags, decays = _tables(problem, values)
    layout, inverse_error = bins.layout.copy(), bins.inverse_error.copy()
    for place, decay in enumerate(decays):
        contrast = float(np.clip(values["contrast"][place], *CONTRAST))
        if not (np.isfinite(contrast) and np.isfinite(decay).all()):
            continue
        detection, valid = counting.bin(place), bins.valid[place]
        table = np.clip(decay, 0.0, 1.0)
        mean, covariance = speckle_covariance(partial(_between, lags, table), contrast, detection)
        correlation = theory.residual_correlation(mean, covariance, detection.pairs)
        curve = values["baseline"][place] + values["contrast"][place] * _between(lags, table, detection.lags)
        layout[place] = theory.with_theory(layout[place], correlation, valid, _deviance(bins, place, curve))
        error = np.sqrt(np.diag(correlation) * mean / np.maximum(detection.pairs, SMALLEST))
        inverse_error[place, : mean.size] = np.where(valid[: mean.size], 1.0 / error, 0.0)
    return _standardised(problem, bins._replace(layout=layout), inverse_error)


def _deviance(bins: Bin, place: int, curve: Float[Array, " tau"]) -> Float[Array, " tau"]:
    """Deviance residuals of a bin at a curve; 0 where not valid."""
    size = curve.size
    valid, pairs = bins.valid[place, :size], bins.layout[place, :size, theory.PAIRS]
    g2 = bins.y[place, :size] / np.where(valid, bins.inverse_error[place, :size], 1.0)
    mu = np.maximum(pairs * curve, SMALLEST)
    return np.where(valid, theory.deviance_of(g2 * pairs, mu), 0.0)


def _between(lags: Float[Array, " point"], decay: Float[Array, " point"], lag: Float[Array, "*any"]) -> Any:
    """The tabulated decay at other lags, of either sign."""
    return np.interp(np.abs(lag), lags, decay, right=0.0)


def _standardised(problem: Problem, bins: Bin, inverse_error: Float[Array, "q_bin tau"]) -> Problem:
    """The problem with these bins, their data divided by other errors."""
    ratio = np.where(bins.valid, inverse_error, 1.0) / np.where(bins.valid, bins.inverse_error, 1.0)
    bins.layout[..., theory.AT_BEST] -= np.log(ratio)  # a density per unit of standardised g2
    y = bins.y * ratio
    layout = theory.with_white_data(bins.layout, y, inverse_error)
    bins = bins._replace(y=y, inverse_error=inverse_error, layout=layout)
    return replace(problem, bins=bins._replace(log_constant=problem.posterior.log_constant(bins)))


def moved(problem: Problem, before: Mapping[str, OfBins], after: Mapping[str, OfBins]) -> Bool[Array, " q_bin"]:
    """The bins whose decay differs so much between these two choices of values that theory's errors do."""
    old, new = (_signal(problem, values) for values in (before, after))
    difference, size = (np.max(np.abs(each), axis=1) for each in (new - old, old))
    return np.isfinite(new).all(axis=1) & ~(difference < UNCHANGED * np.maximum(size, CONTRAST[0]))


def _signal(problem: Problem, values: Mapping[str, OfBins]) -> Float[Array, "q_bin point"]:
    """contrast |g1|^2 of each bin at tabulated delays."""
    return np.clip(values["contrast"], *CONTRAST)[:, None] * _tables(problem, values)[1]


def _tables(
    problem: Problem, values: Mapping[str, OfBins]
) -> tuple[Float[Array, " point"], Float[Array, "q_bin point"]]:
    """Lags in frames, of which the first is 0, and the decay |g1|^2 of each bin there, which begins at 1."""
    bins, counting = problem.bins, problem.counting
    assert counting is not None
    lags = np.concatenate([[0.0], np.geomspace(SHORTEST, 4.0 * counting.frames, POINTS)])
    delays = np.broadcast_to(lags[1:] * counting.frame_time, (len(bins.y), POINTS))
    given = {name: np.asarray(value, float) for name, value in {**bins.fixed, **values}.items()}
    found = _of_bins(_decay(problem.posterior), given, delays)
    return lags, np.concatenate([np.ones((len(found), 1)), found], axis=1)


def values_at(problem: Problem, z: Float[Array, "q_bin param"]) -> dict[str, OfBins]:
    """Every parameter of each bin at its coordinates."""
    return _of_bins(_constrained(problem.posterior), problem.bins, z)


def _of_bins(program: Spread, *arguments: PyTree) -> PyTree:
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

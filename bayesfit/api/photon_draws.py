"""Noise "photons": draws of the posterior with theory's errors of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from bayesfit.compute import keys as _keys
from bayesfit.compute.hardware import workers
from bayesfit.compute.journal import leave, resumable
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.compute.workers import in_turn
from bayesfit.diagnose.outcome import Outcome
from bayesfit.modelling.settings import LEAST_ESS
from bayesfit.sample.draws import Arrays
from bayesfit.sample.snapshots import of_draws, put_draws
from bayesfit.sample.starts import Estimate
from bayesfit.sample.theory_clouds import aimed_at
from bayesfit.sample.theory_draws import with_own_errors

OF_DRAWS = 2**16  # in keys, beside the rounds of estimates


class OfBin(NamedTuple):
    """The draws of one bin, how far theory's errors are off in them, and the lowest potential at walkers, or NaN."""

    draws: Arrays
    change: float | Float[np.ndarray, ""]
    lowest: float | Float[np.ndarray, ""]


def with_theory_at_draws(found: Outcome, estimates: Estimate, report: Report, stop: Stop) -> Outcome:
    """The outcome with draws of the posterior in which theory's errors are those of each draw, and with how far off
    they are: without limit, where a stop came before. Without noise "photons", the outcome as it is. Bins are made side
    by side."""
    if found.problem.counting is None:
        return found
    draws, change = found.draws.of_bins(np.arange(found.bins)), np.zeros(found.bins)
    lowest = found.lowest_potential.copy()
    places = np.flatnonzero(draws.done > 0)
    change[places] = np.inf
    count = len(workers())

    def made(first: int) -> Iterator[OfBin]:
        yield from in_turn((partial(_of_bin, found, estimates, place) for place in _until(stop, places[first:])), count)

    def structure() -> Any:
        like = of_draws(found.draws, places[:1])
        return jax.tree.structure(OfBin(like, 0.0, 0.0))

    for number, (place, own) in enumerate(zip(places, resumable(made, structure), strict=False)):
        report(Progress("errors", places.size, number))
        put_draws(draws, {**own.draws, "bins": np.array([place])})
        change[place] = own.change
        lowest[place] = lowest[place] if np.isnan(own.lowest) else own.lowest
    return replace(found, draws=draws, theory_change=change, lowest_potential=lowest)


def _until(stop: Stop, places: Int[np.ndarray, " chosen"]) -> Iterator[int]:
    """These places, until the user asks to stop."""
    for place in places.tolist():
        if stop.asked:
            leave(stop)
            return
        yield place


def _of_bin(found: Outcome, estimates: Estimate, place: int) -> OfBin:
    """The draws of the bin at this place."""
    own, least = np.array([place]), min(found.schedule.reachable, LEAST_ESS)
    rng = np.random.default_rng((*found.keys[place], _keys.WITH_THEORY, OF_DRAWS))
    jumps = aimed_at(jax.tree.map(lambda array: array[place], estimates))
    made = with_own_errors(found.problem.of_bins(own), found.draws.of_bins(own), jumps, rng, least)
    return OfBin(of_draws(made.draws, np.array([0])), made.off, made.lowest)

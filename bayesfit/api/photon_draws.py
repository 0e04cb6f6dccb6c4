"""Noise "photons": draws of the posterior with theory's errors of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from bayesfit.api.photon_fit import Estimated, with_bins
from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import take
from bayesfit.compute.hardware import workers
from bayesfit.compute.journal import leave, resumable
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.compute.workers import in_turn
from bayesfit.diagnose.outcome import Outcome
from bayesfit.modelling.settings import LEAST_ESS
from bayesfit.posterior.bin_data import first_of
from bayesfit.posterior.photon_noise import Cloud, with_theory
from bayesfit.posterior.prepare import Problem
from bayesfit.sample import scheduler, theory_programs
from bayesfit.sample.draws import Arrays, Draws
from bayesfit.sample.snapshots import of_draws, put_draws
from bayesfit.sample.target import BinTargets
from bayesfit.sample.theory_clouds import aimed_at
from bayesfit.sample.theory_draws import with_own_errors
from bayesfit.sample.theory_points import POINTS
from bayesfit.sample.theory_tables import Made, OwnErrors, evenly
from bayesfit.sample.theory_walks import Walk, walked_draws
from bayesfit.sample.walkers import Jumps

OF_DRAWS = 2**16  # in keys, beside the rounds of estimates


class OfBin(NamedTuple):
    """The draws of one bin, how far theory's errors are off in them, and the lowest potential at walkers, or NaN."""

    draws: Arrays
    change: float | Float[np.ndarray, ""]
    lowest: float | Float[np.ndarray, ""]


def start_compiling(estimated: Estimated, chains: int, stop: Stop) -> None:
    """Begin to compile in the background what walkers call, if some bins need them."""
    if estimated.surveys and not stop.asked:
        place = next(iter(estimated.surveys))
        own = estimated.problem.of_bins(np.array([place]))
        theory_programs.start_compiling(own, _jumps(estimated, place), chains)


def _jumps(estimated: Estimated, place: int) -> Jumps:
    """The mixture that is aimed at the posterior of the bin at this place, as estimated."""
    return aimed_at(jax.tree.map(lambda array: array[place], estimated.estimates))


def with_errors_kept(found: Outcome, estimated: Estimated, report: Report, stop: Stop) -> Draws:
    """The sampler's draws of all bins but those in which errors that are kept are far off, which have none."""
    posterior, estimates = found.problem.posterior, estimated.estimates
    if not estimated.far_off.any():
        targets = BinTargets(posterior, found.problem.bins, found.keys, found.labels)
        return scheduler.sample_bins(targets, estimates, found.schedule, report, stop)
    places, draws = np.flatnonzero(~estimated.far_off), _to_be_made(found)
    if places.size:
        labels = tuple(np.array(found.labels)[places].tolist()) if found.labels else ()
        targets = BinTargets(posterior, take(found.problem.bins, places), found.keys[places], labels)
        made = scheduler.sample_bins(targets, take(estimates, places), found.schedule, report, stop)
        put_draws(draws, {**of_draws(made, np.arange(places.size)), "bins": places})
    return draws


def with_theory_at_draws(found: Outcome, estimated: Estimated, report: Report, stop: Stop) -> Outcome:
    """The outcome with draws of the posterior in which theory's errors are those of each draw, and with how far off
    they are: without limit, where a stop came before. Without noise "photons", the outcome as it is. Bins are made side
    by side."""
    if found.problem.counting is None:
        return found
    draws, change = found.draws.of_bins(np.arange(found.bins)), np.zeros(found.bins)
    lowest, walked = found.lowest_potential.copy(), np.zeros(found.bins, bool)
    places = np.flatnonzero((draws.done > 0) | estimated.far_off)
    change[places] = np.inf
    count = len(workers())

    def made(first: int) -> Iterator[OfBin]:
        yield from in_turn((partial(_of_bin, found, estimated, place) for place in _until(stop, places[first:])), count)

    def structure() -> Any:
        like = of_draws(found.draws, places[:1])
        return jax.tree.structure(OfBin(like, 0.0, 0.0))

    for number, (place, own) in enumerate(zip(places, resumable(made, structure), strict=False)):
        report(Progress("errors", places.size, number))
        put_draws(draws, {**own.draws, "bins": np.array([place])})
        change[place] = own.change
        walked[place] = not np.isnan(own.lowest)
        lowest[place] = own.lowest if walked[place] else lowest[place]
    problem = _with_errors_of(draws, found.problem, np.flatnonzero(walked))
    return replace(found, problem=problem, draws=draws, theory_change=change, lowest_potential=lowest)


def _with_errors_of(draws: Draws, problem: Problem, places: Int[np.ndarray, " chosen"]) -> Problem:
    """The problem with the errors of theory that draws have together, in the bins at these places: what checks and
    predictions see."""
    if not places.size:
        return problem
    own, flat = problem.of_bins(places), {name: v[places].reshape(places.size, -1) for name, v in draws.values.items()}
    potential = draws.stats["potential"][places].reshape(places.size, -1)
    best = np.argmin(potential, axis=1)[:, None]
    some = {name: value[:, evenly(value.shape[1], POINTS)] for name, value in flat.items()}
    cloud = Cloud(some, np.full((places.size, POINTS), 1.0 / POINTS))
    centre = {name: np.take_along_axis(value, best, axis=1)[:, 0] for name, value in flat.items()}
    return with_bins(problem, places, with_theory(own, centre, cloud))


def _until(stop: Stop, places: Int[np.ndarray, " chosen"]) -> Iterator[int]:
    """These places, until the user asks to stop."""
    for place in places.tolist():
        if stop.asked:
            leave(stop)
            return
        yield place


def _to_be_made(found: Outcome) -> Draws:
    """The record of draws of all bins, none of which is made."""
    posterior, schedule = found.problem.posterior, found.schedule
    at = np.zeros(len(posterior.names)), first_of(found.problem.bins), jax.random.key(0)
    return Draws.to_be_made(jax.eval_shape(posterior.constrain, *at), (found.bins, schedule.chains, schedule.draws))


def _of_bin(found: Outcome, estimated: Estimated, place: int) -> OfBin:
    """The draws of the bin at this place."""
    own, least = np.array([place]), min(found.schedule.reachable, LEAST_ESS)
    rng = np.random.default_rng((*found.keys[place], _keys.WITH_THEORY, OF_DRAWS))
    problem, draws = found.problem.of_bins(own), found.draws.of_bins(own)
    jumps = _jumps(estimated, place)
    if (survey := estimated.surveys.get(place)) is not None:
        begun = Made(OwnErrors(problem, survey.values).coordinates, survey.layouts)
        made = walked_draws(Walk(problem, jumps, rng, begun), draws.all_made(), least)
    else:
        made = with_own_errors(problem, draws, jumps, rng, least)
    return OfBin(of_draws(made.draws, np.array([0])), made.off, made.lowest)

"""The stages of a fit before sampling; with noise "photons", in units of the errors that theory gives at estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree, UInt32

from bayesfit.compute.devices import take
from bayesfit.compute.work import Report, Stop
from bayesfit.diagnose.outcome import Outcome
from bayesfit.posterior.photon_noise import moved, values_at, with_theory
from bayesfit.posterior.prepare import Problem
from bayesfit.sample import least_squares, starts
from bayesfit.sample.least_squares import PointEstimate
from bayesfit.sample.starts import Estimate
from bayesfit.sample.target import BinTargets
from bayesfit.sample.theory_points import (
    LEAST_ESS,
    Survey,
    errors_differ,
    posterior_points,
    prior_points,
    surveyed,
    suspect,
)

Keys = UInt32[np.ndarray, "bin 2"]
Places = Int[np.ndarray, " chosen"]
ROUNDS = 2  # of points that are weighted with the errors of theory

Values = Mapping[str, Float[np.ndarray, " bin"]]


def point_estimates(problem: Problem, keys: Keys, report: Report, stop: Stop) -> tuple[Problem, PointEstimate]:
    """The least-squares fits; with noise "photons" in units of the errors that theory gives at a first fit, and the
    problem with those that it gives at the second."""
    points = least_squares.point_estimates(problem.posterior, problem.bins, keys, report, stop)
    if problem.counting is None or stop.asked:
        return problem, points
    first = points.solution.values
    problem = with_theory(problem, first)
    points = least_squares.point_estimates(problem.posterior, problem.bins, keys, report, stop)
    return _refreshed(problem, first, points.solution.values)[0], points


class Estimated(NamedTuple):
    """The problem, what the sampler needs of each bin, and by its place the survey of each bin in which errors that are
    kept are far off, so that the sampler's draws with these errors are of no use."""

    problem: Problem
    estimates: Estimate
    surveys: Mapping[int, Survey]

    @property
    def far_off(self) -> Bool[np.ndarray, " bin"]:
        """In which bins errors that are kept are far off."""
        return np.isin(np.arange(len(self.problem.bins.y)), list(self.surveys))


def estimates(outcome: Outcome, points: PointEstimate, report: Report, stop: Stop) -> Estimated:
    """The estimates of each bin. With noise "photons", bins in whose posterior theory's errors differ are given those
    of weighted points, and are estimated again, until they agree."""
    problem, keys, chains = outcome.problem, outcome.keys, outcome.settings.chains

    def estimated(problem: Problem, places: Places) -> Estimate:
        targets = BinTargets(problem.posterior, problem.bins, keys[places])
        return starts.estimate_bins(targets, take(points, places), chains, report, stop)

    places = np.arange(len(keys))
    found, before, seen = estimated(problem, places), points.solution.values, None
    weighted = places[:0]
    for round in range(ROUNDS if problem.counting is not None else 0):
        if stop.asked or not places.size:
            break
        own, some = problem.of_bins(places), take(found, places)
        lost = suspect(own, some) & (round == 0)
        differ = np.flatnonzero(lost | errors_differ(own, take(before, places), some))
        if not differ.size:
            break
        places, own, some = places[differ], own.of_bins(differ), take(some, differ)
        weighted = places if round == 0 else weighted
        seen = prior_points(own, keys[places], lost[differ]) if seen is None else take(seen, differ)
        seen = seen.and_(posterior_points(own, some, keys[places], round))
        cloud = seen.cloud
        centre = values_at(own, some.location)
        own = with_theory(own, centre, cloud)
        again = estimated(own, places)
        held = np.flatnonzero(_known(again) >= _known(some))
        places, own, centre, seen = places[held], own.of_bins(held), take(centre, held), take(seen, held)
        problem, before = with_bins(problem, places, own), jax.tree.map(np.copy, before)
        put(before, places, {name: centre[name] for name in before})
        put(found, places, take(again, held))
    return Estimated(problem, found, {} if stop.asked else _surveys(problem, found, weighted))


def _surveys(problem: Problem, found: Estimate, places: Places) -> dict[int, Survey]:
    """The surveys of those of these bins in which errors that are kept are far off."""
    if not places.size:
        return {}
    all_found = surveyed(problem.of_bins(places), take(found, places))
    surveys = (jax.tree.map(lambda array, each=each: np.copy(array[each]), all_found) for each in range(places.size))
    return {int(place): survey for place, survey in zip(places, surveys, strict=True) if survey.far_off}


def _known(found: Estimate) -> Float[np.ndarray, " bin"]:
    """How well each posterior is known, by its importance sample: its effective sample size, or enough."""
    return np.minimum(np.nan_to_num(found.importance_ess), LEAST_ESS)


def _refreshed(problem: Problem, before: Values, after: Values) -> tuple[Problem, Int[np.ndarray, " moved"]]:
    """The problem with the errors that theory gives at other values, in the bins whose decay differs from that at the
    values before; and these bins."""
    places = np.flatnonzero(moved(problem, before, after))
    if not places.size:
        return problem, places
    own = with_theory(problem.of_bins(places), {name: value[places] for name, value in after.items()})
    return with_bins(problem, places, own), places


def with_bins(problem: Problem, places: Places, own: Problem) -> Problem:
    """The problem with the data of other bins at these places."""
    bins = jax.tree.map(np.copy, problem.bins)
    put(bins, places, own.bins)
    return replace(problem, bins=bins)


def put(whole: PyTree, places: Places, part: PyTree) -> None:
    """Overwrite the items at these places of the leading axis of every array."""
    jax.tree.map(lambda array, new: array.__setitem__(places, new), whole, part)

"""The stages of a fit before sampling; with noise "photons", in units of the errors that theory gives at estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree, UInt32

from bayesfit.compute.devices import take
from bayesfit.compute.work import Report, Stop
from bayesfit.diagnose.outcome import Outcome
from bayesfit.posterior.photon_noise import moved, values_at, with_theory
from bayesfit.posterior.prepare import Problem
from bayesfit.sample import least_squares, starts
from bayesfit.sample.least_squares import PointEstimate
from bayesfit.sample.starts import Estimate
from bayesfit.sample.target import BinTargets

Keys = UInt32[np.ndarray, "bin 2"]
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


def estimates(outcome: Outcome, points: PointEstimate, report: Report, stop: Stop) -> tuple[Problem, Estimate]:
    """What the sampler needs of each bin. With noise "photons", a bin whose decay differs from that of its
    least-squares fit is given the errors of theory there, and is estimated again."""
    problem, keys, chains = outcome.problem, outcome.keys, outcome.settings.chains
    found = starts.estimate_bins(BinTargets(problem.posterior, problem.bins, keys), points, chains, report, stop)
    if problem.counting is None or stop.asked:
        return problem, found
    draws = drawn(found)
    spread = [values_at(problem, each) for each in draws]
    before = points.solution.values
    places = np.flatnonzero(np.any([moved(problem, before, each) for each in spread], axis=0))
    if places.size:
        at = [{name: value[places] for name, value in each.items()} for each in spread]
        centre = {name: value[places] for name, value in before.items()}
        some = with_theory(problem.of_bins(places), centre, at)
        bins = jax.tree.map(np.copy, problem.bins)
        put(bins, places, some.bins)
        problem = replace(problem, bins=bins)
    if places.size:
        targets = BinTargets(problem.posterior, take(problem.bins, places), keys[places])
        put(found, places, starts.estimate_bins(targets, take(points, places), chains, report, stop))
    return problem, found


def _refreshed(problem: Problem, before: Values, after: Values) -> tuple[Problem, Int[np.ndarray, " moved"]]:
    """The problem with the errors that theory gives at other values, in the bins whose decay differs from that at the
    values before; and these bins."""
    places = np.flatnonzero(moved(problem, before, after))
    if not places.size:
        return problem, places
    some = with_theory(problem.of_bins(places), {name: value[places] for name, value in after.items()})
    bins = jax.tree.map(np.copy, problem.bins)
    put(bins, places, some.bins)
    return replace(problem, bins=bins), places


def put(whole: PyTree, places: Int[np.ndarray, " chosen"], part: PyTree) -> None:
    """Overwrite the items at these places of the leading axis of every array."""
    jax.tree.map(lambda array, new: array.__setitem__(places, new), whole, part)


import os
DRAWS = int(os.environ.get("DRAWS", "8"))


def drawn(found):
    """Points of the posterior (draw, bin, param)."""
    kernels = np.moveaxis(found.mixture.kernels, -1, 0)
    kernels = kernels[np.linspace(0, len(kernels) - 1, DRAWS).astype(int)]
    return found.location + np.einsum("bij,kbj->kbi", found.factor, kernels)

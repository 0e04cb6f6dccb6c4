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
    before, chosen = points.solution.values, np.arange(len(keys))
    M = int(os.environ.get("M", "32"))
    for round in range(int(os.environ.get("ROUNDS", "3"))):
        own, mine = problem.of_bins(chosen), take(found, chosen)
        spread = [values_at(own, each) for each in drawn(mine)]
        far = np.flatnonzero(np.any([moved(own, before, each) for each in spread], axis=0))
        if not far.size:
            break
        own, mine, chosen = own.of_bins(far), take(mine, far), chosen[far]
        values, weights = exact(own, mine, keys[chosen], M, round)
        if os.environ.get("LOG"):
            print(round, far.size, np.quantile(1 / np.sum(weights**2, axis=1), [0.05, .25, .5, .75, .95]))
        centre = values_at(own, mine.location)
        some = with_theory(own, centre, values, weights)
        bins = jax.tree.map(np.copy, problem.bins)
        put(bins, chosen, some.bins)
        problem = replace(problem, bins=bins)
        targets = BinTargets(problem.posterior, some.bins, keys[chosen])
        put(found, chosen, starts.estimate_bins(targets, take(points, chosen), chains, report, stop))
        before = centre
    return problem, found
    before, chosen = points.solution.values, np.arange(len(keys))
    for _ in range(int(os.environ.get("ROUNDS", "1"))):
        own = problem.of_bins(chosen)
        spread = [values_at(own, each) for each in drawn(take(found, chosen))]
        far = np.flatnonzero(np.any([moved(own, before, each) for each in spread], axis=0))
        if not far.size:
            break
        at = [{name: value[far] for name, value in each.items()} for each in spread]
        centre = values_at(own.of_bins(far), found.location[chosen[far]])
        some = with_theory(own.of_bins(far), centre, at)
        chosen = chosen[far]
        bins = jax.tree.map(np.copy, problem.bins)
        put(bins, chosen, some.bins)
        problem = replace(problem, bins=bins)
        targets = BinTargets(problem.posterior, some.bins, keys[chosen])
        old = take(found, chosen)
        put(found, chosen, starts.estimate_bins(targets, take(points, chosen), chains, report, stop))
        before = centre
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


from functools import lru_cache
from bayesfit.compute.devices import Spread
from bayesfit.posterior.photon_noise import _of_bins
from bayesfit.modelling.scatter import Observed
from scipy import special
import jax.numpy as jnp


@lru_cache
def _weigh(posterior):
    def one(bin, z, key):
        values = posterior.constrain(z, bin, jax.random.wrap_key_data(key))
        return values, posterior.potential(z, bin), exact_of(posterior, values, bin)
    return Spread(one, None)

def exact_of(posterior, values, bin):
    g2 = bin.y / jnp.where(bin.valid, bin.inverse_error, 1.0)
    return Observed(posterior.mean(values, bin), posterior.scatter_at(values, bin), bin).log_prob(g2)

@lru_cache
def _exactly(posterior):
    return Spread(lambda bin, values: exact_of(posterior, values, bin), None)


def exact(problem, found, keys, M, round):
    n, d = found.location.shape
    u = np.empty((n, M, d)); logq = np.empty((n, M)); H = float(os.environ.get("H", "0.6"))
    newkeys = np.empty((n, M, 2), np.uint32)
    for b in range(n):
        rng = np.random.default_rng((*keys[b], 99, round))
        kernels = found.mixture.kernels[b].T
        u[b] = kernels[rng.integers(len(kernels), size=M)] + H * rng.standard_t(4, (M, 1)) * 0 + H * rng.standard_normal((M, d)) / np.sqrt(rng.chisquare(4, (M, 1)) / 4)
        x = 1 + np.sum((u[b][:, None] - kernels) ** 2, -1) / H**2 / 4
        logq[b] = special.logsumexp(-(4 + d) / 2 * np.log(x), axis=1)
        newkeys[b] = rng.integers(2**32, size=(M, 2), dtype=np.uint32)
    z = found.location[:, None] + np.einsum("bij,bmj->bmi", found.factor, u)
    rep = problem.of_bins(np.repeat(np.arange(n), M))
    values, pot, ll = _of_bins(_weigh(problem.posterior), rep.bins, z.reshape(n * M, d), newkeys.reshape(n * M, 2))
    exacted = with_theory(rep, values)
    ll2 = _of_bins(_exactly(problem.posterior), exacted.bins, values)
    logw = np.nan_to_num((-pot + ll2 - ll).reshape(n, M) - logq, nan=-1e300, posinf=-1e300, neginf=-1e300)
    w = np.exp(logw - logw.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    return {name: v.reshape(n, M) for name, v in values.items()}, w

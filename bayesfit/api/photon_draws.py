"""Noise "photons": draws of the posterior with theory's errors of their own, in bins where these errors differ."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.api.photon_fit import with_bins
from bayesfit.compute.devices import take
from bayesfit.compute.work import Report, Stop
from bayesfit.diagnose.outcome import Outcome
from bayesfit.diagnose.rules import LARGEST_THEORY_CHANGE
from bayesfit.posterior.photon_noise import Cloud, with_theory
from bayesfit.posterior.prepare import Problem
from bayesfit.sample import scheduler, starts, theory_tables
from bayesfit.sample.draws import LARGEST_RHAT, LEAST_ESS, Draws
from bayesfit.sample.snapshots import of_draws, put_draws
from bayesfit.sample.target import BinTargets

Places = Int[np.ndarray, " chosen"]

LONGER = 2, 4  # chains of bins that are sampled again
OF_CLOUD = 24  # draws whose mean square signal theory is given


class Sampled(NamedTuple):
    """Bins that were sampled: their `problem`, the `lowest` potential, the draws, and how much the log likelihood is
    off among these."""

    problem: Problem
    lowest: Float[np.ndarray, " bin"]
    draws: Draws
    change: Float[np.ndarray, " bin"]

    @property
    def quality(self) -> Float[np.ndarray, " bin"]:
        """The smaller effective sample size of bulk and tails; less than 1 where the likelihood is far off."""
        near = self.change <= LARGEST_THEORY_CHANGE
        return np.nan_to_num(self.draws.convergence[:, 1:].min(axis=1)) * np.where(near, 1.0, 1e-6)

    def suffices(self, ess: float) -> Bool[np.ndarray, " bin"]:
        """Whether the draws are what verdicts ask for."""
        return (self.quality >= ess) & (self.draws.convergence[:, 0] <= LARGEST_RHAT)

    def of_bins(self, places: Places) -> Sampled:
        """Some of the bins."""
        own = self.problem.of_bins(places), self.lowest[places], self.draws.of_bins(places), self.change[places]
        return Sampled(*own)


def with_own_errors(found: Outcome, places: Places, report: Report, stop: Stop) -> Outcome:
    """The outcome with draws of the posterior in which theory's errors are those of each draw, in the bins at these
    places. Where few of the draws are chosen, the bin is sampled again, longer, and with errors kept as they are on
    average at those."""
    whole = Sampled(found.problem, found.lowest_potential, found.draws, np.zeros(found.bins))
    made = places[found.draws.done[places] > 0]
    if made.size:
        whole = _put(whole, made, _chosen(whole.of_bins(made), found, made))
    for longer in LONGER:
        made = made[~whole.of_bins(made).suffices(min(found.settings.target_ess, LEAST_ESS))]
        if stop.asked or not made.size:
            break
        before = whole.of_bins(made)
        again = _sampled_again(before, found, made, longer, (report, stop))
        better = np.flatnonzero(again.quality > before.quality)
        whole = _put(whole, made[better], again.of_bins(better))
    problem, lowest, draws, change = whole
    return replace(found, problem=problem, lowest_potential=lowest, draws=draws, theory_change=change)


def _chosen(sampled: Sampled, found: Outcome, places: Places, thin: int = 1) -> Sampled:
    """These bins with the draws that are chosen."""
    draws, change = theory_tables.with_own_errors(sampled.problem, sampled.draws, found.keys[places], thin)
    return sampled._replace(draws=draws, change=change)


def _sampled_again(before: Sampled, found: Outcome, places: Places, longer: int, watch: tuple[Report, Stop]) -> Sampled:
    """These bins sampled again, with errors kept as they are on average at their draws, by chains so many times as long
    of which as many draws are kept."""
    drawn = {name: array.reshape(places.size, -1) for name, array in before.draws.values.items()}
    some = np.linspace(0, next(iter(drawn.values())).shape[1] - 1, OF_CLOUD).astype(int)
    cloud = Cloud(
        {name: each[:, some] for name, each in drawn.items()}, np.full((places.size, OF_CLOUD), 1.0 / OF_CLOUD)
    )
    problem = with_theory(before.problem, {name: np.median(each, axis=1) for name, each in drawn.items()}, cloud)
    labels = tuple(found.labels[place] for place in places)
    targets = BinTargets(problem.posterior, problem.bins, found.keys[places], labels)
    estimates = starts.estimate_bins(targets, take(found.points, places), found.settings.chains, *watch)
    schedule = replace(found.schedule, draws=longer * found.settings.draws)
    draws = scheduler.sample_bins(targets, estimates, schedule, *watch)
    made = Sampled(problem, estimates.mode_potential, draws, before.change)
    return _chosen(made, found, places, longer)


def _put(whole: Sampled, places: Places, own: Sampled) -> Sampled:
    """All bins, those at these places replaced."""
    problem = with_bins(whole.problem, places, own.problem)
    lowest, change = whole.lowest.copy(), whole.change.copy()
    lowest[places], change[places] = own.lowest, own.change
    draws = whole.draws.of_bins(np.arange(lowest.size))
    put_draws(draws, of_draws(own.draws, np.arange(places.size)) | {"bins": places})
    return Sampled(problem, lowest, draws, change)

"""Noise "photons": draws of the posterior with theory's errors of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayesfit.compute import keys as _keys
from bayesfit.compute.journal import leave
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.diagnose.outcome import Outcome
from bayesfit.modelling.settings import LEAST_ESS
from bayesfit.sample.snapshots import of_draws, put_draws
from bayesfit.sample.theory_draws import with_own_errors

OF_DRAWS = 2**16  # in keys, beside the rounds of estimates


def with_theory_at_draws(found: Outcome, report: Report, stop: Stop) -> Outcome:
    """The outcome with draws of the posterior in which theory's errors are those of each draw, and with how far off
    they are: without limit, where a stop came before. Without noise "photons", the outcome as it is.

    Where a journal is kept, all bins are gone through again after a stop; what theory says is in it.
    """
    if found.problem.counting is None:
        return found
    draws, change = found.draws.of_bins(np.arange(found.bins)), np.zeros(found.bins)
    least, places = min(found.schedule.reachable, LEAST_ESS), np.flatnonzero(draws.done > 0)
    change[places] = np.inf
    for number, place in enumerate(places):
        if stop.asked:
            leave(stop)
            break
        report(Progress("errors", places.size, number))
        own = np.array([place])
        rng = np.random.default_rng((*found.keys[place], _keys.WITH_THEORY, OF_DRAWS))
        made, change[place] = with_own_errors(found.problem.of_bins(own), draws.of_bins(own), rng, least)
        put_draws(draws, {**of_draws(made, np.array([0])), "bins": own})
    return replace(found, draws=draws, theory_change=change)

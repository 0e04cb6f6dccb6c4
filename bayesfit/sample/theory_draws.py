"""Noise "photons": the draws that theory's errors ask for, if they are those of each draw and not of an estimate.

Where the likelihood does not differ by that at some of the draws, they are kept. Where it differs little, draws with
errors kept are accepted or rejected by a table of theory's errors. Where it differs much, few of them would be: walkers
then sample the posterior with the table's errors. So they do where chains are far apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bayesfit.modelling.settings import LEAST_ESS
from bayesfit.posterior.prepare import Problem
from bayesfit.sample.draws import Draws
from bayesfit.sample.redrawn import delayed, redrawn
from bayesfit.sample.theory_clouds import Rng
from bayesfit.sample.theory_tables import Made, OwnErrors, Table
from bayesfit.sample.theory_walks import Sampled, Walk, walked_draws
from bayesfit.sample.walkers import Jumps

KEPT, GOOD = 0.2, 0.1  # sd of the difference of logarithms, up to which errors kept will do, and a table
TOO_FAR = 1.5  # the same, above which it is not tried to choose among draws that there are
CHOICES = 2  # among draws: by a table made at the draws, and by one made at those that are chosen
FAR_APART = 1.1  # R-hat of chains, above which their draws are not chosen among


def with_own_errors(problem: Problem, draws: Draws, jumps: Jumps, rng: Rng, least: float = LEAST_ESS) -> Sampled:
    """Draws of the posterior of one bin with theory's errors at each draw, from those with errors kept, or from a
    mixture that is aimed at the posterior with errors kept. Chains that were stopped, and draws whose coordinates are
    not finite or that have no likelihood, stay as they are."""
    shape = next(iter(draws.values.values())).shape[1:]
    if draws.done[0] < shape[1]:
        return Sampled(draws, np.inf)
    points = OwnErrors(problem, {name: array.reshape(-1) for name, array in draws.values.items()})
    if not points.finite:
        return Sampled(draws, np.inf)
    examined = points.examined()
    made = Made.at(examined)
    kept = Sampled(draws, examined.apart(made.layouts))
    if np.isnan(kept.off):
        return Sampled(draws, np.inf)
    if kept.off <= KEPT and kept.mixes(least):
        return kept
    if not (kept.off <= TOO_FAR and draws.convergence[0, 0] <= FAR_APART):
        found = walked_draws(Walk(problem, jumps, rng), draws, least)
        return found if found.mixes(least) or draws.convergence[0, 0] <= FAR_APART else kept
    choice = Choice(points, draws, made.and_(Made.at(points.others())))
    table, kept_at_draws = choice.made.table(), points.log_likelihood()
    for number in range(CHOICES):
        ratio = points.log_likelihood_by(table) - kept_at_draws
        if not np.isfinite(ratio).any():
            return Sampled(draws, np.inf)
        places, _ = delayed(ratio.reshape(shape), rng)
        chosen = choice.at(places)
        if not chosen.mixes(least):
            break
        chosen = chosen._replace(off=points.of_draws(places.reshape(-1)).off(table))
        if chosen.off <= GOOD:
            return chosen
        if number + 1 < CHOICES:
            table = choice.table_at(places)
    return walked_draws(Walk(problem, jumps, rng, choice.made), draws, least)


class Choice(NamedTuple):
    """Draws to choose among: `points` of them, and at some of these theory's errors, as far as they are `made`."""

    points: OwnErrors
    draws: Draws
    made: Made

    def at(self, places: Int[np.ndarray, "chain draw"]) -> Sampled:
        """The draws at these places."""
        posterior = self.points.problem.posterior
        return Sampled(redrawn(self.draws, places[None], (*posterior.names, *posterior.marginal)), np.inf)

    def table_at(self, places: Int[np.ndarray, "chain draw"]) -> Table:
        """A table made at some of the draws at these places."""
        chosen = self.points.of_draws(places.reshape(-1))
        return self.made.table(Made.at(chosen.some()))

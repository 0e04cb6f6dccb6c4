"""Noise "photons": the programs of walkers, compiled in the background before the first of them starts."""

from __future__ import annotations

import jax
import numpy as np

from bayesfit.modelling.model import AMPLITUDES
from bayesfit.posterior.bin_data import first_of
from bayesfit.posterior.prepare import Problem
from bayesfit.sample.modes import profiled
from bayesfit.sample.starts import Estimate
from bayesfit.sample.theory_clouds import Weighted, aimed_at, of_mixture
from bayesfit.sample.theory_tables import EXAMINED, Table, by_table, start_of_posterior, whole
from bayesfit.sample.theory_walks import AT_A_TIME, OF_INTRICATE, POINTS, WALKERS, Aimed, after_steps, gains
from bayesfit.sample.walkers import Walkers


def start_compiling(problem: Problem, estimates: Estimate, chains: int) -> None:
    """Begin to compile what walkers of so many chains call, in the order in which they do; returns at once."""
    posterior, bin, rng = problem.posterior, first_of(problem.bins), np.random.default_rng(0)
    names = (*posterior.names, *posterior.marginal)
    count = OF_INTRICATE if profiled(posterior) else WALKERS
    shape = [name for name in whole(posterior).curve_names if name not in AMPLITUDES]
    coordinates = rng.standard_normal((EXAMINED, len(shape) + 1))
    table = Table.of(coordinates, np.broadcast_to(bin.layout, (EXAMINED, *bin.layout.shape)))
    some = rng.standard_normal((AT_A_TIME, len(names)))
    aimed = Aimed(bin, table, Weighted.equally(some).aimed(), np.array(0.0), np.array(0.0))
    walkers = Walkers(np.zeros((chains, count, len(names))), np.zeros((chains, count)))
    keys, between = np.zeros((POINTS * count, 2, 2), np.uint32), np.array([0, 1])
    start_of_posterior(posterior, of_mixture, keys, bin, aimed_at(jax.tree.map(lambda array: array[0], estimates)))
    start_of_posterior(posterior, gains, some, aimed._replace(jumps=None))
    start_of_posterior(posterior, after_steps, walkers, keys[:chains, 0], between, aimed)
    start_of_posterior(posterior, by_table, dict.fromkeys(names, np.zeros(EXAMINED)), coordinates, table, bin)

"""Noise "photons": the largest programs of walkers, compiled in the background before the first of them starts."""

from __future__ import annotations

import jax
import numpy as np

from bayesfit.modelling.model import AMPLITUDES
from bayesfit.posterior.bin_data import first_of
from bayesfit.posterior.prepare import Problem
from bayesfit.sample.modes import profiled
from bayesfit.sample.theory_clouds import Weighted, of_mixture
from bayesfit.sample.theory_tables import EXAMINED, Table, by_table, start_of_posterior, whole
from bayesfit.sample.theory_walks import AT_A_TIME, OF_INTRICATE, POINTS, WALKERS, Aimed, after_steps, gains
from bayesfit.sample.walkers import Jumps, Walkers


def start_compiling(problem: Problem, jumps: Jumps, chains: int) -> None:
    """Begin to compile what walkers of so many chains call, in the order in which they do, once it is traced.

    Only the shapes of arrays matter. They are filled with random numbers where matrices are factorised.

    Args:
        problem: one bin.
        jumps: aimed at its posterior, as estimated.
    """
    posterior, bin, rng = problem.posterior, first_of(problem.bins), np.random.default_rng(0)
    size, count = len(posterior.names) + len(posterior.marginal), OF_INTRICATE if profiled(posterior) else WALKERS
    shape = [name for name in whole(posterior).curve_names if name not in AMPLITUDES]
    coordinates = rng.standard_normal((EXAMINED, len(shape) + 1))
    table = Table.of(coordinates, np.broadcast_to(bin.layout, (EXAMINED, *bin.layout.shape)))
    some = rng.standard_normal((AT_A_TIME, size))
    aimed = Aimed(bin, table, Weighted.equally(some).aimed(), np.array(0.0), np.array(0.0))
    walkers = Walkers(np.zeros((chains, count, size)), np.zeros((chains, count)))
    keys, between = np.zeros((POINTS * count, 2, 2), np.uint32), np.array([0, 1])
    values = jax.eval_shape(posterior.constrain, np.zeros(len(posterior.names)), bin, jax.random.key(0))
    start_of_posterior(posterior, of_mixture, keys, bin, jumps)
    start_of_posterior(posterior, gains, some, aimed._replace(jumps=None))
    start_of_posterior(posterior, after_steps, walkers, np.zeros((chains, 2), np.uint32), between, aimed)
    start_of_posterior(posterior, by_table, dict.fromkeys(values, np.zeros(EXAMINED)), coordinates, table, bin)

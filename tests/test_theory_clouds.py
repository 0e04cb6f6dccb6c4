"""Noise "photons": the points that walkers start from, and the densities on their way."""

import jax
import numpy as np
import pytest
from calibration import Setting, simulate

from bayesfit.posterior.photon_noise import with_theory
from bayesfit.posterior.prepare import prepare
from bayesfit.sample.theory_clouds import Weighted
from bayesfit.sample.theory_points import effective, power_for
from bayesfit.sample.theory_tables import OwnErrors, whole
from bayesfit.sample.theory_walks import Aimed, Walk, _of_estimate

SETTING, PLACE = Setting("stretched_exponential", "photons"), 5


@pytest.fixture(scope="module")
def walk():
    """Walkers of one bin, with errors kept as they are at the truth, from a mixture about it."""
    simulated = simulate(SETTING, 8, [1])
    data, truth = simulated.data.isel(q_bin=[PLACE]), {n: v[[PLACE]] for n, v in simulated.truth.items()}
    with jax.enable_x64(True):
        problem = with_theory(prepare(data, **SETTING.options), truth)
        bin = jax.tree.map(lambda array: array[0], problem.bins)
        values = {name: value[0] for name, value in truth.items()}
        posterior = problem.posterior
        at = [posterior.unconstrain_curve(values, bin), posterior.unconstrain_noise(values, bin)]
        z = np.concatenate(at) + 0.05 * np.random.default_rng(0).standard_normal((400, len(posterior.names)))
        yield Walk(problem, Weighted.equally(z).aimed(), np.random.default_rng(1))


def test_steps_leave_enough_points():
    log_weights = 3.0 * np.random.default_rng(0).standard_normal(1000)
    log_weights[0] = -np.inf
    cloud, power = Weighted(log_weights[:, None], log_weights), power_for(log_weights, 300.0)
    counted, more = (effective(cloud.to_power(each).weights) for each in (power, power / 0.8))
    assert counted >= 300.0 > more
    assert power_for(log_weights, 300.0, 0.1) == 0.1


def test_each_chain_has_points_of_its_own():
    log_weights = np.where(np.arange(40) % 2, 0.0, -np.inf)
    log_weights[30:] = -np.inf
    cloud = Weighted(np.arange(40.0)[:, None] * [1.0, 2.0], log_weights)
    found = np.rint(cloud.drawn(4, 20, np.random.default_rng(0))[..., 0]).astype(int)
    assert [set(chain) for chain in found[:3]] == [set(range(first + 1, first + 10, 2)) for first in (0, 10, 20)]
    assert set(found[3]) <= set(range(1, 30, 2))  # none of its own has a weight


def test_walkers_start_in_the_posterior_of_the_estimate(walk):
    """The likelihood there, at all coordinates, is that which chains correct for normal noise; it has a floor."""
    posterior, bin, keys = walk.posterior, walk.bin, jax.random.split(jax.random.key(2), 8)
    with jax.enable_x64(True):
        drawn = jax.tree.map(jax.numpy.asarray, walk.jumps).drawn(keys)
        values, correction = jax.vmap(lambda z, key: posterior.corrected(z, bin, key))(drawn, keys)
        expected = jax.vmap(lambda v: posterior.log_likelihood(v, bin))(values) - correction
        z = OwnErrors(walk.problem, jax.tree.map(np.array, values)).z
        prior = jax.vmap(lambda z: whole(posterior).at(z, bin).log_prior)(z)
        for floor in (-np.inf, float(np.median(expected))):
            aimed = jax.tree.map(jax.numpy.asarray, Aimed(bin, walk.table, walk.jumps, 0.5, floor))
            found = jax.vmap(lambda z, aimed=aimed: _of_estimate(posterior, aimed, z))(z) - prior
            np.testing.assert_allclose(found, np.maximum(expected, floor), rtol=1e-9)

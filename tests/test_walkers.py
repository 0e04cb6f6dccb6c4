"""Differential evolution has its target's distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesfit.sample.mixture import KERNELS, Components, mixture
from bayesfit.sample.walkers import Jumps, Walkers, of_all, walked

SD = np.array([1.0, 1e-3, 50.0])
CORRELATION = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, -0.3], [0.0, -0.3, 1.0]])
STEPS, APART, TIMES = 200, 50, 60


def at(density, z):
    return Walkers(jnp.asarray(z), of_all(density)(jnp.asarray(z)))


def sampled(density, start, jumps=None):
    """Walkers at so many times, (time, walker, param)."""
    with jax.enable_x64(True):
        walk = jax.jit(lambda z, key, steps: walked(density, at(density, z), key, (0, steps), jumps).z)
        z = walk(start, np.array([1, 2], np.uint32), STEPS)
        found = []
        for time in range(TIMES):
            z = walk(z, np.array([time, 3], np.uint32), APART)
            found.append(np.asarray(z))
    return np.array(found)


def test_a_normal_distribution_of_unlike_scales():
    precision = np.linalg.inv(CORRELATION * np.outer(SD, SD))
    start = np.random.default_rng(0).normal(5.0, 0.1, (64, 3)) * SD
    found = sampled(lambda z: -0.5 * z @ precision @ z, start).reshape(-1, 3)
    assert np.all(np.abs(found.mean(axis=0)) < 0.1 * SD)
    np.testing.assert_allclose(found.std(axis=0), SD, rtol=0.06)
    np.testing.assert_allclose(np.corrcoef(found.T), CORRELATION, atol=0.06)


def test_two_modes_keep_their_shares():
    """A third of the mass lies 20 standard deviations away, where half of the walkers start."""

    def density(z):
        return jnp.logaddexp(-0.5 * z @ z, jnp.log(0.5) - 0.5 * jnp.sum((z - 20.0) ** 2))

    start = np.random.default_rng(0).standard_normal((64, 2))
    start[::2] += 20.0
    found = sampled(density, start)
    assert np.mean(found[TIMES // 2 :, :, 0] > 10.0) == pytest.approx(1 / 3, abs=0.06)


def test_where_the_density_is_not_a_number_no_walker_goes():
    start = np.abs(np.random.default_rng(0).standard_normal((64, 1)))
    found = sampled(lambda z: jnp.where(z[0] < 0.0, jnp.nan, -0.5 * z[0] ** 2), start)
    assert np.all(found >= 0.0)
    assert found.mean() == pytest.approx(np.sqrt(2.0 / np.pi), abs=0.05)


def test_jumps_lead_to_modes_that_no_walker_has_seen():
    """Jumps lead to both modes as often, and each is wider than what is wanted, of which a fifth is in the second."""

    def density(z):
        near, far = -0.5 * z @ z, -0.5 * jnp.sum((z - 30.0) ** 2)
        return jnp.logaddexp(jnp.log(0.8) + near, jnp.log(0.2) + far)

    rng = np.random.default_rng(0)
    location, factor = np.array([15.0, 15.0]), np.array([[10.0, 0.0], [9.0, 5.0]])
    to_u = np.linalg.inv(factor)
    modes = (np.array([[0.0, 0.0], [30.0, 30.0]]) - location) @ to_u.T
    components = Components(modes, np.stack([2.0 * to_u, 2.0 * to_u]), np.zeros(2))
    jumps = Jumps(location, factor, to_u, mixture(np.zeros((KERNELS, 2)), components, 0.2))
    with jax.enable_x64(True):
        jumps = jax.tree.map(jnp.asarray, jumps)
    found = sampled(density, rng.standard_normal((64, 2)), jumps)[TIMES // 6 :]
    far = found[..., 0] > 15.0
    assert np.mean(far) == pytest.approx(0.2, abs=0.03)
    near = found[~far]
    np.testing.assert_allclose(near.mean(axis=0), 0.0, atol=0.1)
    np.testing.assert_allclose(near.std(axis=0), 1.0, rtol=0.06)


def test_the_density_is_that_where_walkers_are():
    start = np.random.default_rng(0).standard_normal((8, 2))
    with jax.enable_x64(True):

        def density(z):
            return -jnp.sum(z**4)

        found = walked(density, at(density, start), np.array([1, 2], np.uint32), (0, 10))
    np.testing.assert_allclose(found.log_density, -np.sum(np.asarray(found.z) ** 4, axis=1))

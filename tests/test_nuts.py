"""NUTS of many chains side by side: against NumPyro's kernel in distribution, against closed forms, and by its own
rules."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.hmc import hmc
from scipy import stats

from bayesfit.sample.nuts import Point, add_leaf, new_tree, next_position

CHAINS_PER_DEVICE, TRANSITIONS, DEPTH = 256, 60, 6
BURN_IN = 20


def bent(u):
    """A banana in two dimensions, a unit normal in the third."""
    return 0.5 * u[0] ** 2 + 2.0 * (u[1] - 0.5 * u[0] ** 2) ** 2 + 0.5 * u[2] ** 2


def normal(u):
    """Independent normals with sds 1, 0.4 and 2."""
    return 0.5 * jnp.sum((u / jnp.array([1.0, 0.4, 2.0])) ** 2)


def quartic(u):
    """exp(-u^4 / 4) in each of three dimensions."""
    return 0.25 * jnp.sum(u**4)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def point_at(u, potential):
    return Point(u, jnp.zeros_like(u), *jax.value_and_grad(potential)(u))


def full_tree(key, point, step_size, potential, depth=DEPTH):
    tree = new_tree(key, point, depth)
    return jax.lax.while_loop(lambda tree: ~tree.ended, lambda tree: with_leaf(tree, step_size, potential, depth), tree)


def with_leaf(tree, step_size, potential, depth=DEPTH):
    return add_leaf(tree, step_size, *jax.value_and_grad(potential)(next_position(tree, step_size)), depth)


@partial(jax.jit, static_argnums=(0, 1))
def ours(potential, step_size):
    """Positions (chain, transition, 3), leapfrogs and mean acceptance rates (chain, transition)."""

    def chain(key):
        def transition(point, key):
            tree = full_tree(key, point, step_size, potential)
            return tree.pick, (tree.pick.u, tree.steps, tree.acceptance / tree.steps)

        first = point_at(jax.random.normal(key, (3,)), potential)
        return jax.lax.scan(transition, first, jax.random.split(key, TRANSITIONS))[1]

    return jax.vmap(chain)(jax.random.split(jax.random.key(1), CHAINS_PER_DEVICE))


@partial(jax.jit, static_argnums=(0, 1))
def numpyros(potential, step_size):
    """The same by NumPyro's kernel."""
    init, step = hmc(potential, algo="NUTS")

    def chain(key):
        state = init(
            jax.random.normal(key, (3,)),
            0,
            step_size=step_size,
            adapt_step_size=False,
            adapt_mass_matrix=False,
            max_tree_depth=DEPTH,
            rng_key=key,
        )

        def transition(state, _):
            state = step(state)
            return state, (state.z, state.num_steps, state.accept_prob)

        return jax.lax.scan(transition, state, None, length=TRANSITIONS)[1]

    return jax.vmap(chain)(jax.random.split(jax.random.key(2), CHAINS_PER_DEVICE))


def settled(run):
    """After the burn-in; one chain's transitions are averaged where independence is needed."""
    return [np.array(array)[:, BURN_IN:] for array in run]


@pytest.mark.parametrize("step_size", [0.25, 0.8])
@pytest.mark.parametrize("potential", [bent, normal, quartic])
def test_distribution_of_everything_is_that_of_numpyros_kernel(potential, step_size):
    """Means over each chain of functions of the position, of leapfrogs and of acceptance rates: two samples of 256
    independent numbers each, by Welch's t; and the leapfrogs' histogram."""
    mine, theirs = settled(ours(potential, step_size)), settled(numpyros(potential, step_size))

    def features(run):
        u, steps, acceptance = run
        per_chain = [u, u**2, np.abs(u), u[..., :1] ** 2 * u[..., 1:2], steps[..., None], (steps**2)[..., None]]
        per_chain += [acceptance[..., None], np.diff(u, axis=1) ** 2]
        per_chain += [(steps[..., None] == count).astype(float) for count in (1, 2, 3, 4, 5, 6, 7, 11, 15)]
        return np.concatenate([array.mean(axis=1) for array in per_chain], axis=-1)

    a, b = features(mine), features(theirs)
    varies = a.std(axis=0) + b.std(axis=0) > 0
    np.testing.assert_allclose(a[:, ~varies], b[:, ~varies])
    p = stats.ttest_ind(a[:, varies], b[:, varies], equal_var=False).pvalue
    assert np.min(p) > 0.01 / varies.sum()


@pytest.mark.parametrize("step_size", [0.25, 0.8])
def test_normals_have_their_moments(step_size):
    u, _, _ = settled(ours(normal, step_size))
    for axis, sd in enumerate([1.0, 0.4, 2.0]):
        for power, expected in ((1, 0.0), (2, sd**2), (4, 3 * sd**4)):
            means = (u[..., axis] ** power).mean(axis=1)
            assert abs(means.mean() - expected) < 4 * means.std() / np.sqrt(CHAINS_PER_DEVICE)


def test_quartic_has_the_moments_of_its_closed_form():
    """E u^2 = 2 Gamma(3/4) / Gamma(1/4) for the density exp(-u^4 / 4)."""
    from scipy.special import gamma

    u, _, _ = settled(ours(quartic, 0.8))
    means = (u**2).mean(axis=(1, 2))
    assert abs(means.mean() - 2 * gamma(0.75) / gamma(0.25)) < 4 * means.std() / np.sqrt(CHAINS_PER_DEVICE)


def test_a_tree_never_has_more_leaves_than_its_depth_allows():
    flat = lambda u: 1e-8 * jnp.sum(u**2)  # noqa: E731
    point = point_at(jnp.ones(3), flat)
    for depth in (1, 3, 5):
        tree = full_tree(jax.random.key(3), point, 0.1, flat, depth)
        assert int(tree.steps) == 2**depth - 1
        assert not tree.diverging


def test_an_ended_tree_stays_as_it_is():
    tree = full_tree(jax.random.key(4), point_at(jnp.ones(3), bent), 0.3, bent)
    more = with_leaf(tree, 0.3, bent)
    for before, after in zip(jax.tree.leaves(tree), jax.tree.leaves(more), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("wall", [jnp.inf, jnp.nan, 1e6])
def test_a_wall_ends_the_tree_as_a_divergence_and_is_never_entered(wall):
    potential = lambda u: jnp.where(u[0] > 0.0, wall, 0.5 * jnp.sum((u + 2.0) ** 2))  # noqa: E731
    point = point_at(jnp.array([-2.0, -2.0, -2.0]), potential)
    keys = jax.random.split(jax.random.key(5), 200)
    trees = jax.vmap(lambda key: full_tree(key, point, 0.5, potential))(keys)
    assert 0 < np.sum(trees.diverging) < 200
    assert np.all(trees.pick.u[:, 0] <= 0.0)
    assert np.all(np.isfinite(trees.pick.potential))

"""Importance sampling before the chains: weights against what is known, and shares of a posterior at its far ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import bayesfit
from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import gather, place, take
from bayesfit.compute.keys import bin_keys
from bayesfit.compute.work import Stop
from bayesfit.posterior.prepare import prepare
from bayesfit.sample.escalation import SHORTEST_TREE_DEPTH
from bayesfit.sample.importance_sampling import (
    CLOUD,
    FirstStage,
    Mixed,
    count_and_size,
    first_stages,
)
from bayesfit.sample.importance_weights import (
    MORE_POINTS,
    Batch,
    WeightedPoints,
    _joined,
    adapted,
    fitted_components,
    weighted,
)
from bayesfit.sample.least_squares import point_estimates
from bayesfit.sample.mixture import FREEDOM, Components, draw_points, log_densities
from bayesfit.sample.modes import Modes, _of_points

PRIORS = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}
TAU = np.geomspace(1e-3, 10.0, 40)


def one_decay():
    """Curves of one decay, well measured."""
    noise = 0.005 * np.random.default_rng(4).standard_normal((16, TAU.size))
    g2 = 1.0 + 0.3 * np.exp(-2 * 90.0 * TAU) + noise
    return bayesfit.curves(TAU, g2, np.full_like(g2, 0.005), **PRIORS)


@pytest.fixture(scope="module")
def fitted_with_two():
    """One decay fitted with two: posterior, bins, first stages and weighted points."""
    data = one_decay()
    with jax.enable_x64(True):
        problem = prepare(data, "double_exponential", "stated")
        posterior, bins, keys = problem.posterior, problem.bins, bin_keys(0, problem.identity)
        points = point_estimates(posterior, bins, keys, lambda _: None, Stop())
        _, *shape = count_and_size(posterior, points)
        u = np.stack([np.random.default_rng((*key, _keys.NEAR_MODES)).standard_t(FREEDOM, shape) for key in keys])
        index = np.arange(len(keys))
        arguments = take(bins, index), points.starts, points.prior_draws, u
        parts = gather(first_stages(posterior)(*(place(argument, 1) for argument in arguments)))
        first = [jax.tree.map(lambda array, row=row: array[row], parts) for row in index]
        batch = Batch(bins, parts.modes, points.prior_draws, 1)
        randoms = [np.random.default_rng(row) for row in index]
        return posterior, bins, first, adapted(posterior, batch, first, randoms)


def shares_of_fast(posterior, bins, count):
    """The share of each bin's posterior with a fast rate above 1000 and above 7000 per second, by likelihood weights of
    so many prior draws, and how many of these count."""

    def drawn_and_weighed(key, bin):
        z, _ = posterior.draw_prior(key, bin)
        _, values, log_prior = posterior.curve(z, bin)
        return posterior.log_density(z, bin) - log_prior, values["rate_fast"]

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), count)
        both = jax.jit(lambda bin: jax.lax.map(lambda key: drawn_and_weighed(key, bin), keys, batch_size=1000))
        shares = []
        for i in range(len(bins.y)):
            log, fast = map(np.array, both(jax.tree.map(lambda array, i=i: jnp.asarray(array[i]), bins)))
            weight = special.softmax(log)
            shares.append([weight[fast > 1000.0].sum(), weight[fast > 7000.0].sum(), 1.0 / np.sum(weight**2)])
    return np.array(shares)


@pytest.fixture(scope="module")
def exact(fitted_with_two):
    """`shares_of_fast` of every bin, of enough prior draws to be exact to a few percent in their mean."""
    posterior, bins, _, _ = fitted_with_two
    shares = shares_of_fast(posterior, bins, 800_000)
    assert shares[:, 2].min() > 500
    return shares


def test_shares_at_the_far_end_of_a_coordinate(fitted_with_two, exact):
    """A second decay too fast to be seen takes the upper end of its prior, an arm that is narrow in other ways."""
    posterior, bins, _, samples = fitted_with_two
    rates = jax.jit(jax.vmap(lambda z, bin: posterior.curve(z, bin)[1]["rate_fast"], (0, None)))
    got = []
    for i, sample in enumerate(samples):
        with jax.enable_x64(True):
            fast = np.array(rates(jnp.asarray(sample.points), jax.tree.map(lambda a, i=i: jnp.asarray(a[i]), bins)))
        got.append([sample.weights[fast > 1000.0].sum(), sample.weights[fast > 7000.0].sum()])
    assert exact[:, 1].mean() > 0.01
    np.testing.assert_allclose(np.mean(got, axis=0), exact[:, :2].mean(axis=0), rtol=0.1)
    assert min(sample.ess for sample in samples) > 1000


def test_a_posterior_of_which_all_is_known_keeps_its_draws(exact):
    """No bin begins again, and the share of the draws in the far arm is that of the weights of prior draws."""
    result = bayesfit.fit(one_decay(), model="double_exponential", noise="stated", seed=2)
    assert set(result["diagnostics"].escalation.values) <= {"none", "longer"}
    assert int(result["sample_stats"].tree_depth.max()) <= SHORTEST_TREE_DEPTH
    assert "ok" not in result["diagnostics"].verdict.values  # one decay has no second rate to be known
    fast = result["posterior"].rate_fast
    got = [float((fast > bound).mean()) for bound in (1000.0, 7000.0)]
    np.testing.assert_allclose(got, exact[:, :2].mean(axis=0), rtol=0.15)


def test_all_points_are_weighed_over_all_that_they_were_drawn_from(fitted_with_two):
    """Weights after two rounds are those of one mixture, put together here from SciPy's densities."""
    _, _, first, _ = fitted_with_two
    found = first[3]
    rng = np.random.default_rng(0)
    sample, mixtures = weighted(found), []
    prior_draws, all_priors, rows = len(found.points) - CLOUD * len(found.modes.z), [], []

    def by_first(points):
        """The first stage's density where the prior has any other."""
        all_priors.append(rng.normal(-10.0, 1.0, len(points)))
        with jax.enable_x64(True):
            mixed = Mixed.of(jax.tree.map(jnp.asarray, found.modes), prior_draws)
            return np.array(jax.vmap(mixed.log_density)(jnp.asarray(points), jnp.asarray(all_priors[-1])))

    sample = sample.of(sample.points, sample.potentials, by_first(sample.points))
    for _ in range(2):
        mixtures.append(fitted_components(found.modes, sample, 3))
        points = draw_points(rng, mixtures[-1], MORE_POINTS)
        potentials = rng.normal(found.modes.potential.min(), 1.0, MORE_POINTS)
        sample = _joined(sample, mixtures, (points, potentials, by_first(points)))
    rows.append(np.log(prior_draws) + np.concatenate(all_priors))
    for mode, factor in zip(found.modes.z, found.modes.factor, strict=True):
        u = np.linalg.solve(factor, (sample.points - mode).T)
        rows.append(np.log(CLOUD) + stats.t(4).logpdf(u).sum(axis=0) - np.linalg.slogdet(factor)[1])
    for each in mixtures:
        shares = special.softmax(each.log_masses)
        for location, factor, share in zip(each.locations, each.factors, shares, strict=True):
            density = stats.multivariate_t(location, factor @ factor.T, 4).logpdf(sample.points)
            rows.append(np.log(MORE_POINTS * share) + density)
    expected = special.softmax(-sample.potentials - special.logsumexp(rows, axis=0))
    np.testing.assert_allclose(sample.weights, expected, rtol=1e-6, atol=1e-15)


def test_components_are_drawn_from_with_the_density_they_state():
    """The mean of a normal's density over the mixture's is 1, and each component has its share."""
    locations = np.array([[0.0, 0.0], [6.0, 1.0]])
    factors = np.array([[[1.0, 0.0], [0.5, 0.3]], [[0.2, 0.0], [0.0, 2.0]]])
    components = Components(locations, factors, np.log([3.0, 1.0]) + 50.0)
    u = draw_points(np.random.default_rng(0), components, 40_000)
    assert np.mean(u[:, 0] > 4.0) == pytest.approx(0.25, abs=0.02)
    for location, factor in zip(locations, factors, strict=True):
        ratio = np.exp(stats.multivariate_normal(location, factor @ factor.T).logpdf(u) - log_densities(u, components))
        assert abs(ratio.mean() - 1.0) < 4.5 * ratio.std() / np.sqrt(len(u))


def test_information_of_one_scale_is_that_of_as_many_as_there_are_points(fitted_with_two):
    """Of a noise of one scale no slopes are summed over delays; those that are not valid do not count."""
    bins = fitted_with_two[1]
    bin = jax.tree.map(lambda array: jnp.asarray(array[0]), bins)._replace(valid=jnp.arange(bins.y.shape[1]) < 7)
    slopes = jnp.array([0.5, -2.0])
    every = jnp.broadcast_to(slopes, (bin.valid.size, 2))
    np.testing.assert_allclose(_of_points(slopes, bin), [[3.5, -14.0], [-14.0, 56.0]], rtol=1e-6)
    np.testing.assert_allclose(_of_points(every, bin), _of_points(slopes, bin), rtol=1e-6)


@pytest.mark.parametrize("potential", [1e9, np.nan, np.inf])
def test_importance_sampling_of_next_to_nothing_still_ends(potential):
    """One point with all the weight, or none with any: proposals are numbers."""
    points = np.random.default_rng(0).standard_normal((500, 3))
    values = np.full(500, potential)
    if potential == 1e9:
        values[3] = 0.0
    factors = np.repeat(np.eye(3)[None], 5, axis=0)
    found = FirstStage(Modes(points[:5], factors, np.zeros(5)), points, values, np.zeros(500))
    with np.errstate(all="ignore"):
        sample = WeightedPoints.of(points, values, np.zeros(500))
        components = fitted_components(found.modes, sample, 3)
        u = draw_points(np.random.default_rng(0), components, 10)
        assert not sample.enough_for_mixture
        assert np.isfinite(u).all()
        assert np.isfinite(log_densities(u, components)).all()

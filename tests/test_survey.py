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
from bayesfit.sample.chains import SHORTEST_TREE_DEPTH
from bayesfit.sample.importance_sampling import (
    CLOUD,
    FREEDOM,
    MORE,
    Sample,
    Survey,
    _joined,
    _weights,
    count_and_size,
    ellipses_of,
    enlarged,
    surveying,
    weighed,
)
from bayesfit.sample.independence import Ellipses, drawn, log_densities
from bayesfit.sample.least_squares import point_estimates

PRIORS = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}
TAU = np.geomspace(1e-3, 10.0, 40)


def one_decay():
    """Curves of one decay, well measured."""
    noise = 0.005 * np.random.default_rng(4).standard_normal((16, TAU.size))
    g2 = 1.0 + 0.3 * np.exp(-2 * 90.0 * TAU) + noise
    return bayesfit.curves(TAU, g2, np.full_like(g2, 0.005), **PRIORS)


@pytest.fixture(scope="module")
def fitted_with_two():
    """One decay fitted with two: posterior, bins, surveys and samples."""
    data = one_decay()
    with jax.enable_x64(True):
        problem = prepare(data, "double_exponential", "stated")
        posterior, bins, keys = problem.posterior, problem.bins, bin_keys(0, problem.identity)
        points = point_estimates(posterior, bins, keys, lambda _: None, Stop())
        _, *shape = count_and_size(posterior, points)
        u = np.stack([np.random.default_rng((*key, _keys.NEAR_MODES)).standard_t(FREEDOM, shape) for key in keys])
        index = np.arange(len(keys))
        parts = surveying(posterior)(*(place(a, 1) for a in (take(bins, index), points.starts, points.scouts, u)))
        surveys = [jax.tree.map(lambda array, row=row: array[row], gather(parts)) for row in index]
        randoms = [np.random.default_rng(row) for row in index]
        return posterior, bins, surveys, enlarged(posterior, bins, points.scouts, surveys, randoms, 1)


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
    fast = result["posterior"].rate_fast
    got = [float((fast > bound).mean()) for bound in (1000.0, 7000.0)]
    np.testing.assert_allclose(got, exact[:, :2].mean(axis=0), rtol=0.15)


def test_all_points_are_weighed_over_all_that_they_were_drawn_from(fitted_with_two):
    """Weights after two rounds are those of one mixture, put together here from SciPy's densities."""
    _, _, surveys, _ = fitted_with_two
    found = surveys[3]
    rng = np.random.default_rng(0)
    sample, mixtures = weighed(found), []
    prior_densities, rows = [found.prior_densities], []
    for _ in range(2):
        mixtures.append(ellipses_of(found, sample, 3))
        points = drawn(rng, mixtures[-1], MORE)
        prior_densities.append(rng.normal(-10.0, 1.0, MORE))
        sample = _joined(
            sample, found, mixtures, (points, rng.normal(found.potentials.min(), 1.0, MORE), prior_densities[-1])
        )
    scouts = len(found.points) - CLOUD * len(found.modes)
    rows.append(np.log(scouts) + np.concatenate(prior_densities))
    for mode, frame in zip(found.modes, found.frames, strict=True):
        u = np.linalg.solve(frame, (sample.points - mode).T)
        rows.append(np.log(CLOUD) + stats.t(4).logpdf(u).sum(axis=0) - np.linalg.slogdet(frame)[1])
    for each in mixtures:
        shares = special.softmax(each.log_masses)
        for middle, frame, share in zip(each.middles, each.frames, shares, strict=True):
            density = stats.multivariate_t(middle, frame @ frame.T, 4).logpdf(sample.points)
            rows.append(np.log(MORE * share) + density)
    expected = special.softmax(-sample.heights - special.logsumexp(rows, axis=0))
    np.testing.assert_allclose(sample.weights, expected, rtol=1e-6, atol=1e-15)


def test_ellipses_are_drawn_from_with_the_density_they_state():
    """The mean of a normal's density over the mixture's is 1, and each component has its share."""
    middles, frames = np.array([[0.0, 0.0], [6.0, 1.0]]), np.array([[[1.0, 0.0], [0.5, 0.3]], [[0.2, 0.0], [0.0, 2.0]]])
    ellipses = Ellipses(middles, frames, np.log([3.0, 1.0]) + 50.0)
    u = drawn(np.random.default_rng(0), ellipses, 40_000)
    assert np.mean(u[:, 0] > 4.0) == pytest.approx(0.25, abs=0.02)
    for middle, frame in zip(middles, frames, strict=True):
        ratio = np.exp(stats.multivariate_normal(middle, frame @ frame.T).logpdf(u) - log_densities(u, ellipses))
        assert abs(ratio.mean() - 1.0) < 4.5 * ratio.std() / np.sqrt(len(u))


@pytest.mark.parametrize("heights", [1e9, np.nan, np.inf])
def test_a_survey_of_next_to_nothing_still_ends(heights):
    """One point with all the weight, or none with any: proposals are numbers."""
    points = np.random.default_rng(0).standard_normal((500, 3))
    values = np.full(500, heights)
    if heights == 1e9:
        values[3] = 0.0
    frames = np.repeat(np.eye(3)[None], 5, axis=0)
    found = Survey(points[:5], frames, np.zeros(5), points, values, np.zeros(500))
    with np.errstate(all="ignore"):
        sample = Sample(points, values, np.zeros(500), _weights(values, np.zeros(500)))
        ellipses = ellipses_of(found, sample, 3)
        u = drawn(np.random.default_rng(0), ellipses, 10)
        assert not sample.tells_the_whole
        assert np.isfinite(u).all()
        assert np.isfinite(log_densities(u, ellipses)).all()

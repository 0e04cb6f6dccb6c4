"""What data say of their own counting, the likelihood of counted pairs, and their covariance from theory."""

import itertools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from test_photons import photons as simulator

import bayesfit
from bayesfit.data import counting
from bayesfit.data.counting import Counting
from bayesfit.modelling import neighbour_whitening, photon_layout
from bayesfit.modelling import photons as noise
from bayesfit.modelling.averaged_delays import neighbour_factors
from bayesfit.modelling.lag_sums import LagSums, at, extended, lag_grid, places_of
from bayesfit.modelling.photon_covariance import speckle_covariance
from bayesfit.modelling.scatter import Observed
from bayesfit.posterior.coordinates import Override
from bayesfit.posterior.photon_noise import with_theory
from bayesfit.posterior.prepare import prepare

LAGS, SUMMED = simulator.multitau_delays(512, 8)
NUMBERS = {"counts": 0.1, "pixels": 64, "frames": 4096}


def curves(g2=None, **changes):
    """Two bins of a multi-tau correlator."""
    g2 = np.ones((2, LAGS.size)) if g2 is None else g2
    return bayesfit.curves(LAGS * 1e-3, g2, np.full(np.shape(g2), 0.1), **{**NUMBERS, **changes})


def one_bin(counts, pixels, frames, lags, summed):
    """What was counted in one bin, in frames of 1 s."""
    numbers = np.array([counts]), np.array([float(pixels)]), np.ones(1), float(frames), 1.0
    return counting.Counting(*numbers, np.asarray(lags, float), np.asarray(summed, float))


# ---- the numbers


def test_expected_pairs():
    """By hand, and their mean number in counted photons without correlations."""
    (expected,) = replace(one_bin(0.1, 64, 4096, LAGS, SUMMED), repeats=3.0).pairs
    np.testing.assert_allclose(expected[[0, 16]], [3 * 64 * 4095 * 0.01, 3 * 64 * 2 * (4096 - 18) * 0.01])
    seen = np.random.default_rng(1).poisson(0.1, (64, 4096))
    products, _, _ = simulator.multitau(seen, LAGS, SUMMED)
    pairs = products.sum(axis=1) * SUMMED**2 * (4096 // SUMMED - LAGS // SUMMED)
    np.testing.assert_allclose(pairs, expected / 3, atol=6 * np.sqrt(expected.max()))


def test_bins_in_which_no_pair_was_seen_are_data_where_counts_are_stated():
    """They are read, and fitted to no more than what no pair says; without counts nothing in them is data."""
    zeros, tau = np.zeros((2, LAGS.size)), LAGS * 1e-3
    starved = bayesfit.curves(tau, zeros, zeros, **NUMBERS | {"counts": 1e-5})
    assert counting.as_counted(starved).valid.all()
    result = bayesfit.fit(starved)
    assert json.loads(result.attrs["settings"])["noise"] == "photons"
    assert (result["diagnostics"].verdict == "not_identified").all()
    assert (bayesfit.fit(starved, noise="scaled")["diagnostics"].verdict == "unusable_data").all()
    with pytest.raises(bayesfit.InputError, match="no error is above zero"):
        bayesfit.curves(tau, zeros, zeros)


def test_points_left_out_on_request_stay_out_though_no_pair_was_seen():
    zeros, tau = np.zeros((2, LAGS.size)), LAGS * 1e-3
    kept = np.arange(LAGS.size) >= 3
    for data in (
        bayesfit.curves(tau, zeros, zeros, skip_first=3, **NUMBERS),
        bayesfit.curves(tau, zeros, zeros, tau_min=tau[3], **NUMBERS),
    ):
        np.testing.assert_array_equal(counting.as_counted(data).valid, [kept, kept])
    with pytest.raises(bayesfit.InputError, match="tau_max: leaves no point"):
        bayesfit.curves(tau, zeros, zeros, tau_max=tau[0] / 2, **NUMBERS)


@pytest.mark.parametrize("dpl", [4, 8, 16])
@pytest.mark.parametrize("first", [0, 20])
def test_frames_summed_follow_from_the_delays(dpl, first):
    lags, summed = simulator.multitau_delays(2000, dpl)
    tau = lags[first:] * 0.25
    data = bayesfit.curves(tau, np.ones(tau.size), **NUMBERS, attrs={"frame_time": 0.25})
    np.testing.assert_array_equal(Counting.of(data).summed, summed[first:])
    np.testing.assert_array_equal(Counting.of(data).lags, lags[first:])


def test_numbers_given_are_kept():
    data = curves(counts=[0.1, 0.2], frames_summed=SUMMED, repeats=5, attrs={"frame_time": 1e-3})
    found = Counting.of(data)
    assert (found.frames, found.repeats.tolist(), found.frame_time) == (4096, [5.0, 5.0], 1e-3)
    np.testing.assert_array_equal(found.counts, [0.1, 0.2])
    np.testing.assert_array_equal(found.pixels, [64, 64])
    np.testing.assert_array_equal(found.summed, SUMMED)
    np.testing.assert_allclose(found.pairs[1], 4 * found.pairs[0])
    assert "pairs can be counted" in bayesfit.describe(data)[1]


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, [0.1, 0.0]])
@pytest.mark.parametrize("name", ["counts", "pixels"])
def test_impossible_numbers_are_refused(name, value):
    with pytest.raises(bayesfit.InputError, match=rf"{name}: bin .*Expected a number above 0") as error:
        curves(**{name: value})
    assert ("bin 1" if np.size(value) > 1 else "bin 0") in str(error.value)


@pytest.mark.parametrize(("name", "value"), [("frames", 0), ("repeats", -1), ("frames_summed", np.nan)])
def test_impossible_numbers_of_all_bins_are_refused(name, value):
    with pytest.raises(bayesfit.InputError, match="Expected a number above 0"):
        curves(**{name: value})


def test_wrong_shapes_are_refused():
    with pytest.raises(bayesfit.InputError, match="counts: expected one number, or 2"):
        curves(counts=[1.0, 2.0, 3.0])


@pytest.mark.parametrize("name", NUMBERS)
def test_counting_needs_all_numbers(name):
    with pytest.raises(bayesfit.InputError, match=f"photon pairs cannot be counted: the data state no {name}"):
        counting.as_counted(curves(**{name: None}))


def rare(counts=0.003):
    """Poisson pairs of two bins of 10 pixels; so few are expected that some delays saw none."""
    rng = np.random.default_rng(3)
    (pairs,) = one_bin(counts, 10, 4096, LAGS, SUMMED).pairs
    g2 = rng.poisson(1.1 * pairs, (2, LAGS.size)) / pairs
    return bayesfit.curves(LAGS * 1e-3, g2, np.where(g2 > 0, 0.1, 0.0), counts=counts, pixels=10, frames=4096)


def test_zeros_are_data():
    data = rare()
    zeros = data.g2.values == 0
    assert zeros.any()
    assert not data.valid.values[zeros].any()
    found = counting.as_counted(data)
    assert found.valid.values.all()
    np.testing.assert_allclose(found.g2_err, Counting.of(data).pairs ** -0.5)


def test_points_that_are_left_out_stay_so():
    data = counting.as_counted(
        curves(np.where(np.arange(2 * LAGS.size).reshape(2, -1) == 5, np.nan, 1.0), skip_first=2)
    )
    assert not data.valid.values[:, :2].any()
    assert not data.valid.values[0, 5]
    assert data.valid.values[1, 5]


def test_numbers_of_pairs_that_are_not_whole_are_refused():
    few = rare(counts=0.002)
    counting.as_counted(few)
    with pytest.raises(
        bayesfit.InputError, match=r"counts: bin \d: g2 times the expected pairs should be whole numbers"
    ):
        counting.as_counted(few.assign(counts=few.counts * 0.8))


# ---- the likelihood


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 40.0, 1e4, 1e7])
def test_deviance_residual_makes_poisson_normal(mu):
    n = np.unique(np.round(np.concatenate([[0, 1, 2], mu + np.sqrt(mu) * np.linspace(-4, 4, 15)]).clip(0)))
    with jax.enable_x64(True):
        r = np.asarray(noise.deviance_residual(jnp.asarray(n), mu))
    constant = stats.poisson.logpmf(n, np.maximum(n, 1e-300))  # r is 0 at mu = n
    np.testing.assert_allclose(constant - 0.5 * r**2, stats.poisson.logpmf(n, mu), rtol=1e-9, atol=1e-7)
    np.testing.assert_array_equal(np.sign(r), np.sign(n - mu))


def test_deviance_residual_is_smooth():
    """Its slope is that of a difference, at n = 0, at n = mu, and where the Taylor series ends."""
    with jax.enable_x64(True):
        slope = jax.vmap(jax.grad(noise.deviance_residual, argnums=1))
        n = jnp.array([0.0, 0.0, 5.0, 5.0, 13.0, 1e6, 1.3])
        mu = jnp.array([1e-9, 3.0, 5.0, 1.0, 10.0, 1e6, 1.0])
        step = 1e-6 * mu
        by_difference = (noise.deviance_residual(n, mu + step) - noise.deviance_residual(n, mu - step)) / (2 * step)
        np.testing.assert_allclose(slope(n, mu), by_difference, rtol=1e-5)


def bin_of(pairs, n, correlation=None, dispersion=1.0):
    """A bin with these pairs and the scatter of its noise."""
    from bayesfit.posterior.bin_data import Bin

    pairs, n, valid, root = np.asarray(pairs, float), np.asarray(n, float), np.ones(len(pairs), bool), np.sqrt(pairs)
    averaging = neighbour_factors(np.arange(1.0, len(pairs) + 1), np.ones(len(pairs)))
    layout = photon_layout.uncorrelated(pairs[None], n[None], valid[None], averaging)[0]
    if correlation is not None:
        seen = photon_layout.Pairs(*np.stack([n, pairs, pairs])[:, None])
        (layout,) = photon_layout.with_theory(layout[None], correlation[None], valid[None], seen)
    bin = jax.tree.map(jnp.asarray, Bin(np.ones(len(pairs)), n / root, root, valid, layout, 0.0, {}, {}))
    return bin, noise.scatter_of(dispersion, bin.layout)


def log_likelihood(bin, scatter, mean):
    """Log probability of the pairs, which have unit spacing."""
    (white,) = scatter.whiten(bin, bin.y - mean * bin.inverse_error)
    per_standardised = 0.5 * jnp.sum(jnp.log(bin.layout[:, photon_layout.PAIRS]))
    return float(scatter.log_likelihood(white, bin) - per_standardised)


def test_likelihood_is_poissons_where_only_pairs_matter():
    pairs = np.array([0.01, 0.3, 1.0, 2.0, 7.0, 50.0, 1e4, 1e6])
    mean = np.array([1.3, 1.25, 1.2, 1.1, 1.1, 1.05, 1.0, 1.0])
    for seed in range(5):
        n = np.random.default_rng(seed).poisson(pairs * mean).astype(float)
        with jax.enable_x64(True):
            found = log_likelihood(*bin_of(pairs, n), mean)
        assert found == pytest.approx(stats.poisson.logpmf(n, pairs * mean).sum(), rel=1e-9)


def test_scores_of_few_pairs_lie_between_the_values_of_the_distribution_function():
    """At places that are the same always; far out, too."""
    mu = np.array([1e-3, 0.02, 0.5, 0.5, 3.0, 3.0, 20.0, 60.0, 99.0, 99.0])
    n = np.array([0.0, 1.0, 0.0, 7.0, 0.0, 2.0, 45.0, 60.0, 60.0, 160.0])
    with jax.enable_x64(True):
        bin, scatter = bin_of(mu, n)
        found = np.asarray(scatter.scores(bin.y - bin.inverse_error, bin))
        place = np.asarray(jax.random.uniform(jax.random.key(0), n.shape))
    below, at = stats.poisson.cdf(n - 1, mu), stats.poisson.pmf(n, mu)
    np.testing.assert_allclose(found, stats.norm.ppf(below + place * at), rtol=1e-8, atol=1e-9)


def correlated():
    """R of a bin with many photons, and its pairs and mean."""
    known = one_bin(1.0, 1e3, 1e5, LAGS[:40], SUMMED[:40])
    mean, covariance = speckle_covariance(np.exp(-0.02 * lag_grid(1e5))[:, None], np.array([0.2]), known)
    return photon_layout.residual_correlation(mean, covariance, known.pairs)[0], known.pairs[0], mean[0]


def unit(matrix):
    """The correlation matrix of a covariance matrix."""
    sd = np.sqrt(np.diag(matrix))
    return matrix / np.outer(sd, sd)


def test_likelihood_is_normal_where_pairs_are_many():
    matrix, pairs, mean = correlated()
    covariance = 1.3 * matrix * np.sqrt(np.outer(pairs * mean, pairs * mean))
    root = np.linalg.cholesky(covariance)
    for seed in range(3):
        n = pairs * mean + root @ np.random.default_rng(seed).standard_normal(pairs.size)
        with jax.enable_x64(True):
            found = log_likelihood(*bin_of(pairs, n, matrix, 1.3), mean)
        exact = stats.multivariate_normal.logpdf(n, pairs * mean, covariance, allow_singular=True)
        assert found == pytest.approx(exact, abs=0.4)


def test_whitening_is_that_of_the_whole_matrix_within_the_band():
    matrix, _, _ = correlated()
    size = neighbour_whitening.BAND + 1
    matrix = unit(matrix[:size, :size])
    (weights,) = neighbour_whitening.neighbour_weights(matrix[None], np.ones((1, size), bool))
    with jax.enable_x64(True):
        dense = np.asarray(neighbour_whitening.whitening_matrix(jnp.asarray(weights)))
    np.testing.assert_allclose(dense, np.linalg.inv(np.linalg.cholesky(matrix)), atol=1e-9)


def test_points_that_are_not_valid_are_left_out_of_the_whitening():
    matrix, pairs, _ = correlated()
    valid = np.arange(pairs.size) % 7 != 3
    (weights,) = neighbour_whitening.neighbour_weights(unit(matrix)[None], valid[None])
    with jax.enable_x64(True):
        root = np.asarray(neighbour_whitening.whitening_matrix(jnp.asarray(weights)))[np.ix_(valid, valid)]
    white = root @ unit(matrix)[np.ix_(valid, valid)] @ root.T
    np.testing.assert_allclose(white, np.eye(valid.sum()), atol=0.02)
    assert not weights[~valid].any()


def test_whitening_is_the_same_however_it_is_computed():
    """As a sum along the band, as a matrix, in NumPy; its derivative, and what undoes it."""
    matrix, pairs, _ = correlated()
    valid = np.arange(pairs.size) % 7 != 3
    (weights,) = neighbour_whitening.neighbour_weights(unit(matrix)[None], valid[None])
    x = np.where(valid, np.random.default_rng(2).standard_normal(valid.size), 0.0)
    with jax.enable_x64(True):
        dense = np.asarray(neighbour_whitening.whitening_matrix(jnp.asarray(weights)))
        white = neighbour_whitening.banded(jnp.asarray(x), jnp.asarray(weights))
        for slope in (jax.jacfwd, jax.jacrev):
            found = slope(neighbour_whitening.banded)(jnp.asarray(x), jnp.asarray(weights))
            np.testing.assert_allclose(found, dense, atol=1e-12)
        log_weights = jnp.log(jnp.where(valid, weights[:, 0], 1.0))
        whitening = neighbour_whitening.NeighbourWhitening(jnp.asarray(weights), log_weights)
        np.testing.assert_allclose(np.where(valid, whitening.color(white), 0.0), x, atol=1e-9)
        inside = jnp.asarray(valid)
        volume = float(whitening.log_volume(type("Points", (), {"valid": inside})))
    np.testing.assert_allclose(white, dense @ x, atol=1e-12)
    np.testing.assert_allclose(neighbour_whitening.whitened_data(x, weights), dense @ x, atol=1e-12)
    assert volume == pytest.approx(-np.linalg.slogdet(dense[np.ix_(valid, valid)])[1])


@pytest.mark.parametrize("size", [1, 5, 20, 21, 50])
def test_the_derivative_of_whitening_is_the_matrix_at_any_length(size):
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        weights, x = (jnp.asarray(rng.standard_normal(shape)) for shape in ((size, 21), size))
        dense = neighbour_whitening.whitening_matrix(weights)
        for slope in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(slope(neighbour_whitening.banded)(x, weights), dense, atol=1e-12)


@pytest.mark.parametrize("pairs", [0.02, 0.5, 5.0, 90.0, 3e4])
def test_scores_are_standard_normal(pairs):
    rng = np.random.default_rng(5)
    n = rng.poisson(pairs, 4000).astype(float)
    with jax.enable_x64(True):
        bin, scatter = bin_of(np.full(4000, pairs), n)
        scores = np.asarray(scatter.scores(bin.y - bin.inverse_error, bin))
    assert stats.kstest(scores, "norm").pvalue > 0.01


def test_new_pairs_are_those_of_the_noise():
    """Means, variances and correlations of predictive draws, with few and with many pairs."""
    matrix, pairs, mean = correlated()
    pairs[:3] = 0.1, 1.0, 5.0
    matrix[:3], matrix[:, :3] = np.eye(40)[:3], np.eye(40)[:, :3]
    with jax.enable_x64(True):
        _, scatter = bin_of(pairs, pairs, matrix, 1.2)
        keys = jax.random.split(jax.random.key(0), 4000)
        n = np.asarray(jax.vmap(lambda key: scatter.sample_pairs(key, jnp.asarray(pairs * mean)))(keys))
    sd = np.sqrt(pairs * mean * np.where(np.arange(40) < 3, 1.0, 1.2 * np.diag(matrix)))
    np.testing.assert_allclose(n.mean(axis=0), pairs * mean, atol=5 * sd.max() / np.sqrt(4000), rtol=0.02)
    np.testing.assert_allclose(n.std(axis=0), sd, rtol=0.06)
    expected = matrix / np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))
    assert np.abs(np.corrcoef(n.T) - expected).max() < 0.09


# ---- the posterior


def fitted_problem(counts, noise_model=noise.PHOTONS):
    """Bins with theory's errors at the truth."""
    data, truth = simulator.simulate(3, seed=2, counts=(counts, counts), pixels=64, contrast=(0.2, 0.2), frames=4096)
    numbers = {"counts": counts, "pixels": 64, "frames": 4096}
    data = counting.with_numbers(data, numbers).assign_attrs(frame_time=1e-3)
    values = {name: truth[name].values for name in ("rate", "beta", "contrast", "baseline")}
    return with_theory(prepare(data, "stretched_exponential", noise_model), values)


@pytest.mark.parametrize("counts", [1.0, 0.01])
def test_the_approximation_is_that_of_normal_noise(counts):
    """With data that were whitened beforehand, and with all columns whitened together."""
    approximate = replace(noise.PHOTONS, observed=None)
    with jax.enable_x64(True):
        for bin in range(3):
            ours, theirs = (density(fitted_problem(counts, model), bin) for model in (noise.PHOTONS, approximate))
            assert ours[0] == pytest.approx(theirs[0], rel=1e-9)
            np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-9)


def density(problem, bin):
    """The potential of a bin, and its gradient, at some position."""
    bin = jax.tree.map(lambda array: jnp.asarray(array[bin]), problem.bins)
    value, gradient = jax.value_and_grad(problem.posterior.potential)(jnp.array([0.3, -0.2, 0.1]), bin)
    return float(value), gradient


@pytest.mark.parametrize("counts", [1.0, 0.01])
def test_what_the_sampler_corrects_by_is_the_ratio_of_the_likelihoods(counts):
    with jax.enable_x64(True):
        problem = fitted_problem(counts)
        posterior, bin = problem.posterior, jax.tree.map(lambda a: jnp.asarray(a[0]), problem.bins)
        for seed in range(3):
            values, log_ratio = posterior.corrected(jnp.array([0.3, -0.2, 0.1]), bin, jax.random.key(seed))
            scatters = posterior.scatter_at(values, bin), Override(noise.photons, values, {})(bin)
            exact, approximate = (
                float(Observed(posterior.mean(values, bin), scatter, bin).log_prob(bin.y / bin.inverse_error))
                for scatter in scatters
            )
            assert float(log_ratio) == pytest.approx(exact - approximate, abs=1e-6)


def test_a_few_pairs_have_the_posterior_of_a_grid():
    """Of two delays the posterior of contrast and dispersion is known by quadrature of Poisson's probabilities."""
    pairs, n = np.array([3.0, 4.0] * 6), np.array([4.0, 2.0, 5.0, 3.0, 9.0, 3.0, 2.0, 4.0, 6.0, 8.0, 1.0, 4.0])
    tau = np.arange(1, 13) * 1e-3
    counts = np.sqrt(3.5 / (4.0 * 1e6))
    data = bayesfit.curves(tau, (n / pairs)[None], np.ones((1, 12)), counts=counts, pixels=4, frames=1e6)
    fixed = {"rate": 40.0, "beta": 1.0, "baseline": 1.0}
    result = bayesfit.fit(data, noise="photons", fixed=fixed, draws=2000, seed=4)
    expected = counting.Counting.of(counting.as_counted(data)).pairs[0]
    shape = np.exp(-2 * 40.0 * tau)
    contrast, dispersion = np.linspace(0, 3, 401)[1:, None, None], np.exp(np.linspace(-2, 2, 301))[:, None]
    mu = expected * (1 + contrast * shape)
    seen = (n / pairs) * expected
    spread = 1 + (dispersion - 1) * expected / (expected + 10)
    r2 = 2 * (seen * np.log(seen / mu) - seen + mu)
    log_density = np.sum(-0.5 * r2 / spread - 0.5 * np.log(spread), axis=-1)
    log_density += -0.5 * (contrast[..., 0] / 0.5) ** 2 - 0.5 * (np.log(dispersion[:, 0]) / 0.5) ** 2
    weight = np.exp(log_density - log_density.max())
    for name, values, axis in (("contrast", contrast[:, 0, 0], 1), ("dispersion", dispersion[:, 0], 0)):
        marginal = weight.sum(axis) / weight.sum()
        mean = np.sum(marginal * values)
        sd = np.sqrt(np.sum(marginal * (values - mean) ** 2))
        found = result["posterior"][name].values.ravel()
        assert abs(found.mean() - mean) < 0.08 * sd, name
        assert found.std() == pytest.approx(sd, rel=0.08), name


# ---- theory


@pytest.mark.parametrize(
    ("rate", "beta", "contrast", "counts", "frames"),
    [(0.03, 1.0, 0.2, 1.0, 512), (0.05, 0.8, 0.25, 0.05, 512), (0.6, 1.0, 0.25, 2.0, 4096)],
)
def test_covariance_is_that_of_simulated_curves(rate, beta, contrast, counts, frames):
    """Within what 1,500 curves can tell; `benchmarks/photon_covariance.py` takes 10,000. The last decay is fast, and
    most delays see averages over many times its time."""
    pixels, simulations = 8, 1500
    lags, summed = simulator.multitau_delays(frames // 8, 4)
    true = simulator.Truth(rate, beta, contrast, counts)
    amplitudes, _ = simulator.spectrum(rate, beta, frames)
    rng = np.random.default_rng(6)

    def curve():
        seen = simulator.photographs(true, amplitudes, pixels, frames, rng)
        return simulator.normalised(*simulator.multitau(seen, lags, summed))[0]

    found = np.array([curve() for _ in range(simulations)])
    known = one_bin(counts, pixels, frames, lags, summed)
    decay = np.exp(-2 * (rate * lag_grid(frames)) ** beta)
    (mean,), (covariance,) = speckle_covariance(decay[:, None], np.array([contrast]), known)
    covariance += np.diag(mean / known.pairs[0])
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(sd, found.std(axis=0, ddof=1), rtol=0.1)
    difference = np.corrcoef(found.T) - covariance / np.outer(sd, sd)
    assert np.sqrt(np.mean(difference**2)) < 1.5 / np.sqrt(simulations)
    np.testing.assert_allclose(mean, simulator.theory(lags, summed, rate, beta, contrast), atol=0.01)


@pytest.mark.parametrize("frames", [1e4, 4e8])
@pytest.mark.parametrize("rate", [0.5, 0.01, None])
def test_averages_over_triangles(frames, rate):
    """Of exponential decays, fast and slow beside the window, frame by frame. A window away the average has a corner,
    which a table of this spacing rounds by less than 0.5 % of the peak."""
    sums, rate = LagSums(frames), rate or 3.0 / frames
    table = extended(np.exp(-rate * sums.grid)[:, None])
    for window in (2, 64, 2 ** int(np.log2(frames / 200))):
        lags = np.array([0, 1, window // 2, window, 2 * window, 9 * window])
        found = at(sums.averaged(table, float(window)), places_of(sums.grid, lags))[:, 0]
        shifts = np.arange(1 - window, window)
        weights = (1.0 - np.abs(shifts) / window) / window
        expected = np.array([weights @ np.exp(-rate * np.abs(lag + shifts)) for lag in lags])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=5e-3 * expected[0])


def test_sums_over_shifts():
    """Of an exponential decay, frame by frame."""
    rate, frames = 0.02, 2000
    sums, lags = LagSums(float(frames)), np.array([1.0, 7.0, 50.0])
    squared = extended(np.exp(-2 * rate * sums.grid)[:, None])
    shifts = np.arange(-frames, frames + 1)

    def seen(middle):
        """How often each shift is, of those about this middle."""
        return np.maximum(1 - np.abs(shifts - middle) / frames, 0)

    def field(shift):
        return np.exp(-rate * np.abs(shift))

    assert sums.total(squared)[0] == pytest.approx(np.sum(seen(0) * field(shifts) ** 2), rel=0.01)
    for power, table in ((1, np.sqrt(squared)), (2, squared)):
        found = at(sums.convolved(table), places_of(sums.grid, lags))[:, 0]
        exact = [np.sum(seen(-lag / 2) * (field(shifts) * field(shifts + lag)) ** power) for lag in lags]
        np.testing.assert_allclose(found, exact, rtol=0.01)
    lags = np.array([1.0, 3.0, 20.0, 60.0])
    found = sums.crossed(np.sqrt(squared), lags)[..., 0]
    for a, b in np.ndindex(found.shape):
        parts = shifts, shifts - lags[a], shifts + lags[b] - lags[a], shifts + lags[b]
        exact = np.sum(np.prod([field(part) for part in parts], axis=0))
        assert found[a, b] == pytest.approx(exact, rel=0.02), (lags[a], lags[b])


@pytest.mark.parametrize("rate", [1e-3, 3e-5, 1e-5, 1e-6])
def test_sums_over_shifts_of_long_series(rate):
    """Of an exponential decay in hundreds of millions of frames, against integrals. Errors are told by the largest of
    the sums, since those of a covariance matter beside its variances."""
    sums, lags = LagSums(4e8), np.array([1.0, 300.0, 0.1 / rate, 1.0 / rate, 2.0 / rate])
    squared = extended(np.exp(-2 * rate * sums.grid)[:, None])
    assert sums.total(squared)[0] == pytest.approx(1 / rate, rel=2e-3)
    for power, table in ((1, np.sqrt(squared)), (2, squared)):
        found = at(sums.convolved(table), places_of(sums.grid, lags))[:, 0]
        exact = np.exp(-power * rate * lags) * (lags + 1 / (power * rate))
        np.testing.assert_allclose(found, exact, rtol=0, atol=2e-3 * exact.max())
    found = sums.crossed(np.sqrt(squared), lags)[..., 0]
    exact = np.array([[four_cycle(rate, j, k) for k in lags] for j in lags])
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.02 * exact.max())


def four_cycle(rate, j, k):
    """Integral over s of exp(-rate (|s| + |s - j| + |s + k - j| + |s + k|)), piece by piece between its kinks."""
    kinks = np.sort([0.0, j, j - k, -k])
    edges = np.concatenate([[kinks[0] - 30 / rate], kinks, [kinks[-1] + 30 / rate]])
    x, weights = np.polynomial.legendre.leggauss(60)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        s = 0.5 * (low + high) + 0.5 * (high - low) * x
        total += 0.5 * (high - low) * weights @ np.exp(-rate * np.sum([np.abs(s - kink) for kink in kinks], axis=0))
    return total


def test_pairs_of_several_detectors():
    """Those of each of three with each other one: two thirds of all pairs of different frames."""
    numbers = {"counts": 0.3, "pixels": 1, "frames": 1e6, "frames_summed": SUMMED}
    one, three = (curves(np.ones((1, LAGS.size)), detectors=number, **numbers) for number in (None, 3))
    np.testing.assert_allclose(pairs_of(three), pairs_of(one) * 6 / 9)
    with pytest.raises(bayesfit.InputError, match="whole number"):
        curves(np.ones((1, LAGS.size)), detectors=1.5, **numbers)


def pairs_of(data):
    return counting.Counting.of(data).pairs


# ---- several datasets


def counted(seed, counts=0.003, frames=4096.0, repeats=None, masked=None):
    """Curves of two bins, of which pairs were drawn, and these pairs (q_bin, tau)."""
    own = np.array([counts, 30.0 * counts])
    expected = np.array([one_bin(c, 64, frames, LAGS, SUMMED).pairs[0] for c in own]) * (repeats or 1)
    pairs = np.random.default_rng(seed).poisson(expected * (1.0 + 0.2 * np.exp(-0.02 * LAGS))).astype(float)
    g2 = np.where(np.arange(LAGS.size) == masked, np.nan, pairs / expected)
    numbers = {"counts": own, "frames": frames, "frames_summed": SUMMED, "repeats": repeats, "q": [0.01, 0.02]}
    return curves(g2, **numbers).assign_attrs(frame_time=1e-3), pairs


def pairs_seen(data):
    return data.g2.values * counting.Counting.of(data).pairs


def test_an_average_is_one_longer_measurement():
    """Its pairs are those of all repeats together, also where some of them have none."""
    repeats, pairs = zip(*(counted(seed) for seed in range(9)), strict=True)
    assert any((one.g2.values[0] == 0).any() for one in repeats)
    averaged = bayesfit.average(repeats)
    np.testing.assert_allclose(pairs_seen(averaged), np.sum(pairs, axis=0), rtol=1e-12)
    whole = curves(
        np.sum(pairs, axis=0) / counting.Counting.of(averaged).pairs,
        counts=repeats[0].counts.values,
        repeats=9,
        frames_summed=SUMMED,
        attrs={"frame_time": 1e-3},
    )
    one, other = (counting.as_counted(data) for data in (averaged, whole))
    for name in ("g2", "g2_err", "valid", "pairs"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12)
    assert "average of 9 series: pairs can be counted" in " ".join(bayesfit.describe(averaged))


def test_averages_of_averages_and_other_counts():
    """Series count by their number; a bin in which a repeat is left out has fewer; photons are those of all pairs."""
    (one, n_one), (other, n_other) = counted(0, repeats=3), counted(1, counts=0.02)
    both = bayesfit.average([one, other])
    np.testing.assert_allclose(both.repeats_averaged, [4.0, 4.0])
    np.testing.assert_allclose(pairs_seen(both), n_one + n_other)
    repeats = [counted(seed)[0] for seed in range(4)]
    odd = repeats[2].assign(g2=repeats[2].g2.where(repeats[2].q_bin != 1, 1.0 + repeats[2].g2))
    fewer = bayesfit.average([*repeats[:2], odd, repeats[3]])
    assert fewer.repeats_averaged.values.tolist() == [4.0, 3.0]


def test_a_point_that_one_repeat_lacks_is_left_out():
    """Else fewer pairs would be expected there than the average's numbers say."""
    averaged = bayesfit.average([counted(0)[0], counted(1, masked=5)[0], counted(2)[0]])
    assert not counting.countable(averaged)[:, 5].any()
    assert counting.countable(averaged)[:, 6].all()


@pytest.mark.parametrize("change", [{"frames": 8192.0}, {"counts": None}])
def test_repeats_that_were_not_counted_alike_state_no_numbers(change):
    one = counted(0)[0]
    other = counted(1)[0].drop_vars("counts") if "counts" in change else counted(1, **change)[0]
    for made in (bayesfit.average([one, other]), bayesfit.stack([one, other])):
        assert "counts" in counting.missing_numbers(made)


def test_a_stack_keeps_what_was_counted():
    (one, n_one), (other, n_other) = counted(0, repeats=3), counted(1, counts=0.02)
    np.testing.assert_allclose(pairs_seen(bayesfit.stack([one, other])), np.concatenate([n_one, n_other]))


def test_pairs_of_a_curve_that_theory_does_not_know_are_only_counted():
    """A model of g2 itself, of which no |g1|^2 follows, with noise "photons"."""

    def flat(tau):
        level = numpyro.sample("level", dist.Normal(1.0, 0.2))
        return level + 0.0 * tau

    pairs = Counting.of(counting.as_counted(curves())).pairs
    seen = np.random.default_rng(5).poisson(1.05 * pairs) / pairs
    result = bayesfit.fit(curves(seen), bayesfit.Model("flat", flat, form="curve"), noise="photons")
    best = np.sum(seen * pairs, axis=1) / np.sum(pairs, axis=1)
    level = result.posterior["level"]
    assert (abs(level.mean(("chain", "draw")) - best) < 0.5 * level.std(("chain", "draw"))).all()
    assert result["diagnostics"].verdict.isin(["ok", "not_identified"]).all()

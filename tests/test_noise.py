"""The noise models against SciPy's distributions and dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayesfit
from bayesfit.modelling.noise import NOISES
from bayesfit.modelling.scatter import Observed
from bayesfit.posterior.prepare import prepare

VALUES = {
    "stated": {},
    "scaled": {"error_scale": 1.7},
    "inferred": {"sigma": 0.03},
    "smooth": {"sigma": 0.03, "sigma_slope": 0.7, "sigma_curvature": -0.4},
    "robust": {"error_scale": 1.3, "error_freedom": 3.5},
    "correlated": {"error_scale": 1.3, "error_range": 0.2, "error_share": 0.7},
    "speckle": {"error_scale": 1.3, "speckle_time": 0.05, "speckle_share": 0.6},
}
MASKED = [0, 5, 6, 13]


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def bin_of(noise):
    rng = np.random.default_rng(3)
    tau = np.geomspace(1e-3, 1.0, 16) * np.exp(rng.uniform(-0.1, 0.1, 16))
    g2, g2_err = 1 + 0.05 * rng.standard_normal((1, 16)), rng.uniform(0.01, 0.03, (1, 16))
    g2[:, MASKED] = np.nan
    problem = prepare(bayesfit.curves(tau, g2, g2_err), "single_exponential", noise)
    return problem.posterior, jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)


def covariance_of(noise, bin):
    """Covariance (or scale) matrix of the valid points of g2, from the formulas in words."""
    values, valid = VALUES[noise], np.asarray(bin.valid)
    tau, error = np.asarray(bin.tau)[valid], 1 / np.asarray(bin.inverse_error)[valid]
    sigma = error * values.get("error_scale", 1.0) if NOISES[noise].stated else np.full(tau.size, values["sigma"])
    x = 2 * np.log(tau / tau[0]) / np.log(tau[-1] / tau[0]) - 1
    sigma = sigma * np.exp(values.get("sigma_slope", 0) * x + values.get("sigma_curvature", 0) * (x**2 - 1 / 3))
    correlation = np.eye(tau.size)
    if "error_range" in values:
        kernel = np.exp(-np.abs(np.log10(tau)[:, None] - np.log10(tau)) / values["error_range"])
        correlation = values["error_share"] * kernel + (1 - values["error_share"]) * np.eye(tau.size)
    if "speckle_time" in values:
        whole, share = np.asarray(bin.tau), values["speckle_share"]
        odds = share / (1 - share) * np.gradient(whole) / stats.gmean(np.gradient(whole))
        share = (odds / (1 + odds))[valid]
        kernel = np.exp(-np.abs(tau[:, None] - tau) / values["speckle_time"])
        correlation = np.sqrt(share[:, None] * share) * kernel + np.diag(1 - share)
    return sigma[:, None] * correlation * sigma


@pytest.mark.parametrize("noise", VALUES)
def test_likelihood_is_that_of_scipy(noise):
    posterior, bin = bin_of(noise)
    valid = np.asarray(bin.valid)
    mean = 1.0 + 0.02 * jnp.cos(jnp.arange(16.0))
    g2 = jnp.where(bin.valid, bin.y / jnp.where(bin.valid, bin.inverse_error, 1.0), 77.0)
    got = Observed(mean, posterior.scatter_at(VALUES[noise], bin), bin).log_prob(g2)
    residual, covariance = np.asarray(g2 - mean)[valid], covariance_of(noise, bin)
    if "error_freedom" in VALUES[noise]:
        expected = stats.t.logpdf(residual, VALUES[noise]["error_freedom"], 0, np.sqrt(np.diag(covariance))).sum()
    else:
        expected = stats.multivariate_normal.logpdf(residual, cov=covariance)
    np.testing.assert_allclose(got, expected, rtol=1e-11)


@pytest.mark.parametrize("noise", VALUES)
def test_each_point_given_the_others(noise):
    """Pointwise log likelihood: of a normal, the ratio of the joint density with and without the point."""
    posterior, bin = bin_of(noise)
    valid = np.flatnonzero(np.asarray(bin.valid))
    residual = 0.03 * jnp.sin(3.0 * jnp.arange(16.0)) * bin.inverse_error
    got = posterior.scatter_at(VALUES[noise], bin).pointwise(residual, bin) + jnp.log(
        jnp.where(bin.valid, bin.inverse_error, 1)
    )
    assert np.all(np.asarray(got)[MASKED] == 0.0)
    covariance, value = (
        covariance_of(noise, bin),
        np.asarray(residual / jnp.where(bin.valid, bin.inverse_error, 1.0))[valid],
    )
    if "error_freedom" in VALUES[noise]:
        expected = stats.t.logpdf(value, VALUES[noise]["error_freedom"], 0, np.sqrt(np.diag(covariance)))
    else:
        joint = stats.multivariate_normal.logpdf(value, cov=covariance)
        rest = [np.delete(np.arange(value.size), i) for i in range(value.size)]
        expected = [joint - stats.multivariate_normal.logpdf(value[r], cov=covariance[np.ix_(r, r)]) for r in rest]
    np.testing.assert_allclose(np.asarray(got)[valid], expected, rtol=1e-9)


@pytest.mark.parametrize("noise", [noise for noise in VALUES if noise != "robust"])
def test_whitening_is_the_inverse_root_of_the_covariance(noise):
    posterior, bin = bin_of(noise)
    valid = np.flatnonzero(np.asarray(bin.valid))
    scatter = posterior.scatter_at(VALUES[noise], bin)
    root = jax.vmap(scatter.color)(jnp.eye(16) * scatter.scale).T
    error = 1 / np.asarray(bin.inverse_error)[valid]
    root = np.asarray(root)[np.ix_(valid, valid)] * error[:, None]
    np.testing.assert_allclose(root @ root.T, covariance_of(noise, bin), rtol=1e-10, atol=1e-18)
    column = jnp.where(bin.valid, jnp.arange(16.0), 0.0)
    np.testing.assert_allclose(scatter.whiten(bin, scatter.color(column))[0], column, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("noise", VALUES)
def test_scores_of_simulated_curves_are_standard_normal(noise):
    posterior, bin = bin_of(noise)
    scatter = posterior.scatter_at(VALUES[noise], bin)
    observed = Observed(jnp.ones(16), scatter, bin)
    g2 = observed.sample(jax.random.key(1), (4000,))
    assert np.all(np.asarray(g2)[:, MASKED] == 1.0)
    scores = jax.vmap(lambda curve: scatter.scores((curve - 1.0) * bin.inverse_error, bin))(g2)
    scores = np.asarray(scores)[:, np.asarray(bin.valid)]
    assert stats.kstest(scores.ravel(), "norm").pvalue > 0.01
    np.testing.assert_allclose(np.cov(scores.T), np.eye(scores.shape[1]), atol=0.12)


def test_doubled_delays_are_no_singularity():
    tau = np.repeat(np.geomspace(1e-3, 1.0, 10), 2)
    g2 = 1 + 0.2 * np.exp(-40 * tau) + 0.01 * np.random.default_rng(1).standard_normal(20)
    problem = prepare(bayesfit.curves(tau, g2, np.full(20, 0.01)), "single_exponential", "correlated")
    bin = jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)
    value, gradient = jax.value_and_grad(problem.posterior.log_density)(jnp.array([0.0, -2.0, 30.0, 2.6]), bin)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("noise", ["smooth", "correlated", "speckle"])
def test_noise_that_needs_delays_says_so(noise):
    x = np.linspace(-1, 1, 20)
    data = bayesfit.curves(x, x, np.ones(20), delays=False)
    line = bayesfit.Model("line", lambda x: 0 * x, form="curve")
    with pytest.raises(bayesfit.SettingsError, match="needs delays"):
        bayesfit.fit(data, line, noise=noise)

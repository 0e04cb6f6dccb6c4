"""The predictive checks: p-values that are uniform for the right noise, and small for each kind of wrong one."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from bayesfit.compute.quantiles import quantiles_in_order
from bayesfit.diagnose.advice import NOTHING, advise, advise_dataset
from bayesfit.diagnose.interval import ENDS
from bayesfit.diagnose.predictive_checks import (
    CHECKS,
    FEWEST_POINTS,
    _likelihoods,
    check,
    heavy_tails,
    speckle_log_ratio,
)

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("points", [12, 60, 200])
def test_p_values_of_right_noise(points):
    """At a known truth (no spread over draws) each p-value is uniform, or larger than uniform where it is discrete."""
    found = [check(RNG.standard_normal((1, points))) for _ in range(3000)]
    for name in CHECKS:
        p = np.array([one[name] for one in found])
        for level in (0.01, 0.1, 0.5):
            assert stats.binom.sf(np.sum(p < level) - 1, p.size, 1.25 * level) > 1e-3, (name, level)
    p = [one["p_chi2"] for one in found]
    assert stats.kstest(p, "uniform").pvalue > 1e-3


GROWING = np.geomspace(0.2, 1.8, 100)
WRONG = {
    "p_chi2": lambda z: 1.6 * z,
    "p_correlation": lambda z: (z[:, 1:] + 0.8 * z[:, :-1]) / np.sqrt(1.64),
    "p_tails": lambda z: np.where(np.arange(z.shape[1]) == 20, 6.0, z),
    "p_trend": lambda z: z * GROWING / np.sqrt(np.mean(GROWING**2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_noise_is_seen_by_its_check(name):
    found = [check(WRONG[name](RNG.standard_normal((1, 100))))[name] for _ in range(100)]
    assert np.mean(np.array(found) < 1e-3) > 0.9


def test_too_few_points_say_nothing():
    assert np.isnan(list(check(RNG.standard_normal((3, FEWEST_POINTS - 1))).values())).all()
    assert np.isnan(list(check(np.full((3, 60), np.nan)).values())).all()


def diagnostics(bins, correlation=0.0, log_ratio=np.nan, **p):
    """Of bins of 60 points whose residuals correlate so, and whose p-values are uniform but for those given."""
    numbers = {name: ("q_bin", p.get(name, RNG.uniform(size=bins))) for name in CHECKS}
    numbers["residual_correlation"] = ("q_bin", correlation + RNG.standard_normal(bins) / np.sqrt(60))
    numbers["speckle_log_ratio"] = ("q_bin", np.full(bins, log_ratio))
    numbers["tau_min_to_try"] = ("q_bin", np.zeros(bins))
    return xr.Dataset({**numbers, "points": ("q_bin", np.full(bins, 60))})


def test_all_bins_together_see_what_none_sees_alone():
    words, advice = advise_dataset(diagnostics(200, correlation=0.1, log_ratio=-0.2))
    assert advice.noise == "correlated"
    assert advise_dataset(diagnostics(200, correlation=0.1, log_ratio=0.2))[1].noise == "speckle"
    assert "over all bins, neighbouring residuals correlate (0.1" in words
    assert advise_dataset(diagnostics(200, p_tails=RNG.uniform(size=200) ** 2))[1].noise == "robust"
    assert advise_dataset(diagnostics(200, p_trend=RNG.uniform(size=200) ** 2))[1].noise == "smooth"


def test_all_bins_together_seldom_blame_right_noise():
    """Four checks at three standard errors; p-values here are uniform, as they hardly ever are."""
    refuted = [advise_dataset(diagnostics(100))[0] for _ in range(1000)]
    assert np.mean([bool(words) for words in refuted]) < 0.015


def test_few_bins_together_say_nothing():
    assert advise_dataset(diagnostics(4, correlation=0.9)) == ("", NOTHING)
    assert advise_dataset(diagnostics(9, p_correlation=np.full(9, np.nan))) == ("", NOTHING)


TAU = np.concatenate([np.arange(1, 17), *(np.arange(9, 17) * 2**level for level in range(1, 6))]) * 1e-3


def correlated(kind, share=0.8):
    """Covariance of normal scores at multi-tau delays, of unit variance."""
    if kind == "correlated":
        kernel = np.exp(-np.abs(np.subtract.outer(np.log10(TAU), np.log10(TAU))) / 0.3)
        share = np.full(TAU.size, share)
    else:
        kernel = np.exp(-np.abs(np.subtract.outer(TAU, TAU)) / 0.03)
        odds = share / (1 - share) * np.gradient(TAU) / stats.gmean(np.gradient(TAU))
        share = odds / (1 + odds)
    return np.sqrt(np.outer(share, share)) * kernel + np.diag(1 - share)


def test_likelihood_of_a_chain_is_that_of_a_dense_normal():
    scores = np.linalg.cholesky(correlated("correlated")) @ RNG.standard_normal(TAU.size)
    memory = np.exp(-np.diff(np.log10(TAU), prepend=np.log10(TAU[0])) / 0.3)[:, None]
    covariance = correlated("correlated", 0.6)
    valid = RNG.uniform(size=TAU.size) < 0.8
    got = _likelihoods(scores[None], valid[None], np.full((TAU.size, 1), 0.6), memory)[0, 0]
    scores, covariance = scores[valid], covariance[np.ix_(valid, valid)]
    scale = np.sqrt(scores @ np.linalg.solve(covariance, scores) / scores.size)
    dense = stats.multivariate_normal.logpdf(scores, cov=scale**2 * covariance)
    constant = 0.5 * scores.size * (np.log(2 * np.pi / scores.size) + 1)
    np.testing.assert_allclose(got - constant, dense, rtol=1e-12)


@pytest.mark.parametrize("kind", ["correlated", "speckle"])
def test_correlations_are_told_apart(kind):
    root = np.linalg.cholesky(correlated(kind, 0.95))
    scores = RNG.standard_normal((100, TAU.size)) @ root.T
    found = speckle_log_ratio(scores, np.ones(scores.shape, bool), TAU)
    tried = [advise({"p_correlation": 1e-4}, "scaled", one, True).noise for one in (*found, np.sum(found))]
    assert np.mean([one == kind for one in tried]) > 0.8
    assert tried[-1] == kind


@pytest.mark.parametrize("count", [20, 60, 300])
@pytest.mark.parametrize("freedom", [3, 1000])
def test_kurtosis_is_judged_as_by_scipy(count, freedom):
    scores = np.random.default_rng(count).standard_t(freedom, (50, count))
    expected = stats.kurtosistest(scores, axis=1, alternative="greater").pvalue
    np.testing.assert_allclose(heavy_tails(scores), expected, rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize("count", [1, 2, 7, 200, 501])
def test_quantiles_of_ordered_draws_have_the_bits_of_numpy(count):
    draws = np.random.default_rng(count).standard_normal((5, 3, count))
    draws[1, 2, 0] = np.nan
    draws[2] = np.round(draws[2])
    levels = (0.0, 0.01, *ENDS, 0.5, 0.95, 1.0)
    got = quantiles_in_order(np.sort(draws, axis=-1), levels)
    np.testing.assert_array_equal(got, np.quantile(draws, levels, axis=-1))

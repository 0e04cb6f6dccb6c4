"""Groups on request, against SciPy, the full program and ArviZ, on real fits."""

import arviz as az
import numpy as np
import pytest
from scipy import stats

import bayesfit

GROUPS = ("log_likelihood", "log_prior", "posterior_predictive", "prior", "prior_predictive")


@pytest.fixture(scope="module")
def simulated():
    data, _ = bayesfit.simulate(bins=4, delays=40, seed=3)
    data["valid"][1, ::7] = False
    data["valid"][3] = False
    return data


@pytest.fixture(scope="module")
def result(simulated):
    return bayesfit.fit(simulated, include=GROUPS, draws=300, seed=2)


def test_log_likelihood_is_that_of_the_drawn_curves(result):
    draws = result.posterior.dataset.isel(q_bin=1)
    data = result["constant_data"].dataset.isel(q_bin=1)
    tau, valid = data.tau, data.valid.values
    mean = draws.baseline + draws.contrast * np.exp(-2 * (draws.rate * tau) ** draws.beta)
    sigma = draws.error_scale * data.g2_err
    g2 = result["observed_data"].g2.isel(q_bin=1)
    expected = stats.norm.logpdf(g2, mean.transpose(..., "tau"), sigma.transpose(..., "tau"))
    got = result["log_likelihood"].g2.isel(q_bin=1).values
    np.testing.assert_allclose(got[..., valid], expected[..., valid], rtol=1e-4, atol=1e-4)
    assert np.isnan(got[..., ~valid]).all()


def test_log_prior_is_that_of_the_models(result):
    draws = result.posterior.dataset.isel(q_bin=0)
    group = result["log_prior"].dataset.isel(q_bin=0)
    tau = result["constant_data"].tau.values
    low, high = 0.1 / tau.max(), 10 / tau.min()
    expected = {
        "rate": stats.loguniform(low, high).logpdf(draws.rate),
        "beta": np.full(draws.beta.shape, -np.log(1.8)),
        "baseline": stats.norm(1, 0.1).logpdf(draws.baseline),
        "error_scale": stats.lognorm(3).logpdf(draws.error_scale),
    }
    for name, density in expected.items():
        np.testing.assert_allclose(group[name], density, rtol=1e-5, atol=1e-4)
    assert "contrast" in group


def test_posterior_predictive_covers_the_data(result):
    drawn = result["posterior_predictive"].g2.isel(q_bin=[0, 1, 2]).stack(sample=("chain", "draw"))
    g2, valid = result["observed_data"].g2.isel(q_bin=[0, 1, 2]), result["constant_data"].valid.isel(q_bin=[0, 1, 2])
    level = (drawn < g2).mean("sample").values[valid.values]
    assert 0.8 < np.mean((level > 0.05) & (level < 0.95)) < 0.98
    assert np.isnan(drawn.values[~valid.values]).all()


def test_prior_draws_have_the_priors(result):
    prior = result["prior"].dataset.isel(q_bin=0, chain=0)
    assert stats.kstest(prior.baseline, stats.norm(1, 0.1).cdf).pvalue > 1e-3
    assert stats.kstest((prior.beta - 0.2) / 1.8, "uniform").pvalue > 1e-3
    assert result["prior_predictive"].g2.shape[2:] == (4, 40)


def test_arviz_takes_one_bin(result):
    one = bayesfit.one_bin(result, 1)
    assert one["observed_data"].sizes["tau"] == int(result["constant_data"].valid.isel(q_bin=1).sum())
    assert np.isfinite(az.loo(one).elpd)
    sensitivity = az.psense_summary(one)
    assert np.isfinite(sensitivity.loc[["rate", "beta"], ["prior", "likelihood"]].to_numpy(float)).all()
    assert az.plot_ppc_dist(one) is not None
    with pytest.raises(bayesfit.ResultError, match="there is no bin 9"):
        bayesfit.one_bin(result, 9)


def test_groups_are_kept_in_a_file(result, tmp_path):
    loaded = bayesfit.load(bayesfit.save(result, tmp_path / "all.nc"))
    assert set(GROUPS) <= set(loaded.children)


def test_a_bin_does_not_depend_on_its_neighbours(simulated, result):
    alone = bayesfit.fit(simulated.isel(q_bin=[2]), include=("posterior_predictive",), draws=300, seed=2)
    np.testing.assert_array_equal(alone["posterior_predictive"].g2[:, :, 0], result["posterior_predictive"].g2[:, :, 2])


def test_unknown_group(simulated):
    with pytest.raises(bayesfit.SettingsError, match="there is no group 'posterior_predictiv'"):
        bayesfit.fit(simulated, include=("posterior_predictiv",))

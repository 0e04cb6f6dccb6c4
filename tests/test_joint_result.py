"""Joint fits judged: convergence, contraction and verdicts of what bins have in common, whether the bins refute their
poolings, curves over q, tables and pictures."""

from copy import deepcopy
from dataclasses import replace

import h5py
import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from scipy.optimize import minimize_scalar
from typer.testing import CliRunner

import bayesfit
from bayesfit.cli import main as _cli
from bayesfit.diagnose import residual_checks as _residual_checks
from bayesfit.diagnose.profile_likelihood import Pooled, Starts, profiled
from bayesfit.posterior.joint import joint_posterior
from bayesfit.posterior.partial_pooling import interpolation
from bayesfit.posterior.pooling import parse_across
from bayesfit.posterior.pooling_scales import Logarithmic, Unconstrained
from bayesfit.posterior.prepare import prepare
from bayesfit.result import joint_result as _joint_result
from bayesfit.sample import joint_nuts as _joint_sample

D, BETA, BINS, ERROR = 2.0e4, 0.9, 8, 0.006
TAU = np.geomspace(1e-4, 10.0, 40)
Q = np.geomspace(2e-3, 2e-2, BINS)
ACROSS = {"rate": "diffusion", "beta": "shared"}


def data(rate=D * Q**2, beta=BETA, stated=1.0, seed=2, q=Q):
    rng = np.random.default_rng(seed)
    g2 = 1.0 + 0.2 * np.exp(-2.0 * (rate[:, None] * TAU) ** np.reshape(beta, (-1, 1)))
    g2 += ERROR * rng.standard_normal(g2.shape)
    priors = {"contrast_prior": "TruncatedNormal(0.2, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}
    return bayesfit.curves(TAU, g2, np.full_like(g2, stated * ERROR), q=q, **priors)


@pytest.fixture(scope="module")
def sampled():
    """What the sampler returned for the healthy fit."""
    return {}


@pytest.fixture(scope="module")
def healthy(sampled):
    """A joint fit of bins that follow their law."""
    original = _joint_sample.sample_joint

    def kept(*arguments):
        sampled["draws"], sampled["shared"] = made = original(*arguments)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_joint_sample, "sample_joint", kept)
        return bayesfit.fit(data(), noise="stated", across=ACROSS, draws=250, include=("log_likelihood",))


@pytest.fixture
def fitted_again(healthy, sampled, monkeypatch):
    """Fits whose sampler returns the draws of the healthy fit, changed; all else is as it is."""

    def again(change=lambda draws, shared: (draws, shared), curves=None):
        def sample_joint(*arguments):
            return change(*deepcopy((sampled["draws"], sampled["shared"])))

        monkeypatch.setattr(_joint_sample, "sample_joint", sample_joint)
        return bayesfit.fit(data() if curves is None else curves, noise="stated", across=ACROSS, draws=250)

    return again


@pytest.fixture(scope="module")
def hierarchical():
    """Rates that scatter about a law, betas about a mean, contrasts that change slowly, and baselines of two groups;
    sampled for a moment only."""
    rng = np.random.default_rng(5)
    rate, beta = D * Q**2 * np.exp(0.3 * rng.standard_normal(BINS)), BETA + 0.05 * rng.standard_normal(BINS)
    across = {
        "rate": {"name": "diffusion", "scatter": True},
        "beta": "pooled",
        "contrast": "smooth",
        "baseline": {"kind": "shared", "by": np.arange(BINS) % 2},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_joint_sample, "WARMUP", {True: 100, False: 100})
        patch.setattr(_joint_sample, "LONGEST", 1)
        return bayesfit.fit(data(rate, beta), noise="stated", across=across, draws=20, chains=2)


# The bins freed


def freed(curves, noise, scatter=0.0, common=D * Q**2):
    with jax.enable_x64(True):
        problem = prepare(curves, "stretched_exponential", noise)
        joint = joint_posterior(problem, problem.bins, parse_across(ACROSS, curves), {}, {})
        count = joint.count
        pooled = {"rate": common, "beta": np.full(count, BETA)}
        bins = jax.tree.map(np.asarray, joint.at(pooled))
        own = {"error_scale": np.ones(count)} if noise == "scaled" else {}
        starts = Starts(own, *np.full((2, count), np.nan))
        scales = {"beta": Unconstrained(), "rate": Logarithmic()}
        found = profiled(joint, Pooled("rate", pooled, scales, scatter), starts)

        def potential(bin, x, z=()):
            one = jax.tree.map(lambda array: array[bin], bins)
            there = one._replace(fixed={**one.fixed, "rate": np.exp(x) * one.fixed["rate"]})
            return float(joint.per_bin.potential(np.array(z), there))

        return found, potential


@pytest.mark.parametrize("scatter", [0.0, 0.1])
def test_residuals_are_roots_of_likelihood_ratios(scatter):
    """Against a search over the distance alone, where the bin has no parameters of its own."""
    rate = D * Q**2
    rate[3] *= 1.3
    found, potential = freed(data(rate), "stated", scatter)
    for bin in (0, 3, 7):
        with jax.enable_x64(True):
            free = minimize_scalar(lambda x, bin=bin: potential(bin, x), bracket=(-0.1, 0.2), tol=1e-8)
            held = potential(bin, 0.0)
            if scatter:
                held = minimize_scalar(
                    lambda x, bin=bin: potential(bin, x) + 0.5 * (x / scatter) ** 2, bracket=(-0.1, 0.2), tol=1e-8
                ).fun
            curvature = (potential(bin, free.x + 1e-3) + potential(bin, free.x - 1e-3) - 2 * free.fun) / 1e-6
        np.testing.assert_allclose(found.distance[bin], free.x, atol=1e-5)
        np.testing.assert_allclose(found.residual[bin], np.sign(free.x) * np.sqrt(2 * (held - free.fun)), rtol=1e-4)
        np.testing.assert_allclose(found.sd[bin], curvature**-0.5, rtol=1e-3)
    width = np.hypot(found.sd[3], scatter)
    np.testing.assert_allclose(found.residual[3], found.distance[3] / width, rtol=0.2)


@pytest.mark.parametrize("noise", ["stated", "scaled"])
def test_residuals_are_standard_normal_where_the_law_holds(noise):
    many = np.tile(Q, 25)
    stated = 1.0 if noise == "stated" else 3.0
    found, _ = freed(data(D * many**2, stated=stated, q=many), noise, common=D * many**2)
    assert stats.kstest(found.residual, "norm").pvalue > 0.01
    assert stats.kstest((found.distance / found.sd)[found.sd < 0.05], "norm").pvalue > 0.01


def test_order_of_residuals():
    """P-values of independent residuals are uniform; residuals that rise with q are found."""
    rng = np.random.default_rng(1)
    p = [_residual_checks.p_order(rng.standard_normal(12)) for _ in range(100)]
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert _residual_checks.p_order(np.arange(8.0)) < 0.005
    assert np.isnan(_residual_checks.p_order(np.arange(4.0)))


# The verdict


def test_a_healthy_fit_is_ok(healthy):
    across = healthy["across"]
    assert list(across.parameter.values) == ["D", "beta"]
    assert list(across.verdict.values) == ["ok", "ok"]
    assert across.joint_verdict.item() == "ok"
    assert across.joint_reason.item().startswith("R-hat 1.0")
    assert np.all(across["contraction"] > 0.99)
    assert list(across.pooled.values) == ["rate", "beta"]
    assert list(across.pooling.values) == ["diffusion", "shared"]
    np.testing.assert_array_equal(across.freedom, [BINS - 1, BINS - 1])
    np.testing.assert_allclose(across.chi2[0], np.sum(healthy["law_residuals"].rate.values ** 2))
    assert across.divergences.item() == healthy["sample_stats"].diverging.isel(q_bin=0).sum()
    assert across["thin"].item() == healthy["diagnostics"]["thin"].values[0]


def test_contraction_is_that_of_the_priors_distribution_function(healthy):
    """Beta is uniform from 0.2 to 2 before, log D uniform over what the delays can see."""
    beta = healthy["posterior"].beta.values
    expected = 1.0 - 12.0 * np.var(beta / 1.8)
    np.testing.assert_allclose(healthy["across"]["contraction"][1], expected, rtol=1e-3)


def test_stuck_chains_are_found(fitted_again):
    """One stays where it is, at a place that the others visit too; another moves by a hundredth of what it should."""

    def stuck(draws, shared):
        shared["D"][2] = shared["D"][2, :1]
        shared["beta"][1] = shared["beta"][1, :1] + 0.01 * (shared["beta"][1] - shared["beta"][1, :1])
        return draws, shared

    across = fitted_again(stuck)["across"]
    assert list(across.verdict.values) == ["poor_mixing", "poor_mixing"]
    assert across.joint_verdict.item() == "poor_mixing"
    assert "(D, beta)" in across.joint_reason.item()


def test_divergences_and_a_parameter_that_keeps_its_prior_are_told(fitted_again):
    def broken(draws, shared):
        draws.stats["diverging"][:, 0, :20] = True
        shared["beta"][:] = np.random.default_rng(0).uniform(0.2, 2.0, shared["beta"].shape)
        return draws, shared

    across = fitted_again(broken)["across"]
    assert list(across.verdict.values) == ["ok", "not_identified"]
    assert across.divergences.item() == 20
    assert across.joint_verdict.item() == "poor_mixing"
    assert "20 of 1000 transitions diverged" in across.joint_reason.item()
    assert "hardly narrow the prior: beta (contraction" in across.joint_reason.item()


@pytest.mark.parametrize(("steps", "verdict"), [(511, "ok"), (1023, "poor_mixing")])
def test_trees_of_joint_fits_are_deep_at_their_own_limit(fitted_again, steps, verdict):
    """They may grow deeper than those of bins that are sampled alone."""

    def long(draws, shared):
        draws.stats["n_steps"][:] = steps
        return draws, shared

    again = fitted_again(long)
    assert list(again["diagnostics"].verdict.values) == [verdict] * BINS
    assert again["sample_stats"].reached_max_treedepth.all() == (steps == 1023)


def test_draws_that_were_not_made_are_told(fitted_again):
    def stopped(draws, shared):
        for array in (*draws.values.values(), *shared.values(), draws.stats["potential"]):
            array[..., 100:] = np.nan
        return replace(draws, done=np.full(BINS, 100)), shared

    interrupted = fitted_again(stopped)
    assert interrupted["across"].joint_verdict.item() == "interrupted"
    assert "100 of 250 draws" in interrupted["across"].joint_reason.item()
    assert np.isfinite(interrupted["law_curve"].rate).all()


def test_a_bin_off_the_law_refutes_it(fitted_again):
    rate = D * Q**2
    rate[5] *= 1.5
    again = fitted_again(curves=data(rate))
    assert again["across"].joint_verdict.item() == "misfit"
    assert "rate does not follow the law 'diffusion'" in again["across"].joint_reason.item()
    assert "farthest bin 5 (+" in again["across"].joint_reason.item()
    np.testing.assert_allclose(again["law_residuals"].rate_own[5], rate[5], rtol=0.1)
    assert np.argmax(np.abs(again["law_residuals"].rate.values)) == 5


def test_errors_that_are_stated_too_small_refute_no_law(fitted_again):
    """They refute the noise model, bin by bin."""
    again = fitted_again(curves=data(stated=0.3))
    assert list(again["diagnostics"].verdict.values) == ["misfit"] * BINS
    assert again["across"].p_chi2.min() > 0.005
    assert again["across"].joint_reason.item() == f"{BINS} of {BINS} bins do not fit"


# The poolings over q


def test_the_laws_band_is_that_of_its_draws(healthy):
    curve, D_ = healthy["law_curve"], healthy["posterior"].D
    assert curve.rate.dims == ("point",)
    np.testing.assert_allclose(curve.q.values[[0, -1]], Q[[0, -1]])
    np.testing.assert_allclose(curve.rate, D_.mean().item() * curve.q**2)
    np.testing.assert_allclose(curve.rate_upper, np.quantile(D_, 0.975) * curve.q**2)
    np.testing.assert_allclose(curve.beta_lower, np.quantile(healthy["posterior"].beta, 0.025))
    assert curve.rate.attrs["units"] == "1/s"
    bins = healthy["law_residuals"]
    np.testing.assert_allclose(bins.rate_law, np.exp(np.log(D_).mean().item()) * Q**2)
    assert np.all((bins.rate_own_lower < bins.rate_own) & (bins.rate_own < bins.rate_own_upper))


def test_every_kind_of_link_is_described(hierarchical):
    across, curve = hierarchical["across"], hierarchical["law_curve"]
    names = ["D", "rate_scatter", "beta_mean", "beta_spread", "contrast_mean", "contrast_spread", "baseline"]
    assert list(across.parameter.values) == names
    assert list(across.pooling.values) == ["diffusion with scatter", "pooled", "smooth", "shared by group"]
    np.testing.assert_array_equal(across.freedom, [BINS - 2, BINS - 2, np.nan, BINS - 2])
    draws = hierarchical["posterior"]
    np.testing.assert_allclose(curve.beta, draws.beta_mean.mean())
    assert curve.baseline.dims == ("point", "baseline_group")
    np.testing.assert_allclose(curve.baseline[0], draws.baseline.mean(("chain", "draw")))
    np.testing.assert_allclose(curve.contrast[[0, -1]], draws.contrast.mean(("chain", "draw"))[[0, -1]])
    assert np.isnan(hierarchical["law_residuals"].contrast).all()


def test_what_bins_have_in_common_has_the_unit_of_its_parameter():
    (pooling,) = parse_across({"rate": "pooled"}, data())
    rate = xr.DataArray(np.ones((2, 3, BINS)), dims=("chain", "draw", "q_bin"), attrs={"units": "1/s"})
    posterior = xr.Dataset({"rate": rate}, {"chain": range(2), "draw": range(3)})
    shared = dict.fromkeys(("rate_mean", "rate_spread"), np.ones((2, 3)))
    prior = dict.fromkeys(shared, np.arange(3.0))
    found = _joint_result._common_of(pooling, shared, prior, posterior)
    assert (found.rate_mean.attrs["units"], found.rate_spread.attrs["units"]) == ("1/s", "1")


def test_residuals_are_in_units_of_scatter_and_width(hierarchical):
    bins = hierarchical["law_residuals"]
    log, width = np.log(bins.rate_own / bins.rate_law), np.log(bins.rate_own_upper / bins.rate_own) / 1.96
    scatter = hierarchical["posterior"].rate_scatter.mean()
    np.testing.assert_allclose(bins.rate, log / np.hypot(width, scatter), rtol=0.1, atol=0.1)


def test_interpolation_between_bins_keeps_their_values():
    x = np.log(Q)[::-1]
    values = np.random.default_rng(0).standard_normal((5, BINS))
    np.testing.assert_allclose(values @ interpolation(x, x).T, values)
    middles = 0.5 * (x[1:] + x[:-1])
    np.testing.assert_allclose(values @ interpolation(x, middles).T, 0.5 * (values[:, 1:] + values[:, :-1]))


# Tables, pictures and files


def test_a_joint_result_is_saved_summarised_and_drawn(healthy, hierarchical, tmp_path):
    for number, result in enumerate((healthy, hierarchical)):
        path = bayesfit.save(result, tmp_path / f"joint{number}.nc")
        again = bayesfit.load(path)
        assert set(again.children) == set(result.children)
        assert again["across"].joint_verdict.item() == result["across"].joint_verdict.item()
        np.testing.assert_allclose(again["law_curve"].rate, result["law_curve"].rate, rtol=1e-6)
        table = bayesfit.summary(again, common=True)
        np.testing.assert_allclose(table.loc["D", "median"], np.median(result["posterior"].D), rtol=1e-6)
        assert len(bayesfit.summary(again)) == BINS
        assert ("baseline[1]" in table.index) == (number == 1)
        shown = CliRunner().invoke(_cli.app, ["show", str(path)]).stdout
        assert f"all bins together: {result['across'].joint_verdict.item()}" in shown
        assert "rate, bins farthest from what they have in common" in shown
    drawn = CliRunner().invoke(
        _cli.app, ["plot", str(tmp_path / "joint0.nc"), "-o", str(tmp_path / "x.png"), "-b", "0"]
    )
    assert drawn.exit_code == 0, drawn.output
    assert drawn.output.split() == [str(tmp_path / "x.png"), str(tmp_path / "x_across.png")]
    assert (tmp_path / "x_across.png").stat().st_size > 10_000
    assert len(bayesfit.plot_across(hierarchical).axes) == 8


def test_what_has_no_common_parameters_has_no_such_table(healthy):
    alone = xr.DataTree.from_dict({name: node.dataset for name, node in healthy.children.items() if name != "across"})
    with pytest.raises(bayesfit.SettingsError, match="the bins have nothing in common"):
        bayesfit.summary(alone, common=True)
    with pytest.raises(bayesfit.SettingsError, match="the bins have nothing in common"):
        bayesfit.plot_across(alone)


def test_arviz_and_comparison_take_a_joint_result(healthy):
    import arviz as az

    assert {"D", "beta", "rate[0]"} <= set(az.summary(healthy).index)
    one = bayesfit.one_bin(healthy, 3)
    assert one["posterior"].rate.dims == ("chain", "draw")
    np.testing.assert_array_equal(one["across"].r_hat, healthy["across"].r_hat)
    assert one["law_residuals"].rate.item() == healthy["law_residuals"].rate[3].item()
    assert np.isfinite(az.loo(one).elpd)
    compared = bayesfit.compare({"joint": healthy, "again": healthy})
    np.testing.assert_allclose(compared.elpd_diff, 0.0)
    assert list(compared.q_bin.values) == list(range(BINS))


def test_what_bins_have_in_common_is_exported(healthy, tmp_path):
    table = bayesfit.summary(healthy, common=True)
    with h5py.File(bayesfit.export(healthy, tmp_path / "joint.hdf")) as file:
        common = file["xpcs/fit/in_common"]
        assert {name: common[name]["median"][()] for name in common} == table["median"].to_dict()
    sheet = pd.read_excel(bayesfit.export(healthy, tmp_path / "joint.xlsx"), sheet_name="in common")
    assert sheet.parameter.tolist() == table.index.tolist()
    assert bayesfit.overview(healthy).title.endswith(f"together {healthy['across'].joint_verdict.item()}")

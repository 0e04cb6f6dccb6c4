"""The whole fit, from Python, as a user calls it."""

import os
import signal
import threading

import arviz as az
import jax
import matplotlib
import numpy as np
import pytest
import xarray as xr

import bayesfit

matplotlib.use("agg")


def test_groups_dims_and_coordinates(fitted):
    assert {"posterior", "sample_stats", "observed_data", "constant_data", "point_estimate", "diagnostics"} <= set(
        fitted.children
    )
    assert dict(fitted["posterior"].sizes) == {"chain": 4, "draw": 200, "q_bin": 12}
    for name, node in fitted.children.items():
        assert node["q_bin"].dtype.kind == "i", name
        assert {"q", "phi"} <= set(node.coords), name
    assert fitted["posterior"]["rate"].attrs["units"] == "1/s"


def test_posterior_holds_every_parameter_and_the_derived_ones(fitted):
    assert {"rate", "beta", "contrast", "baseline", "error_scale"} <= set(fitted["posterior"].data_vars)
    posterior = fitted["posterior"].dataset.isel(q_bin=0)
    np.testing.assert_allclose(posterior.D, posterior.rate / posterior.q**2)
    np.testing.assert_allclose(posterior.relaxation_time, 1 / posterior.rate)


def test_sample_stats_have_the_schema_names(fitted):
    assert set(fitted["sample_stats"].data_vars) == {
        "lp",
        "energy",
        "acceptance_rate",
        "step_size",
        "n_steps",
        "tree_depth",
        "reached_max_treedepth",
        "diverging",
        "independence_accepted",
    }


def test_dead_bin_is_said_to_be_and_harms_nobody(fitted):
    verdicts = fitted["diagnostics"].verdict.values
    assert verdicts[3] == "unusable_data"
    assert np.isnan(fitted["posterior"].rate.isel(q_bin=3)).all()
    assert (np.delete(verdicts, 3) != "unusable_data").all()


def test_truth_is_inside_the_intervals(fitted, simulated):
    truth = simulated[1]
    alive = np.delete(np.arange(12), 3)
    inside = []
    for name in ("rate", "beta", "contrast", "baseline", "error_scale"):
        low, high = fitted["posterior"][name].isel(q_bin=alive).quantile([0.025, 0.975], ("chain", "draw")).values
        inside.append((low < truth[name].values[alive]) & (truth[name].values[alive] < high))
    assert np.mean(inside) >= 0.85  # 55 intervals at 95 %: fewer than 47 inside happens once in 3,000 times


def test_diagnostics_agree_with_arviz(fitted):
    rhat = az.rhat(fitted).to_dataset() if hasattr(az.rhat(fitted), "to_dataset") else az.rhat(fitted)
    names = ["rate", "beta", "contrast", "baseline", "error_scale"]
    worst = np.max([rhat[name].values for name in names], axis=0)
    np.testing.assert_allclose(fitted["diagnostics"].r_hat.values, worst, rtol=1e-10)


@pytest.mark.parametrize("function", [az.summary, az.ess, az.rhat, az.mcse, az.hdi, az.extract, az.bfmi])
def test_arviz_functions_take_the_result(fitted, function):
    assert function(fitted) is not None


@pytest.mark.parametrize("function", [az.plot_trace, az.plot_forest, az.plot_rank, az.plot_autocorr, az.plot_ess])
def test_arviz_plots_take_the_result(fitted, function):
    assert function(fitted, var_names=["rate"], coords={"q_bin": [0, 1]}, backend="matplotlib") is not None


def test_one_bin_of_the_tree_is_an_arviz_result_too(fitted):
    assert az.plot_energy(fitted.isel(q_bin=0), backend="matplotlib") is not None


def test_attributes_can_be_saved_and_tell_where_the_result_comes_from(fitted):
    assert all(isinstance(value, str | int | float) for value in fitted.attrs.values())
    assert fitted.attrs["model"] == "stretched_exponential"
    assert "exp(-(rate tau)^beta)" in fitted.attrs["convention"]
    assert fitted.attrs["numpyro_version"]


def test_fixed_parameters_move_to_the_constant_data(simulated):
    bins = simulated[0].isel(q_bin=[0, 1])
    result = bayesfit.fit(bins, fixed={"beta": [0.9, 1.0], "baseline": 1.0}, draws=100)
    assert not {"beta", "baseline"} & set(result["posterior"].data_vars)
    np.testing.assert_array_equal(result["constant_data"].beta, [0.9, 1.0])
    assert "mean_relaxation_time" in result["posterior"]


def test_a_prior_per_bin_pulls_each_bin_its_own_way(simulated):
    bins = simulated[0].isel(q_bin=[0, 0])
    tight = {"rate": {"family": "LogNormal", "loc": np.log([0.1, 0.4]), "scale": 0.001}}
    rate = bayesfit.fit(bins, priors=tight, draws=100)["posterior"].rate.mean(("chain", "draw"))
    np.testing.assert_allclose(rate, [0.1, 0.4], rtol=0.02)


def test_the_callers_configuration_stays(simulated):
    before = jax.config.jax_enable_x64
    bayesfit.fit(simulated[0].isel(q_bin=[0]), "single_exponential", draws=20)
    assert jax.config.jax_enable_x64 == before is False
    assert jax.numpy.ones(1).dtype == np.float32


def test_a_stop_keeps_what_was_sampled(simulated):
    before = signal.getsignal(signal.SIGINT)

    def interrupt(progress):
        if progress.draws_done >= 100:
            os.kill(os.getpid(), signal.SIGINT)

    result = bayesfit.fit(simulated[0], seed=1, draws=1000, progress=interrupt, on_interrupt="return")
    assert threading.current_thread() is threading.main_thread()
    assert signal.getsignal(signal.SIGINT) is before
    verdicts = result["diagnostics"].verdict.values
    assert (np.delete(verdicts, 3) == "interrupted").all()
    made = np.isfinite(result["posterior"].rate.isel(chain=0, q_bin=0)).sum().item()
    assert 100 <= made < 1000
    assert bayesfit.summary(result).loc[0, "rate"] > 0


def test_signals_are_the_callers(simulated):
    """Ctrl-C raises, as anywhere in Python, and SIGTERM does what the caller has said."""
    asked = []
    terminate = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it

    def tell(progress):
        os.kill(os.getpid(), signal.SIGTERM if progress.stage == "estimate" else signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt):
            bayesfit.fit(simulated[0].isel(q_bin=[0, 1]), progress=lambda p: p.stage == "point estimate" or tell(p))
    finally:
        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, interrupt)
    assert set(asked) == {signal.SIGTERM}
    with pytest.raises(bayesfit.SettingsError, match="on_interrupt"):
        bayesfit.fit(simulated[0], on_interrupt="stop")


def test_interrupted_draws_are_the_first_of_the_whole_run(simulated, fitted):
    def interrupt(progress):
        if progress.draws_done >= 50:
            os.kill(os.getpid(), signal.SIGINT)

    part = bayesfit.fit(simulated[0], seed=1, progress=interrupt, on_interrupt="return")["posterior"].rate
    plain = np.flatnonzero(fitted["diagnostics"].thin == 1)
    for bin in plain:
        made = np.isfinite(part.isel(q_bin=bin)).all("chain").sum().item()
        assert made >= 50
        first = {"q_bin": bin, "draw": slice(0, made)}
        np.testing.assert_array_equal(part.isel(first), fitted["posterior"].rate.isel(first))
    assert plain.size > 5


def test_all_bins_dead_gives_a_result_that_says_so(simulated):
    dead = simulated[0].isel(q_bin=[3])
    result = bayesfit.fit(dead, draws=20)
    assert list(result["diagnostics"].verdict.values) == ["unusable_data"]
    assert {"rate", "contrast"} <= set(result["posterior"].data_vars)


def test_selected_bins_beside_a_dead_one_keep_their_numbers(simulated):
    found = bayesfit.fit(simulated[0].isel(q_bin=[2, 3]), draws=20)["diagnostics"]
    assert found.q_bin.values.tolist() == [2, 3]
    assert list(found.verdict.values == "unusable_data") == [False, True]
    assert list(found.points.values > 0) == list(found.contraction.notnull().any("parameter").values) == [True, False]


def test_summary_and_picture(fitted, tmp_path):
    table = bayesfit.summary(fitted)
    other = bayesfit.summary(fitted, {"D": "um^2/s", "relaxation_time": "ms"})
    for name, factor in {"D": 1e-8, "D_low": 1e-8, "D_high": 1e-8, "relaxation_time": 1e3, "rate": 1.0}.items():
        np.testing.assert_allclose(other[name], table[name] * factor, rtol=1e-12)
    assert list(table.index) == list(range(12))
    assert (table.rate_low[table.verdict == "ok"] < table.rate[table.verdict == "ok"]).all()
    bayesfit.plot_fit(fitted, path=tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000
    some = fitted.isel(q_bin=[2, 5])
    titles = [axis.get_title() for axis in bayesfit.plot_fit(some).axes[:4:2]]
    assert [title.split(",")[0] for title in titles] == ["bin 2", "bin 5"]
    assert bayesfit.plot_fit(some, [5]).axes[0].get_title() == titles[1]
    with pytest.raises(bayesfit.ResultError, match="there is no bin 3"):
        bayesfit.plot_fit(some, [3])


def test_full_numpyro_program_runs_in_numpyro(simulated):
    from numpyro.infer import Predictive

    program = bayesfit.numpyro_program(simulated[0], 0)
    with jax.enable_x64(True):
        drawn = Predictive(program, num_samples=5)(jax.random.key(0))
    assert {"rate", "beta", "contrast", "baseline", "error_scale"} <= set(drawn)


def test_a_dataset_without_our_variables_is_refused():
    with pytest.raises(bayesfit.InputError, match="g2: is missing"):
        bayesfit.fit(xr.Dataset())


def test_the_point_estimate_alone_is_the_fits(simulated, fitted):
    """Same values, standard errors and flags as in the fit's group; a dead bin is NaN."""
    alone = bayesfit.point_estimate(simulated[0], seed=1)
    for name, values in fitted["point_estimate"].to_dataset().data_vars.items():
        np.testing.assert_array_equal(alone[name], values)
    assert np.isnan(alone.rate.values[3])
    assert not alone.converged.values[3]


def test_point_estimate_refuses_what_fit_refuses(simulated):
    with pytest.raises(bayesfit.SettingsError, match="unknown noise"):
        bayesfit.point_estimate(simulated[0], noise="loud")

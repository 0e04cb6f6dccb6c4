"""Series of datasets: one result of all, the way back, and posteriors as the priors of the next."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayesfit
from bayesfit.api.sequential_prior import priors_of_bins, spread_factor
from bayesfit.cli.jobs import jobs_of
from bayesfit.cli.steps import fit_files, read_all
from bayesfit.modelling.settings import RunSettings
from bayesfit.posterior.prepare import prepare

TAU = np.geomspace(1e-3, 10.0, 40)
Q = np.array([0.005, 0.01, 0.02])
D, ERROR, DRAWS = 2.0e4, 0.004, 300


def nested(tau):
    """Two rates, where the range of one ends at the other."""
    fast = numpyro.sample("fast", dist.LogUniform(0.1, 100.0))
    slow = numpyro.sample("slow", dist.Uniform(0.0, fast))
    return 0.5 * jnp.exp(-fast * tau) + 0.5 * jnp.exp(-slow * tau)


NESTED = bayesfit.Model("nested", nested)
PROGRAM = Path(sys.executable).parent / "bayesfit"


def data(seed, D=D, error=ERROR, tau=TAU, g2=None):
    rng = np.random.default_rng(seed)
    if g2 is None:
        g2 = 1.0 + 0.2 * np.exp(-2.0 * (D * Q[:, None] ** 2 * tau) ** 0.9)
        g2 = g2 + error * rng.standard_normal(g2.shape)
    return bayesfit.curves(tau, g2, np.full_like(g2, error), q=Q, contrast_prior="TruncatedNormal(0.2, 0.2, low=0)")


def moments(result, name):
    """Mean and sd of a parameter's logarithm in each bin."""
    x = np.log(result["posterior"][name])
    return x.mean(("chain", "draw")).values, x.std(("chain", "draw")).values


@pytest.fixture(scope="module")
def steps():
    return [data(1), data(2), data(3, 1.5 * D, tau=TAU[3:] * 1.1)]


@pytest.fixture(scope="module")
def alone(steps):
    return [bayesfit.fit(step, noise="stated", draws=DRAWS) for step in steps]


@pytest.fixture(scope="module")
def apart(steps):
    return bayesfit.series(steps, noise="stated", draws=DRAWS, names=[20.0, 25.5, 30.0])


@pytest.fixture(scope="module")
def sequential(steps):
    return bayesfit.series(steps[:2], noise="stated", draws=DRAWS, sequential_prior=1, names=["a", "b"])


@pytest.fixture(scope="module")
def both(steps):
    """The fit of two datasets of one truth and known errors together: it is the fit of their mean."""
    mean = (steps[0].g2.values + steps[1].g2.values) / 2.0
    return bayesfit.fit(data(0, error=ERROR / np.sqrt(2.0), g2=mean), noise="stated", draws=DRAWS)


def test_every_group_has_the_datasets_as_a_dimension(apart):
    assert apart["posterior"].rate.dims == ("chain", "draw", "dataset", "q_bin")
    assert apart["observed_data"].g2.dims == ("dataset", "q_bin", "tau")
    assert apart["diagnostics"].verdict.dims == ("dataset", "q_bin")
    assert apart["posterior"]["dataset"].values.tolist() == [20.0, 25.5, 30.0]
    np.testing.assert_allclose(apart["posterior"].q, Q)
    assert not apart["diagnostics"].prior_is_posterior.any()
    valid = apart["constant_data"].valid
    assert valid.dtype == bool
    assert valid.sum(("q_bin", "tau")).values.tolist() == [3 * 40, 3 * 40, 3 * 37]


def test_one_dataset_is_the_fit_of_it_to_the_bit(apart, alone):
    for label, fit in zip([20.0, 25.5, 30.0], alone, strict=True):
        one = bayesfit.one_dataset(apart, label)
        assert dict(one.attrs) == dict(fit.attrs)
        for name in fit.children:
            ours, theirs = one[name].to_dataset(), fit[name].to_dataset()
            assert ours.drop_vars("prior_is_posterior", errors="ignore").equals(theirs), name
            assert ours.attrs == theirs.attrs


def test_a_series_survives_a_file(apart, sequential, tmp_path):
    for result, labels in ((apart, [20.0, 25.5, 30.0]), (sequential, ["a", "b"])):
        again = bayesfit.load(bayesfit.save(result, tmp_path / "series.nc"))
        assert again["posterior"]["dataset"].values.tolist() == labels
        np.testing.assert_array_equal(again["posterior"].rate, result["posterior"].rate.astype(np.float32))
        one, other = (bayesfit.one_dataset(tree, labels[1]) for tree in (again, result))
        assert one.attrs == other.attrs
        np.testing.assert_array_equal(one["constant_data"].valid, other["constant_data"].valid)
        np.testing.assert_array_equal(one["observed_data"].tau, other["observed_data"].tau)


def test_tables_and_pictures(apart, sequential, tmp_path):
    table = bayesfit.summary(apart)
    assert table.index.names == ["dataset", "q_bin"]
    assert len(table) == 9
    assert table.loc[30.0, 1].rate == pytest.approx(1.5 * D * Q[1] ** 2, rel=0.2)
    for result in (apart, sequential):
        bayesfit.plot_series(result, tmp_path / "series.png")
        assert (tmp_path / "series.png").stat().st_size > 5_000


def test_where_one_dataset_is_meant_a_series_is_refused(apart, alone):
    for wrong in (
        lambda: bayesfit.plot_fit(apart),
        lambda: bayesfit.compare({"a": apart}),
        lambda: bayesfit.one_bin(apart, 0),
    ):
        with pytest.raises(bayesfit.ResultError, match=r"got a series of datasets.*bayesfit.one_dataset"):
            wrong()
    with pytest.raises(bayesfit.ResultError, match="there is no dataset 21"):
        bayesfit.one_dataset(apart, 21)
    with pytest.raises(bayesfit.ResultError, match="of one dataset already"):
        bayesfit.one_dataset(alone[0], 21)
    with pytest.raises(bayesfit.ResultError, match="expected a series"):
        bayesfit.plot_series(alone[0])


# Sequential priors


def test_a_sequential_prior_from_data_of_one_truth_holds_nearly_all_of_them(sequential, both, alone):
    """The normal distributions that stand for the first posterior are a little wider than it. So no parameter becomes
    narrower than in the fit of both datasets together, but nearly as narrow."""
    last = bayesfit.one_dataset(sequential, "b")
    assert sequential["diagnostics"].prior_is_posterior.values.tolist() == [[False] * 3, [True] * 3]
    assert (sequential["diagnostics"].verdict == "ok").all()
    for name in ("rate", "beta", "contrast", "baseline"):
        (mean, sd), (exact, exact_sd), (_, single_sd) = (moments(fit, name) for fit in (last, both, alone[1]))
        assert np.all(sd > 0.9 * exact_sd), name
        assert np.all(sd < 0.92 * single_sd), name
        assert np.all(abs(mean - exact) < 0.6 * exact_sd), name


def test_widened_much_the_past_counts_for_nothing(steps, alone):
    result = bayesfit.series(steps[:2], noise="stated", draws=DRAWS, sequential_prior=30, names=["a", "b"])
    for name in ("rate", "contrast"):
        (mean, sd), (expected, expected_sd) = (
            moments(fit, name) for fit in (bayesfit.one_dataset(result, "b"), alone[1])
        )
        assert np.all(abs(mean - expected) < 0.25 * expected_sd)
        np.testing.assert_allclose(sd, expected_sd, rtol=0.12)


def given(result, curves, widen=1.0):
    with jax.enable_x64(True):
        return priors_of_bins(result, prepare(curves, noise="stated"), curves, 0, widen)


def test_priors_state_the_posterior_before_and_know_nothing_of_the_data_after(sequential, alone, steps):
    """loc and scale are those of the first posterior, whatever the second dataset holds."""
    priors, bins = given(alone[0], steps[1])
    assert bins.all()
    assert {name: prior.family for name, prior in priors.items()} == {
        "rate": "LogNormal",
        "beta": "LogitNormal",
        "contrast": "TruncatedNormal",
        "baseline": "Normal",
    }
    assert np.all(priors["beta"].values["low"] == 0.2)
    mean, sd = moments(alone[0], "rate")
    np.testing.assert_allclose(priors["rate"].values["loc"], mean, rtol=1e-12)
    factor = priors["rate"].values["scale"] / sd
    assert np.all((factor >= 1.0) & (factor < 2.0))
    baseline = alone[0]["posterior"].baseline.std(("chain", "draw"))
    np.testing.assert_allclose(priors["baseline"].values["scale"], factor * baseline, rtol=1e-9)
    stated = json.loads(bayesfit.one_dataset(sequential, "b").attrs["priors"])
    other, _ = given(alone[0], data(77, 3.0 * D))
    for name, prior in priors.items():
        for key in ("loc", "scale"):
            np.testing.assert_array_equal(stated[name][key], prior.values[key])
            np.testing.assert_array_equal(other[name].values[key], prior.values[key])


def test_a_bin_that_is_not_ok_has_its_original_prior(alone, steps):
    spoilt = alone[0].copy()
    verdict = spoilt["diagnostics"].verdict.copy()
    verdict[1] = "misfit"
    spoilt["diagnostics"] = spoilt["diagnostics"].to_dataset().assign(verdict=verdict)
    priors, bins = given(spoilt, steps[1], widen=3.0)
    assert bins.tolist() == [True, False, True]
    low, high = np.log(0.1 / TAU.max()), np.log(10.0 / TAU.min())
    assert priors["rate"].values["loc"][1] == pytest.approx((low + high) / 2.0, abs=0.1 * (high - low))
    assert priors["rate"].values["scale"][1] == pytest.approx((high - low) / np.sqrt(12.0), rel=0.1)
    assert priors["beta"].values["scale"][1] == pytest.approx(np.pi / np.sqrt(3.0), rel=0.15)
    assert (priors["contrast"].values["loc"][1], priors["contrast"].values["scale"][1]) == (0.2, 0.2)
    whole, _ = given(alone[0], steps[1])
    np.testing.assert_allclose(priors["rate"].values["scale"][[0, 2]], 3.0 * whole["rate"].values["scale"][[0, 2]])
    spoilt["diagnostics"]["verdict"][:] = "not_identified"
    none, bins = given(spoilt, steps[1])
    assert not none
    assert not bins.any()


def test_independent_normals_are_nowhere_narrower_than_the_posterior():
    """The common factor makes the diagonal covariance exceed the full one, and no smaller one does."""
    rng = np.random.default_rng(4)
    for _ in range(5):
        z = rng.standard_normal((4, 4)) @ rng.standard_normal((4, 1000))
        covariance = np.cov(z)
        excess = np.linalg.eigvalsh(spread_factor(z) ** 2 * np.diag(np.diag(covariance)) - covariance)
        assert excess[0] == pytest.approx(0.0, abs=1e-9 * excess[-1])
    assert spread_factor(rng.standard_normal((1, 50))) == pytest.approx(1.0)


def test_what_bins_of_joint_fits_have_in_common_has_a_sequential_prior(steps):
    """With all else fixed, D of the second step is as certain as two datasets together make it."""
    fixed = {"beta": 0.9, "contrast": 0.2, "baseline": 1.0}
    options = {"noise": "stated", "draws": DRAWS, "fixed": fixed, "across": {"rate": "diffusion"}}
    result = bayesfit.series(steps[:2], sequential_prior=1, **options)
    assert result["posterior"].D.dims == ("chain", "draw", "dataset")
    log_D = np.log(result["posterior"].D)
    mean, sd = log_D.mean(("chain", "draw")).values, log_D.std(("chain", "draw")).values
    assert sd[1] == pytest.approx(sd[0] / np.sqrt(2.0), rel=0.12)
    stated = json.loads(bayesfit.one_dataset(result, 1).attrs["priors_in_common"])
    assert stated["D"]["family"] == "LogNormal"
    assert stated["D"]["loc"] == pytest.approx(mean[0])
    in_common = result.copy()
    in_common["posterior"] = result["posterior"].dataset[["D"]]
    (line, *_), _ = bayesfit.plot_series(in_common).axes[0].get_legend_handles_labels()
    np.testing.assert_allclose(line.get_ydata(), result["posterior"].D.median(("chain", "draw")))
    with pytest.raises(
        bayesfit.SettingsError, match=r"sequential_prior: 'rate' has values of bins or groups that scatter"
    ):
        bayesfit.series(steps[:2], sequential_prior=1, across={"rate": "pooled"})


def test_verdicts_of_joint_fits_compare_with_the_original_priors(steps):
    """A posterior hardly narrows a prior that is as narrow; it does the one that the parameter had at first. So it is
    for what is sampled, for what follows from it, and for an amplitude that is integrated out."""
    across = {"rate": "power_law", "beta": "shared", "baseline": "shared"}
    options = {"noise": "stated", "draws": DRAWS, "across": across, "priors": {"beta": "Uniform(0.5, 1.5)"}}
    result = bayesfit.series(steps[:2], sequential_prior=1, **options)
    first, second = (bayesfit.one_dataset(result, label)["across"] for label in (0, 1))
    assert {"rate_middle", "n", "D", "beta", "baseline"} <= set(second.parameter.values)
    np.testing.assert_array_less(0.75, second.contraction)
    np.testing.assert_allclose(second.contraction, first.contraction, atol=0.1)
    assert set(second.verdict.values) == {"ok"}


def test_a_joint_posterior_that_the_range_of_its_prior_cuts_off_is_no_prior():
    slow = [data(seed, D=0.05 / TAU[-1] / Q[-1] ** 2) for seed in (1, 2)]
    options = {"model": "single_exponential", "noise": "stated", "draws": DRAWS, "across": {"rate": "diffusion"}}
    result = bayesfit.series(slow, sequential_prior=1, **options)
    assert not result["diagnostics"].prior_is_posterior.values.any()
    for label in (0, 1):
        across = bayesfit.one_dataset(result, label)["across"]
        assert "the range of the prior cuts off the posterior: D below" in across.reason.values[0]
        assert across.near_end.values[0] > 0.02


def test_an_interrupt_keeps_what_is_done(steps):
    def report(progress):
        if progress.dataset == "second":
            raise KeyboardInterrupt

    options = {"noise": "stated", "draws": 50, "target_ess": 0, "names": ["first", "second", "third"]}
    result = bayesfit.series(steps, progress=report, on_interrupt="return", **options)
    assert result["posterior"]["dataset"].values.tolist() == ["first"]
    assert result.attrs["datasets_left_out"] == "second, third"
    with pytest.raises(KeyboardInterrupt):
        bayesfit.series(steps[1:], progress=report, **{**options, "names": ["second", "third"]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequential_prior": 0.5}, "sequential_prior: got 0.5, expected a number of 1 or more"),
        ({"sequential_prior": True}, "sequential_prior: got True"),
        ({"drows": 3}, "drows: unknown setting. Did you mean 'draws'"),
        ({"names": [1, 1]}, "names: two datasets have one name"),
        ({"fixed": {"bet": 1}}, "fixed: unknown parameter 'bet'"),
        ({"sequential_prior": 2, "model": NESTED}, "priors.slow: the range of its prior depends on other parameters"),
    ],
)
def test_wrong_use_is_refused_before_any_sampling(steps, options, message):
    def report(progress):
        raise AssertionError("sampling has begun")

    with pytest.raises(bayesfit.BayesfitError) as caught:
        bayesfit.series(steps[:2], **options, progress=report)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_datasets_of_other_bins_are_refused(steps):
    with pytest.raises(bayesfit.InputError, match=r"q: bin 2: 0.021, but 0.02 in the first dataset"):
        bayesfit.series([steps[0], steps[1].assign_coords(q=("q_bin", [0.005, 0.01, 0.021]))])


# The command line


def test_results_of_several_files_keep_the_whole_name_of_the_first(tmp_path):
    files = [tmp_path / "scan.001.csv", tmp_path / "scan.002.csv"]
    assert jobs_of(files, tmp_path, "average")[0].output.name == "scan.001_average.nc"
    assert jobs_of([tmp_path], tmp_path, "series")[0].output.name == f"{tmp_path.stem}_series.nc"


def call(*arguments, code=0):
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def write(path, values):
    rows = [f"{tau:.6g},{','.join(f'{x:.6g}' for x in row)}" for tau, row in zip(TAU, values.T, strict=True)]
    path.write_text(f"tau,{','.join(map(str, Q))}\n" + "\n".join(rows))


def test_several_files_as_one_on_the_command_line(steps, tmp_path):
    """A series with its tables and picture; repeats averaged, and the averages stacked."""
    files = []
    for number, step in enumerate(steps[:2]):
        files.append(tmp_path / f"at_{number}.csv")
        write(files[-1], step.g2.values)
        write(tmp_path / f"at_{number}_err.csv", step.g2_err.values)
    options = ["--noise", "stated", "--set", f"draws={DRAWS}"]
    call("run", *files, "-o", tmp_path, "--together", "series", "--set", "sequential_prior=1.5", "--plot", *options)
    path = tmp_path / "at_0_series.nc"
    assert path.with_suffix(".png").stat().st_size > 5_000
    loaded = bayesfit.load(path)
    assert loaded["posterior"]["dataset"].values.tolist() == ["at_0", "at_1"]
    assert loaded.attrs["sequential_prior"] == 1.5
    shown = call("show", path).stdout
    assert "dataset at_0" in shown
    assert "dataset at_1" in shown
    assert "only a fit of one dataset" in call("plot", path, "-o", tmp_path / "x.png", "-b", 1, code=2).stderr
    loaded.attrs["datasets_left_out"] = "at_2"
    assert "interrupted: not fitted were at_2" in call("show", bayesfit.save(loaded, tmp_path / "short.nc")).stdout
    settings = RunSettings(together="average_stack", noise="stated", draws=DRAWS)
    stacked, _ = fit_files(read_all(files, settings), tmp_path / "stacked.nc", settings, lambda progress: None)
    assert stacked["constant_data"].repeats_used.values.tolist() == [2] * 3

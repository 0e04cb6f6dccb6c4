"""Leave-one-out densities, stacking weights, and the comparison of results."""

import subprocess
import sys
from pathlib import Path

import arviz as az
import numpy as np
import pytest
import xarray as xr
from arviz_stats.base import array_stats
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import bayesfit
from bayesfit.api import compare as _compare
from bayesfit.cli.main import main
from bayesfit.cli.tables import comparison_line, comparison_table

PROGRAM = Path(sys.executable).parent / "bayesfit"
CHAINS, DRAWS, POINTS = 4, 500, 40
NOISE = 0.01
MODELS = {"right": (1.0, 0.1, NOISE), "narrow": (1.0, 0.1, 0.6 * NOISE), "elsewhere": (0.98, 0.002, NOISE)}


def data(bins=3, seed=0):
    """Constant curves about 1 with independent noise, one point of each bin masked."""
    rng = np.random.default_rng(seed)
    g2 = 1.0 + NOISE * rng.standard_normal((bins, POINTS))
    valid = np.ones(g2.shape, bool)
    valid[np.arange(bins), rng.integers(0, POINTS, bins)] = False
    g2[~valid] = 0.0
    coords = {"q_bin": np.arange(bins), "tau": np.geomspace(1e-3, 1, POINTS), "q": ("q_bin", 0.01 + np.arange(bins))}
    arrays = {"g2": g2, "g2_err": np.full(g2.shape, NOISE), "valid": valid}
    return xr.Dataset({name: (("q_bin", "tau"), array) for name, array in arrays.items()}, coords)


def conjugate(curves, loc, scale, sigma, seed=1):
    """The result of a normal mean with a normal prior and known noise, by independent draws from its posterior."""
    precision, mean = normal_posterior(curves, loc, scale, sigma)
    noise = np.random.default_rng(seed).standard_normal((CHAINS, DRAWS, len(mean)))
    mu = xr.DataArray(mean + noise / np.sqrt(precision), dims=("chain", "draw", "q_bin"))
    log_likelihood = xr.apply_ufunc(norm.logpdf, curves.g2, mu, sigma).where(curves.valid)
    verdict = np.array(["ok"] * len(mean), dtype=object)
    groups = {
        "posterior": mu.to_dataset(name="mu"),
        "log_likelihood": log_likelihood.transpose("chain", "draw", "q_bin", "tau").to_dataset(name="g2"),
        "observed_data": curves[["g2"]],
        "constant_data": curves[["g2_err", "valid"]],
        "diagnostics": xr.Dataset({"verdict": ("q_bin", verdict)}),
    }
    return xr.DataTree.from_dict(groups)


def normal_posterior(curves, loc, scale, sigma):
    count = curves.valid.sum("tau").values
    precision = scale**-2 + count * sigma**-2
    return precision, (loc * scale**-2 + curves.g2.where(curves.valid).sum("tau").values * sigma**-2) / precision


def exact(curves, loc, scale, sigma):
    """Log predictive density of each point left out: the posterior without it, convolved with the noise."""
    precision, mean = (x[:, None] for x in normal_posterior(curves, loc, scale, sigma))
    without = precision - sigma**-2
    centre = (mean * precision - curves.g2.values * sigma**-2) / without
    return np.where(curves.valid, norm.logpdf(curves.g2, centre, np.sqrt(sigma**2 + 1 / without)), np.nan)


@pytest.fixture(scope="module")
def curves():
    return data()


@pytest.fixture(scope="module")
def results(curves):
    return {name: conjugate(curves, *prior) for name, prior in MODELS.items()}


@pytest.fixture(scope="module")
def comparison(results):
    return bayesfit.compare(results)


def test_equals_the_exact_densities_of_a_conjugate_model(curves, comparison):
    expected = np.array([exact(curves, *prior) for prior in MODELS.values()])
    np.testing.assert_allclose(comparison.elpd_i, expected, atol=0.04)
    np.testing.assert_allclose(comparison.elpd, comparison.elpd_i.sum("tau"))
    assert np.all(comparison.pareto_k < 0.5)
    assert np.all(comparison.bad_k == 0)
    assert np.all(comparison["rank"].sel(model="right") == 0)
    np.testing.assert_allclose(comparison.p_loo.sel(model="right"), 1.0, atol=0.5)


def one_bin(result, bin):
    """The result of one bin as ArviZ takes it, without the points that are not data."""
    valid = np.flatnonzero(result["constant_data"].valid.values[bin])
    bin_only = {name: node.to_dataset().isel(q_bin=bin) for name, node in result.children.items()}
    cut = {name: group.isel(tau=valid) if "tau" in group.dims else group for name, group in bin_only.items()}
    return xr.DataTree.from_dict({name: cut[name] for name in ("posterior", "log_likelihood")}), valid


def test_equals_arviz(results, comparison, monkeypatch):
    """ArviZ takes one relative efficiency for all points."""
    monkeypatch.setattr(_compare, "relative_efficiency", lambda x: np.full(len(x), 0.7))
    ours, theirs = bayesfit.compare(results).isel(q_bin=1), {}
    for name, result in results.items():
        tree, valid = one_bin(result, 1)
        theirs[name] = az.loo(tree, pointwise=True, reff=0.7)
        row = ours.sel(model=name)
        np.testing.assert_allclose(row.elpd_i[valid], theirs[name].elpd_i, rtol=1e-12)
        np.testing.assert_allclose(row.pareto_k_i[valid], theirs[name].pareto_k, rtol=1e-9)
        np.testing.assert_allclose(
            [row.elpd, row.se, row.p_loo], [getattr(theirs[name], a) for a in ("elpd", "se", "p")]
        )
    table = az.compare(theirs, method="stacking", round_to="none").loc[list(results)]
    np.testing.assert_array_equal(ours["rank"], table["rank"])
    np.testing.assert_allclose(ours.elpd_diff, table.elpd_diff, rtol=1e-9)
    count = len(valid)
    np.testing.assert_allclose(ours.diff_se, table.dse * np.sqrt(count / (count - 1)), rtol=1e-9)  # ddof as of se
    np.testing.assert_allclose(ours.weight, table.weight, atol=2e-3)


def test_relative_efficiency_is_that_of_the_likelihood():
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.standard_normal((3, 4, 200)), axis=-1) / 20 - 3000.0
    expected = [array_stats.ess(np.exp(row + 3000.0), method="mean") / row.size for row in x]
    np.testing.assert_allclose(_compare.relative_efficiency(x), expected, rtol=1e-9)


def score(weight, elpd):
    return np.sum(np.log(np.tensordot(weight, np.exp(elpd), axes=(0, 0))), axis=-1)


def random_elpd(models, bins, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    offset = rng.normal(0.0, 0.2, (models, bins, 1))
    return spread * (offset + rng.standard_normal((models, bins, 70))) - 2.0


def test_two_stacking_weights_equal_brute_force():
    elpd = random_elpd(2, 20, seed=0)
    weight = _compare.stacking_weights(elpd)
    for bin in range(20):
        found = minimize_scalar(
            lambda w, bin=bin: -score(np.array([w, 1 - w]), elpd[:, bin]), bounds=(0, 1), options={"xatol": 1e-9}
        )
        np.testing.assert_allclose(weight[0, bin], found.x, atol=1e-5)


@pytest.mark.parametrize("spread", [1e-4, 0.1, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("models", [1, 2, 3, 6])
def test_stacking_weights_are_optimal(models, spread):
    """No model's score rises along the simplex: the mean of density over mixture is at most 1."""
    elpd = random_elpd(models, 50, seed=models, spread=spread)
    weight = _compare.stacking_weights(elpd)
    assert np.all(weight > 0)
    np.testing.assert_allclose(weight.sum(axis=0), 1.0, rtol=1e-12)
    shifted = np.exp(elpd - elpd.max(axis=0))
    gradient = np.mean(shifted / np.sum(weight[..., None] * shifted, axis=0), axis=-1)
    assert np.all(gradient < 1 + 1e-7)


def test_stacking_of_the_same_model_twice_is_even():
    elpd = random_elpd(2, 4, seed=3)
    weight = _compare.stacking_weights(elpd[[0, 1, 1]])
    np.testing.assert_allclose(weight[1], weight[2], rtol=1e-6)
    np.testing.assert_allclose(weight[0], _compare.stacking_weights(elpd)[0], atol=1e-5)
    np.testing.assert_allclose(_compare.stacking_weights(elpd[[1, 1]]), 0.5)


def test_points_that_are_nan_do_not_count_in_stacking():
    elpd = random_elpd(3, 4, seed=4)
    padded = np.concatenate([np.full((3, 4, 5), np.nan), elpd], axis=-1)
    np.testing.assert_allclose(_compare.stacking_weights(padded), _compare.stacking_weights(elpd), atol=1e-6)


def test_a_bin_depends_on_no_other(results, comparison):
    alone = bayesfit.compare({name: result.isel(q_bin=[2]) for name, result in results.items()})
    xr.testing.assert_identical(alone, comparison.isel(q_bin=[2]))


def test_draws_that_were_not_made_do_not_count(curves, results):
    short = results["right"].copy(deep=True)
    short["log_likelihood"].g2.values[:, 200:, 0] = np.nan
    first = results["right"].isel(draw=slice(200), q_bin=[0])
    got = bayesfit.compare({"short": short}).isel(q_bin=[0])
    xr.testing.assert_identical(got.elpd_i, bayesfit.compare({"short": first}).elpd_i)
    threshold = 1 - 1 / np.log10(CHAINS * 200)
    assert _compare.largest_good_k(CHAINS * 200) == threshold < 0.7 == _compare.largest_good_k(10**6)


@pytest.mark.parametrize("fault", ["no draws", "few draws", "infinite", "one point"])
def test_a_bin_that_cannot_be_compared_is_nan_for_all_models(results, comparison, fault):
    broken = results["narrow"].copy(deep=True)
    values = broken["log_likelihood"].g2.values
    point = np.flatnonzero(broken["constant_data"].valid.values[1])[3]
    places = {"no draws": np.s_[:, :, 1], "few draws": np.s_[:, 7:, 1], "infinite": np.s_[0, 5, 1, point]}
    values[places.get(fault, np.s_[:, :, 1, point])] = -np.inf if fault == "infinite" else np.nan
    got = bayesfit.compare(results | {"narrow": broken})
    for name in set(got.data_vars) - {"verdict"}:
        assert got[name].isel(q_bin=1).isnull().all()
        xr.testing.assert_allclose(got[name].isel(q_bin=[0, 2]), comparison[name].isel(q_bin=[0, 2]), atol=1e-8)
    assert _compare.totals(got).attrs["bins"] == 2
    assert list(comparison_table(got).columns[2].cells) == ["right", "-", "right"]
    assert comparison_line(got).startswith("sum of 2 bins")


def test_constant_likelihood_and_equal_tails():
    """A model without parameters is exact; where only the largest weights are equal, k is infinite."""
    flat = np.full((4, 100), -3.0)
    stuck = np.random.default_rng(0).standard_normal((4, 100))
    stuck[0] = -4.0
    elpd, k, p_loo = _compare.leave_one_out(np.stack([flat, stuck]))
    np.testing.assert_array_equal(k, [0.0, np.inf])
    np.testing.assert_allclose(elpd, [-3.0, -np.log(np.mean(np.exp(-stuck)))])
    np.testing.assert_allclose(elpd + p_loo, [-3.0, np.log(np.mean(np.exp(stuck)))])


def test_influential_points_are_counted(curves, results):
    """Importance weights exp(-log likelihood) whose tail has no mean."""
    heavy = results["right"].copy(deep=True)
    rng = np.random.default_rng(5)
    point = np.flatnonzero(heavy["constant_data"].valid.values[0])[0]
    heavy["log_likelihood"].g2.values[:, :, 0, point] = -np.log1p(rng.pareto(0.8, (CHAINS, DRAWS)))
    got = bayesfit.compare({"heavy": heavy, "right": results["right"]}).sel(model="heavy")
    assert got.bad_k[0] == 1
    assert got.pareto_k[0] == got.pareto_k_i[0, point] > 0.7


@pytest.mark.parametrize("field", ["g2", "g2_err", "valid", "tau", "q_bin"])
def test_other_data_are_refused(curves, results, field):
    changed = curves.copy(deep=True)
    if field == "q_bin":
        changed = changed.isel(q_bin=[0, 1])
    elif field == "tau":
        changed = changed.assign_coords(tau=1.001 * changed.tau)
    else:
        changed[field].values[1, 3] = ~changed[field].values[1, 3] if field == "valid" else 1.5
    with pytest.raises(bayesfit.InputError, match="'other'") as caught:
        bayesfit.compare({"right": results["right"], "other": conjugate(changed, *MODELS["right"])})
    assert caught.value.field == field
    assert caught.value.bin == (1 if field in ("g2", "g2_err", "valid") else None)


def test_results_without_log_likelihood_are_refused(results):
    bare = results["right"].copy()
    del bare["log_likelihood"]
    with pytest.raises(bayesfit.SettingsError, match=r"model 'bare'.*include"):
        bayesfit.compare({"right": results["right"], "bare": bare})
    with pytest.raises(bayesfit.SettingsError, match="nothing to compare"):
        bayesfit.compare({})


def test_totals_are_sums_over_bins(comparison):
    sums = _compare.totals(comparison)
    np.testing.assert_allclose(sums.elpd, comparison.elpd.sum("q_bin"))
    np.testing.assert_allclose(sums.elpd_diff, sums.elpd - sums.elpd.max())
    clear = comparison.elpd_diff < -2 * comparison.diff_se
    won = [int(clear.drop_sel(model=name).all("model").sum()) for name in comparison.model.values]
    np.testing.assert_array_equal(sums.wins, won)
    assert sums.wins.sel(model="right") > 0


def test_table_has_a_row_a_bin_and_flags(comparison):
    marked = comparison.copy(deep=True)
    marked.bad_k.loc[{"model": "narrow", "q_bin": 1}] = 2
    marked.verdict.loc[{"model": "elsewhere", "q_bin": 2}] = "poor_mixing"
    table = comparison_table(marked)
    columns = [list(column.cells) for column in table.columns]
    assert columns[0] == ["0", "1", "2"]
    assert columns[2] == ["right"] * 3
    assert "(k " in columns[5][1]
    assert "(k " not in columns[5][0]
    assert "(poor_mixing)" in columns[7][2]
    assert str(table.caption).startswith("sum of 3 bins: right elpd")


def test_the_fields_models_are_told_apart():
    """One bin of each kind of decay, fitted with each model: the right one is best, or no worse than a richer one."""
    tau, noise = np.geomspace(1e-3, 10.0, 60), 0.002 * np.random.default_rng(8).standard_normal((3, 60))
    fields = {
        "single_exponential": np.exp(-5.0 * tau),
        "stretched_exponential": np.exp(-((5.0 * tau) ** 0.6)),
        "double_exponential": 0.5 * np.exp(-0.5 * tau) + 0.5 * np.exp(-40.0 * tau),
    }
    g2 = 1.0 + 0.2 * np.stack(list(fields.values())) ** 2 + noise
    curves = bayesfit.curves(tau, g2, np.full_like(g2, 0.002), contrast_prior="TruncatedNormal(0.2, 0.2, low=0)")
    fits = {name: bayesfit.fit(curves, name, draws=200, include=("log_likelihood",)) for name in fields}
    got = bayesfit.compare(fits)
    np.testing.assert_allclose(got.weight.sum("model"), 1.0)
    for bin, name in enumerate(fields):
        right = got.sel(model=name).isel(q_bin=bin)
        assert right.elpd_diff > -2.0 * right.diff_se - 1e-9
        assert fits[name]["diagnostics"].verdict.values[bin] in ("ok", "not_identified")
    one, _, two = (got.isel(q_bin=bin) for bin in range(3))
    assert two.weight.sel(model="double_exponential") > 0.9
    for model in ("single_exponential", "stretched_exponential"):
        assert two.elpd_diff.sel(model=model) < -5.0 * two.diff_se.sel(model=model)
    assert got.elpd_diff.sel(model="single_exponential")[1] < -5.0 * got.diff_se.sel(model="single_exponential")[1]
    assert one.elpd_diff.sel(model="double_exponential") > -3.0


def test_command_line(results, comparison, tmp_path, monkeypatch, capsys):
    for name in ("right", "narrow"):
        bayesfit.save(results[name], tmp_path / f"{name}.nc")
    bare = results["right"].copy()
    del bare["log_likelihood"]
    bayesfit.save(bare, tmp_path / "bare.nc")
    out = tmp_path / "out.nc"
    arguments = [PROGRAM, "compare", f"[a]={tmp_path / 'right.nc'}", tmp_path / "narrow.nc", "-o", out]
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=True)
    assert "sum of 3 bins: [a] elpd" in done.stdout
    with xr.open_dataset(out, engine="h5netcdf") as saved:
        assert list(saved.model.values) == ["[a]", "narrow"]
        np.testing.assert_allclose(saved.elpd, comparison.sel(model=["right", "narrow"]).elpd, rtol=1e-5)
    for files, code, message in [
        (("right.nc", "bare.nc"), 2, "model 'bare': its result has no group log_likelihood"),
        (("right.nc", "right.nc"), 2, "two results are named 'right'"),
        (("right.nc", "absent.nc"), 1, "no such file"),
    ]:
        monkeypatch.setattr(sys, "argv", ["bayesfit", "compare", *(str(tmp_path / file) for file in files)])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == code
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1
        assert message in lines[0]

"""Bins whose noise is not independent: found from the data alone, named before a joint fit or a law, and not `ok`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import bayesfit
from bayesfit.data.dependence import LEVEL, dependence, discovered

ERROR = 0.005


def curves(bins=2, points=100, correlation=0.0, seed=0, error=ERROR, alike=False, freedom=None):
    """Decays with noise; that of the first two bins correlates. `alike`: of one rate; `freedom`: Student's noise."""
    rng = np.random.default_rng(seed)
    tau = np.geomspace(1e-3, 10.0, points)
    noise = rng.standard_normal((bins, points)) if freedom is None else rng.standard_t(freedom, (bins, points))
    noise[1] = correlation * noise[0] + np.sqrt(1.0 - correlation**2) * noise[1]
    rate = np.full(bins, 3.0) if alike else np.geomspace(0.5, 20.0, bins)
    g2 = 1.0 + 0.2 * np.exp(-2.0 * rate[:, None] * tau) + error * noise
    return bayesfit.curves(tau, g2, np.full(g2.shape, error), q=np.sqrt(rate / 2e4))


def called(**settings):
    """Whether the first two bins are called, and any others."""
    pairs = [set(group.tolist()) for group in dependence(curves(**settings)).groups]
    return {0, 1} in pairs, any(pair != {0, 1} for pair in pairs)


# ---- what is called


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(
    "kind", [{"bins": 2}, {"bins": 10}, {"bins": 10, "error": 2e-4}, {"bins": 10, "points": 40}, {"freedom": 3}]
)
def test_independent_bins_are_called_in_one_dataset_of_a_hundred(kind, alike):
    """200 datasets; the probability that 1 % gives more than 6 is 0.4 %."""
    rounds = [called(seed=seed, alike=alike, **kind) for seed in range(200)]
    assert np.sum(np.any(rounds, axis=1)) <= 6


@pytest.mark.parametrize(
    ("correlation", "bins", "least"), [(0.5, 2, 0.9), (0.5, 10, 0.5), (0.7, 10, 0.97), (0.95, 30, 1.0)]
)
def test_bins_that_correlate_are_called(correlation, bins, least):
    """With 100 delays; the share of 60 datasets in which the pair is called."""
    rounds = [called(bins=bins, correlation=correlation, seed=seed) for seed in range(60)]
    assert np.mean([pair for pair, _ in rounds]) >= least
    assert np.mean([others for _, others in rounds]) <= 0.05


def test_wrong_stated_errors_change_nothing():
    data = curves(10, correlation=0.9)
    wrong = data.assign(g2_err=data.g2_err * np.geomspace(1e-3, 1e3, 10)[:, None])
    np.testing.assert_allclose(dependence(data).correlation, dependence(wrong).correlation, atol=0.02)


def test_bins_of_a_few_same_numbers_and_bins_without_noise():
    same = curves(points=8).isel(q_bin=[0, 0, 1])
    assert [group.tolist() for group in dependence(same).groups] == [[0, 1]]
    exact = curves(5, error=1e-9)
    assert dependence(exact).words == ""
    assert dependence(curves(1 + 1, points=4)).words == ""


def test_missing_points_and_other_delays():
    """Only the delays that two bins have in common are compared."""
    data = curves(2, correlation=0.9)
    kept = np.random.default_rng(0).random(data.g2.shape) > 0.3
    assert dependence(data.assign(valid=data.valid & kept)).groups
    half = np.arange(data.sizes["tau"]) % 2 == 0
    assert not dependence(data.assign(valid=data.valid & np.array([half, ~half]))).groups


def test_an_average_beside_its_repeats_is_called():
    """So are two averages that have repeats in common: neither is a weighted mean of others, but they are dependent."""
    repeats = [curves(2, seed=seed) for seed in range(3)]
    one, other = bayesfit.average(repeats[:2]), bayesfit.average(repeats[1:])
    whole = bayesfit.stack([one, other], names=["one", "other"])
    found = dependence(whole)
    assert [group.tolist() for group in found.groups] == [[0, 2], [1, 3]]
    assert "bins 0 (one), 2 (other) (correlation 0." in found.words
    assert found.too_narrow == pytest.approx(np.sqrt(1.5), abs=0.12)


def test_repeats_at_thirteen_angles_are_independent_and_columns_of_one_light_are_not(shared_data):
    """Real curves; before the columns of one light were averaged, they were two bins."""
    from bayesfit.pipelines._alv_text import block_of, lines_of

    files = sorted((shared_data / "dls_alv_cgs3").glob("*.ASC"))
    if len(files) != 39:
        pytest.skip("no real ALV files in shared data")
    assert dependence(bayesfit.stack([bayesfit.read(file) for file in files])).words == ""
    for file in files[::6]:
        table = block_of(lines_of(file), "Correlation", file)
        found = dependence(bayesfit.curves(table[:, 0] * 1e-3, table[:, 1:3].T))
        assert found.correlation[0, 1] > 0.4
        assert found.too_narrow > 1.2


# ---- what is said of it


@pytest.fixture(scope="module")
def correlated():
    return curves(4, points=60, correlation=0.97)


QUICK = {"draws": 100, "warmup": 100, "target_ess": 0, "chains": 2}


@pytest.fixture(scope="module")
def fitted(correlated):
    return bayesfit.fit(correlated, "single_exponential", **QUICK)


def test_a_joint_fit_names_them_before_it_samples(correlated):
    seen = []
    with pytest.warns(UserWarning, match=r"the noise of bins 0, 1 \(correlation 0.9\d\) is not independent") as caught:
        result = bayesfit.fit(
            correlated, "single_exponential", across={"rate": "diffusion"}, progress=lambda _: seen.append(1), **QUICK
        )
    assert len(caught) == 1
    assert seen
    assert caught[0].filename == __file__
    words = str(caught[0].message)
    assert result.attrs["correlated_bins"] == words
    assert words in result["across"].joint_reason.item()
    assert result["across"].joint_verdict.item() not in ("ok", "not_identified")
    assert "keep one of each group, or average it" in words


def test_a_law_names_them(fitted):
    with pytest.warns(UserWarning, match="the noise of bins 0, 1") as caught:
        law = bayesfit.law(fitted, "diffusion", verdicts=ANY, draws=200)
    words = str(caught[0].message)
    assert caught[0].filename == __file__
    assert law.attrs["correlated_bins"] == words
    assert words in law["diagnostics"].law_reason.item()
    assert law["diagnostics"].law_verdict.item() in ("misfit", "poor_mixing")
    without = bayesfit.law(fitted.isel(q_bin=[0, 2, 3]), "diffusion", verdicts=ANY, draws=200)
    assert "correlated_bins" not in without.attrs


ANY = ("ok", "misfit", "not_identified", "poor_mixing")


def test_the_command_line_names_them_and_leaves_averages_out(correlated, tmp_path):
    """Two files of which one is measured, with its noisier repeat and the average of both."""
    noise = 2 * ERROR * np.random.default_rng(1).standard_normal(correlated.g2.shape)
    for name, g2 in {"one": correlated.g2, "other": correlated.g2 + noise, "third": correlated.g2 + noise / 2}.items():
        rows = [",".join(f"{value:.7g}" for value in row) for row in np.vstack([correlated.tau, g2]).T]
        header = ",".join(["tau", *(f"{q:.6g}" for q in correlated.q.values)])
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    quick = {**QUICK, "names": ["a", "b", "c"], "model": "single_exponential", "across.rate": "diffusion"}
    settings = [f"--set={name}={json.dumps(value)}" for name, value in quick.items()]
    program = Path(sys.executable).parent / "bayesfit"
    command = [program, "run", *sorted(tmp_path.iterdir()), "-o", tmp_path, "--together", "stack", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), (done.stdout, done.stderr)
    assert f"left out: {tmp_path / 'third.csv'}, the average of one, other" in done.stdout
    assert "warning: the noise of bins 0 (a), 1 (a)" in done.stderr
    result = bayesfit.load(tmp_path / "one_stack.nc")
    assert result["constant_data"].source.values.tolist() == ["a"] * 4 + ["b"] * 4
    assert "the noise of bins 0 (a), 1 (a)" in result["across"].joint_reason.item()
    assert "the noise of bins 0 (a), 1 (a)" in done.stdout


@pytest.mark.parametrize("power", [1.0, 3.0, 30.0])
def test_discoveries_are_those_of_benjamini_and_hochberg(power):
    p = np.random.default_rng(0).uniform(size=(50, 40)) ** power
    for row in p:
        np.testing.assert_array_equal(discovered(row), stats.false_discovery_control(row) < LEVEL)

"""Prior and data in conflict, data without noise, and values beyond single precision: from files and from Python."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayesfit
from bayesfit.diagnose.prior_conflict import LEAST_TAIL, conflicts, in_most_bins
from bayesfit.modelling.priors import FAMILIES, build
from bayesfit.posterior.coordinates import log_range, tail

PROGRAM = Path(sys.executable).parent / "bayesfit"
TAU = np.geomspace(1e-5, 1.0, 48)
Q = np.array([2e-3, 4e-3])
DECAYS = 0.3 * np.exp(-2 * 2e7 * Q[:, None] ** 2 * TAU)
ERROR = 3e-3

VALUES = {"loc": 1.2, "scale": 0.5, "low": 0.2, "high": 3.0, "rate": 2.0, "concentration": 2.0, "df": 3.0}
VALUES |= {"concentration1": 2.0, "concentration0": 3.0}
FLAT = ("Uniform", "LogUniform")  # nothing is a tail of these
ONE_SIDED = ("HalfNormal", "HalfCauchy", "Exponential")


def of(family):
    return build(family, {name: np.asarray(VALUES[name]) for name in FAMILIES[family]})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_share_of_prior_draws_that_are_called_out(family):
    """Of draws from a prior itself, no more lie in its tail than the tail says."""
    with jax.enable_x64(True):
        fn = of(family)
        found = np.asarray(tail(fn, fn.sample(jax.random.key(1), (20_000,))))
    for level in (1e-3, 1e-2):
        assert stats.binom.sf(np.sum(found < level) - 1, found.size, level) > 1e-3
    assert np.any(found < 0.05) != (family in FLAT)


def test_tails_against_an_independent_library():
    cases = {
        "Normal": (stats.norm(1.2, 0.5), (-3.0, 4.0)),
        "LogNormal": (stats.lognorm(0.5, scale=np.exp(1.2)), (0.1, 40.0)),
        "StudentT": (stats.t(3.0, 1.2, 0.5), (-9.0, 9.0)),
        "Gamma": (stats.gamma(2.0, scale=0.5), (1e-4, 9.0)),
        "TruncatedNormal": (stats.truncnorm(-2.0, np.inf, 1.2, 0.5), (4.0,)),
    }
    with jax.enable_x64(True):
        for family, (known, places) in cases.items():
            expected = [2 * min(known.cdf(x), known.sf(x)) for x in places]
            assert [float(tail(of(family), x)) for x in places] == pytest.approx(expected, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_log_uniform_prior_alone_has_a_range(family):
    ends = (VALUES["low"], VALUES["high"]) if family == "LogUniform" else (np.nan, np.nan)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(log_range(of(family), 1.0), ends)


def test_an_end_where_the_density_is_not_low_is_no_tail():
    with jax.enable_x64(True):
        for family in ONE_SIDED:
            assert tail(of(family), 1e-9) == 1.0
        assert tail(dist.TruncatedNormal(0.15, 0.2, low=0.0), 1e-9) == 1.0
        assert tail(dist.Uniform(0.5, 1.0), 1.0 - 1e-9) == 1.0


def test_a_prior_without_a_distribution_function():
    fn = dist.Kumaraswamy(3.0, 3.0)
    with jax.enable_x64(True):
        assert tail(fn, 0.5) > 0.3
        assert tail(fn, 1e-3) < LEAST_TAIL


def test_likely_causes():
    levels = (np.arange(65) + 0.5) / 65
    normal = {"Normal(1, 0.1)": stats.norm(1, 0.1).ppf(levels), "Normal(0, 0.05)": stats.norm(0, 0.05).ppf(levels)}
    cases = {
        ("baseline", 0.001, "Normal(1, 0.1)"): "g2 - 1 given for g2?",
        ("baseline", 1.002, "Normal(0, 0.05)"): "g2 given for g2 - 1?",
        ("baseline", 1.6, "Normal(1, 0.1)"): "is g2 normalised?",
        ("contrast", 40.0, "Normal(0, 0.05)"): "is g2 normalised?",
        ("rate_fast", 1e6, "Normal(1, 0.1)"): "is tau in s?",
        ("beta", 3.0, "Normal(1, 0.1)"): "set priors.beta",
    }
    for (name, value, prior), words in cases.items():
        found = conflicts({name: 1e-6, "other": 0.5}, {name: np.full((4, 50), value)}, {name: normal[prior]})
        assert list(found) == [name]
        assert words in found[name]
    assert conflicts({"beta": np.nan}, {}, {}) == {}


def test_what_most_bins_say():
    one, two = {"rate": "rate ...", "beta": "beta ..."}, {"rate": "rate, too"}
    assert in_most_bins([one, two, {}], 3) == "in 2 of 3 bins, rate ..."
    assert in_most_bins([one, {}, {}], 3) == ""
    assert in_most_bins([two], 1) == "rate, too"
    assert in_most_bins([], 0) == ""


def measured(g2, seed=0):
    return g2 + ERROR * np.random.default_rng(seed).standard_normal(g2.shape)


def write(path, g2, error):
    """A wide table and its errors, as people keep them."""
    for name, values in ((path, g2), (path.with_stem(path.stem + "_err"), np.full(g2.shape, error))):
        head = "tau," + ",".join(map(str, Q))
        np.savetxt(name, np.column_stack([TAU, values.T]), delimiter=",", header=head, comments="", fmt="%.17g")
    return path


def run(file, folder, *options, code):
    """`bayesfit run` as a user calls it: what it prints, and the result."""
    environment = {**os.environ, "COLUMNS": "200"}
    arguments = [PROGRAM, "run", file, "-o", folder, "--set", "draws=300", *options]
    done = subprocess.run(list(map(str, arguments)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    return done.stdout, bayesfit.load(folder / f"{file.stem}.nc")


REMEDY = '--set priors.baseline="Normal(0, 0.1)"'


def test_g2_less_one_given_for_g2_from_a_file(tmp_path):
    file = write(tmp_path / "less_one.csv", measured(DECAYS), ERROR)
    out, result = run(file, tmp_path / "out", code=3)
    assert list(result["diagnostics"].verdict.values) == ["prior_conflict"] * 2
    assert "2 prior_conflict" in out
    assert "in 2 of 2 bins, baseline" in out
    assert f"g2 - 1 given for g2? Then {REMEDY}" in out
    out, result = run(file, tmp_path / "out", "--set", "priors.baseline=Normal(0, 0.1)", code=0)
    assert list(result["diagnostics"].verdict.values) == ["ok"] * 2


def test_g2_less_one_given_for_g2_from_python():
    result = bayesfit.fit(bayesfit.curves(TAU, measured(DECAYS), np.full(DECAYS.shape, ERROR), q=Q), draws=300)
    found = result["diagnostics"].to_dataset()
    assert list(found.verdict.values) == ["prior_conflict"] * 2
    assert (found.prior_tail.sel(parameter="baseline") < LEAST_TAIL).all()
    assert (found.prior_tail.drop_sel(parameter="baseline") > 0.01).all()
    right = bayesfit.curves(TAU, measured(DECAYS), np.full(DECAYS.shape, ERROR), q=Q, baseline_reference=0)
    assert list(bayesfit.fit(right, draws=300)["diagnostics"].verdict.values) == ["ok"] * 2
    held = bayesfit.fit(right, draws=300, fixed={"baseline": 0.0}, priors={"rate": "LogNormal(-2.5, 1)"})["diagnostics"]
    assert list(held.verdict.values) == ["prior_conflict"] * 2
    assert "rate" in held.reason.values[0]
    assert "is tau in s?" in held.reason.values[0]


def test_what_bins_have_in_common_is_judged_alike():
    data = bayesfit.curves(TAU, measured(DECAYS), np.full(DECAYS.shape, ERROR), q=Q)
    found = bayesfit.fit(data, "single_exponential", across={"baseline": "shared", "rate": "diffusion"}, draws=200)
    across = found["across"].to_dataset()
    assert across.joint_verdict == "prior_conflict"
    assert "g2 - 1 given for g2?" in across.joint_reason.item()
    assert across.verdict.sel(parameter="baseline") == "prior_conflict"
    assert across.verdict.sel(parameter="D") == "ok"
    assert across.prior_tail.sel(parameter="baseline") < LEAST_TAIL


@pytest.fixture(scope="module")
def healthy():
    """A measured bin, fitted beside nothing else."""
    g2 = measured(1 + DECAYS[:1])
    return g2, bayesfit.fit(bayesfit.curves(TAU, g2, np.full(g2.shape, ERROR), q=Q[:1]), draws=300)


def test_exact_data_with_tiny_errors_from_python(healthy):
    g2, alone = healthy
    errors = np.vstack([np.full(DECAYS.shape, 1e-9), np.full(g2.shape, ERROR)])
    data = bayesfit.curves(TAU, np.vstack([1 + DECAYS, g2]), errors, q=[*Q, Q[0]])
    found = bayesfit.fit(data, draws=300)
    assert list(found["diagnostics"].verdict.values) == ["misfit", "misfit", "ok"]
    assert "these data hold none; fit measured data" in found["diagnostics"].reason.values[0]
    np.testing.assert_allclose(found["posterior"].rate.median(("chain", "draw"))[:2], 2e7 * Q**2, rtol=1e-9)
    for name, array in alone["posterior"].data_vars.items():
        np.testing.assert_array_equal(found["posterior"][name].isel(q_bin=2), array.isel(q_bin=0))


def test_exact_data_with_tiny_errors_from_a_file(tmp_path):
    out, result = run(write(tmp_path / "exact.csv", 1 + DECAYS, 1e-9), tmp_path / "out", code=3)
    assert "2 misfit" in out
    assert list(result["diagnostics"].verdict.values) == ["misfit"] * 2


def test_a_derived_value_beyond_single_precision(tmp_path):
    """The mean relaxation time of a decay that is stretched without bound has no bound."""
    file = write(tmp_path / "flat.csv", measured(1 + 0.0 * DECAYS), ERROR)
    _, result = run(file, tmp_path / "out", "--set", "priors.beta=Uniform(0.01, 0.05)", code=3)
    time = result["posterior"].mean_relaxation_time
    assert time.dtype == np.float64
    assert np.isfinite(time).all()
    assert time.max() > np.finfo(np.float32).max
    assert result["posterior"].rate.dtype == np.float32

"""Advice: whoever follows it comes to its end, whatever the data are."""

import subprocess
import sys
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import chain, combinations, product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import xarray as xr
from test_verdict import findings

import bayesfit
from bayesfit.diagnose import verdict as _verdict
from bayesfit.diagnose.advice import ORDER, advise, advise_dataset
from bayesfit.diagnose.predictive_checks import CHECKS
from bayesfit.modelling.noise import NOISES

BINS = 12
SURE, FINE = 1e-6, 0.5
GOOD = findings()


def subsets(items):
    return chain.from_iterable(combinations(items, count) for count in range(len(items) + 1))


OUTCOMES = [
    (dict.fromkeys(CHECKS, FINE) | {name: SURE * (1 + failed.index(name)) for name in failed}, sign, speckle, delays)
    for some in subsets(CHECKS)
    for failed in ((*some,), (*reversed(some),))
    for sign, speckle, delays in product((-1.0, 1.0), (-1.0, 1.0), (True, False))
]


def verdict_on(noise, p, sign, speckle, delays):
    """The verdict of a bin whose checks come out so."""
    bin = replace(GOOD, noise=noise, delays=delays, speckle_log_ratio=speckle)
    with (
        patch.object(_verdict, "check", lambda scores: dict(p)),
        patch.object(_verdict, "neighbour_correlation", lambda scores: np.array([0.5 * sign])),
    ):
        return _verdict.judge(bin)


def pooled(noise, p, sign, speckle, delays):
    """What is said of bins that all come out so."""
    correlation = 0.5 * sign if p["p_correlation"] == SURE else 0.0
    return advise_dataset(of_bins(BINS, p, correlation, speckle), noise, delays)


def of_bins(count, p, correlation=0.0, speckle=0.0):
    """The diagnostics of so many bins with these p-values."""
    given = {
        **p,
        "points": 60,
        "residual_correlation": correlation,
        "speckle_log_ratio": speckle,
        "tau_min_to_try": 0.0,
    }
    return xr.Dataset({name: ("q_bin", np.broadcast_to(value, count)) for name, value in given.items()})


def test_every_noise_model_has_its_place():
    assert sorted(ORDER) == sorted(NOISES)


def test_advice_never_goes_in_a_circle():
    """Every noise model with every outcome of the checks, of a bin and of all bins: the graph has an order."""
    leads = {noise: set() for noise in ORDER}
    for noise, outcome in product(ORDER, OUTCOMES):
        advised = {verdict_on(noise, *outcome).advice.noise, pooled(noise, *outcome)[1].noise}
        leads[noise] |= advised - {""}
    for noise, others in leads.items():
        assert noise not in others
    assert set().union(*leads.values()) == {"scaled", "smooth", "robust", "speckle", "correlated"}
    assert leads["scaled"] == {"smooth", "robust", "speckle", "correlated"}
    tuple(TopologicalSorter(leads).static_order())


def test_what_refutes_says_what_to_try():
    """No misfit without advice, and the advice in words is that of `noise_to_try`."""
    for noise, outcome in product(ORDER, OUTCOMES):
        verdict = verdict_on(noise, *outcome)
        if verdict.name == "misfit":
            assert verdict.advice.words in verdict.reason
            assert any(word in verdict.advice.words for word in ("another model", "fewer parameters", "measured data"))
            assert (f"'{verdict.advice.noise}'" in verdict.advice.words) or not verdict.advice.noise
        words, advice = pooled(noise, *outcome)
        assert bool(words) == bool(advice.words)
        assert NOISES[advice.noise or "scaled"].delays <= outcome[-1]


@pytest.mark.parametrize("name", ["p_chi2", "p_tails", "p_trend"])
def test_p_values_of_many_bins(name):
    """Uniform ones refute nothing, nor do those of which none is close to 1; ones that are a little smaller do."""
    uniform = np.random.default_rng(1).permutation((np.arange(4000) + 0.5) / 4000)

    def refuted(p):
        return advise_dataset(of_bins(p.size, dict.fromkeys(CHECKS, FINE) | {name: p}), "stated")[0]

    assert not refuted(uniform)
    assert not refuted(np.minimum(uniform, 0.7))
    assert refuted(uniform**1.2)
    assert refuted(np.full(12, 0.15))


def test_the_gravest_fault_that_anything_helps_against():
    faults = {"p_tails": 1e-6, "p_trend": 1e-4}
    assert advise(faults, "scaled", 0.0, True).noise == "robust"
    assert advise({**faults, "p_chi2": 1e-3}, "stated", 0.0, True).noise == "scaled"
    assert advise({**faults, "p_correlation": 1e-3}, "robust", 1.0, True).noise == "speckle"
    assert advise({"p_correlation": 1e-3}, "speckle", 1.0, True).noise == ""
    assert advise({"p_correlation": 1e-3}, "speckle", -1.0, True).noise == "correlated"
    last = advise(faults, "correlated", 1.0, True)
    assert last.words.startswith("no noise model here describes that beside what 'correlated' has: try a range")


TAU = np.concatenate([np.arange(1, 17), *(np.arange(9, 17) * 2**level for level in range(1, 14))]) * 1e-7
LAST_OFF = 8e-7


def light_scattering(bins=4, afterpulsing=0.3, seed=3):
    """g2 - 1 of one detector, whose first delays it spoils."""
    rng = np.random.default_rng(seed)
    q = np.linspace(1.2e-3, 2.8e-3, bins)
    g2 = 0.8 * np.exp(-2 * 4e8 * q[:, None] ** 2 * TAU) + 3e-3 * rng.standard_normal((bins, TAU.size))
    g2 += afterpulsing * np.exp(-TAU / 2e-7) * (TAU <= LAST_OFF)
    return q, g2, np.full(g2.shape, 3e-3)


def as_curves(q, g2, g2_err, above=0.0):
    kept = above <= TAU
    return bayesfit.curves(
        TAU[kept],
        g2[:, kept],
        g2_err[:, kept],
        q=q,
        baseline_reference=0,
        contrast_prior="TruncatedNormal(0.5, 0.5, low=0)",
    )


@pytest.fixture(scope="module")
def afterpulsing():
    data = light_scattering()
    return data, bayesfit.fit(as_curves(*data), "single_exponential", noise="scaled", draws=300)


def test_first_delays_that_are_off_are_named(afterpulsing):
    found = afterpulsing[1]["diagnostics"].to_dataset()
    assert (found.verdict == "misfit").all()
    assert (found.noise_to_try == "").all()
    assert found.tau_min_to_try.values == pytest.approx(LAST_OFF, rel=0.5)
    for reason, value in zip(found.reason.values, found.tau_min_to_try.values, strict=True):
        assert f"the first delays alone are off: leave them out, --set tau_min={value:.12g}" in reason
    assert found.attrs["noise_to_try"] == ""
    assert found.attrs["tau_min_to_try"] == found.tau_min_to_try.max()
    assert f"in 4 of 4 bins: leave them out, --set tau_min={found.tau_min_to_try.max():.12g}" in found.attrs["advice"]


def test_first_delays_that_are_off_are_named_from_a_file(afterpulsing, tmp_path):
    q, g2, g2_err = afterpulsing[0]
    for name, values in (("dls.csv", g2), ("dls_err.csv", g2_err)):
        head = "tau," + ",".join(map(str, q))
        np.savetxt(tmp_path / name, np.column_stack([TAU, values.T]), delimiter=",", header=head, comments="")
    arguments = ["run", tmp_path / "dls.csv", "-o", tmp_path / "out", "--model", "single_exponential"]
    arguments += ["--set", "draws=300", "--set", "priors.baseline=Normal(0, 0.1)"]
    program = Path(sys.executable).parent / "bayesfit"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 3, (done.stdout, done.stderr)
    above = bayesfit.load(tmp_path / "out" / "dls.nc")["diagnostics"].attrs["tau_min_to_try"]
    assert above == afterpulsing[1]["diagnostics"].attrs["tau_min_to_try"]
    advice = f"--set tau_min={above:.12g}"
    assert f"the first delays alone are off in 4 of 4 bins: leave them out, {advice}" in done.stdout
    followed = subprocess.run([program, *arguments, *advice.split()], capture_output=True, text=True, check=False)
    assert followed.returncode == 0, (followed.stdout, followed.stderr)
    assert "\n4 ok\n" in followed.stdout


def test_the_range_helps(afterpulsing):
    data, result = afterpulsing
    above = result["diagnostics"].attrs["tau_min_to_try"]
    found = bayesfit.fit(as_curves(*data, above=above), "single_exponential", noise="scaled", draws=300)["diagnostics"]
    assert (found.verdict == "ok").all(), found.reason.values


def test_other_misfits_are_no_matter_of_the_first_delays():
    """A second decay, and an outlier among the first delays but not at their beginning."""
    q, g2, g2_err = light_scattering(2, afterpulsing=0.0)
    g2[0] += 0.4 * np.exp(-2 * 4e4 * TAU)
    g2[1, 12] += 0.1
    found = bayesfit.fit(as_curves(q, g2, g2_err), "single_exponential", noise="scaled", draws=300)["diagnostics"]
    assert (found.verdict == "misfit").all()
    assert (found.tau_min_to_try == 0).all()
    assert found.noise_to_try.values[1] == "robust"

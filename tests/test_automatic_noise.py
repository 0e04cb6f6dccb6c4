"""Noise "auto": what is fitted first, what next, and what the result says of it."""

import json

import numpy as np
import pytest
from test_photons import photons as simulator

import bayesfit
from bayesfit.api.automatic_noise import first_noise
from bayesfit.compute.errors import BayesfitWarning
from bayesfit.data.counting import with_numbers
from bayesfit.diagnose.limits import in_words, limit

MODEL = "single_exponential"
QUICK = {"seed": 2}


def counted(counts, bins=6, seed=3, **numbers):
    """Curves of counted photons."""
    given = {"seed": seed, "counts": (counts, counts), "pixels": 64, "contrast": (0.2, 0.2), "frames": 4096}
    data, truth = simulator.simulate(bins, **given)
    numbers = {"counts": counts, "pixels": 64, "frames": 4096, **numbers}
    return with_numbers(data, numbers).assign_attrs(frame_time=1e-3), truth


def test_pairs_are_counted_where_their_numbers_are_known():
    data, _ = counted(0.1, bins=2)
    assert first_noise(data, MODEL).noise == "photons"
    assert first_noise(data.drop_vars("pixels"), MODEL)[:2] == (
        "scaled",
        "the data state no pixels, so photon pairs cannot be counted",
    )


def test_a_parameter_that_the_user_names_says_which_noise_is_meant():
    data, _ = counted(0.1, bins=2)
    assert first_noise(data, MODEL, {"rate", "error_scale"}) == ("scaled", "error_scale is given", True)
    assert first_noise(data, MODEL, {"dispersion"}).noise == "photons"
    assert first_noise(data, MODEL, {"error_freedom", "error_scale"}).noise == "robust"
    assert first_noise(data, MODEL, {"rate"}).noise == "photons"


def test_numbers_that_contradict_the_data_are_called():
    data, _ = counted(0.001, bins=3)
    with pytest.warns(BayesfitWarning, match="noise 'scaled' is fitted, photon pairs cannot be counted"):
        choice = first_noise(data.assign(counts=0.8 * data.counts), MODEL)
    assert choice.noise == "scaled"
    assert "bin " in choice.why


def test_outliers_are_met_with_the_noise_that_describes_them():
    rng = np.random.default_rng(4)
    tau = np.geomspace(1e-3, 10.0, 50)
    g2 = 1 + 0.2 * np.exp(-2 * np.geomspace(0.5, 5.0, 8)[:, None] * tau) + 0.003 * rng.standard_t(2, (8, 50))
    result = bayesfit.fit(bayesfit.curves(tau, g2, np.full_like(g2, 0.003)), MODEL, **QUICK)
    tried = json.loads(result.attrs["noise_tried"])
    assert [one["noise"] for one in tried[:2]] == ["scaled", "robust"]
    assert len(tried) <= 3
    assert tried[1]["why"] == "over all bins, points lie far off too often"
    assert tried[1]["described"] > tried[0]["described"]
    assert json.loads(result.attrs["settings"])["noise"] == "robust"
    assert "error_freedom" in result["posterior"]
    assert result.attrs["noise_chosen"].startswith("noise 'robust': over all bins")


def test_good_errors_are_fitted_once():
    data, _ = bayesfit.simulate(bins=6, seed=1)
    result = bayesfit.fit(data, "stretched_exponential", **QUICK)
    assert len(json.loads(result.attrs["noise_tried"])) == 1
    named = bayesfit.fit(data, "stretched_exponential", noise="scaled", **QUICK)
    np.testing.assert_array_equal(result["posterior"].rate, named["posterior"].rate)
    assert "noise_chosen" not in named.attrs


def test_counted_photons_from_the_file_to_the_verdict(tmp_path):
    """A fit of starved bins by default: zeros are used, and what is known is said."""
    data, truth = counted(0.01, bins=6)
    result = bayesfit.fit(data, "stretched_exponential", **QUICK)
    assert result.attrs["noise_chosen"] == "noise 'photons': the data state photons, pixels and frames"
    diagnostics = result["diagnostics"].dataset
    assert set(diagnostics.verdict.values) <= {"ok", "not_identified"}
    assert diagnostics.identified.dims == ("q_bin", "parameter")
    assert ((diagnostics.reduced_chi2 > 0.5) & (diagnostics.reduced_chi2 < 1.8)).all()
    vague = ~diagnostics.identified
    assert (vague.any("parameter") == (diagnostics.verdict == "not_identified")).all()
    assert not (diagnostics.lower_limit.notnull() & diagnostics.upper_limit.notnull()).any()
    for name in ("contrast", "baseline"):
        low, high = result["posterior"][name].quantile([0.001, 0.999], ("chain", "draw")).values
        assert ((low < truth[name].values) & (truth[name].values < high)).all()
    again = bayesfit.load(bayesfit.save(result, tmp_path / "counted.nc"))
    np.testing.assert_array_equal(again["diagnostics"].identified, diagnostics.identified)


@pytest.mark.parametrize(
    ("draws", "expected"),
    [
        (np.linspace(0.8, 1.0, 100), (0.81, np.nan)),
        (np.linspace(0.0, 0.3, 100), (np.nan, 0.285)),
        (np.linspace(0.0, 1.0, 100), (np.nan, np.nan)),
    ],
)
def test_limits_of_a_uniform_prior(draws, expected):
    quantiles = (np.arange(65) + 0.5) / 65
    np.testing.assert_allclose(limit(draws.reshape(2, -1), quantiles), expected, atol=1e-3)


def test_limits_in_words():
    assert in_words((3.04e4, np.nan), "1/s") == "above 3e+04 1/s (95%)"
    assert in_words((np.nan, 0.02), "1") == "below 0.02 (95%)"
    assert in_words((np.nan, np.nan), "1/s") == ""

"""A curve that is wrong in the same way in all bins is told from noise that correlates within each."""

import json

import numpy as np
import pytest

import bayesfit
from bayesfit.diagnose.advice import NOTHING, ORDER, advise
from bayesfit.diagnose.one_shape import FEWEST_BINS, p_one_shape
from bayesfit.diagnose.rules import LEAST_P

TAU = np.geomspace(1e-3, 1e2, 60)


def decay(rate, beta=1.0):
    return 1.0 + 0.2 * np.exp(-2.0 * (np.reshape(rate, (-1, 1)) * TAU) ** beta)


def correlated(rng, bins, memory=0.85):
    noise = rng.standard_normal((bins, TAU.size))
    for place in range(1, TAU.size):
        noise[:, place] = memory * noise[:, place - 1] + np.sqrt(1.0 - memory**2) * noise[:, place]
    return noise


def rates(rng, bins):
    return np.exp(rng.uniform(np.log(0.05), np.log(50.0), bins))


def test_noise_of_each_bin_is_seldom_taken_for_a_shape():
    """However it correlates, is scaled or is missing; p-values are uniform or, by Bonferroni, larger."""
    rng, found = np.random.default_rng(0), []
    for trial in range(200):
        residual = correlated(rng, 20, rng.uniform(0.0, 0.99)) * np.exp(rng.standard_normal((20, 1)))
        residual[rng.uniform(size=residual.shape) < 0.1 * (trial % 3)] = np.nan
        found.append(p_one_shape(residual, decay(rates(rng, 20)), TAU))
    for level in (0.01, 0.1, 0.5):
        assert np.mean(np.array(found) < level) < level + 3.0 * np.sqrt(level / 200)


@pytest.mark.parametrize("place", ["delay", "decay"])
def test_a_shape_below_the_noise_is_found(place):
    """A bump of half the noise's size, at one delay in all bins or at the decay of each."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        rate = rates(rng, 100)
        at = np.log(TAU * (1.0 if place == "delay" else rate[:, None]))
        residual = correlated(rng, 100, 0.5) + 0.5 * np.exp(-0.5 * at**2)
        assert p_one_shape(residual, decay(rate), TAU) < LEAST_P


def test_few_bins_and_bins_without_a_fit_say_nothing():
    mean = decay(np.ones(FEWEST_BINS))
    assert np.isnan(p_one_shape(np.ones((FEWEST_BINS - 1, 60)), mean[1:], TAU))
    assert np.isfinite(p_one_shape(np.ones((FEWEST_BINS, 60)), mean, TAU))
    mean[0] = np.nan
    assert np.isnan(p_one_shape(np.ones((FEWEST_BINS, 60)), mean, TAU))
    assert p_one_shape(np.zeros((FEWEST_BINS, 60)), decay(np.ones(FEWEST_BINS)), TAU) == 1.0
    assert np.isfinite(p_one_shape(np.ones((FEWEST_BINS, 60)), decay(np.ones(FEWEST_BINS)), TAU - TAU[0]))


def test_no_noise_model_is_advised_against_it():
    for noise in ORDER:
        advice = advise({"one_shape": 0.0}, noise, 0.0, delays=True)
        assert advice.noise == ""
        assert advice.words.startswith("no noise model here describes that: try another model")
    assert advise({}, "scaled", 0.0, delays=True) == NOTHING


def fitted(g2, **settings):
    return bayesfit.fit(bayesfit.curves(TAU, g2, np.full_like(g2, 2e-3)), "single_exponential", seed=1, **settings)


def test_auto_does_not_take_a_wrong_curve_for_noise(tmp_path):
    """Two decays fitted with one: no bin is "ok". Noise that correlates, each bin's its own, is met as before."""
    rng = np.random.default_rng(2)
    both = 0.5 * (decay(0.2 * np.ones(12)) + decay(20.0 * np.ones(12))) + 2e-3 * rng.standard_normal((12, 60))
    wrong = fitted(both)
    assert [one["noise"] for one in json.loads(wrong.attrs["noise_tried"])] == ["scaled"]
    assert set(wrong["diagnostics"].verdict.values) == {"misfit"}
    attrs = wrong["diagnostics"].attrs
    assert "with one shape in all bins (p 0.00" in attrs["advice"]
    assert "no noise model here describes that: try another model" in attrs["advice"]
    assert attrs["noise_to_try"] == ""
    again = bayesfit.load(bayesfit.save(wrong, tmp_path / "wrong.nc"))
    assert again["diagnostics"].attrs["p_one_shape"] == attrs["p_one_shape"] < LEAST_P
    right = fitted(decay(np.geomspace(0.5, 5.0, 12)) + 6e-3 * correlated(rng, 12))
    assert json.loads(right.attrs["settings"])["noise"] in ("correlated", "speckle")
    assert (right["diagnostics"].verdict.values == "ok").sum() >= 10

"""The average of a curve about each delay, as a correlator that sums frames sees it."""

import jax.numpy as jnp
import numpy as np
import pytest
from test_photons import photons as simulator

import bayesfit
from bayesfit.modelling.averaged_delays import averaged, averages, neighbour_factors


def frame_by_frame(decay, lags, summed):
    shifts = [np.arange(1 - int(m), int(m)) for m in summed]
    weights = [(1 - np.abs(shift) / m) / m for shift, m in zip(shifts, summed, strict=True)]
    return np.array([w @ decay(lag + shift) for lag, shift, w in zip(lags, shifts, weights, strict=True)])


@pytest.mark.parametrize("beta", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("rate", [0.1, 0.003])
@pytest.mark.parametrize("per_level", [4, 8, 16])
def test_averages_are_those_of_the_decay_frame_by_frame(per_level, rate, beta):
    lags, summed = simulator.multitau_delays(4096, per_level)

    def decay(lag):
        return np.exp(-2 * (rate * np.abs(lag)) ** beta)

    expected, at_delays = frame_by_frame(decay, lags, summed), decay(lags)
    factors = neighbour_factors(lags, summed)
    (found,) = averages(at_delays[None], factors[None])
    off, before = np.abs(found - expected).max(), np.abs(at_delays - expected).max()
    assert off < 0.12 * before
    np.testing.assert_allclose(averaged(jnp.asarray(at_delays), factors), found, atol=1e-6)


def test_single_frames_and_constants_stay():
    lags, summed = simulator.multitau_delays(512, 8)
    factors = neighbour_factors(lags, summed)
    np.testing.assert_allclose(factors.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(factors[summed == 1], np.eye(5)[[2] * np.sum(summed == 1)])


def test_delays_of_the_same_frame():
    lags, summed = np.array([90.0, 100.0, 100.0, 110.0, 120.0]), np.full(5, 10.0)
    np.testing.assert_allclose(averages(lags[None], neighbour_factors(lags, summed)[None])[0], lags, rtol=1e-6)


@pytest.mark.parametrize("noise", ["photons", "scaled"])
def test_counted_pairs_are_fitted_with_the_average(noise):
    """Of a curve without noise that was averaged frame by frame, the rate is found where pairs are counted."""
    lags, summed = simulator.multitau_delays(4096, 4)
    g2 = 1.0 + 0.25 * frame_by_frame(lambda lag: np.exp(-2 * 0.01 * np.abs(lag)), lags, summed)
    data = bayesfit.curves(lags, g2[None], np.full((1, lags.size), 1e-4), counts=1.0, pixels=1e6, frames=1e5)
    fixed = {"beta": 1.0, "baseline": 1.0, **({"dispersion": 1.0} if noise == "photons" else {})}
    rate = bayesfit.fit(data, noise=noise, fixed=fixed, draws=200, seed=1)["posterior"].rate
    assert (abs(float(rate.mean()) / 0.01 - 1.0) < 1e-3) == (noise == "photons")

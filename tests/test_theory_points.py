"""Noise "photons" where theory's errors differ within the posterior: slow decays, whose errors follow from them."""

import numpy as np
import pytest
from calibration import Setting, simulate

import bayesfit

SLOW = [62, 159, 347, 362, 371]  # of the simulations: decays that take as long as the series
SETTING = Setting("stretched_exponential", "photons")


@pytest.fixture(scope="module")
def slow():
    return simulate(SETTING, 400, [1])


@pytest.fixture(scope="module")
def result(slow):
    return bayesfit.fit(slow.data.isel(q_bin=SLOW), **SETTING.options)


def test_slow_decays_are_described(slow, result):
    """With errors of one estimate these bins were misfits, with dispersions of 4 to 50."""
    assert not result["diagnostics"].verdict.isin(["misfit", "poor_mixing"]).any()
    low, high = result.posterior.dispersion.quantile([0.005, 0.995], ("chain", "draw")).values
    truth = slow.truth["dispersion"][SLOW]
    assert ((low < truth) & (truth < high)).all()


def test_a_bin_does_not_depend_on_the_others(slow, result):
    alone = bayesfit.fit(slow.data.isel(q_bin=SLOW[2:3]), **SETTING.options)
    np.testing.assert_array_equal(alone.posterior.rate[..., 0], result.posterior.rate[..., 2])
    np.testing.assert_array_equal(alone.posterior.dispersion[..., 0], result.posterior.dispersion[..., 2])

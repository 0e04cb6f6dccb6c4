"""Noise "photons" where theory's errors differ within the posterior: slow decays, whose errors follow from them."""

import jax
import numpy as np
import pytest
from calibration import Setting, simulate

import bayesfit
from bayesfit.api import photon_draws
from bayesfit.sample import scheduler
from bayesfit.sample.theory_points import prior_points

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


def test_chains_are_run_only_where_their_draws_are_of_use(slow, result, monkeypatch):
    """Where errors that are kept are far off, walkers alone sample: their draws have no step size."""
    sample_bins, bins = scheduler.sample_bins, []

    def noted(targets, *rest):
        bins.append(targets.count)
        return sample_bins(targets, *rest)

    monkeypatch.setattr(scheduler, "sample_bins", noted)
    again = bayesfit.fit(slow.data.isel(q_bin=SLOW), **SETTING.options)
    walked = np.isnan(result.sample_stats.step_size).all(("chain", "draw")).values
    assert sum(bins) < len(SLOW)
    assert walked.sum() >= len(SLOW) - sum(bins)
    assert np.isfinite(again.posterior.rate).all()
    np.testing.assert_array_equal(again.posterior.rate, result.posterior.rate)


def test_bins_that_only_walkers_sample_have_no_draws_after_a_stop(slow, monkeypatch):
    """What is left is the same as of a bin that the sampler has not begun."""
    whole = photon_draws.with_theory_at_draws

    def stopped(found, estimated, report, stop):
        stop.asked = True
        return whole(found, estimated, report, stop)

    monkeypatch.setattr(photon_draws, "with_theory_at_draws", stopped)
    found = bayesfit.fit(slow.data.isel(q_bin=SLOW), **SETTING.options)
    not_begun = np.isnan(found.posterior.rate).all(("chain", "draw")).values
    assert not_begun.any()
    assert (found["diagnostics"].thin.values[not_begun] == 0).all()


def test_points_of_the_prior_have_weights_where_they_are_wanted():
    """There they have the same as if they were wanted in all bins."""
    with jax.enable_x64(True):
        problem, keys = SETTING.problem().of_bins(np.zeros(3, int)), np.arange(6, dtype=np.uint32).reshape(3, 2)
        some, every = (prior_points(problem, keys, np.array(wanted)) for wanted in ([False, True, False], [True] * 3))
    assert np.isfinite(every.log_weights).any(axis=1).all()
    np.testing.assert_array_equal(some.log_weights, np.where([[False], [True], [False]], every.log_weights, -np.inf))
    np.testing.assert_array_equal(some.values["rate"], every.values["rate"])


def test_a_stop_between_two_bins_changes_no_bit(slow, tmp_path, monkeypatch):
    """The draws of each bin are in the journal; a fit that goes on makes those of the others only."""
    data, options = slow.data.isel(q_bin=SLOW[1:3]), {**SETTING.options, "draws": 100}
    whole, made, of_bin = bayesfit.fit(data, **options), [], photon_draws._of_bin

    def stopped(found, estimates, place):
        made.append(place)
        if made.count(1) == 1 and place == 1:
            raise KeyboardInterrupt
        return of_bin(found, estimates, place)

    monkeypatch.setattr(photon_draws, "_of_bin", stopped)
    with pytest.raises(KeyboardInterrupt), bayesfit.checkpoint(tmp_path / "kept"):
        bayesfit.fit(data, **options)
    with bayesfit.checkpoint(tmp_path / "kept"):
        again = bayesfit.fit(data, **options)
    assert sorted(made) == [0, 1, 1]
    np.testing.assert_array_equal(whole.posterior.rate, again.posterior.rate)

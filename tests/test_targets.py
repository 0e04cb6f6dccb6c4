"""What a target of effective draws means: a higher one never costs a bin its verdict."""

import counted_curves
import jax
import numpy as np
import pytest

import bayesfit
from bayesfit.api.stages import Choices, begin
from bayesfit.modelling.settings import KEPT_TOGETHER, FitSettings
from bayesfit.sample.convergence import worst
from bayesfit.sample.draws import Assessment, Schedule
from bayesfit.sample.escalation import STEPS
from bayesfit.sample.loop import Run


@pytest.fixture(scope="module")
def hard():
    """Bins whose decay drowns in noise, the more the larger the place in each run of six."""
    data, _ = bayesfit.simulate(bins=24, seed=11)
    sd = np.resize([0.0, 0.02, 0.05, 0.1, 0.2, 0.4], 24)[:, None]
    return data.assign(g2=data.g2 + sd * np.random.default_rng(0).standard_normal(data.g2.shape))


def converged(result):
    found = result["diagnostics"].dataset
    return (found.r_hat <= 1.01).values & (np.minimum(found.ess_bulk, found.ess_tail) >= 400).values


@pytest.mark.parametrize("target", [600.0, 1900.0])
def test_a_target_beyond_the_draws_is_no_reason_to_stop_early(hard, target):
    """Bins of which plain chains of 200 draws do not converge; 600 is more than half of what four of them keep."""
    some = hard.isel(q_bin=[1, 10, 15, 20, 21, 22])
    plain = bayesfit.fit(some, draws=200, target_ess=0.0)
    low, high = (bayesfit.fit(some, draws=200, target_ess=wanted) for wanted in (400.0, target))
    assert not converged(plain).all()
    assert converged(low).all()
    assert converged(high).all()
    assert high["diagnostics"].verdict.values.tolist() == low["diagnostics"].verdict.values.tolist()
    np.testing.assert_array_equal(high.posterior.rate.values, low.posterior.rate.values)


def test_draws_that_were_enough_are_not_given_up_for_worse(hard, monkeypatch):
    """A chain sticks as soon as the draws are those that end a bin at a target of 400, and in every later attempt."""
    data, enough, kept = hard.isel(q_bin=[1]), Assessment.reaches, Run.kept
    low = bayesfit.fit(data, draws=500)
    sticking = []

    def reaches(assessment, ess):
        sticking.append(enough(assessment, 400.0))
        return enough(assessment, ess)

    def stuck(run, schedule):
        table = kept(run, schedule)
        table[1 if any(sticking) else 4 :] = table[0, 0]
        return table

    monkeypatch.setattr(Assessment, "reaches", reaches)
    monkeypatch.setattr(Run, "kept", stuck)
    monkeypatch.setattr("bayesfit.sample.scheduler.STEPS", tuple(step._replace(transitions=500) for step in STEPS))
    high = bayesfit.fit(data, draws=500, target_ess=1000.0)
    assert len(sticking) > 2, "the first draws were what the target wants: make it higher"
    np.testing.assert_array_equal(high.posterior.rate.values, low.posterior.rate.values)
    assert high["diagnostics"].equals(low["diagnostics"])


@pytest.mark.parametrize(
    ("draws", "target", "fixed", "reachable"),
    [
        (500, 400.0, False, 400.0),
        (500, 1900.0, False, 1000.0),
        (200, 400.0, False, 400.0),
        (200, 401.0, False, 400.0),
        (100, 150.0, False, 150.0),
        (100, 400.0, True, 200.0),
        (100, 1e6, True, 200.0),
        (500, 0.0, True, 0.0),
    ],
)
def test_what_so_many_draws_may_have(draws, target, fixed, reachable):
    schedule = Schedule(4, draws, 50, 0.6, target)
    assert (schedule.fixed, schedule.reachable) == (fixed, reachable)


@pytest.mark.parametrize(
    ("chosen", "kept", "more"),
    [
        ({}, 200, 500),
        ({"target_ess": 0.0}, 200, 500),
        ({"target_ess": 100.0}, 200, 500),
        ({"target_ess": 1001.0}, 501, 501),
        ({"target_ess": 1e9}, 1_000_000, 1_000_000),
        ({"chains": 1}, 800, 800),
        ({"chains": 16}, 200, 500),
        ({"draws": 70}, 70, 70),
    ],
)
def test_as_many_draws_are_kept_as_the_target_asks_for(chosen, kept, more):
    settings = FitSettings(**chosen)
    assert (settings.kept, settings.keeping(KEPT_TOGETHER).kept) == (kept, more)


@pytest.mark.parametrize(
    ("noise", "across", "kept"),
    [("stated", {}, 200), ("stated", {"contrast": "shared"}, 500), ("photons", {}, 300)],
)
def test_joint_fits_and_counted_photons_keep_more_draws(noise, across, kept):
    data = counted_curves.numbered(np.geomspace(1e-3, 1.0, 12), np.ones((2, 12)), 0.1)
    with jax.enable_x64(True):
        begun = begin(data, Choices("single_exponential", {}, {}, across), FitSettings(noise=noise))
    assert begun.before.settings.kept == kept


def assessed(rhat=1.0, ess=500.0, diverging=0.0, last=False):
    """The assessment of independent draws, with another R-hat and effective sample size put in."""
    draws = np.random.default_rng(0).standard_normal((1, 4, 500))
    stats = {
        "potential": np.zeros((4, 500)),
        "n_steps": np.ones((4, 500)),
        "independence_accepted": np.zeros((4, 500)),
        "diverging": np.full((4, 500), diverging),
    }
    found = Assessment.of(np.array(worst(draws)), stats, 6, last)._replace(ess=ess, convergence=(rhat, ess, ess))
    return found._replace(enough=found.reaches(400.0) and (last or found.untroubled))


def test_what_is_worse_than_enough():
    assert assessed(ess=399.0).is_worse_than(assessed())
    assert assessed(rhat=1.02, ess=2000.0).is_worse_than(assessed())
    assert assessed(ess=450.0).is_worse_than(assessed())
    assert assessed(ess=900.0, diverging=1.0).is_worse_than(assessed())
    assert assessed(ess=900.0, diverging=1.0, last=True).is_worse_than(assessed())
    assert not assessed(ess=900.0).is_worse_than(assessed())
    assert not assessed(ess=900.0).is_worse_than(assessed(diverging=1.0, last=True))


def test_nothing_is_worse_than_what_was_not_enough():
    for before in (None, assessed(ess=300.0), assessed(rhat=1.02), assessed(diverging=1.0)):
        assert not assessed(rhat=2.0, ess=10.0).is_worse_than(before)

"""`bayesfit.summary`: one row per bin, as people use it."""

import numpy as np
import pytest

import bayesfit


@pytest.fixture(scope="module")
def result():
    curves = bayesfit.read("data/table_sim.csv").isel(q_bin=[0, 3])
    return bayesfit.fit(curves, "single_exponential", noise="scaled", draws=100, seed=0)


def test_what_to_believe_comes_first(result):
    table = bayesfit.summary(result)
    assert table.columns[:4].tolist() == ["verdict", "reason", "q", "phi"]
    assert table.index.name == "q_bin"


def test_numbers_are_those_of_the_draws(result):
    table, draws = bayesfit.summary(result), result.posterior.rate
    assert table.rate_mean.values == pytest.approx(draws.mean(("chain", "draw")).values)
    assert table.rate_sd.values == pytest.approx(draws.std(("chain", "draw")).values)
    assert table.rate.values == pytest.approx(draws.median(("chain", "draw")).values)


@pytest.mark.parametrize("mass", [0.68, 0.95])
def test_an_interval_holds_its_mass(result, mass):
    table, draws = bayesfit.summary(result, mass=mass), result.posterior.rate
    for place, row in enumerate(table.itertuples()):
        own = draws.isel(q_bin=place).values
        assert np.mean((row.rate_low < own) & (own < row.rate_high)) == pytest.approx(mass, abs=0.01)
        assert np.mean(own < row.rate_low) == pytest.approx((1 - mass) / 2, abs=0.01)
    assert table.attrs["mass"] == mass


def test_units_are_stated(result):
    assert bayesfit.summary(result).attrs["units"]["rate"] == "1/s"
    table = bayesfit.summary(result, units={"rate": "1/ms"})
    assert table.attrs["units"]["rate"] == "1/ms"
    assert table.rate_sd.values == pytest.approx(1e-3 * bayesfit.summary(result).rate_sd.values)


@pytest.mark.parametrize("mass", [0, 1, 95, "0.95"])
def test_an_impossible_mass_is_refused(result, mass):
    with pytest.raises(bayesfit.SettingsError, match="between 0 and 1"):
        bayesfit.summary(result, mass=mass)

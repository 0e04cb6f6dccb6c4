"""Datasets that are fitted side by side: each result has the bits that it has alone."""

import counted_curves
import numpy as np
import pytest

import bayesfit
from bayesfit.api.fit_many import LANES, grouped
from bayesfit.result.files import content_hash

QUICK = {"draws": 200, "model": "single_exponential"}
SIZES = 2, 1, 3


def simulated(**options):
    return [bayesfit.simulate(bins=bins, seed=seed, **options)[0] for seed, bins in enumerate(SIZES)]


def same(results, alone):
    assert [content_hash(each) for each in results] == [content_hash(each) for each in alone]
    for result, one in zip(results, alone, strict=True):
        assert {name: str(value) for name, value in result.attrs.items()} == {
            name: str(value) for name, value in one.attrs.items()
        }


def counted(seed, delays=16):
    """Curves that state their numbers, close to what they count."""
    rng = np.random.default_rng(seed)
    tau = counted_curves.FRAME_TIME * np.arange(1, delays + 1)
    counts = np.full(seed + 1, 0.5)
    curves = counted_curves.numbered(tau, np.ones((seed + 1, delays)), counts)
    g2 = 1.0 + 0.3 * np.exp(-2.0 * tau / 5e-3) + curves.pairs.values**-0.5 * rng.normal(size=curves.g2.shape)
    return counted_curves.numbered(tau, g2, counts)


@pytest.mark.parametrize("noise", ["auto", "stated", "robust"])
def test_results_have_the_bits_that_they_have_alone(noise):
    datasets = simulated()
    priors = {"rate": {"family": "LogNormal", "loc": 3.0, "scale": 3.0}}
    options = {**QUICK, "noise": noise, "priors": priors, "fixed": {"baseline": 1.0}}
    same(bayesfit.fit_many(datasets, **options), [bayesfit.fit(data, **options) for data in datasets])


def test_counted_curves_too():
    datasets = [counted(seed) for seed in range(3)]
    results = bayesfit.fit_many(datasets, **QUICK)
    same(results, [bayesfit.fit(data, **QUICK) for data in datasets])
    assert "photons" in results[0].attrs["noise_chosen"]


def test_datasets_that_do_not_fit_together_are_fitted_all_the_same():
    datasets = [*simulated(delays=30), *simulated(delays=200)]
    same(bayesfit.fit_many(datasets, **QUICK), [bayesfit.fit(data, **QUICK) for data in datasets])


def test_a_joint_fit_is_made_of_each_by_itself():
    datasets = [bayesfit.simulate(bins=3, seed=seed)[0] for seed in (1, 2)]
    options = {**QUICK, "across": {"rate": "diffusion"}}
    same(bayesfit.fit_many(datasets, **options), [bayesfit.fit(data, **options) for data in datasets])


def test_an_error_is_raised_or_returned_in_its_place():
    data, dead = simulated()[0], simulated()[1]
    dead = dead.assign(tau=-dead.tau)
    kept = bayesfit.fit_many([dead, data], on_error="return", **QUICK)
    assert isinstance(kept[0], bayesfit.InputError)
    same(kept[1:], [bayesfit.fit(data, **QUICK)])
    with pytest.raises(bayesfit.InputError, match=r"datasets\[1\]: .*negative"):
        bayesfit.fit_many([data, dead], **QUICK)


def test_a_dataset_without_a_usable_bin_disturbs_no_other():
    data, dead = simulated()[0], simulated()[1]
    dead = dead.assign(valid=dead.valid & False)
    same(bayesfit.fit_many([dead, data], **QUICK), [bayesfit.fit(each, **QUICK) for each in (dead, data)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "on_error"),
        ({"drows": 3}, "drows: unknown setting. Did you mean 'draws'"),
        ({"draws": 1}, "draws"),
        ({"on_interrupt": "return"}, "on_interrupt: unknown setting"),
    ],
)
def test_wrong_use_is_refused(options, message):
    with pytest.raises(bayesfit.SettingsError, match=message):
        bayesfit.fit_many(simulated(), **options)


def test_what_is_no_curves_is_refused_by_its_place():
    with pytest.raises(bayesfit.InputError, match=r"datasets\[1\]"):
        bayesfit.fit_many([simulated()[0], "a.csv"])


def test_groups_are_of_neighbours_and_fill_the_lanes():
    sizes = [1, 2, LANES - 3, 1, LANES + 5, 3]
    assert grouped(sizes, int) == [[1, 2, LANES - 3], [1], [LANES + 5], [3]]
    assert grouped([], int) == []

"""Datasets that are copies or averages of others are left out beside them, whatever their format and names."""

import numpy as np
import pytest

import bayesfit
from bayesfit.data.copies import copies

TAU = np.geomspace(1e-3, 10.0, 50)
Q = np.array([0.01, 0.02])


def measured(seed, rate=(2.0, 8.0), error=0.01):
    rng = np.random.default_rng(seed)
    g2 = 1.0 + 0.2 * np.exp(-2.0 * np.outer(rate, TAU)) + error * rng.standard_normal((2, TAU.size))
    return bayesfit.curves(TAU, g2, np.full(g2.shape, error or 1e-6), q=Q)


def mean(datasets, weights=None):
    """The mean of datasets, rounded as in files."""
    g2 = np.average([data.g2.values for data in datasets], axis=0, weights=weights)
    return datasets[0].assign(g2=(("q_bin", "tau"), np.round(g2, 6)))


REPEATS = [measured(seed) for seed in range(5)]
CASES = {
    "the mean of all": ([*REPEATS, mean(REPEATS)], {5: "the average of 0, 1, 2 and 2 more"}),
    "the mean first": ([mean(REPEATS[:2]), *REPEATS], {0: "the average of 1, 2"}),
    "a weighted mean": ([*REPEATS, mean(REPEATS[:3], [0.5, 0.3, 0.2])], {5: "the average of 0, 1, 2"}),
    "two means": (
        [*REPEATS, mean(REPEATS[:2]), mean(REPEATS[2:])],
        {5: "the average of 0, 1", 6: "the average of 2, 3, 4"},
    ),
    "a copy": ([*REPEATS, REPEATS[1]], {5: "a copy of 1"}),
    "only copies": ([REPEATS[0]] * 3, {1: "a copy of 0", 2: "a copy of 0"}),
    "repeats alone": (REPEATS, {}),
    "a mean without one of its repeats": ([*REPEATS[:2], mean(REPEATS[:3])], {}),
    "one": (REPEATS[:1], {}),
    "other bins": ([REPEATS[0], REPEATS[0].assign_coords(q=("q_bin", 2 * Q))], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_copies_and_averages_are_told_from_measurements(name):
    datasets, expected = CASES[name]
    assert copies(datasets) == expected


@pytest.mark.parametrize("error", [1e-2, 1e-4, 1e-6, 0.0])
def test_a_specimen_that_changes_slowly_is_measured_at_every_step(error):
    """Each curve lies between its neighbours, which makes it no average of them."""
    steps = [measured(seed, np.array([2.0, 8.0]) * 1.05**seed, error) for seed in range(12)]
    assert copies(steps) == {}


def test_three_hundred_repeats_with_their_mean():
    """There are fewer points than repeats, so that only a plain mean can be recognised."""
    many = [measured(seed) for seed in range(300)]
    assert list(copies([*many, mean(many)])) == [300]


def test_an_average_leaves_them_out():
    datasets = [data.assign_attrs(file=f"run_{place}.csv") for place, data in enumerate([*REPEATS, mean(REPEATS)])]
    found, expected = bayesfit.average(datasets), bayesfit.average(datasets[:5])
    np.testing.assert_array_equal(found.g2, expected.g2)
    np.testing.assert_array_equal(found.g2_err, expected.g2_err)
    assert found.sizes["repeat"] == 5
    assert found.attrs["repeats_left_out"] == "run_5, the average of run_0, run_1, run_2 and 2 more"

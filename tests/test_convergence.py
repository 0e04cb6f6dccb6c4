"""R-hat and effective sample sizes equal ArviZ's, series by series."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bayesfit.sample import convergence as _convergence


def ar1(rng, shape, phi):
    noise = rng.standard_normal(shape)
    x = np.empty(shape)
    x[..., 0] = noise[..., 0] / np.sqrt(1 - phi**2)
    for i in range(1, shape[-1]):
        x[..., i] = phi * x[..., i - 1] + noise[..., i]
    return x


SERIES = {
    "iid": lambda rng, shape: rng.standard_normal(shape),
    "heavy tails": lambda rng, shape: rng.standard_cauchy(shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) ** 3,
    "correlated": lambda rng, shape: ar1(rng, shape, 0.9),
    "strongly correlated": lambda rng, shape: ar1(rng, shape, 0.995),
    "antithetic": lambda rng, shape: ar1(rng, shape, -0.7),
    "apart": lambda rng, shape: rng.standard_normal(shape) + 4.0 * np.arange(shape[0])[:, None],
    "of other width": lambda rng, shape: rng.standard_normal(shape) * (1.0 + np.arange(shape[0])[:, None]),
    "drifting": lambda rng, shape: rng.standard_normal(shape) + np.linspace(0, 3, shape[1]),
    "tied": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
    "two values": lambda rng, shape: (rng.random(shape) < 0.1).astype(float),
    "far from zero": lambda rng, shape: 1e8 + rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-9 * rng.standard_normal(shape),
    "stuck chain": lambda rng, shape: np.where(np.arange(shape[0])[:, None] == 0, 0.3, rng.standard_normal(shape)),
    "periodic": lambda rng, shape: np.sin(np.arange(shape[1]) / 7.0) + 0.1 * rng.standard_normal(shape),
}
SHAPES = [(4, 1000), (4, 501), (2, 100), (8, 37), (4, 12)]
OURS = {
    "rhat": (_convergence.rhat, lambda x: array_stats.rhat(x, method="rank")),
    "ess_bulk": (_convergence.ess_bulk, lambda x: array_stats.ess(x, method="bulk")),
    "ess_mean": (_convergence.ess_mean, lambda x: array_stats.ess(x, method="mean")),
    "ess_tail": (_convergence.ess_tail, lambda x: array_stats.ess(x, method="tail", prob=(0.05, 0.95))),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("name", OURS)
def test_equals_arviz(name, series, shape):
    ours, arviz = OURS[name]
    x = np.stack([SERIES[series](np.random.default_rng(seed), shape) for seed in range(3)])
    got = ours(x)
    assert got.shape == (3,)
    for value, one in zip(got, x, strict=True):
        np.testing.assert_allclose(value, arviz(one), rtol=1e-9)


@pytest.mark.parametrize("name", ["ess_bulk", "ess_tail"])
def test_constant_series_have_the_ess_of_their_draws_as_in_arviz(name):
    ours, arviz = OURS[name]
    x = np.full((4, 100), 0.3)
    assert ours(x) == arviz(x) == 400


def test_constant_series_have_no_rhat():
    assert np.isnan(_convergence.rhat(np.full((4, 100), 0.3)))


def test_one_chain():
    """ArviZ gives no R-hat for one chain; ours is that of its two halves."""
    x = ar1(np.random.default_rng(1), (1, 1000), 0.5)
    for name in ("ess_bulk", "ess_tail"):
        ours, arviz = OURS[name]
        np.testing.assert_allclose(ours(x), arviz(x), rtol=1e-9)
    assert 1.0 <= _convergence.rhat(x) < 1.05
    # Two halves wholly apart have half-normal scores: means of +-sqrt(2 / pi), a variance of 1 - 2 / pi within.
    apart = np.sqrt(1 + (4 / np.pi) / (1 - 2 / np.pi))
    assert _convergence.rhat(x + 30.0 * (np.arange(1000) >= 500)) == pytest.approx(apart, rel=0.01)


def test_many_series_at_once_are_each_alone():
    x = ar1(np.random.default_rng(2), (5, 3, 4, 200), 0.8)
    for ours, _ in OURS.values():
        got = ours(x)
        assert got.shape == (5, 3)
        for i in np.ndindex(5, 3):
            np.testing.assert_allclose(got[i], ours(x[i]), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 500, 2000])
@pytest.mark.parametrize("name", OURS)
def test_a_series_with_nan_has_no_number_as_in_arviz(name, count):
    """So it is never called converged; series beside it are untouched."""
    ours, arviz = OURS[name]
    x = np.random.default_rng(3).standard_normal((2, 4, 500))
    alone = ours(x[1])
    x[0].reshape(-1)[:count] = np.nan
    assert np.isnan(ours(x)[0])
    assert np.isnan(arviz(x[0]))
    assert ours(x)[1] == alone


def test_known_effective_sizes():
    """An AR(1) series of coefficient phi has (1 - phi) / (1 + phi) of its draws."""
    for phi in (-0.5, 0.0, 0.5, 0.9):
        x = ar1(np.random.default_rng(4), (50, 4, 2000), phi)
        expected = 8000 * (1 - phi) / (1 + phi)
        assert np.mean(_convergence.ess_bulk(x)) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("shape", [*SHAPES, (4, 125), (3, 150)], ids=str)
def test_bins_beside_a_bin_change_none_of_its_bits(shape):
    """In any number and order, and with NaN, constant and tied series among them."""
    bins = [np.stack([make(np.random.default_rng(seed), shape) for seed in range(3)]) for make in SERIES.values()]
    bins = np.stack([*bins, np.full((3, *shape), np.nan), np.full((3, *shape), 0.3)] * 3)
    bins[4, 1, 0, 2] = np.nan
    alone = np.array([_convergence.worst(one) for one in bins])
    np.testing.assert_array_equal(_convergence.worst_of(bins), alone)
    np.testing.assert_array_equal(_convergence.worst_of(bins[5:8]), alone[5:8])
    order = np.random.default_rng(6).permutation(len(bins))
    np.testing.assert_array_equal(_convergence.worst_of(bins[order]), alone[order])
    assert np.isnan(alone[4]).all()
    assert _convergence.worst_of(bins[:0]).shape == (0, 3)

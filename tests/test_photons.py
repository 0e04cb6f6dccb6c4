"""The simulator that goes through photons: speckle, Poisson counts and the multi-tau correlation against their laws."""

import numpy as np
import photons
import pytest
import speckle
import xarray as xr


def mean_and_error(samples):
    """Mean over the first axis and its standard error."""
    return samples.mean(axis=0), samples.std(axis=0, ddof=1) / np.sqrt(len(samples))


@pytest.mark.parametrize("beta", [0.5, 0.6, 1.0, 1.5])
@pytest.mark.parametrize("rate", [0.003, 0.03, 0.3])
def test_spectrum_is_of_the_wanted_autocorrelation(beta, rate):
    _, error = photons.spectrum(rate, beta, frames=1024)
    assert error < 1e-6


@pytest.mark.parametrize("beta", [0.6, 1.0, 1.5])
def test_fields_decorrelate_as_asked(beta):
    amplitudes, _ = photons.spectrum(0.05, beta, frames=256)
    field = speckle.fields(amplitudes, 4000, 256, np.random.default_rng(1)).astype(complex)
    lags = np.array([0, 1, 3, 10, 30, 100])
    products = np.stack([(field[:, : 256 - lag].conj() * field[:, lag:]).mean(axis=1) for lag in lags], axis=1)
    mean, error = mean_and_error(products.real)
    assert (np.abs(mean - np.exp(-((0.05 * lags) ** beta))) < 4 * error).all()
    for other in (products.imag, np.mean(field**2, axis=1).real[:, None]):
        mean, error = mean_and_error(other)
        assert (np.abs(mean) <= 4 * error).all()


@pytest.mark.parametrize("contrast", [1.0, 0.5, 0.3, 0.2, 0.137])
def test_modes_give_the_contrast(contrast):
    weights = photons.mode_weights(contrast)
    assert weights.min() > 0
    np.testing.assert_allclose([weights.sum(), (weights**2).sum()], [1, contrast])
    amplitudes, _ = photons.spectrum(0.3, 1.0, frames=128)
    intensity = photons.intensities(amplitudes, weights, 3000, 128, np.random.default_rng(2)).astype(float)
    for samples, wanted in ((intensity, 1), (intensity**2, 1 + contrast)):
        mean, error = mean_and_error(samples.mean(axis=1))
        assert abs(mean - wanted) < 4 * error


def test_counts_are_poisson():
    rng = np.random.default_rng(3)
    true = photons.Truth(rate=100.0, beta=1.0, contrast=0.2, counts=0.05)
    amplitudes, _ = photons.spectrum(0.1, true.beta, frames=512)
    seen = photons.photographs(true, amplitudes, 500, 512, rng).astype(float)
    mean, error = mean_and_error(seen.mean(axis=1))
    assert abs(mean - 0.05) < 4 * error
    pairs, error = mean_and_error((seen * (seen - 1)).mean(axis=1))
    assert abs(pairs - 0.05**2 * 1.2) < 4 * error


def test_delays_are_those_of_the_facility():
    delays, scales = photons.multitau_delays(64, 4)
    assert delays.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]
    assert scales.tolist() == [1] * 8 + [2] * 4 + [4] * 4 + [8] * 4


def test_correlation_against_loops():
    """Level 0 by brute force; at level 1 pairs of frames are averaged by hand first."""
    counts = np.random.default_rng(4).poisson(0.7, (5, 101))
    delays, scales = photons.multitau_delays(32, 8)
    found = photons.multitau(counts, delays, scales)
    averaged = {1: counts, 2: np.array([[(row[2 * i] + row[2 * i + 1]) / 2 for i in range(50)] for row in counts])}
    for place, (delay, scale) in enumerate(zip(delays, scales, strict=True)):
        level, lag = averaged[scale], delay // scale
        times = range(level.shape[1] - lag)
        for pixel, row in enumerate(level):
            wanted = (
                np.mean([row[t] * row[t + lag] for t in times]),
                np.mean([row[t] for t in times]),
                np.mean([row[t + lag] for t in times]),
            )
            np.testing.assert_allclose([column[place, pixel] for column in found], wanted, rtol=1e-12)


def test_normalisation_is_over_all_pixels():
    products, early, late = np.random.default_rng(5).uniform(0.5, 1, (3, 4, 6))
    g2, g2_err = photons.normalised(products, early, late)
    np.testing.assert_allclose(g2, products.mean(1) / (early.mean(1) * late.mean(1)))
    np.testing.assert_allclose(g2_err, np.std(products / (early * late), axis=1, ddof=1) / np.sqrt(6))


def test_theory_averages_over_a_triangle():
    bare = 1 + 0.2 * np.exp(-2 * (0.02 * np.array([3, 17, 18, 19, 33, 34])) ** 1.3)
    found = photons.theory(np.array([3, 18]), np.array([1, 2]), 0.02, 1.3, 0.2)
    np.testing.assert_allclose(found, [bare[0], (bare[1] + 2 * bare[2] + bare[3]) / 4])


@pytest.mark.parametrize("beta", [0.6, 1.0, 1.5])
def test_mean_curve_is_the_theory(beta):
    """With one photon a pixel and frame, where the noise is least."""
    ranges = {"rate": (30.0, 30.0), "beta": (beta, beta), "contrast": (0.25, 0.25), "counts": (1.0, 1.0)}
    data, truth = photons.simulate(80, seed=6, frames=1024, pixels=64, **ranges)
    mean, error = mean_and_error(data.g2.values)
    assert error.max() < 1.5e-3
    assert (np.abs(mean - truth.g2[0].values) < 4.5 * error).all()
    bare = 1 + 0.25 * np.exp(-2 * (30 * data.tau.values) ** beta)
    assert np.abs(truth.g2[0].values - bare).max() < 0.0011 * 0.25


def test_a_short_series_lowers_the_baseline_as_stated():
    """By (contrast x sum of |g1|^2 + 1 / counts) / (frames x pixels), here for very few pixels."""
    data, _ = photons.simulate(
        1500, seed=7, rate=(200.0, 200.0), beta=(1.0, 1.0), contrast=(1.0, 1.0), counts=(0.5, 0.5), frames=256, pixels=2
    )
    mean, error = mean_and_error(data.g2.values[:, -4:].mean(axis=1))
    expected = (1 / np.tanh(0.2) + 1 / 0.5) / (256 * 2)
    assert expected > 4 * error
    assert abs(1 - mean - expected) < 4 * error


def test_bins_do_not_depend_on_their_number():
    few, many = (photons.simulate(bins, seed=8, frames=256, pixels=8) for bins in (2, 4))
    for less, more in zip(few, many, strict=True):
        xr.testing.assert_identical(less, more.isel(q_bin=slice(2)))
    other, _ = photons.simulate(2, seed=9, frames=256, pixels=8)
    assert not np.array_equal(other.g2, few[0].g2)


def test_stated_errors():
    right, small, large, none = (
        photons.simulate(3, counts=(0.003, 0.003), frames=512, pixels=32, errors=errors)
        for errors in ("pixel", "wrong_small", "wrong_large", "none")
    )
    np.testing.assert_allclose(small[0].g2_err * 10, right[0].g2_err)
    np.testing.assert_allclose(large[0].g2_err / 10, right[0].g2_err)
    np.testing.assert_allclose(small[0].g2_err * small[1].error_scale, right[0].g2_err)
    assert right[0].masked_zero_pairs.sum() > 0
    assert (right[0].g2_err.values[right[0].g2.values == 0] == 0).all()
    assert not none[0].attrs["errors_stated"]
    np.testing.assert_array_equal(none[0].valid, right[0].valid)
    with pytest.raises(ValueError, match="errors is 'right'"):
        photons.simulate(errors="right")


def test_exposures_see_the_same_speckles():
    few, many = photons.exposures(2, [(0.5, 0.5), (50.0, 50.0)], seed=3, frames=256, pixels=16)
    assert few[1].rate.equals(many[1].rate)
    assert (np.abs(few[0].counts / many[0].counts * 100 - 1) < 0.1).all()
    alone, _ = photons.simulate(2, counts=(0.5, 0.5), seed=3, frames=256, pixels=16)
    xr.testing.assert_identical(alone, few[0])


@pytest.mark.parametrize("size", [0.5, 1.0, 2.0])
def test_speckles_larger_than_a_pixel(size):
    amplitudes, _ = photons.spectrum(0.3, 1.0, frames=64)
    rng = np.random.default_rng(4)
    runs = [photons.intensities(amplitudes, np.ones(1), 16, 64, rng, size) - 1 for _ in range(2000)]
    first = np.array([run.reshape(4, 4, 64)[0, 0] for run in runs]).astype(float)
    for place in ((0, 0), (0, 1), (1, 1), (0, 3)):
        other = np.array([run.reshape(4, 4, 64)[place] for run in runs])
        mean, error = mean_and_error((first * other).mean(axis=1))
        assert abs(mean - np.exp(-(place[0] ** 2 + place[1] ** 2) / size**2)) < 4.5 * error
    with pytest.raises(ValueError, match="15 pixels are no square"):
        photons.intensities(amplitudes, np.ones(1), 15, 64, rng, size)


def test_static_bins_are_normalised_by_themselves():
    products, early, late = np.random.default_rng(5).uniform(0.5, 1, (3, 4, 6))
    g2, _ = photons.normalised(products, early, late, static_bins=2)
    halves = [
        photons.normalised(*(each[:, half] for each in (products, early, late)))[0] for half in (slice(3), slice(3, 6))
    ]
    np.testing.assert_allclose(g2, np.mean(halves, axis=0))


def test_curves_state_their_counting():
    data, truth = photons.simulate(3, counts=(0.2, 0.2), frames=512, pixels=16, dpl=4)
    assert (np.abs(data.counts / truth.counts - 1) < 0.2).all()
    assert (data.attrs["frames"], data.pixels.values[0], data.frames_summed.values[-1]) == (512, 16, 8)

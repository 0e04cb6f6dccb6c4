"""The covariance of bins of few pixels, by a jackknife over blocks of time: against sums written out, and simulated."""

import signal

import numpy as np
import pytest
import xarray as xr
from test_correlate import summed

import bayesfit
from bayesfit.compute.work import heeded, stop_on
from bayesfit.correlation import compiled as compiled_module
from bayesfit.correlation import frames as frames_module
from bayesfit.correlation import lag_products
from bayesfit.correlation.frames import frames_of
from bayesfit.correlation.multitau import Masks, Settings, multitau
from bayesfit.correlation.photons import photons_of
from bayesfit.geometry import Bins, Partition

FRAMES, LENGTH, DPL = 700, 32, 4  # 22 blocks of 32 frames
SIZES = 3, 40, 5  # pixels of the bins
WAYS = pytest.mark.parametrize("normalise", ["symmetric", "frame", "baseline"])


def bins_of(sizes, statics=2):
    """Bins of so many pixels, each a row, of two static bins."""
    dynamic = np.array([np.arange(max(sizes)) < size for size in sizes]) * np.arange(1, len(sizes) + 1)[:, None]
    halves = np.array([np.arange(max(sizes)) >= (size + 1) // 2 for size in sizes])
    static = np.where(dynamic > 0, statics * (dynamic - 1) + 1 + halves * (statics - 1), 0)
    made = [
        Bins(roi, 0.01 * np.arange(1, n + 1), np.zeros(1), np.arange(n))
        for roi, n in ((static, statics * len(sizes)), (dynamic, len(sizes)))
    ]
    return Partition(dynamic > 0, *made)


BINS = bins_of(SIZES)


def given(seed=0):
    rng, whole = np.random.default_rng(seed), np.ones(FRAMES, bool)
    frames = rng.poisson(0.5 * rng.gamma(5, 0.2, (FRAMES, 1, 1)), (FRAMES, *BINS.mask.shape)).astype(np.uint16)
    whole[[3, 50, 51, 400]] = False
    return frames, whole


def ratio(frames, whole, place, normalise, left_out):
    """Pairs of the first bin over those that are expected, without a block of time, and the weight of all its pairs."""
    lag, m = place
    series, w, k = summed(frames, whole, lag, m)
    late = np.arange(k, len(series))
    kept, kept_early = late * m // LENGTH != left_out, (late - k) * m // LENGTH != left_out
    frame = whole & (np.arange(FRAMES) // LENGTH != left_out)
    early, late, weights, seen, expected = late[kept] - k, late[kept], 0.0, 0.0, 0.0
    weights, (all_early, all_late) = (w[early] * w[late]).sum(), (np.arange(len(series) - k), np.arange(k, len(series)))
    for number in (1, 2):
        own = BINS.static.roi_map.ravel() == number
        size, s = own.sum(), series[:, own].sum(1)
        seen += (series[early][:, own] * series[late][:, own]).sum()
        means = (s[early] * w[late]).sum() / weights, (s[late] * w[early]).sum() / weights
        if normalise == "frame":
            expected += (s[early] * s[late]).sum() / size
        elif normalise == "symmetric":
            expected += means[0] * means[1] * weights / size
        else:
            at = all_early[kept_early], all_late[kept_early]
            by_frame = (s[at[0]] * w[at[1]]).sum() / (w[at[0]] * w[at[1]]).sum()
            overall = frames.reshape(FRAMES, -1)[frame][:, own].sum(1).mean()
            expected += means[0] / by_frame * overall**2 * weights / size
    return seen / expected, weights


def by_hand(frames, whole, places, normalise):
    """The jackknife for groups of unequal sizes, between two delays."""
    off = []
    for place in places:
        (full, total), pseudo, share = ratio(frames, whole, place, normalise, -1), {}, {}
        for block in range(-(-FRAMES // LENGTH)):
            without, left = ratio(frames, whole, place, normalise, block)
            if left < total:
                share[block] = total / (total - left)
                pseudo[block] = share[block] * full - (share[block] - 1) * without
        center = sum(pseudo[block] / share[block] for block in share)
        off.append({b: (pseudo[b] - center) / np.sqrt((share[b] - 1) * len(share)) for b in share})
    return sum(off[0][block] * off[1][block] for block in off[0] if block in off[1])


@WAYS
@pytest.mark.parametrize("few", [False, True], ids=["frames", "photons"])
@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("compiled", [False, True], ids=["as it is", "compiled"])
def test_the_covariance_of_few_pixels_is_the_jackknife_over_blocks_of_time(
    normalise, few, backend, compiled, monkeypatch
):
    assert not compiled or compiled_module.available, "Numba is not installed"
    monkeypatch.setattr(compiled_module, "available", compiled)
    lag_products.of_pixels.cache_clear()
    frames, whole = given()
    chunk = photons_of(frames.reshape(FRAMES, -1)) if few else frames
    monkeypatch.setattr("bayesfit.correlation.products.FEW", float(few))
    settings = Settings(DPL, normalise, backend=backend)
    found = multitau(frames_of(chunk, BINS.mask.shape), BINS, settings, Masks(whole))
    for pair in ((0, 0), (3, 5), (12, 12), (12, 20), (-1, -1)):
        places = [(found.lags[n], found.summed[n]) for n in pair]
        np.testing.assert_allclose(found.cov[0][pair], by_hand(frames, whole, places, normalise), rtol=1e-12)
    assert found.cov_samples.tolist() == [22, 40, 22]
    lag_products.of_pixels.cache_clear()


@WAYS
def test_errors_of_few_pixels_are_those_that_repeats_have(normalise):
    """In 300 bins of 4 pixels alike, up to delays of an eighth of the series, which are as long as four blocks."""
    bins, frames = 300, np.random.default_rng(3).poisson(0.5, (2048, 300, 4)).astype(np.uint8)
    found = multitau(frames_of(frames, (bins, 4)), bins_of((4,) * bins, 1), Settings(8, normalise), Masks())
    short = found.lags <= 32
    variance = np.diagonal(found.cov, axis1=1, axis2=2).mean(axis=0)
    off = np.sqrt(variance / found.g2.var(axis=0, ddof=1))
    sampling = 1 / np.sqrt(2 * bins)
    assert np.abs(off[short] - 1).max() < 4 * sampling
    longer = found.lags <= 256
    assert np.abs(off[longer] - 1).max() < (0.8 if normalise == "baseline" else 4 * sampling)


def test_stopped_and_gone_on_with_gives_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(frames_module, "MOST", 64)
    frames, whole = given()
    asked = {"frame_time": 1.0, "frame_mask": whole}
    expected = bayesfit.correlate(frames, BINS, **asked)
    assert np.isfinite(expected.g2_err.values).all()
    for number in (64, 320, None):

        def report(progress, number=number):
            heeded().asked = progress.bins_done == number

        with stop_on(signal.SIGUSR1):
            try:
                with bayesfit.checkpoint(tmp_path / "kept"):
                    found = bayesfit.correlate(frames, BINS, **asked, progress=report)
            except KeyboardInterrupt:
                assert number is not None
    xr.testing.assert_identical(found, expected)


def test_series_too_short_for_blocks_have_no_covariance():
    frames = np.random.default_rng(0).poisson(1.0, (7, *BINS.mask.shape))
    found = multitau(frames_of(frames, BINS.mask.shape), BINS, Settings(DPL), Masks())
    assert np.isnan(found.cov[0]).all()
    assert np.isfinite(found.cov[1]).all()

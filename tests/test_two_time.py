"""Correlation over age and delay: against matrices of all pairs of frames, and on frames that age."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import bayesfit
from bayesfit.compute.work import heeded, stop_on
from bayesfit.correlation import frames as frames_module
from bayesfit.correlation import products as products_module
from bayesfit.data.counting import as_counted
from bayesfit.data.covariance import as_estimated
from bayesfit.geometry import Detector, partition, qmap, save_partition

SHAPE = 24, 30
BINS = partition(qmap(Detector(SHAPE, (75e-6, 75e-6), 5.0, (11.2, 13.7), 1.24), backend="numpy"), (3, 1), (6, 2))
FRAMES, DPL = 333, 4
EDGES = [0, 40, 41 + 60, 222.5, 333]
REAL = Path(__file__).parents[2] / "shared/data/xpcs_twotime/test_g2.npy"
real = pytest.mark.skipif(not REAL.exists(), reason="the measured two-time matrix is not here")


def photons(mean=0.3, frames=FRAMES):
    return np.random.default_rng(0).poisson(mean, (frames, *SHAPE)).astype(np.uint16)


def two_time(frames, **how):
    how = {"frame_time": 1.0, "delays_per_level": DPL, "ages": EDGES} | how
    return bayesfit.correlate(frames, BINS, two_time=True, **how)


def pairs_by_hand(matrix, lag, m):
    """Sums of a frames x frames matrix over pairs of sums of m frames (pair,), and the ages of these pairs, from the
    times of all their frames."""
    size = len(matrix) // m * m
    blocks = matrix[:size, :size].reshape(size // m, m, size // m, m).sum((1, 3))
    times = np.add.outer(np.arange(size), np.arange(size)) / 2
    ages = times.reshape(size // m, m, size // m, m).mean((1, 3))
    return blocks.diagonal(lag // m), ages.diagonal(lag // m)


def in_slices(values, ages, edges=EDGES):
    return np.array([values[(ages >= a) & (ages < b)].sum() for a, b in pairwise(edges)])


@pytest.mark.parametrize("normalise", ["symmetric", "frame"])
@pytest.mark.parametrize(("few", "backend"), [(0.0, "numpy"), (0.0, "jax"), (1.0, "numpy")])
def test_pairs_are_those_of_the_frames_x_frames_matrix(normalise, few, backend, monkeypatch):
    monkeypatch.setattr(products_module, "FEW", few)
    frames, whole = photons(), np.ones(FRAMES, bool)
    whole[[5, 100, 101, 250]] = False
    found = two_time(frames, normalise=normalise, backend=backend, frame_mask=whole)
    series = np.where(whole[:, None], frames.reshape(FRAMES, -1).astype(float), 0.0)
    static, dynamic = BINS.static.roi_map.ravel(), BINS.dynamic.roi_map.ravel()
    both = np.outer(whole, whole).astype(float)
    for place in range(0, found.sizes["tau"], 4):
        lag, m = int(found.tau[place]), int(found.frames_summed[place])
        weights = in_slices(*pairs_by_hand(both, lag, m))
        np.testing.assert_allclose(found.frame_pairs[:, place], weights / m, rtol=1e-12)
        own = series[:, dynamic == 2]
        seen = in_slices(*pairs_by_hand(own @ own.T, lag, m))
        np.testing.assert_array_equal(found.pairs_seen[:, 1, place], seen)
        expected = np.zeros(len(EDGES) - 1)
        for number in np.unique(static[dynamic == 2]):
            size, s = np.sum(static == number), series[:, static == number].sum(1)
            if normalise == "frame":
                expected += in_slices(*pairs_by_hand(np.outer(s, s), lag, m)) / size
                continue
            early = in_slices(*pairs_by_hand(np.outer(s, whole), lag, m))
            late = in_slices(*pairs_by_hand(np.outer(whole, s), lag, m))
            expected += np.divide(early * late, size * weights, out=np.zeros(weights.size), where=weights > 0)
        np.testing.assert_allclose(found.pairs_expected[:, 1, place], expected, rtol=1e-12)


def test_one_slice_of_all_ages_is_the_one_time_correlation():
    frames = photons()
    whole, found = bayesfit.correlate(frames, BINS, frame_time=1.0), two_time(frames, ages=1, delays_per_level=8)
    for name in ("g2", "g2_err", "g2_cov", "pairs_seen", "pairs_expected", "counts"):
        np.testing.assert_allclose(found[name][0], whole[name], rtol=1e-12)
    (one,) = bayesfit.age_slices(found)
    np.testing.assert_allclose(as_counted(one).pairs[:, :16], as_counted(whole).pairs[:, :16], rtol=1e-12)


@pytest.mark.parametrize("few", [0.0, 1.0], ids=["dense", "sparse"])
def test_stopped_and_gone_on_with_gives_the_same_bits(few, tmp_path, monkeypatch):
    monkeypatch.setattr(products_module, "FEW", few)
    monkeypatch.setattr(frames_module, "MOST", 64)
    frames = photons()
    expected, seen = two_time(frames, normalise="frame"), []

    def stop_at(number):
        def report(progress):
            seen.append(progress.bins_done)
            heeded().asked = progress.bins_done == number

        return report

    for number in (64, 192, None):
        with stop_on(signal.SIGUSR1):
            try:
                with bayesfit.checkpoint(tmp_path / "kept"):
                    found = two_time(frames, normalise="frame", progress=stop_at(number))
            except KeyboardInterrupt:
                assert number is not None
    assert seen == [*range(64, FRAMES, 64), FRAMES]
    xr.testing.assert_identical(found, expected)


def test_killed_at_the_prompt_and_gone_on_with(tmp_path):
    np.save(tmp_path / "frames.npy", photons(0.3, 3000))
    save_partition(BINS, tmp_path / "qmap.hdf")
    command = [Path(sys.executable).with_name("bayesfit"), "correlate", "frames.npy", "qmap.hdf", "-o", "aged.hdf"]
    command += ["--frame-time", "1e-3", "--two-time", "--ages", "0,0.5,1.5,3"]
    start = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    killed = subprocess.Popen(command, **start)
    while not (tmp_path / ".aged.hdf.progress").exists():
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert not (tmp_path / "aged.hdf").exists()
    said, complained = subprocess.Popen(command, **start).communicate()
    assert "3 slices" in said, complained
    found = bayesfit.read_two_time(tmp_path / "aged.hdf")
    assert found.age.values.tolist() == [0.25, 1.0, 2.25]
    for number, one in enumerate(bayesfit.age_slices(found)):
        read = bayesfit.read(tmp_path / f"aged_age_{number}.hdf")
        for name in ("tau", "g2", "g2_err", "frame_pairs", "counts", "pixels"):
            np.testing.assert_allclose(read[name], one[name], rtol=1e-6)
        assert read.attrs["frames"] == one.attrs["frames"]
        with h5py.File(tmp_path / f"aged_age_{number}.hdf") as file:
            multitau = file["xpcs/multitau"]
            assert multitau["normalized_g2_scatter"].shape == multitau["normalized_g2"].shape
    said, _ = subprocess.Popen(command, **start).communicate()
    assert "finished before" in said


# ---- frames whose rate changes with age


@cache
def aged():
    """Photons (frame, row, column) of pixels that see independent speckles of contrast 1/4, and the rate (frame,) by
    which the field decays from each frame to the next."""
    rng, count = np.random.default_rng(3), 1500
    rate = 0.15 * np.exp(-np.arange(count) / 700)
    field, seen = np.zeros((4, *SHAPE), complex), np.empty((count, *SHAPE), np.uint8)
    for number in range(count):
        new = (rng.normal(size=field.shape) + 1j * rng.normal(size=field.shape)) / np.sqrt(2)
        kept = np.exp(-rate[number]) if number else 0.0
        field = kept * field + np.sqrt(1 - kept**2) * new
        seen[number] = rng.poisson(0.3 * (np.abs(field) ** 2).mean(axis=0))
    return seen, rate


def truth(rate, one):
    """g2 (tau,) of a slice at delays of single frames."""
    grown, found = np.cumsum(rate), []
    for tau in one.tau.values[one.frames_summed == 1]:
        lag = round(tau / 1e-3)
        early = np.arange(rate.size - lag)
        age = (early + lag / 2) * 1e-3
        early = early[(age >= one.attrs["age_start"]) & (age < one.attrs["age_end"])]
        found.append(1 + 0.25 * np.exp(-2 * (grown[early + lag] - grown[early])).mean())
    return np.array(found)


def test_a_rate_that_changes_with_age_is_recovered_slice_by_slice():
    seen, rate = aged()
    data = bayesfit.correlate(seen, BINS, frame_time=1e-3, two_time=True, ages=3)
    slices = bayesfit.age_slices(data)
    scores = [((one.g2[:, :16] - truth(rate, one)) / one.g2_err[:, :16]).values for one in slices]
    assert 0.7 < np.std(scores) < 1.3
    result = bayesfit.series(slices, "single_exponential", names=data.age.values.tolist(), draws=200)
    assert "'photons'" in str(result["steps"].noise_chosen.values[0])
    wanted = 1e3 * rate.reshape(3, -1).mean(axis=1)[:, None]
    found, sd = (getattr(result["posterior"].rate, what)(("chain", "draw")).values for what in ("mean", "std"))
    assert np.all(np.abs(found - wanted) < 4 * sd + 0.03 * wanted)
    assert np.all(np.diff(found, axis=0) < 0)


def test_slices_carry_their_covariance_and_the_error_of_q(tmp_path):
    known = BINS._replace(dynamic=replace(BINS.dynamic, q_err=0.01 * BINS.dynamic.centers[0]))
    found = bayesfit.correlate(photons(), known, frame_time=1.0, two_time=True, ages=2)
    bayesfit.save_two_time(found, tmp_path / "found.nc")
    for slices in map(bayesfit.age_slices, (found, bayesfit.read_two_time(tmp_path / "found.nc"))):
        for number, one in enumerate(slices):
            np.testing.assert_array_equal(one.q_err, known.dynamic.q_err)
            np.testing.assert_array_equal(one.cov_samples, found.cov_samples[number])
            assert one.cov_samples.min() > 8
            np.testing.assert_allclose(np.diagonal(one.g2_cov.values, axis1=1, axis2=2), one.g2_err**2)
            assert as_estimated(one).valid.any("tau").all()


def test_expected_pairs_of_slices_are_those_of_their_counted_numbers():
    seen, _ = aged()
    for one in bayesfit.age_slices(bayesfit.correlate(seen, BINS, frame_time=1e-3, two_time=True, ages=3)):
        np.testing.assert_allclose(as_counted(one).pairs, one.pairs_expected, rtol=0.1)


# ---- matrices


def matrix(frames=200, seed=0):
    rng, age = np.random.default_rng(seed), np.arange(frames)
    found = 1 + 0.2 * np.exp(-0.05 * abs(age - age[:, None])) + 0.01 * rng.normal(size=(frames, frames))
    return np.tril(found) + np.tril(found, -1).T


def test_a_matrix_is_averaged_along_its_diagonals():
    given = matrix()
    found = bayesfit.two_time(given, 1.0, ages=[0, 60, 130, 200], delays_per_level=DPL)
    for place in range(found.sizes["tau"]):
        lag, m = int(found.tau[place]), int(found.frames_summed[place])
        values, ages = pairs_by_hand(given, lag, m)
        number = in_slices(np.ones(values.size), ages, [0, 60, 130, 200]) * m**2
        wanted = in_slices(values, ages, [0, 60, 130, 200]) / np.maximum(number, 1)
        np.testing.assert_allclose(found.g2[:, 0, place], wanted, rtol=1e-12)
        np.testing.assert_allclose(found.frame_pairs[:, place], number / m, rtol=1e-12)


def test_errors_of_a_matrix_are_those_of_independent_values():
    found = bayesfit.two_time(matrix(900), 1.0, ages=3)
    ratio = found.g2_err[:, 0] / (0.01 / np.sqrt(found.frame_pairs))
    assert 0.85 < float(ratio[:, :16].mean()) < 1.1


def test_all_forms_of_a_matrix_give_the_same():
    given = matrix()
    expected = bayesfit.two_time(given, 1.0)
    halves = np.triu(given), np.tril(given), np.where(np.tri(200, k=-1, dtype=bool), np.nan, given)
    for other in (*halves, given[np.triu_indices(200)], given[None]):
        xr.testing.assert_identical(bayesfit.two_time(other, 1.0), expected)
    both = bayesfit.two_time(np.stack([given, given]), 1.0, q=[0.01, 0.02])
    np.testing.assert_array_equal(both.g2[:, 1], expected.g2[:, 0])


def test_missing_frames_are_left_out_and_counted():
    given, gone = matrix(), [3, 77]
    given[gone], given[:, gone] = np.nan, np.nan
    found = bayesfit.two_time(given, 1.0, ages=2)
    assert "2 of 200 frames are missing" in found.attrs["notes"]
    values, ages = pairs_by_hand(given, 1, 1)
    np.testing.assert_allclose(found.g2[0, 0, 0], np.nanmean(values[ages < 100]), rtol=1e-12)
    assert found.frame_pairs[0, 0] == 100 - 4


def refusal(given, error=bayesfit.InputError, **how):
    with pytest.raises(error) as caught:
        bayesfit.two_time(given, **{"frame_time": 1.0} | how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_two_time_correlation_is_refused_in_one_line():
    given = matrix(20)
    assert "square matrix" in refusal(given[:, 1:])
    assert "209 elements" in refusal(given[np.triu_indices(20)][1:])
    assert "every value is NaN or 0" in refusal(np.full((20, 20), np.nan))
    assert "real numbers" in refusal(np.full((20, 20), "a"))
    assert "at least 4" in refusal(given[:3, :3])
    assert "not symmetric" in refusal(given + np.triu(np.ones((20, 20)), 5))
    assert "bin 1" in refusal([given, matrix(30)])
    assert "read_two_time" in refusal("matrix.npy")
    assert "one value for each of 1" in refusal(given, q=[1, 2])
    for ages in (0, 1.5, True, "a", [1], [3, 2], [0, np.nan], [0, 1], [0, 5, 30, 40]):
        assert "ages" in refusal(given, bayesfit.SettingsError, ages=ages)
    assert "frame_time" in refusal(given, bayesfit.SettingsError, frame_time=0)
    assert "delays_per_level" in refusal(given, bayesfit.SettingsError, delays_per_level=0)


def test_wrong_objects_and_settings_are_refused():
    with pytest.raises(bayesfit.InputError, match="two_time=True"):
        bayesfit.age_slices(bayesfit.simulate(bins=1)[0])
    with pytest.raises(bayesfit.InputError, match="age_slices"):
        bayesfit.fit(bayesfit.two_time(matrix(), 1.0))
    with pytest.raises(bayesfit.SettingsError, match="not known"):
        two_time(iter(photons()), ages=3)
    with pytest.raises(bayesfit.SettingsError, match="there is no bin 3"):
        bayesfit.plot_two_time(bayesfit.two_time(matrix(), 1.0), bins=[3])


# ---- files


def aps(path, matrices, bins, **more):
    content = {
        "xpcs/twotime/processed_bins": bins,
        "entry/instrument/detector_1/frame_time": 0.5,
        "xpcs/multitau/config/stride_frame": 1,
        "xpcs/multitau/config/avg_frame": 2,
        "xpcs/qmap/dynamic_v_list_dim0": [0.01, 0.02, 0.03],
        "xpcs/qmap/dynamic_v_list_dim1": [0.0, 90.0],
        "xpcs/qmap/dynamic_index_mapping": [0, 1, 3, 4, 5],
    }
    with h5py.File(path, "w") as file:
        for name, value in (content | more).items():
            file[name] = value
        for bin, each in zip(bins, matrices, strict=False):
            file[f"xpcs/twotime/correlation_map/c2_{bin:05d}"] = each
    return path


def test_two_time_results_of_aps_are_read(tmp_path):
    given = [matrix(seed=1), matrix(seed=2)]
    found = bayesfit.read_two_time(aps(tmp_path / "aps.hdf", map(np.triu, given), [2, 3]))
    expected = bayesfit.two_time(np.stack(given), 1.0)
    np.testing.assert_array_equal(found.g2, expected.g2)
    assert (found.q.values.tolist(), found.phi.values.tolist()) == ([0.01, 0.02], [90.0, 90.0])
    path = aps(tmp_path / "few.hdf", given[:1], [2, 3])
    with pytest.raises(bayesfit.InputError, match="2 bins, and 1 matrices"):
        bayesfit.read_two_time(path)
    with pytest.raises(bayesfit.InputError, match="c2_00003: bin 1: expected a square matrix"):
        bayesfit.read_two_time(aps(tmp_path / "cut.hdf", [given[0], given[1][1:]], [2, 3]))
    with pytest.raises(bayesfit.InputError, match="none of the map's"):
        bayesfit.read_two_time(aps(tmp_path / "map.hdf", given, [2, 9]))


@pytest.mark.parametrize("last", [False, True])
def test_two_time_results_of_nxxpcs_are_read(last, tmp_path):
    given = np.stack([matrix(seed=1), matrix(seed=2)])
    with h5py.File(tmp_path / "found.nxs", "w") as file:
        made = file.create_dataset(
            "entry/twotime/two_time_corr_func", data=np.moveaxis(given, 0, -1) if last else given
        )
        made.attrs["storage_mode"] = "one_array_q_last" if last else "one_array_q_first"
        file["entry/instrument/masks/dynamic_q_list"] = [0.1, 0.2]
        file["entry/instrument/masks/dynamic_q_list"].attrs["units"] = "1/nm"
        file["entry/instrument/detector/frame_time"] = 1.0
    found = bayesfit.read_two_time(tmp_path / "found.nxs")
    np.testing.assert_array_equal(found.g2, bayesfit.two_time(given, 1.0).g2)
    np.testing.assert_allclose(found.q, [0.01, 0.02])
    with h5py.File(tmp_path / "found.nxs", "r+") as file:
        file["entry/instrument/masks/dynamic_q_list"].attrs["units"] = "furlong^-1"
    with pytest.raises(bayesfit.InputError, match=r"dynamic_q_list: the unit of q, 'furlong\^-1', is not known"):
        bayesfit.read_two_time(tmp_path / "found.nxs")


def test_files_that_are_none_are_refused_in_one_line(tmp_path):
    (tmp_path / "text").write_text("no matrix")
    np.save(tmp_path / "line.npy", np.ones(6))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = np.ones(3)
    for name, words in {
        "text": "no two-time matrix",
        "line.npy": "axes",
        "other.h5": "neither",
        "no": "no such",
    }.items():
        with pytest.raises(bayesfit.InputError, match=words) as caught:
            bayesfit.read_two_time(tmp_path / name, frame_time=1.0)
        assert "\n" not in str(caught.value)


def test_what_is_saved_is_read_as_it_was(tmp_path):
    data = two_time(photons())
    xr.testing.assert_identical(bayesfit.read_two_time(bayesfit.save_two_time(data, tmp_path / "aged.nc")), data)
    with pytest.raises(bayesfit.SettingsError, match="slices of its own"):
        bayesfit.read_two_time(tmp_path / "aged.nc", ages=3)


@real
def test_a_measured_matrix_is_read_sliced_fitted_and_drawn(tmp_path):
    data = bayesfit.read_two_time(REAL, frame_time=1.0, ages=2)
    values = np.load(REAL).diagonal(7)
    np.testing.assert_allclose(data.g2[0, 0, 6], values[np.arange(values.size) + 3.5 < 175].mean(), rtol=1e-12)
    result = bayesfit.series(bayesfit.age_slices(data), "single_exponential", draws=200)
    rate = result["posterior"].rate.mean(("chain", "draw")).values
    assert np.all((rate > 0.01) & (rate < 0.1))
    bayesfit.plot_two_time(data, path=tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").stat().st_size > 10_000

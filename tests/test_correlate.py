"""Frames to g2: against sums written out, in both backends, by all pixels and by photons alone."""

import itertools
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import photons as simulator
import pytest
import xarray as xr
from raw_frames import BINS, DPL, FRAMES, SHAPE, imm, photons, rigaku
from speckle import intensities, mode_weights, spectrum

import bayesfit
from bayesfit.api.correlate_file import Request, correlate_file
from bayesfit.backends.choice import get_backend
from bayesfit.compute.work import heeded, stop_on
from bayesfit.correlation import compiled as compiled_module
from bayesfit.correlation import frames as frames_module
from bayesfit.correlation import lag_products, sparse_compiled
from bayesfit.correlation import products as products_module
from bayesfit.correlation.aps_files import PLACED, save_correlated
from bayesfit.correlation.blocks import FEWEST, blocks_of
from bayesfit.correlation.dense import Dense
from bayesfit.correlation.dense_compiled import DenseCompiled
from bayesfit.correlation.frame_sums import FrameSums, up_to
from bayesfit.correlation.frames import frames_of
from bayesfit.correlation.levels import Levels
from bayesfit.correlation.multitau import Masks, Settings, multitau
from bayesfit.correlation.photon_sums import PhotonSums
from bayesfit.correlation.photons import photons_of
from bayesfit.geometry import Detector, save_partition

WAYS = pytest.mark.parametrize("normalise", ["symmetric", "frame", "baseline"])
PATHS = pytest.mark.parametrize("few", [0.0, 1.0], ids=["dense", "sparse"])
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["as it is", "compiled"])
BACKENDS = pytest.mark.parametrize("backend", ["numpy", "jax"])


def summed(frames, whole, lag, m):
    """Frames (T, pixel) in sums of m, how many frames each sum is of, and the delay in sums."""
    length = len(frames) // m * m
    kept = np.where(whole[:, None], frames.reshape(len(frames), -1).astype(float), 0.0)
    return kept[:length].reshape(-1, m, kept.shape[1]).sum(1), whole[:length].reshape(-1, m).sum(1), lag // m


def pairs_by_hand(frames, own, lag, m, normalise, whole):
    """Pairs seen and expected in the pixels `own`, sums written out."""
    series, w, k = summed(frames, whole, lag, m)
    early, late, weights = series[:-k], series[k:], (w[:-k] * w[k:]).sum()
    seen, expected = (early[:, own] * late[:, own]).sum(), 0.0
    static = BINS.static.roi_map.ravel()
    for number in np.unique(static[own]):
        same = own & (static == number)
        size, s = same.sum(), series[:, same].sum(1)
        if normalise == "symmetric":
            expected += (s[:-k] * w[k:]).sum() * (s[k:] * w[:-k]).sum() / (size * weights)
        elif normalise == "frame":
            expected += (s[:-k] * s[k:]).sum() / size
        else:
            expected += (frames.reshape(len(frames), -1)[whole][:, same].mean()) ** 2 * weights * size
    return seen, expected


def ratio_by_hand(frames, lag, m, normalise, own):
    seen, expected = pairs_by_hand(frames, own, lag, m, normalise, np.ones(len(frames), bool))
    return seen / expected


def correlated(frames, few, monkeypatch, masks=None, **how):
    monkeypatch.setattr(products_module, "FEW", few)
    return multitau(frames_of(frames, SHAPE), BINS, Settings(DPL, **how), masks or Masks())


# ---- numbers


@pytest.fixture
def numba(monkeypatch):
    """A function that says whether what can be compiled is compiled by Numba."""

    def use(compiled):
        assert not compiled or compiled_module.available, "Numba is not installed"
        monkeypatch.setattr(compiled_module, "available", compiled)
        lag_products.of_pixels.cache_clear()

    yield use
    lag_products.of_pixels.cache_clear()


@WAYS
@PATHS
@COMPILED
@BACKENDS
def test_pairs_are_those_of_sums_written_out(normalise, few, backend, compiled, numba, monkeypatch):
    numba(compiled)
    frames, whole, good = photons(), np.ones(FRAMES, bool), np.ones(SHAPE, bool)
    whole[[5, 100, 101, 250]], good[3, 4:9] = False, False
    found = correlated(frames, few, monkeypatch, Masks(whole, good), normalise=normalise, backend=backend)
    assert found.frames == whole.sum()
    for place in range(0, found.lags.size, 3):
        for number in range(3):
            own = ((BINS.dynamic.roi_map == number + 1) & good).ravel()
            by_hand = pairs_by_hand(frames, own, found.lags[place], found.summed[place], normalise, whole)
            np.testing.assert_array_equal(found.seen[number, place], by_hand[0])
            np.testing.assert_allclose(found.expected[number, place], by_hand[1], rtol=1e-12)
    np.testing.assert_allclose(found.g2, found.seen / found.expected, rtol=1e-15)
    np.testing.assert_allclose(found.image[good], frames[whole].mean(axis=0)[good], rtol=1e-12)
    np.testing.assert_allclose(found.intensity[whole], frames[whole][:, good].mean(axis=1), rtol=1e-12)


def test_delays_are_those_of_a_multi_tau_correlator_up_to_half_the_series(monkeypatch):
    found = correlated(photons(), 0.0, monkeypatch)
    wanted = [*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160]
    assert found.lags.tolist() == wanted
    assert found.summed.tolist() == [1] * 8 + [2] * 4 + [4] * 4 + [8] * 4 + [16] * 4 + [32]


@pytest.mark.parametrize(("largest", "dtype"), [(3, np.uint8), (60_000, np.uint16), (2**31, np.int64)])
@COMPILED
def test_whole_numbers_are_summed_exactly(largest, dtype, compiled, numba, monkeypatch):
    """Also where their products are too large for single precision."""
    numba(compiled)
    frames = np.random.default_rng(2).integers(0, largest, (64, *SHAPE)).astype(dtype)
    found = correlated(frames, 0.0, monkeypatch)
    own = (BINS.dynamic.roi_map == 2).ravel()
    for place, (lag, m) in enumerate(zip(found.lags, found.summed, strict=True)):
        exact = [int(n) for n in frames.reshape(64, -1)[:, own].sum(axis=0)]
        assert sum(exact) < 2**63
        length = 64 // m * m
        sums = frames.reshape(64, -1)[:length, own].astype(object).reshape(-1, m, own.sum()).sum(1)
        wanted = (sums[: -(lag // m)] * sums[lag // m :]).sum()
        assert abs(int(found.seen[1, place]) - wanted) <= wanted * 2e-16 * (largest > 1e6) * 64


def test_sums_of_many_frames_are_exact_too(monkeypatch):
    """Where single precision holds the products of some frames, but not those of all."""
    rng = np.random.default_rng(4)
    series = rng.integers(0, 30, (40_000, 4)).astype(np.float32)
    levels = Levels(4, series[0], partial(lag_products.of_pixels, get_backend("numpy")))
    levels.expect(30)
    levels.take(series)
    found, numbers = levels.finish(), series.astype(np.int64)
    for delay in range(1, 9):
        assert found[:, delay - 1].tolist() == (numbers[delay:] * numbers[:-delay]).sum(axis=0).tolist()


@PATHS
@COMPILED
@BACKENDS
def test_the_scatter_is_that_of_the_pixels(few, backend, compiled, numba, monkeypatch):
    numba(compiled)
    frames = photons()
    found = correlated(frames, few, monkeypatch, backend=backend)
    series = frames.reshape(FRAMES, -1)[:, (BINS.dynamic.roi_map == 2).ravel()].astype(float)
    for place in range(8):
        lag = found.lags[place]
        pairs = (series[lag:] * series[:-lag]).sum(axis=0)
        wanted = pairs.std(ddof=1) / (found.expected[1, place] / pairs.size)
        np.testing.assert_allclose(found.scatter[1, place], wanted, rtol=1e-9)


@pytest.mark.parametrize(("mean", "flush"), [(0.3, 2000), (0.01, 1024), (0.0005, 5000)])
@pytest.mark.parametrize("dtype", [np.uint16, float])
def test_compiled_sums_of_photons_are_those_of_frames_however_they_are_cut(mean, flush, dtype, monkeypatch):
    """Also where frames are missing, a pixel gets brighter on the way, and some never see a photon."""
    pytest.importorskip("numba")
    monkeypatch.setattr(sparse_compiled, "FRAMES", flush)
    frames, whole, blocks = photons(mean, 7001, dtype=dtype), np.ones(7001, bool), blocks_of(BINS, np.ones(SHAPE, bool))
    frames[3000:, 3, 4] += 1
    frames[:, 20] = 0
    whole[[0, 5, 100, 101, 3000, 7000]] = False
    flat, both = (
        frames.reshape(7001, -1),
        (
            FrameSums(blocks, Dense(blocks, 4, get_backend("numpy")), 4, True),
            PhotonSums(blocks, 4, True),
        ),
    )
    for sums, prepared in zip(both, (np.asarray, photons_of), strict=True):
        for first in range(0, 7001, 500):
            sums.take(prepared(flat[first : first + 500]), whole[first : first + 500])
    expected, found = (up_to(sums.finish(), 48) for sums in both)
    np.testing.assert_array_equal(found.pairs, expected.pairs)
    np.testing.assert_array_equal(found.image, expected.image)
    for name in ("means", "weights", "photons", "intensity"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12)
    np.testing.assert_allclose(found.squares, expected.squares, rtol=1e-6)


@pytest.mark.parametrize("largest", [2, 25, 3000])
def test_compiled_products_are_those_of_whole_tiles_however_frames_are_cut(largest):
    """Also where precision changes on the way, chunks are odd, and a tile is not full."""
    pytest.importorskip("numba")
    rng, blocks = np.random.default_rng(5), blocks_of(BINS, np.ones(SHAPE, bool))
    frames = rng.integers(0, 2, (777, SHAPE[0] * SHAPE[1])).astype(np.uint16)
    frames[400:500] = rng.integers(0, largest, (100, frames.shape[1]))
    cut, plain = DenseCompiled(blocks, 4), Dense(blocks, 4, get_backend("numpy"))
    ends = [0, 1, 2, 5, 133, 134, 300, 411, 777]
    for first, end in itertools.pairwise(ends):
        taken = [each.take(frames[first:end], np.ones(end - first, bool)) for each in (cut, plain)]
        for one, other in zip(*taken, strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(cut.finish(), plain.finish())
    np.testing.assert_allclose(cut.squares, plain.squares, rtol=1e-14)


@WAYS
def test_the_covariance_is_the_jackknife_over_blocks_of_pixels(normalise, monkeypatch):
    """By hand for blocks that are found by what a change of their pixels changes."""
    frames = photons()
    found = correlated(frames, 0.0, monkeypatch, normalise=normalise)
    blocks = blocks_of(BINS, np.ones(SHAPE, bool))
    parts = np.split(blocks.places, blocks.starts[1:])
    own = [(pixels.size, pixels) for n, pixels in enumerate(parts) if blocks.dynamic[n] == 1]
    total = sum(size for size, _ in own)
    assert len(own) >= FEWEST
    for place in (0, 9, 20):
        lag, m = found.lags[place], found.summed[place]
        bin_pixels = (BINS.dynamic.roi_map == 2).ravel()
        ratio = partial(ratio_by_hand, frames, lag, m, normalise)
        theta, pseudo, share = ratio(bin_pixels), [], []
        for size, pixels in own:
            kept = bin_pixels.copy()
            kept[pixels] = False
            share.append(total / size)
            pseudo.append(share[-1] * theta - (share[-1] - 1) * ratio(kept))
        center = sum(p / h for p, h in zip(pseudo, share, strict=True))
        wanted = sum((p - center) ** 2 / (h - 1) for p, h in zip(pseudo, share, strict=True)) / len(own)
        np.testing.assert_allclose(found.cov[1, place, place], wanted, rtol=1e-9)


def test_errors_of_starved_pixels_are_those_of_counting(monkeypatch):
    found = correlated(photons(0.1, 2000), 1.0, monkeypatch)
    error = np.sqrt(np.diagonal(found.cov, axis1=1, axis2=2))
    ratio = error[:, :8] * np.sqrt(found.expected[:, :8])
    assert 0.85 < ratio.mean() < 1.15


def speckles(rate, contrast, counts, frames=2048, seed=1):
    """Photons (frame, row, column) of pixels that see independent speckles."""
    rng = np.random.default_rng(seed)
    amplitudes, _ = spectrum(rate, 1.0, frames)
    seen = rng.poisson(counts * intensities(amplitudes, mode_weights(contrast), np.prod(SHAPE), frames, rng))
    return seen.T.reshape(frames, *SHAPE).astype(np.uint8)


def test_from_photons_with_a_known_decay_to_its_posterior():
    frames = speckles(0.02, 0.3, 0.5)
    data = bayesfit.correlate(frames, BINS, frame_time=1e-3)
    truth = simulator.theory(data.tau.values / 1e-3, data.frames_summed.values.astype(int), 0.02, 1.0, 0.3)
    z = ((data.g2 - truth) / data.g2_err).values
    assert 0.7 < z.std() < 1.3
    result = bayesfit.fit(data)
    assert "'photons'" in result.attrs["noise_chosen"]
    assert (result["diagnostics"].verdict == "ok").all()
    rate = result.posterior.rate
    assert np.all(np.abs(rate.mean(("chain", "draw")) - 20) < 4 * rate.std(("chain", "draw")))


# ---- where frames come from


def test_arrays_iterables_and_files_give_the_same_bits(tmp_path):
    frames = photons()
    np.save(tmp_path / "frames.npy", frames)
    with h5py.File(tmp_path / "frames.h5", "w") as file:
        file.create_dataset("entry/data/data", data=frames, chunks=(10, *SHAPE), compression="gzip")
        file["entry/instrument/detector/frame_time"] = 1e-3
    for number, part in enumerate(np.array_split(frames, 3)):
        with h5py.File(tmp_path / f"data_{number}.h5", "w") as file:
            file["entry/data/data"] = part
    with h5py.File(tmp_path / "master.h5", "w") as file:
        for number in range(3):
            file[f"entry/data/data_{number:06d}"] = h5py.ExternalLink(f"data_{number}.h5", "entry/data/data")
    expected = bayesfit.correlate(frames, BINS, frame_time=1e-3)
    for given in (iter(frames), tmp_path / "frames.npy", str(tmp_path / "frames.h5"), tmp_path / "master.h5"):
        found = bayesfit.correlate(given, BINS, frame_time=1e-3)
        for name in ("g2", "g2_cov", "pairs_expected", "counts", "tau"):
            np.testing.assert_array_equal(found[name], expected[name])
    assert bayesfit.correlate(tmp_path / "frames.h5", BINS).attrs["frame_time"] == 1e-3


@PATHS
@pytest.mark.parametrize("dtype", [">u2", "<i4", ">f8", "u1", "?"])
def test_the_type_of_the_numbers_does_not_matter(dtype, few, monkeypatch):
    frames = np.minimum(photons(), 1)
    found = correlated(frames.astype(dtype), few, monkeypatch)
    np.testing.assert_array_equal(found.seen, correlated(frames, few, monkeypatch).seen)


@pytest.mark.parametrize("mean", [0.01, 0.3])
def test_photons_one_by_one_give_the_same_pairs_as_frames(tmp_path, mean):
    frames = photons(mean)
    frames[-1, 0, 0] += 1
    (tmp_path / "sparse.imm").write_bytes(imm(frames))
    (tmp_path / "dense.imm").write_bytes(imm(frames, 0))
    (tmp_path / "rigaku.bin").write_bytes(rigaku(frames))
    frame, row, column = np.nonzero(frames)
    events = bayesfit.Photons(FRAMES, frame, row * SHAPE[1] + column, frames[frame, row, column])
    expected = bayesfit.correlate(frames, BINS, frame_time=1e-3)
    for given in (tmp_path / "sparse.imm", tmp_path / "dense.imm", tmp_path / "rigaku.bin", events):
        found = bayesfit.correlate(given, BINS, frame_time=1e-3)
        for name in ("pairs_seen", "pairs_expected", "g2_cov", "counts"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-18)


# ---- stopped, and gone on with


@PATHS
@COMPILED
def test_stopped_anywhere_and_gone_on_with_gives_the_same_bits(few, compiled, numba, tmp_path, monkeypatch):
    numba(compiled)
    monkeypatch.setattr(products_module, "FEW", few)
    monkeypatch.setattr(frames_module, "MOST", 64)
    frames = photons()
    again = partial(bayesfit.correlate, frames, BINS, frame_time=1.0, normalise="frame")
    expected, seen = again(), []

    def stop_at(number):
        def report(progress):
            seen.append(progress.bins_done)
            heeded().asked = progress.bins_done == number

        return report

    for number in (64, 192, 320, None):
        with stop_on(signal.SIGUSR1):
            try:
                with bayesfit.checkpoint(tmp_path / "kept"):
                    found = bayesfit.correlate(
                        frames, BINS, frame_time=1.0, normalise="frame", progress=stop_at(number)
                    )
            except KeyboardInterrupt:
                assert number is not None
    assert seen == [*range(64, FRAMES, 64), FRAMES]  # no frame was looked at twice
    xr.testing.assert_identical(found, expected)


def at_the_prompt(folder, *arguments):
    command = [Path(sys.executable).with_name("bayesfit"), "correlate", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_at_the_prompt_and_gone_on_with(tmp_path):
    np.save(tmp_path / "frames.npy", photons(0.3, 4000))
    save_partition(BINS, tmp_path / "qmap.hdf")
    given = ["frames.npy", "qmap.hdf", "--frame-time", "1e-3", "--normalise", "frame"]
    killed = at_the_prompt(tmp_path, *given, "-o", "found.hdf")
    while not (tmp_path / ".found.hdf.progress").exists():
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert not (tmp_path / "found.hdf").exists()
    said, complained = at_the_prompt(tmp_path, *given, "-o", "found.hdf").communicate()
    assert "4000 frames, 3 bins" in said, complained
    said, _ = at_the_prompt(tmp_path, *given, "-o", "found.hdf").communicate()
    assert "finished before" in said
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    refused = at_the_prompt(tmp_path, *given, "-o", "no/found.hdf")
    _, complained = refused.communicate()
    assert (refused.returncode, complained.count("\n")) == (1, 1)


def test_results_are_written_in_the_layout_of_aps(tmp_path):
    bad = photons(0.2)
    bad[:, 2, 2] = np.iinfo(bad.dtype).max
    found = multitau(frames_of(bad, SHAPE), BINS, Settings(DPL), Masks())
    data = bayesfit.read(save_correlated(found, tmp_path / "found.hdf", 1e-3))
    assert data.attrs["pipeline"] == "aps_8idi"
    expected = bayesfit.correlate(bad, BINS, frame_time=1e-3, delays_per_level=DPL)
    for name in ("g2", "g2_err", "tau", "q", "phi", "counts", "pixels", "valid"):
        np.testing.assert_allclose(data[name], expected[name], rtol=1e-12)
    assert data.attrs["frames"] == FRAMES
    assert "pixels without numbers that were left out: 1" in data.attrs["notes"]
    assert set(expected.attrs["notes"].split("; ")) <= set(data.attrs["notes"].split("; "))
    np.testing.assert_array_equal(bayesfit.geometry.read_partition(tmp_path / "found.hdf").mask[2, 2], False)


def test_results_hold_what_the_reader_of_pyxpcsviewer_asks_for(tmp_path):
    """`benchmarks/viewer.py` reads a result by that reader itself."""
    detector = Detector(SHAPE, (75e-6, 75e-6), 5.0, (11.2, 13.7), 1.24)
    qmap_file = save_partition(BINS, tmp_path / "qmap.hdf", detector)
    np.save(tmp_path / "frames.npy", photons(0.3, 64))
    request = Request(tmp_path / "frames.npy", qmap_file, frame_time=1e-3)
    correlate_file(request, tmp_path / "found.hdf", lambda progress: None)
    with h5py.File(tmp_path / "found.hdf") as file, h5py.File(qmap_file) as given:
        for name in PLACED:
            assert file[f"xpcs/qmap/{name}"][()] == given[f"qmap/{name}"][()]
        assert file["entry/instrument/incident_beam/incident_energy"][()] == pytest.approx(12.39842 / 1.24)
        assert file["xpcs/temporal_mean/scattering_1d_segments"].shape == (1, BINS.static.count)
        assert file["entry/start_time"].shape == ()
        assert len(file["xpcs/qmap"].attrs["hash"]) == 64

"""Bad frames: every row of `bad_frames` is made, given to Python and to the command line, and gets what it must."""

import h5py
import numpy as np
import pytest
from bad_frames import DARK, LEFT_OUT, REFUSED, REFUSED_FILES, hdf5, words
from in_process import bayesfit as cli
from raw_frames import BINS, FRAMES, SHAPE, imm

import bayesfit
from bayesfit.geometry import save_partition

NUMBERS = "g2", "g2_cov", "pairs_seen", "pairs_expected", "counts", "pixels"


def correlated(frames, **how):
    return bayesfit.correlate(frames, **{"partition": BINS, "frame_time": 1.0, "backend": "numpy"} | how)


def same(found, expected):
    for name in NUMBERS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-18)


def refusal(frames, **how):
    with pytest.raises(bayesfit.BayesfitError) as caught:
        correlated(frames, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_cannot_be_used_is_left_out_and_counted(name, backend):
    row = LEFT_OUT[name]
    found = correlated(row.frames, backend=backend)
    assert row.note in found.attrs["notes"]
    good, pixels = np.ones(FRAMES, bool), np.ones(SHAPE, bool)
    good[row.without] = False
    if row.pixel:
        pixels[row.pixel] = False
    same(found, correlated(DARK, frame_mask=good, pixel_mask=pixels))
    assert found.attrs["frames"] == good.sum()


@pytest.mark.parametrize("name", REFUSED)
def test_what_are_no_frames_is_refused_in_one_line(name):
    frames, how, part = REFUSED[name]
    assert part in refusal(frames, **how)


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_files_that_are_damaged_or_of_something_else_are_refused(name, tmp_path):
    make, part = REFUSED_FILES[name]
    path = tmp_path / "raw"
    if isinstance(make, bytes):
        path.write_bytes(make)
    else:
        make(path)
    save_partition(BINS, tmp_path / "qmap.hdf")
    line = refusal(path, frame_time=None if "frame time" in name else 1.0)
    assert part in line
    assert line.startswith(str(path))
    given = [] if "frame time" in name else ["--frame-time", "1"]
    said = cli("correlate", path, tmp_path / "qmap.hdf", "-o", tmp_path / "found.hdf", *given)
    assert (said.code, said.complaints) == (1, f"error: {line}")
    assert not (tmp_path / "found.hdf").exists()


def test_full_counters_of_photon_files_count_as_saturated(tmp_path):
    (tmp_path / "rigaku").write_bytes(words(lambda found: np.bitwise_or(found[:1], 2**12 - 1, out=found[:1])))
    saturated = DARK.copy()
    saturated[0].flat[np.flatnonzero(DARK[0])[0]] = 2**16 - 1
    (tmp_path / "imm").write_bytes(imm(saturated))
    good = np.arange(FRAMES) > 0
    for name in ("rigaku", "imm"):
        found = correlated(tmp_path / name)
        assert "1 of 333 frames were left out: some pixel is saturated or no number" in found.attrs["notes"]
        same(found, correlated(DARK, frame_mask=good))


@pytest.mark.parametrize("width", [30, 15], ids=["whole frames", "parts of frames"])
def test_frames_that_were_never_written_are_missing(tmp_path, width):
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        room = file.create_dataset("entry/data/data", DARK.shape, "u2", chunks=(10, 24, width))
        room[:50], room[60:200] = DARK[:50], DARK[60:200]
        room[200:210, :, :15] = DARK[200:210, :, :15]
    written = np.arange(FRAMES) < (210 if width == 30 else 200)
    written[50:60] = False
    found = correlated(tmp_path / "raw.h5")
    assert (
        f"{(~written).sum()} of 333 frames are missing in the file, the first of them frame 50" in found.attrs["notes"]
    )
    wanted = DARK.copy()
    wanted[200:210, :, 15:] = 0
    same(found, correlated(wanted, frame_mask=written))


def test_what_a_file_states_of_its_frames_is_heeded(tmp_path):
    frames, detector = DARK.astype(np.uint32), "entry/instrument/detector"
    frames[7, 10, 10], frames[:, 3, 5] = 70000, 9
    bad = np.zeros(SHAPE, np.uint32)
    bad[3, 5] = 8
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        file["entry/data/data"], file[f"{detector}/frame_time"] = frames, 5.0
        file[f"{detector}/frame_time"].attrs["units"] = "ms"
        file[f"{detector}/detectorSpecific/saturation_value"] = 65535
        file[f"{detector}/detectorSpecific/pixel_mask"] = bad
    found = correlated(tmp_path / "raw.h5", frame_time=None)
    assert "1 of 333 frames were left out: some pixel is saturated or no number, first in frame 7" in found.notes
    assert "1 pixels of the detector are not good, as the file says" in found.notes
    same(found, correlated(DARK, frame_mask=np.arange(FRAMES) != 7, pixel_mask=bad == 0))
    assert found.tau[0] == pytest.approx(0.005)
    with h5py.File(tmp_path / "raw.h5", "a") as file:
        file[f"{detector}/frame_time"].attrs["units"] = "fortnights"
    assert "unknown unit 'fortnights'" in refusal(tmp_path / "raw.h5", frame_time=None)


@pytest.mark.parametrize(("wide", "units", "other"), [(75e-6, "m", False), (0.075, "mm", False), (55.0, "um", True)])
def test_the_bins_of_a_detector_with_other_pixels_are_refused(wide, units, other, tmp_path):
    """Also where the q-map has their width in mm."""
    hdf5(**{"entry/instrument/detector/x_pixel_size": wide})(tmp_path / "raw.h5")
    with h5py.File(tmp_path / "raw.h5", "a") as file:
        file["entry/instrument/detector/x_pixel_size"].attrs["units"] = units
    save_partition(BINS, tmp_path / "qmap.hdf")
    for width in (75e-6, 0.075):
        with h5py.File(tmp_path / "qmap.hdf", "a") as file:
            file.pop("qmap/pixel_size", None)
            file["qmap/pixel_size"] = width
        said = cli("correlate", tmp_path / "raw.h5", tmp_path / "qmap.hdf", "-o", tmp_path / "g2.hdf", "--frame-time=1")
        assert ("raw.h5: its pixels are 55 um wide" in said.complaints, said.code) == (other, int(other)), said


@pytest.mark.parametrize("wide", [0.0, np.nan, -1.0])
def test_a_width_of_pixels_that_nobody_has_set_is_none(wide, tmp_path):
    """Neither in the frames, nor in a file that was correlated and lends its bins."""
    hdf5(**{"entry/instrument/detector/x_pixel_size": wide})(tmp_path / "raw.h5")
    save_partition(BINS, tmp_path / "qmap.hdf")
    for bins, output in (("qmap.hdf", "g2.hdf"), ("g2.hdf", "again.hdf")):
        said = cli("correlate", tmp_path / "raw.h5", tmp_path / bins, "-o", tmp_path / output, "--frame-time=1")
        assert said.code == 0, said


def test_parts_of_a_series_come_in_order_and_none_may_be_missing(tmp_path):
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        for number in range(11):
            file[f"entry/data/data_{number}"] = DARK[30 * number : 30 * (number + 1)]
    same(correlated(tmp_path / "raw.h5"), correlated(DARK[:330]))
    with h5py.File(tmp_path / "raw.h5", "a") as file:
        del file["entry/data/data_4"]
    assert "part 4 of the series of frames is missing" in refusal(tmp_path / "raw.h5")


def test_nothing_that_is_read_is_written_over(tmp_path):
    np.save(tmp_path / "raw.npy", DARK)
    save_partition(BINS, tmp_path / "qmap.hdf")
    for name in ("raw.npy", "qmap.hdf"):
        before = (tmp_path / name).read_bytes()
        given = tmp_path / "raw.npy", tmp_path / "qmap.hdf", "-o", tmp_path / name, "--frame-time", "1"
        said = cli("correlate", *given, *(["--fresh", "--two-time"] if name == "raw.npy" else []))
        assert (said.code, "would overwrite its own input" in said.complaints) == (2, True)
        assert (tmp_path / name).read_bytes() == before


def test_slices_are_written_over_neither_input_nor_what_others_made(tmp_path):
    np.save(raw := tmp_path / "g2_age_1.npy", DARK)
    save_partition(BINS, tmp_path / "qmap.hdf")
    (tmp_path / "g2_age_7.npy").write_text("mine")
    given = tmp_path / "qmap.hdf", "--frame-time", "1", "--two-time", "--ages", "2"
    said = cli("correlate", raw, *given, "-o", tmp_path / "g2.npy")
    assert (said.code, "would overwrite its own input" in said.complaints) == (2, True)
    np.testing.assert_array_equal(np.load(raw), DARK)
    assert cli("correlate", raw.rename(tmp_path / "raw.npy"), *given, "-o", tmp_path / "g2.npy").code == 0
    assert sorted(path.name for path in tmp_path.glob("g2_age_*")) == [f"g2_age_{n}.npy" for n in (0, 1, 7)]
    assert cli("correlate", tmp_path / "raw.npy", *given[:-1], "1", "-o", tmp_path / "g2.npy", "--fresh").code == 0
    assert sorted(path.name for path in tmp_path.glob("g2_age_*")) == ["g2_age_0.npy", "g2_age_7.npy"]


def test_a_run_from_raw_frames_correlates_them_as_the_settings_say(tmp_path):
    np.save(tmp_path / "raw.npy", DARK)
    save_partition(BINS, tmp_path / "qmap.hdf")
    good = np.ones(DARK.shape[1:], bool)
    good[2, 3] = False
    np.save(tmp_path / "good.npy", good)
    given = tmp_path / "raw.npy", "-o", tmp_path / "results", "--model", "single_exponential", "--noise", "scaled"
    bins, own = ("--qmap", tmp_path / "qmap.hdf"), {"frame_time": 0.5, "delays_per_level": 4, "normalise": "frame"}
    chosen = [f"--set=correlate.{name}={value}" for name, value in own.items()]
    chosen.append(f"--set=correlate.pixel_mask={tmp_path / 'good.npy'}")
    assert "the frames do not state it" in cli("run", *given, *bins).complaints
    assert cli("run", *given, *bins, *chosen).code in (0, 3)
    found, expected = bayesfit.read(tmp_path / "results" / "raw_g2.hdf"), correlated(DARK, pixel_mask=good, **own)
    np.testing.assert_allclose(found.g2, expected.g2, rtol=1e-12)
    np.testing.assert_allclose(found.tau, expected.tau)
    for wrong, said in (
        ((*given, *chosen), "correlate: is of raw frames"),
        ((*given, *bins, "--set=correlate.frame_tim=1"), "correlate.frame_tim: unknown setting"),
        ((*given, *bins, *chosen[:-1], "--set=correlate.pixel_mask=no.npy"), "holds no array"),
    ):
        refused = cli("run", *wrong, "--fresh")
        assert (refused.code in (1, 2), len(refused.complaints.splitlines())) == (True, 1), refused
        assert said in refused.complaints


def test_two_files_whose_curves_would_have_one_name_are_refused(tmp_path):
    save_partition(BINS, tmp_path / "qmap.hdf")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        hdf5()(tmp_path / folder / "raw.h5")
    files = tmp_path / "a" / "raw.h5", tmp_path / "b" / "raw.h5"
    said = cli("run", *files, "--qmap", tmp_path / "qmap.hdf", "-o", tmp_path / "results")
    assert said.code == 1
    assert "would be correlated into" in said.complaints
    assert not list((tmp_path / "results").glob("*"))


def test_a_bin_without_usable_pixels_harms_no_other():
    found = correlated(DARK, pixel_mask=BINS.dynamic.roi_map != 2)
    expected = correlated(DARK)
    np.testing.assert_array_equal(found.g2[[0, 2]], expected.g2[[0, 2]])
    assert not found.valid[1].any()
    assert "no pixel is left of bin 1" in found.notes


def test_a_dark_bin_takes_the_numbers_of_no_other_from_a_file(tmp_path):
    np.save(tmp_path / "raw.npy", DARK * (BINS.dynamic.roi_map != 2))
    save_partition(BINS, tmp_path / "qmap.hdf")
    given = tmp_path / "raw.npy", tmp_path / "qmap.hdf", "-o", tmp_path / "found.hdf", "--frame-time", "1"
    assert cli("correlate", *given).code == 0
    found = bayesfit.read(tmp_path / "found.hdf")
    np.testing.assert_allclose(found.counts[[0, 2]], correlated(DARK).counts[[0, 2]], rtol=1e-6)
    assert found.counts[1] < 1e-9
    assert "holds no photons in bin 1" in found.notes


def test_q_maps_that_contradict_themselves_are_refused(tmp_path):
    for name, change, part in (
        ("dynamic_roi_map", lambda roi: np.where(roi == 2, 0, roi), "bin 2: has no pixels"),
        ("dynamic_roi_map", lambda roi: roi[1:], "shape (23, 30) differs"),
        ("dynamic_index_mapping", lambda mapping: mapping + 1, "names place 3 of 3 x 1"),
    ):
        path = save_partition(BINS, tmp_path / "qmap.hdf")
        with h5py.File(path, "a") as file:
            changed = change(file[f"qmap/{name}"][()])
            del file[f"qmap/{name}"]
            file[f"qmap/{name}"] = changed
        line = refusal(DARK, partition=path)
        assert part in line
        assert line.startswith(f"{path}: ")

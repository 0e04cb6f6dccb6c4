"""`bayesfit calibrate`, as a new user runs it: what it writes, and what is refused in one line."""

import h5py
import numpy as np
import pytest
from in_process import bayesfit as run

import bayesfit
from bayesfit.correlation.image_files import read_image
from bayesfit.geometry import Detector, from_calibration, qmap

NOMINAL = Detector((96, 96), (458e-6, 458e-6), 0.4, (47.5, 47.5), wavelength=1.0)
TRUE = NOMINAL.placed((49.3, 45.8, 0.4, 0.0, 0.0))
RINGS = 2 * np.pi / 58.380 * np.arange(1, 4)
NUMBERS = "--distance", 0.4, "--wavelength", 1.0, "--pixel-size", 458e-6
FLAT = "--set", "fixed.rot1=0", "--set", "fixed.rot2=0", "--set", "fixed.distance=0.4", "--set", "draws=300"


@pytest.fixture(scope="module")
def frames():
    q = qmap(TRUE, backend="numpy").q
    mean = 0.1 + sum(np.exp2(-(((q - ring) / 0.006) ** 2)) for ring in RINGS)
    found = np.random.default_rng(5).poisson(mean, (4, *TRUE.shape)).astype(np.uint16)
    found[2, 10, 20] = np.iinfo(np.uint16).max
    return found


def test_frames_to_the_detector_that_saw_them(frames, tmp_path):
    with h5py.File(tmp_path / "silver.h5", "w") as file:
        file["entry/data/data"] = frames
    output, picture = tmp_path / "found.nc", tmp_path / "found.png"
    said = run(
        "calibrate",
        tmp_path / "silver.h5",
        "-o",
        output,
        "--rings",
        "silver_behenate",
        *NUMBERS,
        *FLAT,
        "--plot",
        picture,
    )
    assert said.code == 0, said
    assert said.complaints == ""
    assert "row       49." in said.out
    assert said.out.splitlines()[-2].startswith("ok: R-hat ")
    assert said.out.splitlines()[-1] == str(picture)
    assert picture.stat().st_size > 10_000
    detector = from_calibration(bayesfit.load(output))
    errors = np.sqrt(np.diagonal(detector.covariance))
    off = np.subtract(detector.place, TRUE.place)
    assert np.all(np.abs(off[:2]) < 4 * errors[:2])
    assert np.all(errors[:2] < 0.1)


def test_an_image_is_the_sum_of_frames_without_full_counters(frames, tmp_path):
    np.save(tmp_path / "frames.npy", frames)
    with h5py.File(tmp_path / "image.h5", "w") as file:
        file["sum"], file["series"] = frames[:2].sum(axis=0), frames
    expected = frames.sum(axis=0, dtype=float)
    expected[10, 20] = -1
    np.testing.assert_array_equal(read_image(tmp_path / "frames.npy"), expected)
    np.testing.assert_array_equal(read_image(tmp_path / "image.h5", "series"), expected)
    np.testing.assert_array_equal(read_image(tmp_path / "image.h5", "sum"), frames[:2].sum(axis=0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--rings", "silver_behenate"], "--distance, --wavelength, --pixel-size missing"),
        ([*NUMBERS, "--rings", "silver"], "unknown calibrant 'silver'"),
        ([*NUMBERS, "--rings", "0.1,x"], "got '0.1,x'"),
        ([*NUMBERS, "--rings", "11,12"], "rings: none is from"),
        ([*NUMBERS], "either rings or symmetry"),
        ([*NUMBERS, "--symmetry", "--center", "40"], "ROW,COLUMN"),
        ([*NUMBERS, "--symmetry", "--set", "drawz=3"], "unknown setting 'drawz'"),
        ([*NUMBERS, "--symmetry", "--plot", "a.txt"], "pictures have no ending .txt"),
        ([*NUMBERS, "--symmetry", "--mask", "MASK"], "(2, 2) is not that of the detector, (96, 96)"),
        ([*NUMBERS, "--symmetry", "--dataset", "x"], "the dataset is missing"),
    ],
)
def test_what_is_refused(given, words, frames, tmp_path):
    with h5py.File(tmp_path / "silver.h5", "w") as file:
        file["entry/data/data"] = frames
    np.save(tmp_path / "mask.npy", np.ones((2, 2)))
    asked = [tmp_path / "mask.npy" if each == "MASK" else each for each in given]
    said = run("calibrate", tmp_path / "silver.h5", "-o", tmp_path / "found.nc", *asked)
    assert said.code in (1, 2)
    assert words in said.complaints
    assert said.complaints.startswith("error: ")
    assert len(said.complaints.splitlines()) == 1
    assert not (tmp_path / "found.nc").exists()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x89HDF\r\n\x1a\n cut", b"P6 4 4"])
def test_files_that_are_no_image(content, tmp_path):
    (tmp_path / "image").write_bytes(content)
    said = run("calibrate", tmp_path / "image", "-o", tmp_path / "found.nc", "--symmetry", *NUMBERS)
    assert said.code == 1
    assert len(said.complaints.splitlines()) == 1
    assert str(tmp_path / "image") in said.complaints

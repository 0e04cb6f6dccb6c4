"""The simulator and the datasets that the project ships."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

import bayesfit

DATA = Path(__file__).parent.parent / "data"


def test_shipped_data_are_remade_bit_for_bit(tmp_path):
    for script in ("make.py", "make_frames.py"):
        subprocess.run([sys.executable, DATA / script, tmp_path], check=True)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(path.name for path in DATA.iterdir() if path.suffix != ".py")
    for name in made:
        if name != "frames_sim.h5":  # whose compression is that of the library's version
            assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes(), name
    frames = (h5py.File(folder / "frames_sim.h5")["entry/data/data"][()] for folder in (tmp_path, DATA))
    np.testing.assert_array_equal(*frames)


def test_shipped_file_reads_back_as_simulated():
    data = bayesfit.read(DATA / "aps_8idi_sim.hdf")
    simulated, truth = bayesfit.simulate(bins=30, delays=61, seed=8, wrong_errors=True, zero_pairs=0.1, dead_bin=11)
    assert data.attrs["pipeline"] == "aps_8idi"
    np.testing.assert_allclose(data.q, truth.q)
    np.testing.assert_allclose(data.tau, simulated.tau)
    np.testing.assert_array_equal(data.valid, simulated.valid)
    np.testing.assert_allclose(data.g2, simulated.g2, rtol=1e-6)


def test_shipped_table_reads_back():
    data = bayesfit.read(DATA / "table_sim.csv")
    assert dict(data.sizes) == {"q_bin": 8, "tau": 48}
    assert (data.q > 0).all()


def test_faults_are_as_asked():
    data, truth = bayesfit.simulate(bins=40, seed=0, wrong_errors=True, zero_pairs=0.1, dead_bin=5)
    assert not data.valid[5].any()
    share = data.masked_zero_pairs.sum().item() / data.valid.size
    assert 0.05 < share < 0.2
    assert truth.error_scale[0] == 1
    np.testing.assert_allclose(truth.error_scale[-1], 30)


def test_residuals_have_the_stated_scale():
    data, truth = bayesfit.simulate(bins=50, seed=3, wrong_errors=True)
    mean = truth.baseline + truth.contrast * np.exp(-2 * (truth.rate * data.tau) ** truth.beta)
    z = (data.g2 - mean) / (data.g2_err * truth.error_scale)
    np.testing.assert_allclose(z.std(), 1, atol=0.03)

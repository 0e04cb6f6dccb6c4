"""Makes `frames_sim.h5`, raw frames of particles that diffuse, and `frames_qmap.hdf`, the bins of the detector.

`uv run python data/make_frames.py [FOLDER]`

Every pixel sees its own speckles: the intensity is the mean of four modes |E|^2 (a contrast of 1/4) whose fields E are
stationary complex normal series with correlation exp(-D q^2 tau), D = 2e4 angstrom^2/s, in steps of a frame, and the
photons of a frame are Poisson numbers about it, 0.06 on average. One pixel is dead, and writes the largest number.
"""

import sys
from pathlib import Path

import h5py
import numpy as np

from bayesfit.geometry import Detector, partition, qmap, save_partition

D = 2e4  # angstrom^2/s
MODES, COUNTS, FRAMES, FRAME_TIME = 4, 0.06, 3000, 0.01
DETECTOR = Detector((48, 48), (75e-6, 75e-6), 0.5, (-4.0, -4.0), wavelength=1.24)


def photons(q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Photons (frame, row, column)."""
    kept = np.exp(-D * q**2 * FRAME_TIME)
    field, seen = np.zeros((MODES, *q.shape), complex), np.empty((FRAMES, *q.shape), np.uint8)
    for number in range(FRAMES):
        new = (rng.normal(size=field.shape) + 1j * rng.normal(size=field.shape)) / np.sqrt(2)
        field = new if number == 0 else kept * field + np.sqrt(1 - kept**2) * new
        seen[number] = rng.poisson(COUNTS * (np.abs(field) ** 2).mean(axis=0))
    return seen


def main(folder: Path) -> None:
    """Write both files into `folder`."""
    looked = qmap(DETECTOR, backend="numpy")
    bins = partition(looked, dynamic=(8, 1), static=(16, 8), q_range=(0.004, 0.044))
    save_partition(bins, folder / "frames_qmap.hdf", DETECTOR)
    seen = photons(looked.q, np.random.default_rng(1))
    seen[:, 20, 30] = 255
    with h5py.File(folder / "frames_sim.h5", "w") as file:
        options = {"chunks": (100, 48, 48), "compression": "gzip", "compression_opts": 9, "shuffle": False}
        file.create_dataset("entry/data/data", data=seen, **options)
        file["entry/instrument/detector_1/frame_time"] = FRAME_TIME


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

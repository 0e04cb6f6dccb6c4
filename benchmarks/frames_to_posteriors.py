"""How long it takes from frames to the posteriors of 30 bins, with programs compiled: reading, correlating, fitting.

`uv run python benchmarks/frames_to_posteriors.py [--bins 30]`

The frames are the shipped ones, 3,000 of 48 x 48 pixels of diffusing particles.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import h5py

import bayesfit
from bayesfit.geometry import Detector, partition, qmap

SHIPPED = Path(__file__).parents[1] / "data" / "frames_sim.h5"
DETECTOR = Detector((48, 48), (75e-6, 75e-6), 0.5, (-4.0, -4.0), wavelength=1.24)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=30)
    bins = partition(qmap(DETECTOR), (parser.parse_args().bins, 1))
    for run in ("first", "second"):
        took = [time.perf_counter()]
        with h5py.File(SHIPPED) as file:
            frames, frame_time = file["entry/data/data"][()], file["entry/instrument/detector_1/frame_time"][()]
        took.append(time.perf_counter())
        curves = bayesfit.correlate(frames, bins, frame_time=float(frame_time))
        took.append(time.perf_counter())
        result = bayesfit.fit(curves, "single_exponential", seed=1)
        took.append(time.perf_counter())
        reading, correlating, fitting = (end - start for start, end in itertools.pairwise(took))
        verdicts = bayesfit.summary(result).verdict.value_counts().to_dict()
        print(f"{run}: reading {reading:.2f} s, correlating {correlating:.2f} s, fitting {fitting:.2f} s, {verdicts}")


if __name__ == "__main__":
    main()

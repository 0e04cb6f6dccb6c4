"""From photons in frames to D: how often 95 % and 50 % intervals hold the true one.

`uv run python benchmarks/frames_coverage.py [--pixels 64] [--sets 100] [--frames 1024]`

Each set is a series of frames of four bins, in which every pixel sees speckles of its own (see `speckle.py`) that decay
with D q^2, and Poisson photons. It is correlated, and one D is fitted through all bins.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from speckle import intensities, mode_weights, spectrum

import bayesfit
from bayesfit.geometry import Bins, Partition

D, FRAME_TIME = 2e4, 1e-3  # angstrom^2/s, s
Q = np.sqrt(np.array([5.0, 10.0, 20.0, 40.0]) / D)  # 1/angstrom, of rates in 1/s
CONTRAST, COUNTS = 0.25, 0.2


def bins_of(pixels: int) -> Partition:
    """Bins of so many pixels, one in each row."""
    roi_map = np.repeat(np.arange(1, Q.size + 1)[:, None], pixels, axis=1)
    bins = Bins(roi_map, Q, np.zeros(1), np.arange(Q.size))
    return Partition(np.ones(roi_map.shape, bool), bins, bins)


def frames_of(pixels: int, frames: int, rng: np.random.Generator) -> np.ndarray:
    """Photons (frame, bin, pixel)."""
    seen = np.empty((frames, Q.size, pixels), np.uint8)
    for place, q in enumerate(Q):
        amplitudes, _ = spectrum(D * q**2 * FRAME_TIME, 1.0, frames)
        intensity = intensities(amplitudes, mode_weights(CONTRAST), pixels, frames, rng)
        seen[:, place] = rng.poisson(COUNTS * intensity).T
    return seen


def draws_of(pixels: int, count: int, seed: int) -> tuple[np.ndarray, str]:
    """Draws of D, and the verdicts of the bins."""
    frames = frames_of(pixels, count, np.random.default_rng([pixels, seed]))
    data = bayesfit.correlate(frames, bins_of(pixels), frame_time=FRAME_TIME, backend="numpy")
    result = bayesfit.fit(data, "single_exponential", across={"rate": "diffusion"}, seed=seed)
    return result["posterior"].D.values.ravel(), ",".join(sorted(set(result["diagnostics"].verdict.values.tolist())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--frames", type=int, default=1024)
    given = parser.parse_args()
    ranks, z, widths, verdicts, started = [], [], [], {}, time.monotonic()
    for seed in range(given.sets):
        draws, verdict = draws_of(given.pixels, given.frames, seed)
        ranks.append((draws < D).mean())
        z.append((draws.mean() - D) / draws.std())
        widths.append(draws.std() / D)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        off = np.abs(np.array(ranks) - 0.5)
        held = ", ".join(f"{(off <= level / 2).sum()} in {level:.0%}" for level in (0.95, 0.5))
        if seed % 10 == 9 or seed + 1 == given.sets:
            errors = f"z {np.mean(z):+.2f} +- {np.std(z):.2f}; sd of D {np.mean(widths):.1%}"
            series = f"{given.pixels} pixels a bin, {given.frames} frames, {seed + 1} sets"
            took = f"{time.monotonic() - started:.0f} s"
            print(f"{series}: {held}; {errors}; verdicts {verdicts}; {took}", flush=True)


if __name__ == "__main__":
    main()

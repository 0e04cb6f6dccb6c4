"""Errors of g2 by a jackknife over blocks of time, over the true ones: bins of 4 pixels alike, simulated.

`uv run python benchmarks/time_blocks.py [--bins 200] [--frames 4096]`

Each pixel sees Poisson photons, 0.5 per frame, of a steady intensity and of speckles of its own that decay within 20
frames, or within 200, which is longer than a block. The true error is the standard deviation over the bins; the root of
the mean variance by the jackknife is divided by it. 200 bins know this ratio to 5 %.
"""

from __future__ import annotations

import argparse

import numpy as np
from speckle import intensities, mode_weights, spectrum

from bayesfit.correlation.frames import frames_of
from bayesfit.correlation.multitau import Masks, Settings, multitau
from bayesfit.correlation.normalise import WAYS
from bayesfit.geometry import Bins, Partition

PIXELS, COUNTS, CONTRAST, RATES = 4, 0.5, 0.25, (None, 0.05, 0.005)
TOGETHER = 8  # delays


def bins_of(count: int) -> Partition:
    """Bins of a few pixels, one in each row."""
    roi_map = np.repeat(np.arange(1, count + 1)[:, None], PIXELS, axis=1)
    bins = Bins(roi_map, 0.01 * np.arange(1, count + 1), np.zeros(1), np.arange(count))
    return Partition(np.ones(roi_map.shape, bool), bins, bins)


def frames(count: int, length: int, rate: float | None, rng: np.random.Generator) -> np.ndarray:
    """Photons (frame, bin, pixel)."""
    mean = np.ones((count * PIXELS, length))
    if rate is not None:
        amplitudes, _ = spectrum(rate, 1.0, length)
        mean = intensities(amplitudes, mode_weights(CONTRAST), count * PIXELS, length, rng)
    return rng.poisson(COUNTS * mean).T.reshape(length, count, PIXELS).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=200)
    parser.add_argument("--frames", type=int, default=4096)
    given = parser.parse_args()
    for rate in RATES:
        name = "steady" if rate is None else f"decay in {1 / rate:.0f} frames"
        seen = frames(given.bins, given.frames, rate, np.random.default_rng(1))
        for way in WAYS:
            found = multitau(frames_of(seen, seen.shape[1:]), bins_of(given.bins), Settings(8, way), Masks())
            variance = np.diagonal(found.cov, axis1=1, axis2=2).mean(axis=0)
            ratio = np.sqrt(variance / found.g2.var(axis=0, ddof=1))
            means = [ratio[first : first + TOGETHER].mean() for first in range(0, ratio.size, TOGETHER)]
            row = " ".join(f"{mean:5.2f}" for mean in means)
            print(f"{name:20} {way:10} {row}   each {ratio.min():.2f} to {ratio.max():.2f}")
    print(f"{'first delay, frames':31} " + " ".join(f"{lag:5d}" for lag in found.lags[::TOGETHER]))


if __name__ == "__main__":
    main()

"""Theory's covariance of g2 against that of simulated curves: `uv run python benchmarks/photon_covariance.py [CURVES]`.

Speckle and photons are those of `benchmarks/photons.py`. Printed are, of each setting, the largest deviation of
theory's standard deviations from the simulated ones and its root mean square over the delays, the largest and the
root mean square difference of correlations, and what so many curves can tell of one of each.
"""

import sys
import time

import numpy as np
from photons import Truth, multitau, multitau_delays, normalised, photographs, spectrum

from bayesfit.data.counting import Counting
from bayesfit.modelling.lag_sums import lag_grid
from bayesfit.modelling.photon_covariance import speckle_covariance

FRAMES, DPL = 2048, 8
SETTINGS = [  # rate per frame, beta, contrast, counts, pixels
    (0.03, 1.0, 0.25, 1.0, 16),
    (0.03, 1.0, 0.25, 0.1, 16),
    (0.03, 0.7, 0.05, 1.0, 16),
    (0.01, 1.3, 0.25, 0.1, 32),
    (0.10, 1.0, 0.25, 0.1, 32),
    (0.60, 1.0, 0.25, 1.0, 32),  # most delays see averages over many times its decay
]


def simulated(setting: tuple, curves: int, seed: int = 0) -> np.ndarray:
    """So many curves g2 (curve, tau)."""
    rate, beta, contrast, counts, pixels = setting
    lags, summed = multitau_delays(FRAMES // 8, DPL)
    amplitudes, _ = spectrum(rate, beta, FRAMES)
    rng, true = np.random.default_rng(seed), Truth(rate, beta, contrast, counts)

    def curve() -> np.ndarray:
        seen = photographs(true, amplitudes, pixels, FRAMES, rng)
        return normalised(*multitau(seen, lags, summed))[0]

    return np.array([curve() for _ in range(curves)])


def expected(setting: tuple) -> np.ndarray:
    """Theory's covariance (tau, tau), with the counting of pairs."""
    rate, beta, contrast, counts, pixels = setting
    lags, summed = (array.astype(float) for array in multitau_delays(FRAMES // 8, DPL))
    known = Counting(np.array([counts]), np.array([float(pixels)]), np.ones(1), float(FRAMES), 1.0, lags, summed)
    decay = np.exp(-2 * (rate * lag_grid(FRAMES)) ** beta)
    (mean,), (covariance,) = speckle_covariance(decay[:, None], np.array([contrast]), known)
    return covariance + np.diag(mean / known.pairs[0])


def main() -> None:
    """Compare all settings."""
    curves = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{curves} curves of {FRAMES} frames each")
    print(f"{'rate beta contrast counts pixels':<34} sd: worst  rms  noise   correlation: worst  rms  noise   minutes")
    for setting in SETTINGS:
        started = time.perf_counter()
        found, covariance = simulated(setting, curves), expected(setting)
        sd = np.sqrt(np.diag(covariance))
        ratio = sd / found.std(axis=0, ddof=1) - 1
        difference = covariance / np.outer(sd, sd) - np.corrcoef(found.T)
        print(
            f"{setting!s:<34} {np.abs(ratio).max():8.3f} {np.sqrt(np.mean(ratio**2)):7.3f} {(2 * curves) ** -0.5:6.3f}"
            f" {np.abs(difference).max():18.3f} {np.sqrt(np.mean(difference**2)):7.3f} {curves**-0.5:6.3f}"
            f" {(time.perf_counter() - started) / 60:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Do bins without a signal cost more than healthy ones?

`uv run python benchmarks/starved.py [--bins 128] [--counts 1 0.01 0.001] [--noise scaled ...]`

Curves of `photons.py` with 1 photon per pixel and frame, and with so few that most delays see no pair, are fitted in
one run with every noise model, each twice, of which the second is timed. A row gives wall milliseconds per bin, their
ratio to healthy bins with the same noise model and to "scaled" on the same data, and the share of bins that converged.
"""

from __future__ import annotations

import argparse
import time

import photons
import xarray as xr

import bayesfit

PIXELS, FRAMES = 64, 4096
NOISES = ("scaled", "photons", "stated", "inferred", "smooth", "robust", "correlated", "speckle")
UNCONVERGED = ("poor_mixing", "multimodal", "interrupted")


def data(counts: float, bins: int, seed: int) -> xr.Dataset:
    """Curves with so many photons per pixel and frame."""
    curves, _ = photons.simulate(
        bins, seed=seed, counts=(counts, counts), pixels=PIXELS, contrast=(0.2, 0.2), frames=FRAMES
    )
    return curves


def timed(curves: xr.Dataset, noise: str) -> tuple[float, float]:
    """Milliseconds per bin of the second of two fits, and the share of bins that converged."""
    for _ in range(2):
        started = time.perf_counter()
        result = bayesfit.fit(curves, noise=noise)
        elapsed = time.perf_counter() - started
    verdicts = result["diagnostics"].verdict
    return 1e3 * elapsed / verdicts.size, float((~verdicts.isin(UNCONVERGED)).mean())


def main() -> None:
    """Time all noise models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=128)
    parser.add_argument("--counts", type=float, nargs="+", default=[1.0, 0.01, 0.001], help="the first are healthy")
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    datasets = {counts: data(counts, given.bins, given.seed) for counts in given.counts}
    print(f"{given.bins} bins, {PIXELS} pixels, {FRAMES} frames")
    print("noise        photons   ms/bin  of healthy  of scaled  converged")
    scaled: dict[float, float] = {}
    for noise in given.noise:
        found = {counts: timed(curves, noise) for counts, curves in datasets.items()}
        scaled = scaled or {counts: price for counts, (price, _) in found.items()}
        healthy = found[given.counts[0]][0]
        for counts, (price, converged) in found.items():
            ratios = f"{price / healthy:11.2f} {price / scaled[counts]:10.2f}"
            print(f"{noise:12} {counts:7g} {price:8.1f} {ratios} {converged:10.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Weak bins together: bins none of which shows a decay by itself give D in a joint fit. Do its intervals cover?

`uv run python benchmarks/weak_bins.py [--datasets 200] [--bins 30] [--counts 0.002] [--noise photons]`

Curves of `photons.py` with so few photons that a bin alone leaves its rate where the prior has it, fitted with
`across={"rate": "diffusion", "contrast": "shared"}`. Printed are the share of bins that are not identified when each is
fitted by itself (in the first few datasets), how much narrower than its prior D is, the share of datasets whose central
50, 80 and 95 % interval holds the true D, a star where it is outside the binomial 99 % limits, and the joint verdicts.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import jax
import numpy as np
import photons
import xarray as xr
from scipy import stats

import bayesfit

LEVELS = (0.5, 0.8, 0.95)
ALONE = 5  # datasets whose bins are fitted by themselves, too


def weak(bins: int, counts: float, seed: int) -> xr.Dataset:
    """One dataset of exponential decays whose rates follow diffusion."""
    how = {"beta": (1.0, 1.0), "contrast": (0.2, 0.2), "pixels": 64, "frames": 4096}
    return photons.simulate(bins, counts=(counts, counts), seed=seed, **how)[0]


def not_identified(data: xr.Dataset, noise: str) -> float:
    """The share of bins whose rate is not known where each is fitted by itself."""
    result = bayesfit.fit(data, "single_exponential", noise=noise)
    return float((~result["diagnostics"].identified.sel(parameter="rate")).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--bins", type=int, default=30)
    parser.add_argument("--counts", type=float, default=0.002, help="photons a pixel and frame")
    parser.add_argument("--noise", default="photons")
    given = parser.parse_args()
    levels, sds, verdicts, alone = [], [], Counter(), []
    started = time.monotonic()
    for seed in range(given.datasets):
        data = weak(given.bins, given.counts, seed)
        if seed < ALONE:
            alone.append(not_identified(data, given.noise))
        across = {"rate": "diffusion", "contrast": "shared"}
        result = bayesfit.fit(data, "single_exponential", noise=given.noise, across=across, seed=seed)
        draws = result["posterior"]["D"].values
        levels.append(float((draws < photons.DIFFUSION).mean()))
        sds.append(float(np.log(draws).std()))
        verdicts[str(result["across"].joint_verdict.values)] += 1
        if (seed + 1) % 20 == 0:
            show(np.array(levels), sds, verdicts)
    print(f"{given.bins} bins, {given.counts:g} photons a pixel and frame, noise {given.noise}")
    print(f"rate not identified in {100 * np.mean(alone):.0f} % of the bins alone ({len(alone)} datasets)")
    print(f"{(time.monotonic() - started) / given.datasets:.1f} s a dataset, with its simulation")


def show(levels: np.ndarray, sds: list[float], verdicts: Counter[str]) -> None:
    """What has been found up to now."""
    cells = []
    for wanted in LEVELS:
        hits = int(np.sum(np.abs(levels - 0.5) <= wanted / 2))
        low, high = stats.binom.ppf([0.005, 0.995], levels.size, wanted)
        cells.append(f"{100 * hits / levels.size:5.1f}{' ' if low <= hits <= high else '*'}")
    words = f"sd of log D: median {np.median(sds):.2f}, up to {np.max(sds):.2f}; {dict(verdicts)}"
    print(f"{levels.size:4} datasets: 50, 80, 95 %: {' '.join(cells)}; {words}", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main()

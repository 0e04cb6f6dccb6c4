"""Do intervals cover? Curves simulated through photons, fitted with every noise model.

`uv run python benchmarks/interval_coverage.py [--bins 1000] [--counts 0.1 1.0] [--pixels 64] [--contrast 0.2]
[--noise scaled ...]`

The curves come from `photons.py`: speckle, Poisson counts, multi-tau correlation, errors as APS 8-ID states them, right
and wrong by 10, so nothing of a likelihood. A row gives the share of bins whose central 50, 80 and 95 % interval holds
the true rate, beta and contrast; a star marks a share outside the binomial 99 % limits. "advised" is where the checks
lead a user: a bin that "scaled" calls a misfit takes the noise model named there, the others the one named for all
bins, once.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
import photons
import xarray as xr
from scipy import stats

import bayesfit

FRAMES = 4096
LEVELS = (0.5, 0.8, 0.95)
PARAMETERS = ("rate", "beta", "contrast")
NOISES = ("photons", "auto", "stated", "scaled", "inferred", "smooth", "robust", "correlated", "speckle")


def inside(result: xr.DataTree, truth: xr.Dataset) -> np.ndarray:
    """Whether each central interval holds the truth (parameter, level, bin)."""
    rows = []
    for name in PARAMETERS:
        draws = result["posterior"][name].stack(sample=("chain", "draw"))
        level = (draws < truth[name]).mean("sample").values
        rows.append([np.abs(level - 0.5) <= wanted / 2 for wanted in LEVELS])
    return np.array(rows)


def show(name: str, held: np.ndarray, rest: str = "") -> None:
    """One row: coverage of each parameter at each level, and what else there is to say."""
    count = held.shape[-1]
    cells = []
    for parameter in held:
        for wanted, hits in zip(LEVELS, parameter.sum(axis=-1), strict=True):
            low, high = stats.binom.ppf([0.005, 0.995], count, wanted)
            cells.append(f"{100 * hits / count:5.1f}{' ' if low <= hits <= high else '*'}")
    print(f"  {name:11}", *cells, rest, flush=True)


def coverage(counts: float, errors: str, bins: int, pixels: int, noises: list[str], seed: int) -> None:
    """A block of the table: one kind of data, all noise models."""
    data, truth = photons.simulate(bins, seed=seed, counts=(counts, counts), errors=errors, pixels=pixels)
    print(f"{counts:g} counts per frame in {pixels} pixels, errors {errors!r}, {bins} bins, {data.tau.size} delays")
    print("  noise         rate 50     80     95 beta 50    80     95  misfit     ok   ms/bin")
    held, tries = {}, np.full(bins, "", dtype=object)
    for noise in noises:
        started = time.monotonic()
        result = bayesfit.fit(data, noise=noise, seed=seed)
        held[noise] = inside(result, truth)
        found = result["diagnostics"]
        misfit, ok = (100 * np.mean(found.verdict.values == verdict) for verdict in ("misfit", "ok"))
        narrowed = " ".join(f"{found.contraction.sel(parameter=name).mean().item():.2f}" for name in PARAMETERS)
        price = 1000 * (time.monotonic() - started) / bins
        show(noise, held[noise], f"{misfit:6.1f} {ok:6.1f} {narrowed} {price:8.1f}")
        if noise == "scaled":
            tries = np.where(found.verdict.values == "misfit", found.noise_to_try.values, found.attrs["noise_to_try"])
    if "scaled" in held:
        advised = np.stack([held.get(name or "scaled", held["scaled"])[..., bin] for bin, name in enumerate(tries)], -1)
        show("advised", advised)
        print("  led to:", {str(name or "scaled"): int(np.sum(tries == name)) for name in np.unique(tries)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=1000)
    parser.add_argument("--counts", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--pixels", type=int, default=64, help="of a bin")
    parser.add_argument("--contrast", type=float, help="of all bins; by default from 0.2 to 0.3")
    parser.add_argument("--errors", nargs="+", default=["pixel", "wrong_small"])
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for counts in given.counts:
        for errors in given.errors:
            coverage(counts, errors, given.bins, given.pixels, given.noise, given.seed)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main()

"""Do intervals with an estimated covariance cover the truth? `uv run python benchmarks/covariance_coverage.py`.

Speckle and photons of `benchmarks/photons.py`, correlated pixel by pixel; the covariance between delays is a jackknife
over blocks of pixels, as that of `bayesfit.correlate`. Printed are, of each noise model, the share of bins whose 50, 80
and 95 % intervals hold the true rate, beta and contrast, their limits by chance (99 %), and the median standard
deviation of the logarithm of the rate.
"""

import argparse

import numpy as np
import xarray as xr
from correlator import multitau
from photons import Measurement, Truth, theory
from scipy import stats
from speckle import intensities, mode_weights, spectrum

import bayesfit

LEVELS = (0.5, 0.8, 0.95)


def one_bin(true: Truth, how: Measurement, blocks: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """g2 (tau,), its covariance (tau, tau) over so many blocks of pixels, photons per pixel and frame."""
    delays, summed = how.delays
    amplitudes, _ = spectrum(true.rate * how.frame_time, true.beta, how.frames)
    seen = rng.poisson(true.counts * intensities(amplitudes, mode_weights(true.contrast), how.pixels, how.frames, rng))
    sums = np.array(multitau(seen, delays, summed)).reshape(3, delays.size, blocks, -1).sum(axis=-1)
    whole = sums.sum(axis=-1)
    left = whole[..., None] - sums
    pixels = how.pixels, how.pixels * (blocks - 1) / blocks
    g2, without = (part[0] / part[1] / part[2] * size for part, size in zip((whole, left), pixels, strict=True))
    off = without - without.mean(axis=1, keepdims=True)
    return g2, (blocks - 1) / blocks * off @ off.T, seen.mean()


def simulate(bins: int, how: Measurement, counts: float, blocks: int, seed: int) -> tuple[xr.Dataset, list[Truth]]:
    """Curves with their covariance, and their truth."""
    trues, found = [], []
    for place in range(bins):
        rng = np.random.default_rng([seed, place])
        true = Truth(10.0 * 10.0 ** rng.random(), rng.uniform(0.7, 1.3), rng.uniform(0.2, 0.3), counts)
        trues.append(true)
        found.append(one_bin(true, how, blocks, rng))
    g2, cov, seen = (np.array(each) for each in zip(*found, strict=True))
    delays, summed = how.delays
    data = bayesfit.curves(
        delays * how.frame_time,
        g2,
        g2_cov=cov,
        cov_samples=blocks,
        counts=seen,
        pixels=how.pixels,
        frames=how.frames,
        frames_summed=summed,
        contrast_prior="TruncatedNormal(0.15, 0.2, low=0)",
        attrs={"frame_time": how.frame_time},
    )
    return data, trues


def report(noise: str, data: xr.Dataset, trues: list[Truth]) -> None:
    """Fit the curves, and print a line."""
    result = bayesfit.fit(data, "stretched_exponential", noise=noise, seed=1)
    draws, words = result.posterior, []
    for name in ("rate", "beta", "contrast"):
        flat = draws[name].transpose("q_bin", "chain", "draw").values.reshape(len(trues), -1)
        truth = np.array([getattr(true, name) for true in trues])
        place = np.mean(flat < truth[:, None], axis=1)
        inside = [np.mean(np.abs(place - 0.5) <= level / 2) for level in LEVELS]
        words.append(f"{name} " + " ".join(f"{100 * share:5.1f}" for share in inside))
    sd = float(np.log(draws.rate).std(("chain", "draw")).median())
    ok = np.mean(result["diagnostics"].verdict == "ok")
    print(f"{noise:12} {'   '.join(words)}   sd of log rate {sd:.4f}   ok {100 * float(ok):.0f} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=300)
    parser.add_argument("--counts", type=float, default=0.1)
    parser.add_argument("--pixels", type=int, default=128)
    parser.add_argument("--frames", type=int, default=2048)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--noise", nargs="+", default=["covariance", "photons"])
    given = parser.parse_args()
    how = Measurement(frames=given.frames, pixels=given.pixels)
    data, trues = simulate(given.bins, how, given.counts, given.blocks, given.seed)
    off = data.g2.values - np.array([theory(*how.delays, t.rate * how.frame_time, t.beta, t.contrast) for t in trues])
    scatter = np.mean(off**2) / np.mean(data.g2_err.values**2)
    limits = [stats.binom.ppf((0.005, 0.995), given.bins, level) / given.bins * 100 for level in LEVELS]
    by_chance = ", ".join(f"{low:.1f} to {high:.1f}" for low, high in limits)
    print(f"{given}\nmean square of g2 - truth over the mean variance {scatter:.2f}; by chance {by_chance}", flush=True)
    for noise in given.noise:
        report(noise, data, trues)


if __name__ == "__main__":
    main()

"""XPCS curves by way of photons, with no likelihood: speckle fields, Poisson counts, multi-tau correlation.

`uv run python benchmarks/photons.py` prints what noise such curves have.

Each pixel sees the weighted sum of independent speckle modes, I = sum_m w_m |E_m|^2 with sum w_m = 1. Every E_m is a
stationary complex Gaussian series whose autocorrelation is g1(tau) = exp(-(rate tau)^beta), so that

    g2(tau) = 1 + contrast exp(-2 (rate tau)^beta),    contrast = sum_m w_m^2.

Photons are Poisson numbers of mean counts x I in each frame, the field being that of one instant a frame. They are
correlated as APS 8-ID's boost_corr does it: delays 1 to 2 dpl in frames, then dpl delays on sums of 2, 4, 8 ... frames;
g2 is the mean product over the pixels and the time, over the means of the early and of the late frames over the same
(Lumma et al., Rev. Sci. Instrum. 71, 3274 (2000)); its stated error is the standard deviation over the pixels of each
pixel's own g2, over the root of their number.

How far the mean of these curves is from the formula above:
    Sums of frames average |g1|^2 over a triangle of twice their length, as `theory` does too. For dpl 8 that changes
    g2 by at most 0.0006 x contrast for beta 1 and 0.0011 x contrast for beta 1.5 (dpl 4: 0.0018 and 0.0034).
    Means over a finite series are not the true means. The baseline falls by about
    (contrast x sum_k |g1(k)|^2 + 1 / counts) / (frames x pixels), k over all delays in frames of both signs: with the
    default settings by 1e-4 on average, a fiftieth of the noise at long delays.
    Points without a pair are no data, so that the others lie too high where they are common.

Errors over the pixels are themselves measured. With few photons they grow with g2 itself, and weights 1 / g2_err^2 pull
a fit down: with 64 pixels, 4096 frames and 0.01 counts by a sixth of the noise of a point at short delays (measured;
0.05 of it at 0.03 counts).

Left out: exposures as long as a decay, pixels of unequal mean intensity, drifting beams, dead time.
"""

import math
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.fft
import xarray as xr

import bayesfit
from bayesfit.data.error_audit import error_ratio

DIFFUSION = 2.0e4
"""Angstrom^2/s; it gives the bins their q."""
STATED = {"pixel": 0.0, "wrong_small": 1.0, "wrong_large": -1.0, "none": math.nan}
"""Kinds of stated errors: errors over the pixels are `wrong_by` to this power times the stated ones."""


class Truth(NamedTuple):
    """One bin: rate in 1/s, photons a pixel and frame."""

    rate: float
    beta: float
    contrast: float
    counts: float


def simulate(
    bins: int = 30,
    *,
    seed: int = 0,
    rate: tuple[float, float] = (10.0, 100.0),
    beta: tuple[float, float] = (0.7, 1.3),
    contrast: tuple[float, float] = (0.2, 0.3),
    counts: tuple[float, float] = (0.1, 0.1),
    frames: int = 4096,
    pixels: int = 64,
    dpl: int = 8,
    longest: int | None = None,
    frame_time: float = 1e-3,
    errors: str = "pixel",
    wrong_by: float = 10.0,
    contrast_prior: str = "TruncatedNormal(0.15, 0.2, low=0)",
    baseline_prior: str = "Normal(1, 0.1)",
) -> tuple[xr.Dataset, xr.Dataset]:
    """Curves correlated from simulated photons, and their truth.

    Args:
        bins: how many. A bin's numbers depend on `seed` and its place, not on how many bins there are.
        rate, beta, contrast, counts: ranges that each bin draws its own from, rate (1/s) and counts (photons a pixel
            and frame) evenly in the logarithm.
        frames, pixels: length and number of the time series of a bin.
        dpl, longest: delays a level, and the longest delay in frames; an eighth of the series by default.
        frame_time: has unit s.
        errors: "pixel" as the module says; "wrong_small" and "wrong_large" are these divided and multiplied by
            `wrong_by`; with "none" no errors are stated, and points without a photon pair are NaN.

    Returns:
        The curves as `bayesfit.curves` gives them; points without a photon pair have g2 = g2_err = 0. A Dataset of the
        true `rate` (1/s), `beta`, `contrast`, `baseline`, `counts`, `error_scale` (errors over the pixels over stated
        ones), `field_error` (largest error of the fields' autocorrelation), dims (q_bin); and of the mean curve `g2`
        (q_bin, tau), averaged over frames as the data are.
    """
    if errors not in STATED:
        raise ValueError(f"errors is {errors!r}, expected one of {', '.join(STATED)}")
    delays, scales = multitau_delays(frames // 8 if longest is None else longest, dpl)
    drawn, columns = [], []
    for place in range(bins):
        rng = np.random.default_rng([seed, place])
        true = _draw(rate, beta, contrast, counts, rng)
        drawn.append(true)
        columns.append(_one_bin(true, delays, scales, frames, pixels, frame_time, rng))
    g2, g2_err, mean, field_error = (np.array(column) for column in zip(*columns, strict=True))
    truth = xr.Dataset(
        {name: ("q_bin", values) for name, values in zip(Truth._fields, np.array(drawn).T, strict=True)}
        | {
            "baseline": ("q_bin", np.ones(bins)),
            "error_scale": ("q_bin", np.full(bins, wrong_by ** STATED[errors])),
            "field_error": ("q_bin", field_error),
            "g2": (("q_bin", "tau"), mean),
        },
        coords={"q_bin": np.arange(bins), "tau": delays * frame_time},
    )
    truth["rate"].attrs["units"] = "1/s"
    data = bayesfit.curves(
        delays * frame_time,
        np.where(g2 == 0, np.nan, g2) if errors == "none" else g2,
        None if errors == "none" else g2_err / wrong_by ** STATED[errors],
        q=np.sqrt(truth.rate / DIFFUSION),
        contrast_prior=contrast_prior,
        baseline_prior=baseline_prior,
    )
    return data, truth


def _draw(
    rate: tuple[float, float],
    beta: tuple[float, float],
    contrast: tuple[float, float],
    counts: tuple[float, float],
    rng: np.random.Generator,
) -> Truth:
    """A bin's own parameters; a range of no width gives its end to the last bit."""
    return Truth(
        rate=rate[0] * (rate[1] / rate[0]) ** rng.random(),
        beta=beta[0] + (beta[1] - beta[0]) * rng.random(),
        contrast=contrast[0] + (contrast[1] - contrast[0]) * rng.random(),
        counts=counts[0] * (counts[1] / counts[0]) ** rng.random(),
    )


def _one_bin(
    true: Truth,
    delays: np.ndarray,
    scales: np.ndarray,
    frames: int,
    pixels: int,
    frame_time: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """g2, its error over the pixels and its mean, each (tau,), and the error of the fields' autocorrelation."""
    rate = true.rate * frame_time
    amplitudes, field_error = spectrum(rate, true.beta, frames)
    seen = photographs(true, amplitudes, pixels, frames, rng)
    g2, g2_err = normalised(*multitau(seen, delays, scales))
    return g2, g2_err, theory(delays, scales, rate, true.beta, true.contrast), field_error


# ---- one bin


def photographs(true: Truth, amplitudes: np.ndarray, pixels: int, frames: int, rng: np.random.Generator) -> np.ndarray:
    """Photons (pixel, frame): Poisson numbers about the intensity."""
    return rng.poisson(true.counts * intensities(amplitudes, mode_weights(true.contrast), pixels, frames, rng))


def normalised(products: np.ndarray, early: np.ndarray, late: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """g2 of the bin and its error over the pixels, both (tau,); 0 where no pixel saw a pair."""
    g2 = _ratio(products.mean(axis=1), early.mean(axis=1) * late.mean(axis=1))
    by_pixel = _ratio(products, early * late)
    return g2, by_pixel.std(axis=1, ddof=1) / math.sqrt(products.shape[1])


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def theory(delays: np.ndarray, scales: np.ndarray, rate: float, beta: float, contrast: float) -> np.ndarray:
    """Mean g2 (tau,) for delays in frames and `rate` per frame.

    Two sums of s frames, s k apart: 1 + contrast sum_m (s - |m|) / s^2 exp(-2 (rate |s k + m|)^beta), |m| < s.
    """
    decay = np.empty(delays.size)
    for scale in np.unique(scales):
        shift = np.arange(1 - scale, scale)
        apart = delays[scales == scale, None] + shift
        decay[scales == scale] = np.exp(-2 * (rate * apart) ** beta) @ (scale - np.abs(shift)) / scale**2
    return 1 + contrast * decay


# ---- what noise such curves have


def residuals(data: xr.Dataset, truth: xr.Dataset) -> np.ndarray:
    """Data less their mean, in units of the stated errors (q_bin, tau); NaN where there are no data."""
    return ((data.g2 - truth.g2) / data.g2_err.where(data.valid)).values


def neighbour_correlation(residual: np.ndarray) -> float:
    """Correlation of residuals at neighbouring delays, all bins together; their mean is known to be 0."""
    return float(np.nansum(residual[:, 1:] * residual[:, :-1]) / np.nansum(residual**2))


def main() -> None:
    bins = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    columns, noise = {}, []
    for counts in (0.01, 0.1, 1.0):
        started = time.perf_counter()
        data, truth = simulate(bins, counts=(counts, counts))
        seconds = time.perf_counter() - started
        off = (data.g2 - truth.g2).where(data.valid)
        columns[counts] = off.mean("q_bin").values, off.std("q_bin").values / math.sqrt(bins)
        residual = residuals(data, truth)
        noise.append(
            f"{counts:7g} {float(off.std()):9.5f} {np.nanstd(residual):11.2f} {np.nanmedian(error_ratio(data)):12.2f} "
            f"{np.nanmedian(error_ratio(data.assign(g2=off))):10.2f} "
            f"{neighbour_correlation(residual):10.2f} {1 - float(data.valid.mean()):8.3f} {1e3 * seconds / bins:9.0f}"
        )
    print(f"{bins} bins; mean of g2 less its theory, ± standard error, for three mean counts a pixel and frame")
    print(f"{'tau / s':>8} {'theory':>8}" + "".join(f"{counts:>22g}" for counts in columns))
    for place in range(0, data.tau.size, 5):
        row = "".join(f"{mean[place]:13.5f} ±{error[place]:.5f}" for mean, error in columns.values())
        print(f"{float(data.tau[place]):8.4f} {float(truth.g2[:, place].mean()):8.4f} {row}")
    print("standard deviation of g2, also over the stated error; error_ratio of the data (median) and of the data less")
    print("their mean curve; correlation of residuals at neighbouring delays; points without a photon pair")
    print(" counts     noise  over error  error_ratio  less mean neighbours  no pair    ms/bin")
    print("\n".join(noise))


if __name__ == "__main__":
    main()

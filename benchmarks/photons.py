"""XPCS curves by way of photons, with no likelihood: speckle fields, Poisson counts, multi-tau correlation.

The fields are in `speckle.py`, the correlator in `correlator.py`.

`uv run python benchmarks/photons.py` prints what noise such curves have.

Each pixel sees the weighted sum of independent speckle modes, I = sum_m w_m |E_m|^2 with sum w_m = 1. Every E_m is a
stationary complex Gaussian series whose autocorrelation is g1(tau) = exp(-(rate tau)^beta), so that

    g2(tau) = 1 + contrast exp(-2 (rate tau)^beta),    contrast = sum_m w_m^2.

Photons are Poisson numbers of mean counts x I in each frame, the field being that of one instant a frame. They are
correlated as APS 8-ID's boost_corr does it: delays 1 to 2 dpl in frames, then dpl delays on sums of 2, 4, 8 ... frames;
g2 is the mean product over the pixels and the time, over the means of the early and of the late frames over the same
(Lumma et al., Rev. Sci. Instrum. 71, 3274 (2000)), in each static bin by itself, and then the mean over these; its
stated error is the standard deviation over the pixels of each pixel's own g2, over the root of their number.

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

Neighbouring pixels are independent, or see parts of the same speckle (`speckle_size`).

Left out: exposures as long as a decay, pixels of unequal mean intensity, drifting beams, dead time.
"""

import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from correlator import multitau, multitau_delays
from speckle import intensities, mode_weights, spectrum

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


class Measurement(NamedTuple):
    """How a bin is measured: length and number of the time series of its pixels; delays per level, and the longest
    delay in frames, by default an eighth of the series; the time of a frame, has unit s; the `speckle_size`, the
    distance in pixels at which the correlation of two pixels' intensities falls to 1/e, 0 if they are independent; and
    the static bins, in each of which g2 is normalised by itself."""

    frames: int = 4096
    pixels: int = 64
    dpl: int = 8
    longest: int | None = None
    frame_time: float = 1e-3
    speckle_size: float = 0.0
    static_bins: int = 1

    @property
    def delays(self) -> tuple[np.ndarray, np.ndarray]:
        """Delays in frames, and how many frames are summed at each, both (tau,)."""
        return multitau_delays(self.frames // 8 if self.longest is None else self.longest, self.dpl)


def simulate(
    bins: int = 30, *, counts: tuple[float, float] = (0.1, 0.1), **given: Any
) -> tuple[xr.Dataset, xr.Dataset]:
    """Curves correlated from simulated photons, and their truth; see `exposures`."""
    ((data, truth),) = exposures(bins, [counts], **given)
    return data, truth


def exposures(
    bins: int,
    counts: Sequence[tuple[float, float]],
    *,
    seed: int = 0,
    rate: tuple[float, float] = (10.0, 100.0),
    beta: tuple[float, float] = (0.7, 1.3),
    contrast: tuple[float, float] = (0.2, 0.3),
    errors: str = "pixel",
    wrong_by: float = 10.0,
    workers: int = 1,
    contrast_prior: str = "TruncatedNormal(0.15, 0.2, low=0)",
    baseline_prior: str = "Normal(1, 0.1)",
    **how: Any,
) -> list[tuple[xr.Dataset, xr.Dataset]]:
    """Curves of the same speckles seen with different numbers of photons, and their truth.

    Args:
        bins: how many. A bin's numbers depend on `seed` and its place, not on how many bins there are.
        counts: of each exposure, the range that each bin draws its photons per pixel and frame from.
        rate, beta, contrast: ranges that each bin draws its own from, rate (1/s) and counts evenly in the logarithm.
        errors: "pixel" as the module says; "wrong_small" and "wrong_large" are these divided and multiplied by
            `wrong_by`; with "none" no errors are stated, and points without a photon pair are NaN.
        workers: processes that simulate bins, which changes none of them.
        how: what `Measurement` takes.

    Returns:
        The curves as `bayesfit.curves` gives them, with the photons that were counted; points without a photon pair
        have g2 = g2_err = 0. A Dataset of the true `rate` (1/s), `beta`, `contrast` (of a single pixel), `baseline`,
        `counts`, `error_scale` (errors over the pixels over stated ones), `field_error` (largest error of the fields'
        autocorrelation), dims (q_bin); and of the mean curve `g2` (q_bin, tau), averaged over frames as the data are.
    """
    if errors not in STATED:
        raise ValueError(f"errors is {errors!r}, expected one of {', '.join(STATED)}")
    measurement, scale = Measurement(**how), wrong_by ** STATED[errors]
    one = partial(_one_bin, seed, (rate, beta, contrast, counts), measurement)
    with nullcontext() if workers == 1 else ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        drawn, seen = zip(*(map if pool is None else pool.map)(one, range(bins)), strict=True)
    priors = {"contrast_prior": contrast_prior, "baseline_prior": baseline_prior}
    return [
        _datasets([trues[place] for trues in drawn], [curves[place] for curves in seen], measurement, scale, priors)
        for place in range(len(counts))
    ]


def _datasets(
    drawn: Sequence[Truth], seen: Sequence[Any], measurement: Measurement, scale: float, priors: dict[str, str]
) -> tuple[xr.Dataset, xr.Dataset]:
    """The curves of all bins of an exposure, whose errors are `scale` times the stated ones, and their truth."""
    g2, g2_err, counted, mean, field_error = (np.array(column) for column in zip(*seen, strict=True))
    delays, summed = measurement.delays
    tau = delays * measurement.frame_time
    columns = dict(zip(Truth._fields, np.array(drawn).T, strict=True))
    columns |= {"baseline": np.ones(len(g2)), "error_scale": np.full(len(g2), scale), "field_error": field_error}
    truth = xr.Dataset(
        {name: ("q_bin", values) for name, values in columns.items()} | {"g2": (("q_bin", "tau"), mean)},
        coords={"q_bin": np.arange(len(g2)), "tau": tau},
    )
    truth["rate"].attrs["units"] = "1/s"
    without = math.isnan(scale)
    data = bayesfit.curves(
        tau,
        np.where(g2 == 0, np.nan, g2) if without else g2,
        None if without else g2_err / scale,
        q=np.sqrt(truth.rate / DIFFUSION),
        counts=np.maximum(counted, 1e-12),
        pixels=measurement.pixels,
        frames=measurement.frames,
        frames_summed=summed,
        attrs={"frame_time": measurement.frame_time},
        **priors,
    )
    return data, truth


def _draw(
    rate: tuple[float, float],
    beta: tuple[float, float],
    contrast: tuple[float, float],
    counts: Sequence[tuple[float, float]],
    rng: np.random.Generator,
) -> list[Truth]:
    """A bin's own parameters in each exposure; a range of no width gives its end to the last bit."""
    own = {
        "rate": rate[0] * (rate[1] / rate[0]) ** rng.random(),
        "beta": beta[0] + (beta[1] - beta[0]) * rng.random(),
        "contrast": contrast[0] + (contrast[1] - contrast[0]) * rng.random(),
    }
    place = rng.random()
    return [Truth(**own, counts=low * (high / low) ** place) for low, high in counts]


def _one_bin(seed: int, ranges: tuple[Any, ...], how: Measurement, place: int) -> tuple[list[Truth], list[Any]]:
    """The truth of a bin in each exposure, and what is seen of it."""
    rng = np.random.default_rng([seed, place])
    trues = _draw(*ranges, rng)
    return trues, _seen(trues, how, rng)


def _seen(trues: Sequence[Truth], how: Measurement, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Of each exposure: g2, its error over the pixels, photons per pixel and frame, the mean g2, and the error of the
    fields' autocorrelation."""
    rate, (delays, scales) = trues[0].rate * how.frame_time, how.delays
    amplitudes, field_error = spectrum(rate, trues[0].beta, how.frames)
    intensity = intensities(amplitudes, mode_weights(trues[0].contrast), how.pixels, how.frames, rng, how.speckle_size)
    mean = theory(delays, scales, rate, trues[0].beta, trues[0].contrast)
    found = []
    for true in trues:
        seen = rng.poisson(true.counts * intensity)
        g2, g2_err = normalised(*multitau(seen, delays, scales), how.static_bins)
        found.append((g2, g2_err, seen.mean(), mean, field_error))
    return found


def photographs(true: Truth, amplitudes: np.ndarray, pixels: int, frames: int, rng: np.random.Generator) -> np.ndarray:
    """Photons (pixel, frame): Poisson numbers about the intensity."""
    return rng.poisson(true.counts * intensities(amplitudes, mode_weights(true.contrast), pixels, frames, rng))


def normalised(
    products: np.ndarray, early: np.ndarray, late: np.ndarray, static_bins: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """g2 of the bin, the mean over its static bins, and its error over the pixels, both (tau,); 0 where no pixel saw a
    pair."""
    parts = [np.array_split(each, static_bins, axis=1) for each in (products, early, late)]
    means = ([part.mean(axis=1) for part in each] for each in parts)
    g2 = np.mean([_ratio(product, first * last) for product, first, last in zip(*means, strict=True)], axis=0)
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

"""Frames to g2: our time beside scikit-beam's, boost_corr's and xpcs-correlator's, on the same frames in one run.

`uv run --group correlators python benchmarks/correlate.py [--side 256] [--frames 2000] [--counts 0.1] [--cores 1]`

Dense frames: a detector of side x side pixels in 30 bins, as many static ones, `counts` photons per pixel and frame.
boost_corr runs on the CPU, on as many cores as we, in single precision at all levels (its own choice is bfloat16 for
the first five), and keeps the products of every pixel; its time is that of its correlator alone, on frames in the type
that it wants, without the means over bins, which ours holds. scikit-beam sees fewer frames, since it is slow.

Photons one by one: xpcs-correlator correlates every pair of photons of a pixel, at all delays, into one sum for all
pixels; its time is that of its compiled function alone, on photons that are sorted by pixel already. Ours is that of
all we do: from photons in order of frames to g2, its covariance and its scatter in 30 bins, at multi-tau delays. Times
a pair are over the pairs that it sees.

Each program runs once before it is timed. Beside the time that passed is that of all cores together ("CPU"), which
other work on the machine changes less; least with `--cores 1`, where no thread waits for another one. How far our g2 is
from theirs is printed, too.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import bayesfit
from bayesfit.correlation.frames import frames_of
from bayesfit.correlation.multitau import Correlated, Masks, Settings, multitau
from bayesfit.geometry import Detector, Partition, partition, qmap

DPL = 8
OF_BOOST_CORR = 4  # delays per level, which it does not let choose
SLOW = 200  # frames that scikit-beam sees


class Took(NamedTuple):
    """The shortest time of some calls [s], and the least of all cores together."""

    seconds: float
    cpu: float


def timed[T](work: Callable[[], T], repeats: int = 3) -> tuple[T, Took]:
    """What it returns, and what it took after a first call."""
    work()
    took = []
    for _ in range(repeats):
        started, began = time.perf_counter(), time.process_time()
        found = work()
        took.append((time.perf_counter() - started, time.process_time() - began))
    return found, Took(*map(min, zip(*took, strict=True)))


def line(name: str, took: Took, frames: int, rest: str = "") -> None:
    cpu = f"CPU {1e3 * took.cpu / frames:6.3f} ms a frame"
    print(f"  {name:16} {frames / took.seconds:8.0f} frames/s  {cpu}  {rest}", flush=True)


def times(theirs: Took, ours: Took) -> str:
    return f"{theirs.seconds / ours.seconds:6.1f} times ours, CPU {theirs.cpu / ours.cpu:.1f} times"


def ours(frames: np.ndarray | bayesfit.Photons, bins: Partition, **how: Any) -> Correlated:
    settings = Settings(**{"delays_per_level": DPL, "backend": "numpy"} | how)
    return multitau(frames_of(frames, bins.mask.shape), bins, settings, Masks())


def off(found: Correlated, lags: np.ndarray, g2: np.ndarray) -> str:
    """How far g2 (bin, tau) is from ours at the delays that both have."""
    _, own, other = np.intersect1d(found.lags, lags, return_indices=True)
    return f"g2 differs by {np.nanmax(np.abs(g2[:, other] / found.g2[:, own] - 1)):.1e} at {own.size} delays"


def by_scikit_beam(frames: np.ndarray, bins: Partition) -> tuple[np.ndarray, np.ndarray]:
    from skbeam.core.correlation import multi_tau_auto_corr

    levels = int(np.log2(len(frames) / (2 * DPL))) + 1
    g2, lags = multi_tau_auto_corr(levels, 2 * DPL, bins.dynamic.roi_map, frames)
    of_coarser_sums = np.isin(lags, 2 * DPL * 2 ** np.arange(levels))  # than ours at the same delay
    return np.asarray(lags)[~of_coarser_sums], g2.T[:, ~of_coarser_sums]


def by_boost_corr(flat: Any, side: tuple[int, ...]) -> dict[str, Any]:
    """G2, IP and IF of each pixel, of frames (frame, pixel) in 16 bits."""
    from boost_corr.multitau import MultitauCorrelator

    correlator = MultitauCorrelator(side, len(flat), "cpu", max_count=200, auto_queue=False)
    step = correlator.queue_size
    for first in range(0, len(flat), step):
        correlator.process(flat[first : first + step])
    correlator.post_process()
    return correlator.get_results()[1]


def in_bins(found: dict[str, Any], bins: Partition) -> tuple[np.ndarray, np.ndarray]:
    """Delays, and g2 (bin, tau), from what boost_corr found in each pixel."""
    roi = bins.dynamic.roi_map.ravel()
    means = [
        np.stack([np.bincount(roi, row, bins.dynamic.count + 1)[1:] for row in part]) / bins.dynamic.pixels
        for part in np.moveaxis(np.asarray(found["G2"], float), 1, 0)
    ]
    return found["tau"], (means[0] / (means[1] * means[2])).T


def dense(bins: Partition, count: int, counts: float) -> None:
    import torch

    side = bins.mask.shape
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    frames = np.random.default_rng(0).poisson(counts, (count, *side)).astype(np.uint16)
    pixels = side[0] * side[1]
    print(f"{count} frames of {pixels} pixels, {counts:g} photons per pixel and frame")
    _, own = timed(lambda: ours(frames, bins))
    line("ours, NumPy", own, count, f"{1e9 * own.seconds / count / pixels:.2f} ns a pixel and frame")
    _, jax = timed(lambda: ours(frames, bins, backend="jax"), 1)
    line("ours, JAX", jax, count)
    alike, own_alike = timed(lambda: ours(frames, bins, delays_per_level=OF_BOOST_CORR))
    line("ours, as below", own_alike, count, f"{OF_BOOST_CORR} delays per level")
    flat = torch.from_numpy(frames.reshape(count, -1).astype(np.int16))
    per_pixel, took = timed(lambda: by_boost_corr(flat, side))
    lags, g2 = in_bins(per_pixel, bins)
    line("boost_corr", took, count, f"{times(took, own_alike)}; {off(alike, lags, g2)}")
    few = frames[:SLOW]
    (lags, g2), took = timed(lambda: by_scikit_beam(few, bins), 1)
    of_few = ours(few, bins, flatten="dynamic_bins")
    of_all = Took(took.seconds * count / SLOW, took.cpu * count / SLOW)
    line("scikit-beam", took, SLOW, f"{times(of_all, own)}; {off(of_few, lags, g2)}")


def sparse(bins: Partition, count: int, counts: float) -> None:
    from xpcscorr.correlators.sparse.base import _calculate_correlation_g2_only_csc

    rng, pixels = np.random.default_rng(1), bins.mask.size
    number = rng.poisson(counts * count, pixels)
    pixel = np.repeat(np.arange(pixels), number)
    time_index = rng.integers(0, count, pixel.size)
    unique, weight = np.unique(pixel * count + time_index, return_counts=True)
    pixel, time_index = np.divmod(unique, count)
    order = np.argsort(time_index, kind="stable")
    photons = bayesfit.Photons(count, time_index[order], pixel[order], weight[order].astype(np.uint16))
    pointer = np.searchsorted(pixel, np.arange(pixels + 1)).astype(np.int64)
    each = np.diff(pointer)
    pairs = float((each * (each + 1) / 2).sum())
    print(f"{pixel.size} photons in {count} frames of {pixels} pixels, {pairs:.3g} pairs")
    found, own = timed(lambda: ours(photons, bins, normalise="frame", flatten="dynamic_bins"))
    print(f"  ours             {own.seconds:8.2f} s  CPU {own.cpu:.2f} s  {1e9 * own.seconds / pairs:6.2f} ns a pair")

    def theirs() -> np.ndarray:
        total = np.zeros(count, np.int64)
        _calculate_correlation_g2_only_csc(weight.astype(np.uint16), time_index.astype(np.int32), pointer, total, 32768)
        return total

    total, took = timed(theirs)
    print(
        f"  xpcs-correlator  {took.seconds:8.2f} s  CPU {took.cpu:.2f} s  {1e9 * took.seconds / pairs:6.2f} ns a pair"
    )
    short = found.summed == 1
    print(f"  pairs differ by at most {np.abs(found.seen.sum(axis=0)[short] - total[found.lags[short]]).max():g}")
    print(f"  ours / theirs    {own.seconds / took.seconds:8.2f}    CPU {own.cpu / took.cpu:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--counts", type=float, default=0.1)
    parser.add_argument("--sparse-frames", type=int, default=100_000)
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="that all programs may use (Linux)")
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    center = (given.side - 1) / 2
    detector = Detector((given.side,) * 2, (75e-6, 75e-6), 5.0, (center, center), wavelength=1.24)
    bins = partition(qmap(detector, backend="numpy"), (30, 1))
    dense(bins, given.frames, given.counts)
    sparse(bins, given.sparse_frames, 1e-3)


if __name__ == "__main__":
    main()

"""A multi-tau correlator, as boost_corr's: mean products of photons in frames, and of sums of 2, 4, 8 ... frames."""

from collections.abc import Iterator

import numpy as np


def multitau_delays(longest: int, dpl: int) -> tuple[np.ndarray, np.ndarray]:
    """Delays in frames up to `longest`, and how many frames are summed at each, both (tau,)."""
    levels = max(1, longest.bit_length())
    lags = [np.arange(1, 2 * dpl + 1)] + [np.arange(dpl + 1, 2 * dpl + 1) * 2**level for level in range(1, levels)]
    delays = np.concatenate(lags)
    scales = np.repeat(2 ** np.arange(levels), [lag.size for lag in lags])
    return delays[delays <= longest], scales[delays <= longest]


def multitau(counts: np.ndarray, delays: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean product, mean of the early and of the late frames, each (tau, pixel), a frame of level 0 as the unit.

    Photons are summed, not averaged: whole numbers, that float32 holds without rounding up to 2^24 a pixel.
    """
    found = [
        (product / scale**2, early / scale, late / scale)
        for scale, level in _levels(counts.astype(np.float32), int(scales.max()))
        for product, early, late in _lagged(level, delays[scales == scale] // scale)
    ]
    products, early, late = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    return products, early, late


def _levels(counts: np.ndarray, coarsest: int) -> Iterator[tuple[int, np.ndarray]]:
    """The series (pixel, frame) summed over 1, 2, 4 ... frames; an odd last frame is dropped."""
    scale = 1
    while True:
        yield scale, counts
        if scale >= coarsest:
            return
        even = counts.shape[1] // 2 * 2
        counts = counts[:, 0:even:2] + counts[:, 1:even:2]
        scale *= 2


def _lagged(counts: np.ndarray, lags: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Mean product and means of its two factors, each (pixel,), for every lag."""
    total = counts.sum(axis=1, dtype=float)
    for lag in lags:
        pairs = counts.shape[1] - lag
        product = np.einsum("pt,pt->p", counts[:, :-lag], counts[:, lag:])
        yield (
            product / pairs,
            (total - counts[:, -lag:].sum(axis=1)) / pairs,
            (total - counts[:, :lag].sum(axis=1)) / pairs,
        )

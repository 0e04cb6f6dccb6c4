"""The covariance of g2 between delays, from what remains when each block of pixels in turn is left out; its scatter."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bayesfit.correlation.blocks import FEWEST, Blocks
from bayesfit.correlation.normalise import Normalise, Pairs, expected_without
from bayesfit.correlation.time_blocks import ByTime


def g2_of(pairs: Pairs) -> Float[np.ndarray, "bin tau"]:
    """g2 of each bin; 0 where no pairs are expected."""
    return _ratio(pairs.seen, pairs.expected)


def covariance(pairs: Pairs, blocks: Blocks) -> Float[np.ndarray, "bin tau delay"]:
    """The jackknife for groups of unequal sizes (Busing, Meijer & van der Leeden, Stat. Comput. 9, 3 (1999)); NaN for a
    bin of fewer blocks than `FEWEST`."""
    g2, without = g2_of(pairs), _ratio(pairs.seen_without, pairs.expected_without)
    size = np.zeros(blocks.bins[1])
    np.add.at(size, blocks.dynamic, blocks.pixels)
    found = np.full((*g2.shape, g2.shape[1]), np.nan)
    for place in np.flatnonzero(np.bincount(blocks.dynamic, minlength=len(g2)) >= FEWEST):
        own = blocks.dynamic == place
        share = (size[place] / blocks.pixels[own])[:, None]
        pseudo = share * g2[place] - (share - 1) * without[own]
        off = (pseudo - np.sum(pseudo / share, axis=0)) / np.sqrt((share - 1) * own.sum())
        found[place] = off.T @ off
    return found


def covariance_by_time(sums: ByTime, normalise: Normalise) -> tuple[Float[np.ndarray, "bin tau delay"], float]:
    """The same over blocks of time, of the bins that `sums` are of, and how many blocks there are: those that hold
    pairs at the delay in the middle of the list. NaN for fewer than `FEWEST`.

    A block has a weight of its own at each delay, the pairs of frames whose late one it holds, and takes no part where
    that is 0, since a delay's first pairs come late. The early frames may be in blocks before, so that pairs of
    different blocks have frames in common.
    """
    total, part = sums.weights.sum(axis=0), sums.weights > 0
    count = part.sum(axis=0)
    found = np.full((sums.bins.size, total.size, total.size), np.nan)
    if np.median(count) < FEWEST or count.min() < 2:
        return found, float(np.median(count))
    share = (total / np.where(part, sums.weights, np.inf))[:, None]
    seen = sums.pairs.sum(axis=0)
    g2 = _ratio(seen, expected_without(sums, normalise, None))
    without = [_ratio(seen - own, expected_without(sums, normalise, n)) for n, own in enumerate(sums.pairs)]
    pseudo = np.where(part[:, None], share * g2 - (share - 1) * np.stack(without), 0)
    center = np.sum(pseudo * sums.weights[:, None] / total, axis=0)
    scale = np.where(part[:, None], (share - 1) * count, np.inf)
    off = (pseudo - center) / np.sqrt(scale)
    return np.einsum("nbt,nbs->bts", off, off), float(np.median(count))


def scatter(
    pairs: Pairs, squares: Float[np.ndarray, "block tau"] | None, blocks: Blocks
) -> Float[np.ndarray, "bin tau"]:
    """The standard deviation over the pixels of each bin of a pixel's own g2: its pairs over those that are expected of
    a mean pixel. From sums over each block of the `squares` of a pixel's pairs; NaN where there are none, and of one
    pixel."""
    if squares is None:
        return np.full(pairs.seen.shape, np.nan)
    pixels = blocks.by_dynamic(blocks.pixels.astype(float))[:, None]
    off = np.maximum(blocks.by_dynamic(squares) - pairs.seen**2 / np.maximum(pixels, 1), 0)
    known = (pixels > 1) & (pairs.expected > 0)
    variance = np.divide(off, pixels - 1, out=np.full_like(off, np.nan), where=known)
    return np.sqrt(variance) * pixels / np.where(known, pairs.expected, np.nan)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)

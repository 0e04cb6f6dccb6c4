"""Do the draws of one bin fall into separate modes?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float

DEEP_VALLEY = 0.5  # density between two modes, with three standard errors on top, over that of the lower one
LEAST_MODE = 0.03  # share of the draws
FINEST = 1000  # steps of double precision in a histogram, at least

OfDraws = Float[np.ndarray, "chain draw"]


def chains_apart(parameters: Iterable[OfDraws]) -> bool:
    """Whether, in some parameter, some chains lie wholly above the others (between their 5 % and 95 % quantiles)."""
    for draws in parameters:
        low, high = np.quantile(draws, [0.05, 0.95], axis=1)
        order = np.argsort(low)
        if np.any(low[order][1:] > np.maximum.accumulate(high[order])[:-1]):
            return True
    return False


def two_modes(draws: Mapping[str, OfDraws]) -> str:
    """In words, the first parameter whose draws fall into two sets with nearly nothing in between; "" if none does."""
    for name, values in draws.items():
        at = valley(values.ravel())
        if at is not None:
            return f"two modes: {np.mean(values > at):.0%} of the draws have {name} above {at:.3g}"
    return ""


def valley(draws: Float[np.ndarray, " draw"]) -> float | None:
    """The place of a deep valley between two modes of the draws' density, or None.

    The density is a histogram over the middle of the draws, smoothed by a normal kernel. Draws that agree to nearly all
    their digits have one mode.
    """
    low, high = np.quantile(draws, [LEAST_MODE / 3.0, 1.0 - LEAST_MODE / 3.0])
    if not high - low > FINEST * np.spacing(max(abs(low), abs(high))):
        return None
    counts, edges = np.histogram(draws, bins=100, range=(low, high))
    kernel = np.exp(-0.5 * (np.arange(-9, 10) / 3.0) ** 2)
    density = np.convolve(counts, kernel, mode="same")
    depth = np.where(_inside(counts, draws.size), _depths(density), 1.0)
    place = int(np.argmin(depth))
    return float(edges[place + 1]) if depth[place] < DEEP_VALLEY else None


def _inside(counts: Float[np.ndarray, " place"], total: int) -> np.ndarray:
    """Whether each place of a histogram has enough draws on both sides of it."""
    share = np.cumsum(counts) / total
    return (share > LEAST_MODE) & (share < 1.0 - LEAST_MODE)


def _depths(density: Float[np.ndarray, " place"]) -> Float[np.ndarray, " place"]:
    """At each place, the density, with three standard errors on top, over that of the lower mode beside it."""
    left, right = np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1]
    lower_mode = np.minimum(left, right)
    at_most = density + 3.0 * np.sqrt(density + 1.0)
    return np.where(lower_mode > 0, at_most / np.maximum(lower_mode, 1e-300), 1.0)

"""Do the draws of one bin fall into separate modes?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.compute.quantiles import quantiles_in_order

DEEP_VALLEY = 0.5  # density between two modes, with three standard errors on top, over that of the lower one
LEAST_MODE = 0.03  # share of the draws
FINEST = 1000  # steps of double precision in a histogram, at least
PLACES = 100  # of a histogram
KERNEL = np.exp(-0.5 * (np.arange(-9, 10) / 3.0) ** 2)

OfSeries = Float[np.ndarray, " series"]
OfDraws = Float[np.ndarray, "chain draw"]


def chains_apart(parameters: Iterable[OfDraws]) -> bool:
    """Whether, in some parameter, some chains lie wholly above the others (between their 5 % and 95 % quantiles)."""
    low, high = quantiles_in_order(np.sort(list(parameters), axis=-1), (0.05, 0.95))
    order = np.argsort(low, axis=-1)
    low, high = (np.take_along_axis(ends, order, axis=-1) for ends in (low, high))
    return bool(np.any(low[:, 1:] > np.maximum.accumulate(high, axis=-1)[:, :-1]))


def two_modes(draws: Mapping[str, OfDraws]) -> str:
    """In words, the first parameter whose draws fall into two sets with nearly nothing in between; "" if none does."""
    if not draws:
        return ""
    places = valleys(np.sort([values.ravel() for values in draws.values()], axis=-1))
    for (name, values), at in zip(draws.items(), places, strict=True):
        if not np.isnan(at):
            return f"two modes: {np.mean(values > at):.0%} of the draws have {name} above {at:.3g}"
    return ""


def valleys(ordered: Float[np.ndarray, "series draw"]) -> Float[np.ndarray, " series"]:
    """For each series of draws in ascending order, the place of a deep valley between two modes of their density, or
    NaN.

    The density is a histogram over the middle of the draws, smoothed by a normal kernel. Draws that agree to nearly all
    their digits have one mode.
    """
    low, high = quantiles_in_order(ordered, (LEAST_MODE / 3.0, 1.0 - LEAST_MODE / 3.0))
    wide = high - low > FINEST * np.spacing(np.maximum(np.abs(low), np.abs(high)))
    found = np.full(len(ordered), np.nan)
    if wide.any():
        found[wide] = _valleys(ordered[wide], low[wide], high[wide])
    return found


def _valleys(ordered: Float[np.ndarray, "series draw"], low: OfSeries, high: OfSeries) -> OfSeries:
    """The same, where the histogram's ends `low` and `high` are well apart."""
    edges = low[:, None] + ((high - low) / PLACES)[:, None] * np.arange(PLACES + 1)
    edges[:, -1] = np.nextafter(high, np.inf)  # the last place holds its upper end
    counts = np.diff([draws.searchsorted(at) for draws, at in zip(ordered, edges, strict=True)], axis=-1)
    density = np.array([np.convolve(one, KERNEL, mode="same") for one in counts])
    depth = np.where(_inside(counts, ordered.shape[1]), _depths(density), 1.0)
    place = np.argmin(depth, axis=-1)
    rows = np.arange(len(place))
    return np.where(depth[rows, place] < DEEP_VALLEY, edges[rows, place + 1], np.nan)


def _inside(counts: Int[np.ndarray, "series place"], total: int) -> Bool[np.ndarray, "series place"]:
    """Whether each place of a histogram has enough draws on both sides of it."""
    share = np.cumsum(counts, axis=-1) / total
    return (share > LEAST_MODE) & (share < 1.0 - LEAST_MODE)


def _depths(density: Float[np.ndarray, "series place"]) -> Float[np.ndarray, "series place"]:
    """At each place, the density, with three standard errors on top, over that of the lower mode beside it."""
    left = np.maximum.accumulate(density, axis=-1)
    right = np.maximum.accumulate(density[:, ::-1], axis=-1)[:, ::-1]
    lower_mode = np.minimum(left, right)
    at_most = density + 3.0 * np.sqrt(density + 1.0)
    return np.where(lower_mode > 0, at_most / np.maximum(lower_mode, 1e-300), 1.0)

"""What a correlator that sums frames sees of a curve: its average about each delay.

Products of two sums of m frames see delays up to m frames before and behind their own, by a triangle: the average of a
curve lies above a convex one by m^2 / 12 of its second derivative (K. Schaetzel, Quantum Opt. 2, 287 (1990)). Here it
is the average of the polynomial through the curve at a few neighbouring delays, and so a sum of the curve's values.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesfit.modelling.neighbour_whitening import banded

SIDE = 2  # neighbours on either side of a delay
NEIGHBOURS = 2 * SIDE + 1


def neighbour_factors(
    lags: Float[np.ndarray, " tau"], summed: Float[np.ndarray, " tau"]
) -> Float[np.ndarray, "tau neighbour"]:
    """The factors of the values at the delays about each one in the average there, the one farthest before first.

    Args:
        lags: delays in frames, ascending.
        summed: how many frames are summed at each.
    """
    factors = np.zeros((lags.size, NEIGHBOURS))
    factors[:, SIDE] = 1.0
    for place in np.flatnonzero(summed > 1.0).tolist():
        own = np.arange(max(place - SIDE, 0), min(place + SIDE + 1, lags.size))
        apart = np.unique(lags[own]).size  # delays may round to the same frame
        powers = np.vander((lags[own] - lags[place]) / summed[place], apart, increasing=True).T
        factors[place, own - place + SIDE] = np.linalg.lstsq(powers, _moments(summed[place])[:apart])[0]
    return factors


def _moments(m: float) -> Float[np.ndarray, " power"]:
    """Mean powers, from 0 on, of the difference of two whole numbers, each below m and as likely as all others, over
    m."""
    variance, fourth = (m**2 - 1.0) / 12.0, (m**2 - 1.0) * (3.0 * m**2 - 7.0) / 240.0
    return np.array([1.0, 0.0, 2.0 * variance / m**2, 0.0, (2.0 * fourth + 6.0 * variance**2) / m**4])


def averaged(curve: Float[Array, " tau"], factors: Float[Array, "tau neighbour"]) -> Any:
    """The average of a curve about each delay, by a sum of which a value and its reverse derivative are fast."""
    ahead, nothing = jnp.concatenate([curve, jnp.zeros(SIDE)]), jnp.zeros((SIDE, NEIGHBOURS))
    return banded(ahead, jnp.concatenate([nothing, factors[:, ::-1]]))[SIDE:]


def averages(
    curves: Float[np.ndarray, "bin tau"], factors: Float[np.ndarray, "bin tau neighbour"]
) -> Float[np.ndarray, "bin tau"]:
    """The same of many curves, in NumPy."""
    around, size = np.pad(curves, ((0, 0), (SIDE, SIDE))), curves.shape[1]
    return sum(factors[..., place] * around[:, place : place + size] for place in range(NEIGHBOURS))

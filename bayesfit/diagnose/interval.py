"""The central interval, by which draws are summarised everywhere; of 95 % unless a user asks for another mass."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bayesfit.compute.errors import SettingsError
from bayesfit.compute.quantiles import quantiles_in_order

MASS = 0.95
ENDS = (0.025, 0.975)
LEVELS = (ENDS[0], 0.5, ENDS[1])


def central_interval(
    draws: Float[np.ndarray, " ..."], axis: int | tuple[int, ...] | None = None, mass: float = MASS
) -> Float[np.ndarray, "3 ..."]:
    """Low end, median and high end of the draws along these axes. Draws that were not made (NaN) do not count; where
    none was made, all three are NaN."""
    outside = ENDS[0] if mass == MASS else 0.5 * (1.0 - mass)
    ordered = np.sort(_along_the_last(np.asarray(draws), axis), axis=-1)  # NaN at the end
    made = np.count_nonzero(~np.isnan(ordered), axis=-1)
    found = np.full((3, *made.shape), np.nan)
    for count in np.unique(made[made > 0]):
        some = made == count
        found[:, some] = quantiles_in_order(ordered[some][:, :count], (outside, 0.5, 1.0 - outside))
    return found


def _along_the_last(
    draws: Float[np.ndarray, " ..."], axis: int | tuple[int, ...] | None
) -> Float[np.ndarray, "... draw"]:
    """The same draws, with these axes, by default all, as one at the end."""
    axes = range(draws.ndim) if axis is None else np.atleast_1d(axis) % draws.ndim
    others = [other for other in range(draws.ndim) if other not in axes]
    ahead = np.moveaxis(draws, others, range(len(others)))
    return ahead.reshape(*ahead.shape[: len(others)], -1)


def check_mass(mass: float) -> None:
    """Refuse a probability that no interval can hold.

    Raises:
        SettingsError: it is not between 0 and 1.
    """
    if not isinstance(mass, int | float) or not 0.0 < mass < 1.0:
        raise SettingsError(f"got {mass!r}, expected a probability between 0 and 1", field="mass", remedy="Write 0.95")

"""The central 95 % interval, by which draws are summarised everywhere."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

ENDS = (0.025, 0.975)
LEVELS = (ENDS[0], 0.5, ENDS[1])


def central_interval(
    draws: Float[np.ndarray, " ..."], axis: int | tuple[int, ...] | None = None
) -> Float[np.ndarray, "3 ..."]:
    """Low end, median and high end of the draws along these axes. Draws that were not made (NaN) do not count; where
    none was made, all three are NaN."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        return np.nanquantile(draws, LEVELS, axis=axis)

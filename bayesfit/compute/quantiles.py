"""Quantiles of draws that are sorted already, of many series at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def quantiles_in_order(
    ordered: Float[np.ndarray, "... draw"], levels: Sequence[float] | Float[np.ndarray, " level"]
) -> Float[np.ndarray, "level ..."]:
    """The quantiles that `np.quantile` finds, bit for bit, of draws that are in ascending order (NaN at the end)."""
    last = ordered.shape[-1] - 1
    places = np.asarray(levels) * last
    lower = np.floor(places).astype(int)
    share = places - lower
    low, high = ordered[..., lower], ordered[..., np.minimum(lower + 1, last)]
    between = np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1.0 - share))
    return np.moveaxis(np.where(np.isnan(ordered[..., -1:]), np.nan, between), -1, 0)

"""The colour and the sign of each verdict, which people tell apart who see few colours; and the limits of axes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Look(NamedTuple):
    """How a verdict is shown: the colour, the marker of matplotlib, and the sign in text."""

    colour: str
    marker: str
    sign: str


LOOKS = {  # colours of Okabe & Ito, and darker ones
    "ok": Look("#0072B2", "o", "●"),
    "not_identified": Look("#E69F00", "D", "◆"),
    "misfit": Look("#CC79A7", "s", "■"),
    "prior_conflict": Look("#D55E00", "^", "▲"),
    "approximate": Look("#56B4E9", "p", "⬟"),
    "multimodal": Look("#7A3E9D", "P", "✚"),
    "poor_mixing": Look("#A3000B", "X", "✖"),
    "interrupted": Look("#5F5F5F", "*", "★"),
    "unusable_data": Look("#9A9A9A", "v", "○"),
}
OTHER = Look("#A3000B", "X", "✖")

MARGIN = 0.08  # of the range, beyond it on both sides
WILD = 3.0  # times the median error, from which a point does not set the limits of an axis
ROOM = 1.0  # times the range of the curve, beyond it on both sides, that points may take


def look_of(verdict: str) -> Look:
    """How a verdict is shown."""
    return LOOKS.get(verdict, OTHER)


def limits(
    curve: Float[np.ndarray, " ..."], points: Float[np.ndarray, " ..."], error: Float[np.ndarray, " ..."]
) -> tuple[float, float]:
    """Limits of an axis that follow what matters: the curve, and the points that are known well. A wild point with a
    large error, or one far from all else, does not flatten the decay.

    Args:
        curve, points, error: of any shape; those that are not finite do not count.
    """
    known = np.isfinite(points) & np.isfinite(error)
    if known.any():
        known &= error <= WILD * np.median(error[known])
    inside, own = curve[np.isfinite(curve)], points[known]
    every = np.concatenate([inside, own])
    if not every.size:
        return 0.0, 1.0
    low, high = every.min(), every.max()
    if inside.size and own.size:
        room = ROOM * max(np.ptp(inside), 4.0 * float(np.median(error[known])))
        low, high = max(low, inside.min() - room), min(high, inside.max() + room)
    margin = MARGIN * ((high - low) or abs(high) or 1.0)
    return float(low - margin), float(high + margin)

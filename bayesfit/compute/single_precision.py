"""Which numbers single precision can hold. Results are saved in it, except variables that do not fit into it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

SINGLE = np.finfo(np.float32)


def in_single(values: Shaped[np.ndarray, "*any"]) -> bool:
    """Whether no number is too large for float32, or too small for its full precision."""
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    return not np.any((size > SINGLE.max) | (size < SINGLE.tiny))


def as_stored(values: Shaped[np.ndarray, "*any"]) -> Shaped[np.ndarray, "*any"]:
    """Numbers as a saved result has them: float32, or as they are where that does not hold one of them."""
    return values.astype(np.float32) if in_single(values) else values

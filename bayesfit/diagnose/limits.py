"""What is known of a parameter that the data do not determine: the limit within which it lies."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

LEVEL = 0.95  # probability that the parameter lies within its limit
LEAST_EXCLUDED = 0.25  # prior probability beyond a limit that says something


def limit(draws: Float[np.ndarray, "chain draw"], quantiles: Float[np.ndarray, " quantile"]) -> tuple[float, float]:
    """Lower and upper limit, of which at most one is a number and the other NaN: the one beyond which most of the prior
    lies, if that is at least a quarter.

    Args:
        draws: from the posterior.
        quantiles: of the prior, evenly spaced.
    """
    low, high = np.quantile(draws, [1.0 - LEVEL, LEVEL])
    below, above = np.interp([low, high], quantiles, (np.arange(quantiles.size) + 0.5) / quantiles.size)
    above = 1.0 - above
    if max(below, above) < LEAST_EXCLUDED:
        return float("nan"), float("nan")
    return (float(low), float("nan")) if below >= above else (float("nan"), float(high))


def in_words(limits: tuple[float, float], unit: str) -> str:
    """A limit in words; "" where there is none."""
    words = [f"{side} {value:.2g}" for side, value in zip(("above", "below"), limits, strict=True) if value == value]
    return f"{words[0]}{f' {unit}' if unit not in ('', '1') else ''} ({LEVEL:.0%})" if words else ""

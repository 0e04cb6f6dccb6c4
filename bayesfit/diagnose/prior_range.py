"""Whether the range of a log-uniform prior cuts off the posterior, and what is known then.

Decays that are slower than the prior of their rate allows are one cause: where the baseline is not known, their
beginning is taken for the whole of a small decay, whose rate lies at the lower end of the prior, beside a wrong
contrast.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from bayesfit.diagnose.limits import LEVEL

NEAR = 0.2  # of the way from an end of a range to the mean of the draws
LARGEST_NEAR_END = 0.02  # share of draws near an end of their prior's range, from which on it cuts off the posterior
LEAST_CORRELATION = 0.5  # rank correlation from which on one parameter changes with another
NEAR_END = "share of draws near an end of the range of a log-uniform prior, NaN for other priors"

Draws = Mapping[str, Float[np.ndarray, "chain draw"]]
Ends = tuple[float, float]


def near_ends(draws: Float[np.ndarray, "chain draw"], low: float, high: float) -> Ends:
    """The shares of the draws that lie in the first fifth (`NEAR`) of the way from the lower, and from the upper end of
    a range to their mean, in logarithms; NaN for an end that is NaN.

    Of a normal posterior that is 2.6 standard deviations from an end this is 0.02; of one that is flat from an end on,
    0.1.
    """
    if np.isnan(low) and np.isnan(high):
        return low, high
    values = np.log(draws.ravel())
    return _near(values - np.log(low)), _near(np.log(high) - values)


def _near(distances: Float[np.ndarray, " draw"]) -> float:
    mean = distances.mean()
    return float("nan") if np.isnan(mean) else float(np.mean(distances < NEAR * mean))


def is_cut(shares: Ends) -> bool:
    """Whether the range of a prior cuts off the posterior, by the shares of draws near its ends."""
    return any(share > LARGEST_NEAR_END for share in shares)


def cut_off(draws: Draws, shares: Mapping[str, Ends]) -> dict[str, tuple[str, ...]]:
    """The parameters whose posterior the range of the prior cuts off, each with the others that change with it: those
    of a rank correlation of at least a half."""
    return {name: _together_with(draws, name) for name, of in shares.items() if is_cut(of)}


def _together_with(draws: Draws, name: str) -> tuple[str, ...]:
    ranks = {of: np.argsort(np.argsort(values, axis=None)) for of, values in draws.items()}
    correlation = {of: np.corrcoef(ranks[name], ranks[of])[0, 1] for of in draws if of != name}
    return tuple(of for of, value in correlation.items() if abs(value) >= LEAST_CORRELATION)


def limit_at(draws: Float[np.ndarray, "chain draw"], shares: Ends) -> tuple[float, float]:
    """Lower and upper limit, one of them NaN, of a parameter whose posterior the range of its prior cuts off: the value
    within which it lies, seen from the end that has more draws near it."""
    low, high = np.nan_to_num(shares)
    quantile = float(np.quantile(draws, LEVEL if low >= high else 1.0 - LEVEL))
    return (float("nan"), quantile) if low >= high else (quantile, float("nan"))

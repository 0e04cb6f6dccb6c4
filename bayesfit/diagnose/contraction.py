"""How far the data narrow the prior of a parameter, and whether its range cuts off the posterior."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from bayesfit.compute.quantiles import quantiles_in_order

QUANTILES = 65
LEAST_CORRELATION = 0.5  # rank correlation from which on one parameter changes with another
NEAR = 0.2  # of the way from an end of a range to the mean of the draws
LEVELS = (np.arange(QUANTILES) + 0.5) / QUANTILES  # evenly spaced; at these the quantiles of priors are taken


def prior_quantiles(draws: Float[np.ndarray, "*bin draw"]) -> Float[np.ndarray, "*bin quantile"]:
    """The quantiles of a prior at `LEVELS`, from draws of it."""
    return np.moveaxis(quantiles_in_order(np.sort(draws, axis=-1), LEVELS), 0, -1)


def contraction(draws: Float[np.ndarray, "chain draw"], quantiles: Float[np.ndarray, " quantile"]) -> float:
    """The contraction 1 - var(posterior) / var(prior) (Schad, Betancourt & Vasishth 2021), near 0 if the data say
    nothing about the parameter, and near 1 if they determine it.

    It is computed from the prior's distribution function at the draws, so that it is the same in every parametrisation;
    the variance of that under the prior is 1/12. `quantiles` of the prior are evenly spaced.
    """
    level = np.interp(draws.ravel(), quantiles, (np.arange(quantiles.size) + 0.5) / quantiles.size)
    off = level - level.sum() / level.size
    return float(1.0 - 12.0 * np.sum(off * off) / level.size)


def near_ends(draws: Float[np.ndarray, "chain draw"], low: float, high: float) -> tuple[float, float]:
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


def together_with(draws: Mapping[str, Float[np.ndarray, "chain draw"]], name: str) -> tuple[str, ...]:
    """The other parameters whose draws change with those of one: a rank correlation of at least a half."""
    ranks = {of: np.argsort(np.argsort(values, axis=None)) for of, values in draws.items()}
    correlation = {of: np.corrcoef(ranks[name], ranks[of])[0, 1] for of in draws if of != name}
    return tuple(of for of, value in correlation.items() if abs(value) >= LEAST_CORRELATION)

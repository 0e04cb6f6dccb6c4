"""How far the data narrow the prior of a parameter."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bayesfit.compute.quantiles import quantiles_in_order

QUANTILES = 65
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

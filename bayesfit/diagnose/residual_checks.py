"""Tests whether bins follow what they are said to have in common.

If they do, their residuals from it, in standard deviations, are standard normal. It is refuted if the sum of squares is
too large, if a single bin is too far off, or if the residuals follow an order in q. Joint fits and laws in two stages
are judged by the same tests.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped
from scipy import special

from bayesfit.diagnose.rules import LEAST_P

FEWEST_IN_ORDER = 6  # bins
SHUFFLES = 1999
NAMED = 3  # bins in a reason

OfBins = Float[np.ndarray, " q_bin"]

NUMBERS = {
    "chi2": "sum of the squares of the bins' residuals from what they have in common",
    "freedom": "degrees of freedom of chi2",
    "p_chi2": "probability of so large a sum of squares",
    "p_farthest": "probability of a bin so far off",
    "p_order": "probability that bins next to each other in q deviate so much alike",
}
P_VALUES = tuple(name for name in NUMBERS if name.startswith("p_"))


def numbers_of(residual: OfBins, inferred: int, q: OfBins) -> dict[str, float]:
    """The numbers of `NUMBERS`, from residuals about a pooling or law that has this number of `inferred` parameters."""
    squares, freedom = float(np.sum(residual**2)), residual.size - inferred
    alone = min(2.0 * special.ndtr(-np.max(np.abs(residual))), 1.0 - 1e-12)
    return {
        "chi2": squares,
        "freedom": float(freedom),
        "p_chi2": float(special.chdtrc(freedom, squares)) if freedom > 0 else np.nan,
        "p_farthest": float(-np.expm1(residual.size * np.log1p(-alone))),
        "p_order": p_order(residual[np.argsort(q, kind="stable")]) if np.all(q > 0) else np.nan,
    }


def p_order(residual: OfBins) -> float:
    """Share of the random orders of the residuals in which neighbours differ by as little as in their order in q (von
    Neumann's ratio). The residuals are given in order of q."""
    if residual.size < FEWEST_IN_ORDER:
        return np.nan

    def roughness(x: Float[np.ndarray, "*order q_bin"]) -> Float[np.ndarray, "*order"]:
        return np.sum(np.diff(x, axis=-1) ** 2, axis=-1)

    shuffled = np.random.default_rng(0).permuted(np.tile(residual, (SHUFFLES, 1)), axis=1)
    return float((1 + np.sum(roughness(shuffled) <= roughness(residual))) / (1 + SHUFFLES))


def refuted(
    words: str, remedy: str, numbers: dict[str, float], residual: OfBins, bins: Shaped[np.ndarray, " q_bin"]
) -> str:
    """In words what the residuals refute, with the bins that are farthest off; "" where they refute nothing.

    Args:
        words, remedy: what does not hold then, and what to try.
        numbers: those of the residuals, as `numbers_of` finds them.
        bins: the labels of the bins.
    """
    said = []
    if numbers["p_chi2"] < LEAST_P:
        said.append(f"chi2 {numbers['chi2']:.3g} for {numbers['freedom']:.0f} (p {numbers['p_chi2']:.1g})")
    if numbers["p_farthest"] < LEAST_P:
        said.append(f"a bin far off (p {numbers['p_farthest']:.1g})")
    if numbers["p_order"] < LEAST_P:
        said.append(f"residuals that go with q (p {numbers['p_order']:.1g})")
    return f"{words}: {', '.join(said)}; farthest {', '.join(farthest(residual, bins))}; try {remedy}" if said else ""


def farthest(residual: OfBins, bins: Shaped[np.ndarray, " q_bin"], most: int = NAMED) -> list[str]:
    """The bins with the largest residuals, in words."""
    order = np.argsort(-np.abs(np.nan_to_num(residual)), kind="stable")[:most]
    return [f"bin {bins[place]} ({residual[place]:+.1f} sd)" for place in order if np.isfinite(residual[place])]

"""Draws of one posterior made draws of another: chosen among themselves by the ratio of the two densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from bayesfit.sample import convergence as _convergence
from bayesfit.sample.draws import Draws

Ratios = Float[np.ndarray, "chain draw"]
Places = Int[np.ndarray, "*bin chain draw"]  # of draws (chain * draw)
Assessed = tuple[float, float, float]  # R-hat, and effective sample sizes of bulk and tails


def delayed(log_ratio: Ratios, rng: np.random.Generator) -> tuple[Places, float]:
    """Every draw is a proposal, accepted or rejected by the density that is wanted over the one that was sampled
    (Christen & Fox, J. Comput. Graph. Stat. 14, 795 (2005), the first stage run for so long that proposals are
    independent). The draws of all chains are proposed in random order: one after the other, each would lie near the
    last, and the chains would lag behind towards the posterior that was sampled.

    Returns the places of those at which the chains are, and the share of proposals that were accepted.
    """
    chains, draws = log_ratio.shape
    order = rng.permutation(log_ratio.size).reshape(chains, draws)
    proposed, log_uniform = log_ratio.reshape(-1)[order], np.log(rng.random((chains, draws)))
    places, accepted = np.zeros((chains, draws), int), 0
    for chain in range(chains):
        at = int(np.argmax(np.isfinite(proposed[chain])))
        for draw in range(draws):
            if log_uniform[chain, draw] < proposed[chain, draw] - proposed[chain, at]:
                accepted += draw != at
                at = draw
            places[chain, draw] = order[chain, at]
    return places, accepted / max(chains * (draws - 1), 1)


def redrawn(draws: Draws, places: Places, names: Sequence[str]) -> Draws:
    """The draws at these places (bin, chain, draw) of each bin's, and how well these parameters have converged."""

    def picked(array: np.ndarray) -> np.ndarray:
        return np.array([row.reshape(-1)[own] for row, own in zip(array, places, strict=True)])

    values = {name: picked(array) for name, array in draws.values.items()}
    stats = {name: picked(array) for name, array in draws.stats.items()}
    found = []
    for bin, own in enumerate(places):
        before, after = (
            _convergence.worst(np.stack([of[name][bin] for name in names])) for of in (draws.values, values)
        )
        found.append(proposed(before, after, own.size))
    return replace(draws, values=values, stats=stats, convergence=np.array(found))


def proposed(before: Assessed, after: Assessed, size: int) -> Assessed:
    """The larger R-hat of proposals and accepted draws. Proposals in random order hide that they depend on each other,
    which adds to the variance of means: 1 / ESS of both add up, less that of independent draws."""
    bulk, tail = (1.0 / (1.0 / a + max(1.0 / b - 1.0 / size, 0.0)) for a, b in zip(after[1:], before[1:], strict=True))
    return max(before[0], after[0]), bulk, tail

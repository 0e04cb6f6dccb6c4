"""Draws of one posterior made draws of another: chosen again among themselves by the ratio of the two densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import jax
import numpy as np
from jaxtyping import Float, Int

from bayesfit.sample import convergence as _convergence
from bayesfit.sample.draws import Draws

Ratios = Float[np.ndarray, "chain draw"]
Places = Int[np.ndarray, "*bin chain draw"]  # of draws (chain * draw)


def delayed(log_ratio: Ratios, rng: np.random.Generator) -> tuple[Places, float]:
    """In each chain, every draw is a proposal, accepted or rejected by the density that is wanted over the one that was
    sampled (Christen & Fox, J. Comput. Graph. Stat. 14, 795 (2005), the first stage run for so long that proposals are
    independent).

    Returns the places of the accepted ones, and their share of all.
    """
    chains, draws = log_ratio.shape
    places, accepted = np.zeros((chains, draws), int), 0
    log_uniform = np.log(rng.random((chains, draws)))
    for chain in range(chains):
        at = int(np.argmax(np.isfinite(log_ratio[chain])))
        for draw in range(draws):
            if log_uniform[chain, draw] < log_ratio[chain, draw] - log_ratio[chain, at]:
                accepted += draw != at
                at = draw
            places[chain, draw] = chain * draws + at
    return places, accepted / max(chains * (draws - 1), 1)


def redrawn(draws: Draws, places: Places, names: Sequence[str], thin: int = 1) -> Draws:
    """Every `thin`-th of the draws at these places (bin, chain, draw) of each bin's, and how well these parameters have
    converged."""

    def picked(array: np.ndarray) -> np.ndarray:
        kept = places[:, :, thin - 1 :: thin]
        return np.array([row.reshape(-1)[own] for row, own in zip(array, kept, strict=True)])

    values = {name: picked(array) for name, array in draws.values.items()}
    stats = {name: picked(array) for name, array in draws.stats.items()}
    found = np.array(
        [_convergence.worst(np.stack([values[name][bin] for name in names])) for bin in range(len(places))]
    )
    found = np.where(draws.done[:, None] < places.shape[2], draws.convergence, found)
    done, thinned = draws.done // thin, draws.thin * thin
    return replace(draws, values=values, stats=stats, convergence=found, done=done, thin=thinned)


def joined(parts: Sequence[Draws]) -> Draws:
    """The draws of all these bins."""
    arrays = [{field.name: getattr(part, field.name) for field in fields(part)} for part in parts]
    return Draws(**jax.tree.map(lambda *each: np.concatenate(each), *arrays))

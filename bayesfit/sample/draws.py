"""The draws that are kept of every bin, and what they are worth: the numbers that retire a bin and name its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesfit.sample import convergence as _convergence

LARGEST_RHAT = 1.01
LEAST_ESS = 400.0
LARGEST_DIVERGENT_SHARE = 0.005
LARGEST_DEEP_SHARE = 0.01  # of trees at their largest depth
LEAST_ACCEPTED = 0.2  # share of global moves taken that makes up for such trees
FEWEST_DRAWS = 4  # that have an R-hat
HEADROOM = 2.0  # the estimated effective sample size of independent draws is often well below their number
STATS = {  # what a draw that was not made has
    "potential": np.float64(np.nan),
    "energy": np.float64(np.nan),
    "n_steps": np.int32(0),
    "acceptance_rate": np.float32(np.nan),
    "step_size": np.float32(np.nan),
    "diverging": np.bool_(False),
    "independence_accepted": np.bool_(False),
}

Array = np.ndarray
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Schedule:
    """How each chain runs: `warmup` transitions, then as many as it takes for `draws` kept ones that reach, all chains
    together, `target_ess` in every parameter, or as much of it as so many draws may have; exactly `draws` where the
    target is 0, or where these are too few both for the target and for what verdicts ask."""

    chains: int
    draws: int
    warmup: int
    target_accept: float
    target_ess: float = 0.0

    @property
    def reachable(self) -> float:
        """The target, as far as the kept draws can have it."""
        return min(self.target_ess, self.chains * self.draws / HEADROOM)

    @property
    def fixed(self) -> bool:
        """Whether the number of transitions is fixed beforehand."""
        return not 0.0 < min(self.target_ess, LEAST_ESS) <= self.reachable


@dataclass
class Draws:
    """Kept draws of every bin: `values` and `stats` hold arrays (bin, chain, draw); a draw that was not made is NaN, 0
    or False. For each bin, `done` counts the draws that every chain has, `thin` the transitions for each of them,
    `adaptations` how often its frame was made, more than once where it was readapted, `tree_depth` the largest depth
    that its trees could have; `convergence` (bin, 3) holds worst R-hat, bulk and tail effective sample size of the
    draws that are kept."""

    values: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    done: np.ndarray
    thin: np.ndarray
    adaptations: np.ndarray
    tree_depth: np.ndarray
    convergence: np.ndarray

    @classmethod
    def none_of(cls, bins: int) -> Draws:
        """Of so many bins none yet."""
        done, thin, adaptations, depth = np.zeros((4, bins), int)
        return cls({}, {}, done, thin, adaptations, depth, np.full((bins, 3), np.nan))

    def put(self, bin: int, values: Arrays, stats: Arrays, draws: int) -> None:
        """Set the draws (chain, draw) of one bin, of which there are to be so many a chain."""
        for store, arrays in ((self.values, values), (self.stats, stats)):
            for name, array in arrays.items():
                nothing = STATS.get(name, np.float64(np.nan))
                if name not in store:
                    store[name] = np.full((len(self.done), len(array), draws), nothing)
                whole = store[name]
                made = self.done[bin] = array.shape[1]
                whole[bin, :, :made], whole[bin, :, made:] = array, nothing


class Look(NamedTuple):
    """What the draws of one bin are worth; of two looks the larger is the better. `enough`: they are what verdicts ask
    for, and no reason to begin again; `calm`: trajectories neither diverge nor have to be cut short; `ess`: the smaller
    of bulk and tail effective sample size; `convergence`: worst R-hat and these two, NaN where draws are too few."""

    enough: bool
    calm: bool
    ess: float
    convergence: tuple[float, float, float]

    @classmethod
    def at(cls, series: Array, stats: Arrays, largest_tree: int, last: bool) -> Look:
        """Look at all parameters (series, chain, draw) and at statistics (chain, draw) of trajectories of at most
        `largest_tree` leapfrogs; in a `last` attempt nothing is a reason to begin again."""
        if series.shape[-1] < FEWEST_DRAWS:
            return cls(False, True, np.nan, (np.nan,) * 3)
        found = _convergence.worst(series)
        look = cls(False, not _strained(stats, largest_tree), min(found[1:]), found)
        return look._replace(enough=look.reaches(LEAST_ESS) and (last or look.calm))

    def reaches(self, ess: float) -> bool:
        """Whether R-hat is as it should be, and the effective sample size at least this."""
        return self.convergence[0] <= LARGEST_RHAT and self.ess >= ess

    def spoils(self, before: Look | None) -> bool:
        """Whether draws that were enough had better be kept than these."""
        return before is not None and before.enough and self[:3] < before[:3]


def _strained(stats: Arrays, largest_tree: int) -> bool:
    """Whether trajectories (chain, draw) diverge, or trees are too small where global moves are seldom taken."""
    if stats["diverging"].mean() > LARGEST_DIVERGENT_SHARE:
        return True
    deep = np.mean(stats["n_steps"] >= largest_tree) > LARGEST_DEEP_SHARE
    return bool(deep and stats["independence_accepted"].mean(axis=1).min() < LEAST_ACCEPTED)

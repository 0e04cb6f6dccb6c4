"""The kept draws of every bin, and their assessment: the numbers that decide whether sampling goes on, and on which the
verdicts are based."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped

from bayesfit.modelling.settings import HEADROOM, LEAST_ESS

LARGEST_RHAT = 1.01
LARGEST_DIVERGENT_SHARE = 0.005
LARGEST_DEEP_SHARE = 0.01  # of trees that have reached their largest depth
LEAST_ACCEPTED = 0.2  # with this share of independence proposals accepted, deep trees do no harm
FEWEST_DRAWS = 4  # per chain, for R-hat to be defined
STATS = {  # statistics of a transition, each with the value that stands for a draw that was not made
    "potential": np.float64(np.nan),
    "energy": np.float64(np.nan),
    "n_steps": np.int32(0),
    "acceptance_rate": np.float32(np.nan),
    "step_size": np.float32(np.nan),
    "diverging": np.bool_(False),
    "independence_accepted": np.bool_(False),
}

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Schedule:
    """How long the chains run.

    Each chain makes `warmup` transitions, in which the step size adapts to a mean acceptance rate of `target_accept`.
    Then it runs until the kept draws, `draws` per chain, have in all chains together an effective sample size of
    `target_ess` in every parameter, or of half their number if that is less. If `target_ess` is 0, or if half the
    number of draws is less than both `target_ess` and the size that verdicts ask for, exactly `draws` transitions
    follow the warm-up.
    """

    chains: int
    draws: int
    warmup: int
    target_accept: float
    target_ess: float = 0.0

    @property
    def reachable(self) -> float:
        """The effective sample size at which sampling stops: the target, or half the number of draws."""
        return min(self.target_ess, self.chains * self.draws / HEADROOM)

    @property
    def fixed(self) -> bool:
        """Whether the number of transitions is fixed beforehand."""
        return not 0.0 < min(self.target_ess, LEAST_ESS) <= self.reachable


@dataclass
class Draws:
    """The kept draws of every bin.

    `values` and `stats` hold arrays (bin, chain, draw) by name; a draw that was not made is NaN, 0 or False. Per bin,
    `done` counts the draws that every chain has; `thin` is the number of transitions for each of them; `adaptations` is
    1 plus the number of times that the bin was readapted; `tree_depth` is the largest depth that trees could have; and
    `convergence` (bin, 3) holds the worst R-hat and the smallest bulk and tail effective sample size of the kept draws.
    """

    values: dict[str, Float[np.ndarray, "bin chain draw"]]
    stats: dict[str, Shaped[np.ndarray, "bin chain draw"]]
    done: Int[np.ndarray, " bin"]
    thin: Int[np.ndarray, " bin"]
    adaptations: Int[np.ndarray, " bin"]
    tree_depth: Int[np.ndarray, " bin"]
    convergence: Float[np.ndarray, "bin 3"]

    @classmethod
    def none_of(cls, bins: int) -> Draws:
        """The record of `bins` bins before anything is drawn."""
        done, thin, adaptations, depth = np.zeros((4, bins), int)
        return cls({}, {}, done, thin, adaptations, depth, np.full((bins, 3), np.nan))

    @classmethod
    def to_be_made(cls, names: Iterable[str], shape: tuple[int, int, int]) -> Draws:
        """The record with room for draws of these parameters, none of which is made: (bin, chain, draw)."""
        values = {name: np.full(shape, np.nan) for name in names}
        stats = {name: np.full(shape, not_made) for name, not_made in STATS.items()}
        return replace(cls.none_of(shape[0]), values=values, stats=stats)

    def all_made(self) -> Draws:
        """These draws, as all of one transition each."""
        one = np.ones_like(self.done)
        return replace(self, done=self.stats["potential"].shape[2] * one, thin=one, adaptations=one, tree_depth=one)

    def of_bins(self, places: Int[np.ndarray, " chosen"]) -> Draws:
        """The draws of the bins at these places alone."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return Draws(**jax.tree.map(lambda array: array[places], arrays))

    def put(self, bin: int, values: Arrays, stats: Arrays, draws: int) -> None:
        """Set the values and statistics (chain, draw) of one bin, in arrays that have room for `draws` per chain."""
        for store, arrays in ((self.values, values), (self.stats, stats)):
            for name, array in arrays.items():
                not_made = STATS.get(name, np.float64(np.nan))
                if name not in store:
                    store[name] = np.full((len(self.done), len(array), draws), not_made)
                whole = store[name]
                made = self.done[bin] = array.shape[1]
                whole[bin, :, :made], whole[bin, :, made:] = array, not_made


class Assessment(NamedTuple):
    """How good some draws are. Assessments are compared by their first three fields, in order: the larger one is that
    of the better draws.

    `enough`: the draws are what the verdicts ask for, and give no reason to start again. `untroubled`: trajectories
    neither diverge nor have to be cut short. `ess`: the smaller of bulk and tail effective sample size. `convergence`:
    the worst R-hat, and the bulk and tail effective sample size; NaN if there are too few draws. `finite`: whether the
    potential is finite anywhere.
    """

    enough: bool
    untroubled: bool
    ess: float
    convergence: tuple[float, float, float]
    finite: bool = True

    @classmethod
    def of(cls, found: Float[np.ndarray, " 3"], stats: Arrays, depth: int, last: bool) -> Assessment:
        """Assess draws that have converged so well, with the statistics (chain, draw) of their trajectories; `depth` is
        the largest depth of trees. In the `last` escalation step, troubled trajectories are no reason to start
        again."""
        finite = bool(np.isfinite(stats["potential"]).any())
        if stats["potential"].shape[-1] < FEWEST_DRAWS:
            return cls(False, True, np.nan, (np.nan,) * 3, finite)
        rhat, bulk, tail = found.tolist()
        made = cls(False, not _troubled(stats, 2**depth - 1), min(bulk, tail), (rhat, bulk, tail), finite)
        return made._replace(enough=made.reaches(LEAST_ESS) and (last or made.untroubled))

    def reaches(self, ess: float) -> bool:
        """Whether R-hat is small enough and the effective sample size at least this."""
        return self.convergence[0] <= LARGEST_RHAT and self.ess >= ess

    def why_not(self, ess: float) -> str:
        """In words, why these draws do not suffice; "" if they do."""
        (rhat, *_), said = self.convergence, list[str]()
        if not rhat <= LARGEST_RHAT:
            said.append(f"R-hat {rhat:.3f}")
        if not self.ess >= ess:
            said.append(f"effective sample size {self.ess:.0f} of {ess:.0f}")
        if not self.untroubled:
            said.append("trajectories diverge or are cut short")
        return ", ".join(said)

    def is_worse_than(self, before: Assessment | None) -> bool:
        """Whether the earlier draws are to be kept: they were good enough, and are better than these."""
        return before is not None and before.enough and self[:3] < before[:3]


def _troubled(stats: Arrays, largest_tree: int) -> bool:
    """Whether too many trajectories (chain, draw) diverge, or too many trees reach their largest size while some chain
    seldom accepts independence proposals."""
    if stats["diverging"].mean() > LARGEST_DIVERGENT_SHARE:
        return True
    deep = np.mean(stats["n_steps"] >= largest_tree) > LARGEST_DEEP_SHARE
    return bool(deep and stats["independence_accepted"].mean(axis=1).min() < LEAST_ACCEPTED)

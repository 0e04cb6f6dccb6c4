"""What a fit found: the record that the sampling stages fill, and that verdicts and results read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int, Shaped, UInt32

from bayesfit.compute.devices import take
from bayesfit.compute.keys import bin_keys
from bayesfit.data.dependence import Dependence
from bayesfit.modelling.priors import Prior
from bayesfit.modelling.settings import FitSettings
from bayesfit.posterior.joint import Joint
from bayesfit.posterior.prepare import Problem
from bayesfit.sample.draws import Draws, Schedule
from bayesfit.sample.least_squares import PointEstimate, with_scaled_errors


@dataclass(frozen=True)
class Together:
    """What a joint fit found in addition to the bins' own parameters.

    `across`: how the user pools parameters; `joint`: the posterior of all bins; `fits`: their least-squares fits with
    standard errors scaled by the residuals; `draws` of what the bins have in common, (chain, draw) or (chain, draw,
    group); `start`: in words, where the chains began; `priors`, `fixed`: those of what the bins have in common;
    `dependence`: which bins are not independent of each other; `pareto_k`: how far off a variational fit is, None where
    chains were run.
    """

    across: Mapping[str, Any]
    joint: Joint
    fits: PointEstimate
    draws: dict[str, Shaped[np.ndarray, "chain draw *group"]]
    start: str
    priors: Mapping[str, Prior]
    fixed: Mapping[str, float]
    dependence: Dependence
    pareto_k: float | None = None


@dataclass(frozen=True)
class Exact:
    """How the draws of a surrogate's posterior were corrected, by `how`, per bin: the number of `true_runs`, and Pareto
    k and the effective sample size of the weights, or the share of proposals that were `accepted`; NaN if not so."""

    how: str
    true_runs: Int[np.ndarray, " q_bin"]
    pareto_k: Float[np.ndarray, " q_bin"]
    weights_ess: Float[np.ndarray, " q_bin"]
    accepted: Float[np.ndarray, " q_bin"]


@dataclass(frozen=True)
class Outcome:
    """What a fit found, in bins that all have enough points for the curve.

    `curves` and `problem` are those of these bins alone; `keys` key their random numbers; `points`: the least-squares
    fits, None before they are made; `lowest_potential`: the lowest potential seen before the kept draws, at walkers
    (see `sample/theory_walks.py`), or of any chain of a joint fit; `draws`: what was sampled; `together`: what a joint
    fit found in addition; `theory_change`: with noise "photons", see `sample/theory_points.py`; `exact`: how draws were
    corrected, None where they were not; `labels` tell the bins apart in reports of progress.
    """

    curves: xr.Dataset
    problem: Problem
    settings: FitSettings
    keys: UInt32[np.ndarray, "q_bin 2"]
    points: PointEstimate | None
    lowest_potential: Float[np.ndarray, " q_bin"]
    draws: Draws
    together: Together | None = None
    theory_change: Float[np.ndarray, " q_bin"] | None = None
    exact: Exact | None = None
    labels: tuple[str, ...] = ()

    @classmethod
    def before(cls, curves: xr.Dataset, problem: Problem, settings: FitSettings) -> Outcome:
        """The outcome of these bins before anything is fitted."""
        keys = bin_keys(settings.seed, problem.identity)
        nothing = None, np.zeros(len(keys)), Draws.none_of(len(keys))
        return cls(curves, problem, settings, keys, *nothing, labels=_labels(curves))

    def fits(self, other: Outcome) -> bool:
        """Whether the bins of both can be fitted side by side."""
        return self.settings == other.settings and self.problem.fits(other.problem)

    def and_(self, others: Sequence[Outcome]) -> Outcome:
        """These bins and those of other outcomes, which must fit, one after the other and before anything is fitted.
        The curves are not those of all bins: only verdicts and results read them."""
        whole = Outcome.before(self.curves, self.problem.and_([other.problem for other in others]), self.settings)
        each = [(Path(one.curves.attrs.get("file", "")).stem, one.labels) for one in (self, *others)]
        return replace(whole, labels=tuple(f"{stem} {label}".strip() for stem, labels in each for label in labels))

    def split(self, befores: Sequence[Outcome]) -> list[Outcome]:
        """The outcome in the bins of each of these, which were fitted side by side as this one."""
        ends = np.cumsum([before.bins for before in befores])
        places = [np.arange(end - before.bins, end) for before, end in zip(befores, ends, strict=True)]
        return [self._in_bins(*each) for each in zip(places, befores, strict=True)]

    def _in_bins(self, places: Int[np.ndarray, " chosen"], before: Outcome) -> Outcome:
        """The outcome in the bins at these places, which are those of another outcome before they were fitted."""
        own = replace(self.problem.of_bins(places), fixed=before.problem.fixed, priors=before.problem.priors)
        change = self.theory_change
        return replace(
            before,
            problem=own,
            points=None if self.points is None else take(self.points, places),
            lowest_potential=self.lowest_potential[places],
            draws=self.draws.of_bins(places),
            theory_change=None if change is None else change[places],
        )

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.keys)

    @property
    def schedule(self) -> Schedule:
        """How each chain runs."""
        s = self.settings
        return Schedule(s.chains, s.kept, s.warmup, s.target_accept, s.target_ess)

    @property
    def least_squares(self) -> PointEstimate | None:
        """The least-squares fits, their standard errors scaled by the residuals where the noise has a scale."""
        if self.points is None:
            return None
        return with_scaled_errors(self.points, self.problem.posterior, self.problem.points)


def _labels(curves: xr.Dataset) -> tuple[str, ...]:
    """What the bins of a dataset are called."""
    each = zip(curves.q_bin.values.tolist(), curves.q.values.tolist(), strict=True)
    return tuple(f"bin {bin} (q = {q:.4g})" if np.isfinite(q) else f"bin {bin}" for bin, q in each)

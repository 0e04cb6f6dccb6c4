"""The rules that name every verdict: on a bin, on a parameter that bins have in common, on a joint fit, on a law.

All four are described by one record, `Case`, and weighed by one table, `RULES`. The first rule that applies names the
verdict; the words of all that apply are its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bayesfit.modelling.settings import LEAST_ESS
from bayesfit.sample.draws import LARGEST_DEEP_SHARE, LARGEST_DIVERGENT_SHARE, LARGEST_RHAT, LEAST_ACCEPTED

LEAST_CONTRACTION = 0.75
TOO_NARROW = 1.1  # factor from which on intervals of what all bins have in common are not to be trusted
LARGEST_THEORY_CHANGE = 1.0  # from which on importance weights would keep less than a third of the draws
LEAST_P = 5e-3  # p-value of a check, below which it has failed

VERDICTS = {
    "ok": "converged, identified, and the curve fits",
    "poor_mixing": "the chains have not converged",
    "multimodal": "separate sets of parameters explain the data",
    "prior_conflict": "the posterior of some parameter lies in the far tail of its prior",
    "not_identified": "the data hardly narrow the prior of some parameter, or its range cuts off the posterior",
    "misfit": "curve and noise model together do not describe the data",
    "unusable_data": "too few valid points",
    "interrupted": "stopped before all draws were made",
    "approximate": "draws of an approximation, which may be too far off",
}


def is_identified(contraction: float) -> bool:
    """Whether the data narrow a parameter's prior enough for it to be known."""
    return contraction >= LEAST_CONTRACTION


@dataclass(frozen=True)
class Case:
    """The facts that the rules examine. No rule applies to a field that is left out.

    `points`, `needed`: valid points of a bin, and parameters of its curve; `made`, `wanted`: draws of each chain;
    `r_hat`, `ess_bulk`, `ess_tail`: the worst of all parameters, NaN where there are too few draws; `unconverged`: in
    words, which parameters have too large an R-hat; `separate`: whether chains that have not mixed lie apart;
    `transitions`, `divergences`, `deep_trees`: how many transitions were kept, diverged, and reached the largest tree
    depth; `accepted`: share of accepted independence proposals; `excess`: mean potential of the worst chain above the
    lowest seen, with its `largest_excess`, and whether all potentials are finite; `misfits`, `conflicts`: in words,
    what does not fit, and which parameters are in conflict with their priors; `contractions`: parameter name to
    contraction; `limits`: parameter name to the limit that the data set, in words; `cut`: parameter name, of one whose
    posterior the range of its prior cuts off, to those that change with it; `modes`: in words, where mixed chains have
    two modes; `dependent`: in words, which bins are not independent of each other; `too_narrow`: the factor by which
    intervals are too narrow therefore; `approximate`: in words, that draws are those of an approximation;
    `errors_disputed`: in words, that a measured covariance gives larger errors than theory's; `theory_change`: how far
    off the log likelihood of draws is by theory's errors; `learnt`: in words, that the model is the mean of a random
    simulator.
    """

    points: int = 1
    needed: int = 1
    made: int = 0
    wanted: int = 0
    r_hat: float = 1.0
    ess_bulk: float = np.inf
    ess_tail: float = np.inf
    unconverged: str = ""
    separate: bool = False
    transitions: int = 0
    divergences: int = 0
    deep_trees: int = 0
    accepted: float = 1.0
    excess: float = 0.0
    largest_excess: float = np.inf
    finite: bool = True
    misfits: tuple[str, ...] = ()
    errors_disputed: str = ""
    conflicts: tuple[str, ...] = ()
    contractions: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    cut: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modes: str = ""
    dependent: str = ""
    too_narrow: float = 1.0
    approximate: str = ""
    theory_change: float = 0.0
    learnt: str = ""

    @property
    def ess(self) -> float:
        """The smaller effective sample size; NaN where one is."""
        return float(np.min([self.ess_bulk, self.ess_tail]))

    @property
    def mixed(self) -> bool:
        """Whether R-hat is small enough."""
        return self.r_hat <= LARGEST_RHAT

    @property
    def convergence(self) -> str:
        """R-hat and effective sample size in words."""
        return f"R-hat {self.r_hat:.3f}, ESS {self.ess:.0f}"

    @property
    def hardly_narrowed(self) -> list[str]:
        """The parameters whose prior the data hardly narrow, each with its limit, or else its contraction."""
        low = {name: value for name, value in self.contractions.items() if not is_identified(value)}
        return [self._limit(name) or f"{name} (contraction {value:.2f})" for name, value in low.items()]

    @property
    def with_cut_off(self) -> list[str]:
        """The parameters whose prior the data narrow, and that change with one that its prior's range cuts off."""
        changing = {other for others in self.cut.values() for other in others}
        return [name for name in self._narrowed if name in changing and name not in self.cut]

    @property
    def cut_off(self) -> list[str]:
        """The parameters whose posterior the range of the prior cuts off, each with its limit; without those that the
        data hardly narrow, unless others change with them."""
        named = [name for name in self.cut if self.with_cut_off or name in self._narrowed]
        return [self._limit(name) or name for name in named]

    @property
    def identified(self) -> frozenset[str]:
        """The parameters that the data determine: they narrow their priors, and no range cuts off the posterior."""
        return frozenset(self._narrowed) - set(self.cut) - set(self.with_cut_off)

    @property
    def _narrowed(self) -> list[str]:
        return [name for name, value in self.contractions.items() if is_identified(value)]

    def _limit(self, name: str) -> str:
        """A parameter with its limit, "" where there is none."""
        return f"{name} {self.limits[name]}" if self.limits.get(name) else ""


class Rule(NamedTuple):
    """A verdict, when it applies, and its reason in words."""

    verdict: str
    applies: Callable[[Case], bool]
    words: Callable[[Case], str]


def _too_few_points(case: Case) -> str:
    return f"{case.points} valid points for {case.needed} parameters" if case.points else "no valid points"


def _large_r_hat(case: Case) -> str:
    return f"R-hat {case.r_hat:.3f} > {LARGEST_RHAT}" + (f" ({case.unconverged})" if case.unconverged else "")


RULES = (
    Rule("approximate", lambda c: bool(c.approximate), lambda c: c.approximate),
    Rule("unusable_data", lambda c: c.points < max(c.needed, 1), _too_few_points),
    Rule("interrupted", lambda c: c.made < c.wanted, lambda c: f"{c.made} of {c.wanted} draws were made"),
    Rule("multimodal", lambda c: not c.mixed and c.separate, _large_r_hat),
    Rule("poor_mixing", lambda c: not c.mixed and not c.separate, _large_r_hat),
    Rule("poor_mixing", lambda c: not c.ess >= LEAST_ESS, lambda c: f"ESS {c.ess:.0f} < {LEAST_ESS:.0f}"),
    Rule(
        "poor_mixing",
        lambda c: c.divergences > LARGEST_DIVERGENT_SHARE * c.transitions,
        lambda c: f"{c.divergences} of {c.transitions} transitions diverged",
    ),
    Rule(
        "poor_mixing",
        lambda c: c.deep_trees > LARGEST_DEEP_SHARE * c.transitions and c.accepted < LEAST_ACCEPTED,
        lambda c: f"{c.deep_trees} of {c.transitions} trees reached their largest depth",
    ),
    Rule(
        "poor_mixing",
        lambda c: not c.excess <= c.largest_excess or not c.finite,
        lambda c: f"a chain lies {c.excess:.1f} above the best potential seen",
    ),
    Rule(
        "approximate",
        lambda c: not c.theory_change <= LARGEST_THEORY_CHANGE,
        lambda c: (
            "theory's errors differ so much within the posterior that the log likelihood is off by "
            f"{c.theory_change:.1f}: the decay may be slower than the series is long"
            if np.isfinite(c.theory_change)
            else "theory's errors differ within the posterior, and were not brought to its draws"
        ),
    ),
    Rule("misfit", lambda c: bool(c.misfits), lambda c: "; ".join(c.misfits)),
    Rule("misfit", lambda c: bool(c.errors_disputed), lambda c: c.errors_disputed),
    Rule("prior_conflict", lambda c: bool(c.conflicts), lambda c: "; ".join(c.conflicts)),
    Rule("misfit", lambda c: bool(c.dependent) and c.too_narrow > TOO_NARROW, lambda c: c.dependent),
    Rule("approximate", lambda c: bool(c.learnt), lambda c: c.learnt),
    Rule(
        "not_identified",
        lambda c: bool(c.hardly_narrowed),
        lambda c: f"the data hardly narrow the prior: {', '.join(c.hardly_narrowed)}",
    ),
    Rule(
        "not_identified",
        lambda c: bool(c.cut_off),
        lambda c: (
            f"the range of the prior cuts off the posterior: {', '.join(c.cut_off)}"
            + (f", and with it {', '.join(c.with_cut_off)}" if c.with_cut_off else "")
        ),
    ),
    Rule("multimodal", lambda c: bool(c.modes), lambda c: c.modes),
)


def weigh(case: Case) -> tuple[str, str]:
    """The verdict on a case, "ok" where no rule applies, and its reason."""
    found = [rule for rule in RULES if rule.applies(case)]
    words = [rule.words(case) for rule in found] or [case.convergence]
    if case.dependent and case.dependent not in words:  # they are named also where they matter little
        words.append(case.dependent)
    return found[0].verdict if found else "ok", "; ".join(words)

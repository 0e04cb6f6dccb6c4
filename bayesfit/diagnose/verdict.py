"""The verdict on each bin, with its reason in words and in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bayesfit.diagnose.advice import NOTHING, Advice
from bayesfit.diagnose.contraction import contraction
from bayesfit.diagnose.findings import Findings, OfDraws
from bayesfit.diagnose.limits import in_words, limit
from bayesfit.diagnose.misfit import misfits
from bayesfit.diagnose.modes import chains_apart, two_modes
from bayesfit.diagnose.predictive_checks import CHECKS, check, neighbour_correlation
from bayesfit.diagnose.prior_conflict import conflicts
from bayesfit.diagnose.prior_range import cut_off, limit_at, near_ends
from bayesfit.diagnose.rules import Case, is_identified, weigh
from bayesfit.sample.draws import LARGEST_RHAT


@dataclass(frozen=True)
class Verdict:
    """The verdict on one bin: its `name`, its `reason` in words, the numbers behind it (see `NUMBERS`), the contraction
    of each parameter, the shares of its draws near the ends of its prior, how far out in its prior it lies, the
    parameters in conflict with their priors, each with its reason, the lower and upper limit of those that are not
    identified, what to try where the residuals refute curve and noise, and the parameters that are identified."""

    name: str
    reason: str
    numbers: dict[str, float]
    contractions: dict[str, float]
    near_ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    prior_tails: dict[str, float] = field(default_factory=dict)
    conflicts: dict[str, str] = field(default_factory=dict)
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)
    advice: Advice = NOTHING
    identified: frozenset[str] = frozenset()


NUMBERS = {
    "r_hat": "worst rank and folded R-hat of any parameter",
    "ess_bulk": "worst bulk effective sample size",
    "ess_tail": "worst tail effective sample size",
    "divergences": "divergent transitions",
    "deep_trees": "transitions that reached the largest tree depth",
    "independence_accepted": "share of independence proposals accepted, in the chain that accepted fewest",
    "potential_excess": "largest mean potential of a chain above the lowest seen",
    "reduced_chi2": (
        "residual sum of squares over degrees of freedom, in stated errors; with noise 'photons' in those of theory"
    ),
    "residual_correlation": "correlation of neighbouring residuals, as white as the noise model makes them",
    "largest_residual": "largest residual in standard deviations of the noise model",
    **CHECKS,
    "speckle_log_ratio": (
        "log likelihood of the residuals with the correlations of noise 'speckle' minus that with those of 'correlated'"
    ),
    "theory_change": "how far off the log likelihood of draws is by theory's errors, from a table (noise 'photons')",
}


def unusable(points: int, needed: int) -> tuple[str, str]:
    """Verdict and reason of a bin with too few valid points for the parameters of the curve."""
    return weigh(Case(points=points, needed=needed))


def judge(findings: Findings) -> Verdict:
    """Weigh one bin's findings by the rules (see `rules.RULES`)."""
    if findings.potential.shape[1] == 0:
        name, reason = weigh(Case(wanted=findings.wanted))
        return Verdict(name, reason, dict.fromkeys(NUMBERS, float("nan")), {})
    numbers = _numbers(findings)
    quantiles = {**findings.prior_quantiles, **findings.original_quantiles}
    judged = {name: q for name, q in quantiles.items() if name not in findings.unjudged}
    contractions = {name: contraction(findings.draws[name], q) for name, q in judged.items()}
    draws = {**findings.in_common, **findings.draws}
    ranges = {name: ends for name, ends in findings.prior_ranges.items() if name not in findings.unjudged}
    near = {name: near_ends(draws[name], *ends) for name, ends in ranges.items()}
    cut = cut_off(draws, near)
    vague = [name for name, value in contractions.items() if not is_identified(value)]
    limits = {name: limit_at(draws[name], near[name]) for name in cut if name in contractions}
    limits |= {name: limit(findings.draws[name], quantiles[name]) for name in vague}
    wrong, advice = misfits(findings, numbers)
    disputed = conflicts(findings.prior_tails, findings.draws, findings.prior_quantiles)
    case = replace(
        _of_chains(findings, numbers),
        misfits=wrong,
        errors_disputed=findings.errors_disputed,
        conflicts=tuple(disputed.values()),
        contractions=contractions,
        cut=cut,
        limits={name: in_words(found, findings.units.get(name, "")) for name, found in limits.items()},
        modes=two_modes(findings.draws),
    )
    return Verdict(
        *weigh(case), numbers, contractions, near, findings.prior_tails, disputed, limits, advice, case.identified
    )


def _of_chains(findings: Findings, numbers: dict[str, float]) -> Case:
    """The facts about the chains. In equilibrium, the potential of d coordinates is about d / 2 above its minimum, with
    a standard deviation of (d / 2)^(1/2); `largest_excess` is far above that."""
    return Case(
        made=findings.potential.shape[1],
        wanted=findings.wanted,
        r_hat=numbers["r_hat"],
        ess_bulk=numbers["ess_bulk"],
        ess_tail=numbers["ess_tail"],
        separate=not numbers["r_hat"] <= LARGEST_RHAT and chains_apart(findings.draws.values()),
        transitions=findings.potential.size,
        divergences=int(numbers["divergences"]),
        deep_trees=int(numbers["deep_trees"]),
        accepted=numbers["independence_accepted"],
        excess=numbers["potential_excess"],
        largest_excess=3.0 * findings.sampled + 10.0,
        finite=bool(np.all(np.isfinite(findings.potential))),
        theory_change=findings.theory_change,
        learnt=findings.learnt,
    )


def _numbers(findings: Findings) -> dict[str, float]:
    """The numbers of `NUMBERS`."""
    rhat, bulk, tail = map(float, findings.convergence)
    freedom, scores = len(findings.tau) - findings.free, findings.scores
    return {
        "r_hat": rhat,
        "ess_bulk": 0.0 if np.isnan(bulk) else bulk,
        "ess_tail": 0.0 if np.isnan(tail) else tail,
        "divergences": float(findings.diverging.sum()),
        "deep_trees": float((findings.n_steps >= 2**findings.max_tree_depth - 1).sum()),
        "independence_accepted": float(findings.independence_accepted.mean(axis=1).min()),
        "potential_excess": _excess(findings.potential, findings.mode_potential),
        "reduced_chi2": findings.chi2 / freedom if freedom > 0 else float("nan"),
        "residual_correlation": float(np.mean(neighbour_correlation(scores))) if scores.size else float("nan"),
        "largest_residual": float(np.max(np.abs(scores.mean(axis=0)))) if scores.size else float("nan"),
        **check(scores),
        "speckle_log_ratio": findings.speckle_log_ratio,
        "theory_change": findings.theory_change,
    }


def _excess(potential: OfDraws, lowest: float) -> float:
    """The largest mean potential of a chain above the lowest seen; NaN where neither is finite."""
    with np.errstate(invalid="ignore"):
        return float(np.max(potential.mean(axis=1)) - lowest)

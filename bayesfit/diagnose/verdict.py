"""One verdict a bin, with its reason in words and in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bayesfit.diagnose.advice import ALTERNATING, EXACT, NOTHING, RISING, Advice, advise
from bayesfit.diagnose.predictive_checks import CHECKS, check, neighbour_correlation
from bayesfit.diagnose.prior_conflict import conflicts
from bayesfit.modelling.noise import NOISES
from bayesfit.sample.draws import LARGEST_DEEP_SHARE, LARGEST_DIVERGENT_SHARE, LARGEST_RHAT, LEAST_ACCEPTED, LEAST_ESS

LEAST_CONTRACTION = 0.75
LEAST_P = 5e-3
NEGATIVE_CONTRAST_SIGMAS = 4.0
DEEP_VALLEY = 0.5  # density between two modes, with three standard errors on top, over that of the lower one
LEAST_MODE = 0.03  # share of the draws
FINEST = 1000  # steps of double precision in a histogram, at least
FAULTS = (EXACT, "p_chi2", "p_tails", "p_correlation", ALTERNATING, "p_trend", RISING)  # in the order of a reason

VERDICTS = {
    "ok": "converged, identified, and the curve fits",
    "poor_mixing": "the chains have not converged",
    "multimodal": "separate sets of parameters explain the data",
    "prior_conflict": "the posterior of some parameter lies in the far tail of its prior",
    "not_identified": "the data hardly narrow the prior of some parameter",
    "misfit": "curve and noise model together do not describe the data",
    "unusable_data": "too few valid points",
    "interrupted": "stopped before all draws were made",
}


@dataclass(frozen=True)
class Findings:
    """All that is known of one bin after sampling.

    `draws`: parameter name to draws (chain, draw); `convergence`: their worst R-hat, bulk and tail effective sample
    size, NaN where they are too few; `potential`, `n_steps`, `diverging`, `independence_accepted`: (chain, draw);
    `mode_potential`: lowest potential seen before; `sampled`: number of sampled coordinates; `prior_quantiles`:
    parameter name to evenly spaced quantiles of its prior; `prior_tails`: parameter name to the prior's probability of
    a value as far out as the median draw; `noise`: the noise model's name; `scores`: normal scores (draw, point) of the
    residuals of the valid points; `speckle_log_ratio`: see `predictive_checks`, NaN without delays; `chi2`: sum of
    squares of the residuals from the posterior mean curve, in stated errors; `tau` of the valid points, and whether
    they are `delays`; `tau_min`: from which delay on the curve fits, where only the first ones are off, else 0; `free`:
    number of free numbers of the curve; `contrast`, `contrast_sd`: the least-squares contrast and its standard error,
    NaN where the model has none; `max_tree_depth`; `wanted`: draws asked for.
    """

    draws: dict[str, np.ndarray]
    convergence: tuple[float, float, float]
    potential: np.ndarray
    n_steps: np.ndarray
    diverging: np.ndarray
    independence_accepted: np.ndarray
    mode_potential: float
    sampled: int
    prior_quantiles: dict[str, np.ndarray]
    prior_tails: dict[str, float]
    noise: str
    scores: np.ndarray
    speckle_log_ratio: float
    chi2: float
    tau: np.ndarray
    delays: bool
    tau_min: float
    free: int
    contrast: float
    contrast_sd: float
    max_tree_depth: int
    wanted: int


@dataclass(frozen=True)
class Verdict:
    """The verdict of one bin: its `name`, its `reason` in words, the numbers behind it (see `NUMBERS`), the contraction
    of each parameter and how far out in its prior it lies, the parameters in conflict with their priors, each with its
    reason, and what to try where the residuals refute curve and noise."""

    name: str
    reason: str
    numbers: dict[str, float]
    contractions: dict[str, float]
    prior_tails: dict[str, float] = field(default_factory=dict)
    conflicts: dict[str, str] = field(default_factory=dict)
    advice: Advice = NOTHING


NUMBERS = {
    "r_hat": "worst rank and folded R-hat of any parameter",
    "ess_bulk": "worst bulk effective sample size",
    "ess_tail": "worst tail effective sample size",
    "divergences": "divergent transitions",
    "deep_trees": "transitions that reached the largest tree depth",
    "independence_accepted": "share of global moves that were taken, of the chain that has fewest",
    "potential_excess": "largest mean potential of a chain above the lowest seen",
    "reduced_chi2": "residual sum of squares in stated errors over degrees of freedom",
    "residual_correlation": "correlation of neighbouring residuals, as white as the noise model makes them",
    "largest_residual": "largest residual in standard deviations of the noise model",
    **CHECKS,
    "speckle_log_ratio": "log likelihood of correlations as noise 'speckle' has them less that as 'correlated' has them",
}


def unusable(points: int, needed: int) -> Verdict:
    """The verdict of a bin that was not sampled."""
    reason = f"{points} valid points for {needed} parameters" if points else "no valid points"
    return Verdict("unusable_data", reason, dict.fromkeys(NUMBERS, float("nan")), {})


def judge(findings: Findings) -> Verdict:
    """Weigh one bin's findings. The first of these that applies names the verdict: interrupted, multimodal or
    poor_mixing, misfit, prior_conflict, not_identified, multimodal with chains that have mixed; all that apply are in
    the reason."""
    if findings.potential.shape[1] == 0:
        return Verdict(
            "interrupted", f"0 of {findings.wanted} draws were made", dict.fromkeys(NUMBERS, float("nan")), {}
        )
    numbers = _numbers(findings)
    contractions = {name: contraction(findings.draws[name], q) for name, q in findings.prior_quantiles.items()}
    misfit, advice = _misfit(findings, numbers)
    disputed = conflicts(findings.prior_tails, findings.draws, findings.prior_quantiles)
    found = [
        *_unfinished(findings),
        *_mixing(findings, numbers),
        *misfit,
        *(("prior_conflict", words) for words in disputed.values()),
        *_identification(contractions),
        *_modes(findings),
    ]
    name = found[0][0] if found else "ok"
    reason = "; ".join(text for _, text in found) if found else _praise(numbers)
    return Verdict(name, reason, numbers, contractions, findings.prior_tails, disputed, advice)


def _praise(numbers: dict[str, float]) -> str:
    return f"R-hat {numbers['r_hat']:.3f}, ESS {min(numbers['ess_bulk'], numbers['ess_tail']):.0f}"


def _numbers(findings: Findings) -> dict[str, float]:
    rhat, bulk, tail = map(float, findings.convergence)
    freedom = len(findings.tau) - findings.free
    scores = findings.scores
    return {
        "r_hat": rhat,
        "ess_bulk": 0.0 if np.isnan(bulk) else bulk,
        "ess_tail": 0.0 if np.isnan(tail) else tail,
        "divergences": float(findings.diverging.sum()),
        "deep_trees": float((findings.n_steps >= 2**findings.max_tree_depth - 1).sum()),
        "independence_accepted": float(findings.independence_accepted.mean(axis=1).min()),
        "potential_excess": float(np.max(findings.potential.mean(axis=1)) - findings.mode_potential)
        if findings.potential.size
        else float("nan"),
        "reduced_chi2": findings.chi2 / freedom if freedom > 0 else float("nan"),
        "residual_correlation": float(np.mean(neighbour_correlation(scores))) if scores.size else float("nan"),
        "largest_residual": float(np.max(np.abs(scores.mean(axis=0)))) if scores.size else float("nan"),
        **check(scores),
        "speckle_log_ratio": findings.speckle_log_ratio,
    }


def contraction(draws: np.ndarray, quantiles: np.ndarray) -> float:
    """How far the data narrow the prior, 1 - var(posterior) / var(prior) (Schad, Betancourt & Vasishth 2021), of the
    parameter's prior distribution function, so that it is the same in every parametrisation. Near 0 where the data say
    nothing, near 1 where they say all."""
    level = np.interp(draws, quantiles, (np.arange(quantiles.size) + 0.5) / quantiles.size)
    return float(1.0 - 12.0 * np.var(level))


def _unfinished(findings: Findings) -> list[tuple[str, str]]:
    made = findings.potential.shape[1]
    return [("interrupted", f"{made} of {findings.wanted} draws were made")] if made < findings.wanted else []


def _mixing(findings: Findings, numbers: dict[str, float]) -> list[tuple[str, str]]:
    found = []
    total = findings.potential.size
    if not numbers["r_hat"] <= LARGEST_RHAT:
        name = "multimodal" if _apart(findings) else "poor_mixing"
        found.append((name, f"R-hat {numbers['r_hat']:.3f} > {LARGEST_RHAT}"))
    least = min(numbers["ess_bulk"], numbers["ess_tail"])
    if not least >= LEAST_ESS:
        found.append(("poor_mixing", f"ESS {least:.0f} < {LEAST_ESS:.0f}"))
    if numbers["divergences"] > LARGEST_DIVERGENT_SHARE * total:
        found.append(("poor_mixing", f"{numbers['divergences']:.0f} of {total} transitions diverged"))
    if numbers["deep_trees"] > LARGEST_DEEP_SHARE * total and numbers["independence_accepted"] < LEAST_ACCEPTED:
        found.append(("poor_mixing", f"{numbers['deep_trees']:.0f} of {total} trees reached their largest depth"))
    limit = 3.0 * findings.sampled + 10.0
    if not numbers["potential_excess"] <= limit or not np.all(np.isfinite(findings.potential)):
        found.append(("poor_mixing", f"a chain lies {numbers['potential_excess']:.1f} above the best potential seen"))
    return found


def _apart(findings: Findings) -> bool:
    """Whether, in some parameter, some chains lie wholly above the others (between their 5 % and 95 % quantiles)."""
    for draws in findings.draws.values():
        low, high = np.quantile(draws, [0.05, 0.95], axis=1)
        order = np.argsort(low)
        if np.any(low[order][1:] > np.maximum.accumulate(high[order])[:-1]):
            return True
    return False


def _misfit(findings: Findings, numbers: dict[str, float]) -> tuple[list[tuple[str, str]], Advice]:
    """What the residuals refute, in words, and what to try."""
    faults = _faults(findings, numbers)
    found = [_in_words(fault, findings, numbers) for fault in FAULTS if fault in faults]
    advice = advise(faults, findings.noise, numbers["speckle_log_ratio"], findings.delays, findings.tau_min)
    if found:
        found[-1] += f"; {advice.words}"
    return [("misfit", text) for text in found], advice


def _faults(findings: Findings, numbers: dict[str, float]) -> dict[str, float]:
    """The faults of the residuals, each with its p-value. Where a noise model that infers its scale has found none so
    small, there is no noise, and nothing else to be said of it."""
    faults = {name: numbers[name] for name in CHECKS if numbers[name] < LEAST_P}
    if findings.tau.size <= findings.free:
        faults.pop("p_chi2", None)
    if "p_chi2" in faults and NOISES[findings.noise].parameters and np.mean(findings.scores**2) < 1.0:
        faults = {EXACT: 0.0}
    if "p_correlation" in faults and numbers["residual_correlation"] <= 0:
        faults[ALTERNATING] = faults.pop("p_correlation")
    if findings.contrast < -NEGATIVE_CONTRAST_SIGMAS * findings.contrast_sd:
        faults[RISING] = 1.0  # the checks that failed say more
    return faults


def _in_words(fault: str, findings: Findings, numbers: dict[str, float]) -> str:
    if fault == "p_chi2":
        sd = numbers["reduced_chi2"] * np.sqrt(2.0 / (findings.tau.size - findings.free))
        return f"reduced chi-square {numbers['reduced_chi2']:.3g} ± {sd:.1g}: wrong errors or wrong curve"
    if fault == EXACT:
        return "the residuals are smaller than those of any noise: these data hold none"
    if fault == "p_tails":
        worst = findings.tau[np.argmax(np.abs(findings.scores.mean(axis=0)))]
        where = f"tau = {worst:.3g} s" if findings.delays else f"x = {worst:.3g}"
        return f"the point at {where} is {numbers['largest_residual']:.1f} sd off"
    if fault == "p_trend":
        return "the residuals' size changes with the delay"
    if fault == RISING:
        return f"the curve rises: least-squares contrast {findings.contrast:.3g}"
    return f"neighbouring residuals correlate ({numbers['residual_correlation']:.2f})"


def _modes(findings: Findings) -> list[tuple[str, str]]:
    """Parameters whose draws fall into two sets with next to nothing in between."""
    for name, draws in findings.draws.items():
        valley = _valley(draws.ravel())
        if valley is not None:
            share = np.mean(draws > valley)
            return [("multimodal", f"two modes: {share:.0%} of the draws have {name} above {valley:.3g}")]
    return []


def _valley(draws: np.ndarray) -> float | None:
    """Where the density of draws (draw,) has a deep valley between two modes, or None: a histogram over the middle of
    the draws, smoothed by a normal kernel. Draws that agree to nearly all their digits have one mode."""
    low, high = np.quantile(draws, [LEAST_MODE / 3.0, 1.0 - LEAST_MODE / 3.0])
    if not high - low > FINEST * np.spacing(max(abs(low), abs(high))):
        return None
    counts, edges = np.histogram(draws, bins=100, range=(low, high))
    kernel = np.exp(-0.5 * (np.arange(-9, 10) / 3.0) ** 2)
    density = np.convolve(counts, kernel, mode="same")
    left, right = np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1]
    lower_mode = np.minimum(left, right)
    share = np.cumsum(counts) / draws.size
    inside = (share > LEAST_MODE) & (share < 1.0 - LEAST_MODE)
    at_most = density + 3.0 * np.sqrt(density + 1.0)
    depth = np.where(inside & (lower_mode > 0), at_most / np.maximum(lower_mode, 1e-300), 1.0)
    place = int(np.argmin(depth))
    return float(edges[place + 1]) if depth[place] < DEEP_VALLEY else None


def _identification(contractions: dict[str, float]) -> list[tuple[str, str]]:
    low = [f"{name} (contraction {value:.2f})" for name, value in contractions.items() if value < LEAST_CONTRACTION]
    return [("not_identified", "the data hardly narrow the prior: " + ", ".join(low))] if low else []

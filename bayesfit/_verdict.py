"""One verdict a bin, with its reason in words and in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesfit._sample import LARGEST_DIVERGENT_SHARE, LARGEST_RHAT, LEAST_ESS

LARGEST_DEEP_SHARE = 0.01
LARGEST_WIDTH = 0.5
CHI2_SIGMAS = 5.0
CORRELATION_SIGMAS = 5.0
OUTLIER_SIGMAS = 8.0
NEGATIVE_CONTRAST_SIGMAS = 4.0

VERDICTS = {
    "ok": "converged, identified, and the curve fits",
    "poor_mixing": "the chains have not converged",
    "multimodal": "the chains have settled in separate modes",
    "not_identified": "the data hardly narrow the prior of some parameter",
    "misfit": "the curve does not describe the data within their noise",
    "unusable_data": "too few valid points",
    "interrupted": "stopped before all draws were made",
}


@dataclass(frozen=True)
class Evidence:
    """All that is known of one bin after sampling.

    `draws`: parameter name to draws (chain, draw); `convergence`: their worst R-hat, bulk and tail effective sample
    size, NaN where they are too few; `potential`, `n_steps`, `diverging`: (chain, draw);
    `mode_potential`: lowest potential seen before; `sampled`: number of sampled coordinates; `prior_quantiles`:
    parameter name to evenly spaced quantiles of its prior; `residual`: standardised residuals of the valid points from
    the posterior mean curve; `tau` of these points; `free`: number of free numbers of the curve;
    `scale_inferred`: whether the noise has a scale of its own; `contrast`, `contrast_sd`: the least-squares contrast
    and its standard error, NaN where the model has none; `max_tree_depth`; `wanted`: draws asked for.
    """

    draws: dict[str, np.ndarray]
    convergence: tuple[float, float, float]
    potential: np.ndarray
    n_steps: np.ndarray
    diverging: np.ndarray
    mode_potential: float
    sampled: int
    prior_quantiles: dict[str, np.ndarray]
    residual: np.ndarray
    tau: np.ndarray
    free: int
    scale_inferred: bool
    contrast: float
    contrast_sd: float
    max_tree_depth: int
    wanted: int


@dataclass(frozen=True)
class Verdict:
    """The verdict of one bin: its `name`, its `reason` in words, and the numbers behind it (see `NUMBERS`)."""

    name: str
    reason: str
    numbers: dict[str, float]
    widths: dict[str, float]


NUMBERS = {
    "r_hat": "worst rank and folded R-hat of any parameter",
    "ess_bulk": "worst bulk effective sample size",
    "ess_tail": "worst tail effective sample size",
    "divergences": "divergent transitions",
    "deep_trees": "transitions that reached the largest tree depth",
    "potential_excess": "largest mean potential of a chain above the lowest seen",
    "reduced_chi2": "residual sum of squares in stated errors over degrees of freedom",
    "residual_correlation": "correlation of neighbouring residuals",
    "largest_residual": "largest residual in robust standard deviations of all",
}


def unusable(points: int, needed: int) -> Verdict:
    """The verdict of a bin that was not sampled."""
    reason = f"{points} valid points for {needed} parameters" if points else "no valid points"
    return Verdict("unusable_data", reason, dict.fromkeys(NUMBERS, float("nan")), {})


def judge(evidence: Evidence) -> Verdict:
    """Weigh one bin's evidence. The first of these that applies names the verdict: interrupted, multimodal or
    poor_mixing, misfit, not_identified; all that apply are in the reason."""
    if evidence.potential.shape[1] == 0:
        return Verdict(
            "interrupted", f"0 of {evidence.wanted} draws were made", dict.fromkeys(NUMBERS, float("nan")), {}
        )
    numbers = _numbers(evidence)
    widths = {name: prior_width_ratio(evidence.draws[name], q) for name, q in evidence.prior_quantiles.items()}
    found = [
        *_unfinished(evidence),
        *_mixing(evidence, numbers),
        *_fit(evidence, numbers),
        *_identification(widths),
    ]
    name = found[0][0] if found else "ok"
    reason = "; ".join(text for _, text in found) if found else _praise(numbers)
    return Verdict(name, reason, numbers, widths)


def _praise(numbers: dict[str, float]) -> str:
    return f"R-hat {numbers['r_hat']:.3f}, ESS {min(numbers['ess_bulk'], numbers['ess_tail']):.0f}"


def _numbers(evidence: Evidence) -> dict[str, float]:
    rhat, bulk, tail = map(float, evidence.convergence)
    residual = evidence.residual
    freedom = residual.size - evidence.free
    spread = 1.4826 * np.median(np.abs(residual - np.median(residual))) if residual.size else 0.0
    total = np.sum(residual**2)
    return {
        "r_hat": rhat,
        "ess_bulk": 0.0 if np.isnan(bulk) else bulk,
        "ess_tail": 0.0 if np.isnan(tail) else tail,
        "divergences": float(evidence.diverging.sum()),
        "deep_trees": float((evidence.n_steps >= 2**evidence.max_tree_depth - 1).sum()),
        "potential_excess": float(np.max(evidence.potential.mean(axis=1)) - evidence.mode_potential)
        if evidence.potential.size
        else float("nan"),
        "reduced_chi2": float(total / freedom) if freedom > 0 else float("nan"),
        "residual_correlation": float(np.sum(residual[1:] * residual[:-1]) / total) if total > 0 else 0.0,
        "largest_residual": float(np.max(np.abs(residual)) / spread) if spread > 0 else 0.0,
    }


def prior_width_ratio(draws: np.ndarray, quantiles: np.ndarray) -> float:
    """Width of the posterior over that of the prior: sd of the prior's distribution function at the draws, over that of
    a uniform variable (1/sqrt 12). Near 1 where the data say nothing, near 0 where they say all; the same in every
    parametrisation."""
    level = np.interp(draws, quantiles, (np.arange(quantiles.size) + 0.5) / quantiles.size)
    return float(np.std(level) * np.sqrt(12.0))


def _unfinished(evidence: Evidence) -> list[tuple[str, str]]:
    made = evidence.potential.shape[1]
    return [("interrupted", f"{made} of {evidence.wanted} draws were made")] if made < evidence.wanted else []


def _mixing(evidence: Evidence, numbers: dict[str, float]) -> list[tuple[str, str]]:
    found = []
    total = evidence.potential.size
    if not numbers["r_hat"] <= LARGEST_RHAT:
        name = "multimodal" if _apart(evidence) else "poor_mixing"
        found.append((name, f"R-hat {numbers['r_hat']:.3f} > {LARGEST_RHAT}"))
    least = min(numbers["ess_bulk"], numbers["ess_tail"])
    if not least >= LEAST_ESS:
        found.append(("poor_mixing", f"ESS {least:.0f} < {LEAST_ESS:.0f}"))
    if numbers["divergences"] > LARGEST_DIVERGENT_SHARE * total:
        found.append(("poor_mixing", f"{numbers['divergences']:.0f} of {total} transitions diverged"))
    if numbers["deep_trees"] > LARGEST_DEEP_SHARE * total:
        found.append(("poor_mixing", f"{numbers['deep_trees']:.0f} of {total} trees reached their largest depth"))
    limit = 3.0 * evidence.sampled + 10.0
    if not numbers["potential_excess"] <= limit or not np.all(np.isfinite(evidence.potential)):
        found.append(("poor_mixing", f"a chain lies {numbers['potential_excess']:.1f} above the best potential seen"))
    return found


def _apart(evidence: Evidence) -> bool:
    """Whether, in some parameter, some chains lie wholly above the others (between their 5 % and 95 % quantiles)."""
    for draws in evidence.draws.values():
        low, high = np.quantile(draws, [0.05, 0.95], axis=1)
        order = np.argsort(low)
        if np.any(low[order][1:] > np.maximum.accumulate(high[order])[:-1]):
            return True
    return False


def _fit(evidence: Evidence, numbers: dict[str, float]) -> list[tuple[str, str]]:
    found = []
    points = evidence.residual.size
    freedom = points - evidence.free
    if not evidence.scale_inferred and freedom > 0:
        sigmas = (numbers["reduced_chi2"] - 1.0) * np.sqrt(freedom / 2.0)
        if sigmas > CHI2_SIGMAS:
            found.append(("misfit", f"reduced chi-square {numbers['reduced_chi2']:.3g}: wrong curve or wrong errors"))
    if freedom > 4:
        if numbers["residual_correlation"] * np.sqrt(points) > CORRELATION_SIGMAS:
            found.append(("misfit", f"neighbouring residuals correlate ({numbers['residual_correlation']:.2f})"))
        if numbers["largest_residual"] > OUTLIER_SIGMAS:
            worst = evidence.tau[np.argmax(np.abs(evidence.residual))]
            found.append(("misfit", f"the point at tau = {worst:.3g} s is {numbers['largest_residual']:.0f} sd off"))
    if evidence.contrast < -NEGATIVE_CONTRAST_SIGMAS * evidence.contrast_sd:
        found.append(("misfit", f"the curve rises: least-squares contrast {evidence.contrast:.3g}"))
    return found


def _identification(widths: dict[str, float]) -> list[tuple[str, str]]:
    wide = [f"{name} ({width:.0%})" for name, width in widths.items() if width > LARGEST_WIDTH]
    return [("not_identified", "posterior nearly as wide as the prior: " + ", ".join(wide))] if wide else []

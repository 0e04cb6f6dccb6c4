"""What the residuals of one bin refute, in words, and what to try."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bayesfit.diagnose.advice import ALTERNATING, EXACT, RISING, Advice, advise
from bayesfit.diagnose.findings import Findings
from bayesfit.diagnose.predictive_checks import CHECKS
from bayesfit.diagnose.rules import LEAST_P
from bayesfit.modelling.noise import NOISES

NEGATIVE_CONTRAST_SIGMAS = 4.0
FAULTS = (EXACT, "p_chi2", "p_tails", "p_correlation", ALTERNATING, "p_trend", RISING)  # as reasons name them, in order


def misfits(findings: Findings, numbers: Mapping[str, float]) -> tuple[tuple[str, ...], Advice]:
    """What the residuals refute, in words, and what to try, at the end of these words and as a record."""
    faults = _faults(findings, numbers)
    found = [_in_words(fault, findings, numbers) for fault in FAULTS if fault in faults]
    advice = advise(faults, findings.noise, numbers["speckle_log_ratio"], findings.delays, findings.tau_min)
    if found:
        found[-1] += f"; {advice.words}"
    return tuple(found), advice


def _faults(findings: Findings, numbers: Mapping[str, float]) -> dict[str, float]:
    """The faults of the residuals, each with its p-value. Residuals that are small even for a noise model that infers
    its scale mean data without noise; then no other fault is named."""
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


def _in_words(fault: str, findings: Findings, numbers: Mapping[str, float]) -> str:
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

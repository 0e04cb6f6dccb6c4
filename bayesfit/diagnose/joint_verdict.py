"""The verdict on what bins have in common, parameter by parameter, and on a joint fit as a whole."""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy import stats

from bayesfit.diagnose.pooling_check import Checked, pooling_refuted
from bayesfit.diagnose.prior_conflict import conflicts
from bayesfit.diagnose.residual_checks import NUMBERS, P_VALUES
from bayesfit.diagnose.verdict import LEAST_CONTRACTION, LEAST_P, contraction
from bayesfit.sample.convergence import worst
from bayesfit.sample.draws import FEWEST_DRAWS, LARGEST_DIVERGENT_SHARE, LARGEST_RHAT, LEAST_ESS

QUANTILES = 65
SCALES = ("_scatter", "_spread")  # of the bins' deviations: a few bins need not tell them
FALSE_ALARMS = 0.02  # share of healthy bins that are called misfits, at most
WORDS = {
    "r_hat": "rank and folded R-hat",
    "ess_bulk": "bulk effective sample size",
    "ess_tail": "tail effective sample size",
    "contraction": "1 - variance of the posterior over that of the prior",
}
TAIL = "probability under its prior of a value as far out"
DEVIATES = "whether bins have values of their own about what they have in common"

Found = list[tuple[str, str]]  # verdicts with their reasons


def judged(
    common: xr.Dataset,
    prior: dict[str, np.ndarray],
    tails: dict[str, float],
    checked: list[Checked],
    result: xr.DataTree,
) -> xr.Dataset:
    """Convergence, contraction and verdict of each parameter that bins have in common; what was found of each pooling; and
    the verdict on the whole.

    Args:
        common: draws (chain, draw) of these parameters, or (chain, draw, group); the worst of the groups counts.
        prior: prior draws (draw, ...) of them.
        tails: the prior's probability of values as far out.
        checked: how each pooling fares.
        result: the fit's, with the verdicts of the bins.

    Returns:
        Dataset with the names in `WORDS`, `prior_tail`, `verdict` and `reason` (parameter); `pooling` in words, `deviates`
        and those of `residual_checks.NUMBERS` (pooled); and the scalars `joint_verdict`, the first that applies of
        interrupted, poor_mixing, misfit, prior_conflict, not_identified, ok, `joint_reason`, in which are all that
        apply, `divergences`, `thin` and `escalation`.
    """
    names = [str(name) for name in common.data_vars]
    numbers = np.array([_numbers(common[name], prior[name]) for name in names]).reshape(-1, len(WORDS))
    disputed = _disputed(common, prior, tails)
    alone = [_of_parameter(disputed.get(name, ""), *row) for name, row in zip(names, numbers, strict=True)]
    by_parameter = {
        name: ("parameter", column, {"long_name": words})
        for (name, words), column in zip(WORDS.items(), numbers.T, strict=True)
    }
    by_pooling = {
        name: ("pooled", np.array([one.numbers[name] for one in checked]), {"long_name": words})
        for name, words in NUMBERS.items()
    }
    group = xr.Dataset(
        {
            **by_parameter,
            "prior_tail": ("parameter", np.array([tails.get(name, np.nan) for name in names]), {"long_name": TAIL}),
            "verdict": ("parameter", np.array([found[0][0] for found in alone], dtype=object)),
            "reason": ("parameter", np.array(["; ".join(text for _, text in found) for found in alone], dtype=object)),
            "pooling": ("pooled", np.array([one.pooling.words for one in checked], dtype=object)),
            "deviates": ("pooled", np.array([one.pooling.hierarchical for one in checked]), {"long_name": DEVIATES}),
            **by_pooling,
        },
        {
            "parameter": np.array(names, dtype=object),
            "pooled": np.array([one.pooling.parameter for one in checked], dtype=object),
        },
    )
    bins = result["diagnostics"].dataset
    used = bins.isel(q_bin=np.flatnonzero(bins.verdict.values != "unusable_data"))
    diverging = result["sample_stats"].diverging.any("q_bin").values
    found = [
        *_unfinished(result["sample_stats"].lp),
        *_mixing(group, used, diverging),
        *_misfits(checked, used),
        *(("prior_conflict", words) for words in disputed.values()),
        *_identification(names, numbers[:, -1]),
    ]
    return group.assign(
        joint_verdict=found[0][0] if found else "ok",
        joint_reason="; ".join(text for _, text in found) or _convergence(*_worst(group, used)),
        divergences=int(diverging.sum()),
        thin=int(used["thin"].max()),
        escalation=str(used["escalation"].values[0]),
    )


def _numbers(array: xr.DataArray, prior: np.ndarray) -> tuple[float, ...]:
    """R-hat, bulk and tail effective sample size, and contraction: the worst of the groups."""
    values = array.transpose(..., "chain", "draw").values
    series = values.reshape(-1, *values.shape[-2:])
    made = series[..., np.isfinite(series).all(axis=(0, 1))]
    if made.shape[-1] < FEWEST_DRAWS:
        return (np.nan,) * len(WORDS)
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    quantiles = np.quantile(prior.reshape(len(prior), -1), levels, axis=0).T
    return (*worst(made), min(contraction(draws, known) for draws, known in zip(made, quantiles, strict=True)))


def _disputed(common: xr.Dataset, prior: dict[str, np.ndarray], tails: dict[str, float]) -> dict[str, str]:
    """The parameters whose posterior lies in the far tail of the prior, each with its reason in words."""
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    known = {name: tails[name] for name in map(str, common.data_vars) if name in tails}
    draws = {name: common[name].values[np.isfinite(common[name].values)] for name in known}
    return conflicts(known, draws, {name: np.quantile(prior[name], levels) for name in known})


def _of_parameter(disputed: str, r_hat: float, ess_bulk: float, ess_tail: float, narrowed: float) -> Found:
    """All that applies to one parameter of poor_mixing, prior_conflict and not_identified; else ok."""
    words, found = _convergence(r_hat, ess_bulk, ess_tail), []
    if not (r_hat <= LARGEST_RHAT and np.min([ess_bulk, ess_tail]) >= LEAST_ESS):
        found.append(("poor_mixing", words))
    if disputed:
        found.append(("prior_conflict", disputed))
    if narrowed < LEAST_CONTRACTION:
        found.append(("not_identified", f"the data hardly narrow the prior (contraction {narrowed:.2f})"))
    return found or [("ok", words)]


def _convergence(r_hat: float, *ess: float) -> str:
    return f"R-hat {r_hat:.3f}, ESS {np.min(ess):.0f}"


def _worst(group: xr.Dataset, used: xr.Dataset) -> tuple[float, float, float]:
    """Worst R-hat, bulk and tail effective sample size of all that was sampled, the bins' own parameters among it."""
    r_hat, bulk, tail = (np.concatenate([group[name], used[name]]) for name in ("r_hat", "ess_bulk", "ess_tail"))
    return float(np.max(r_hat)), float(np.min(bulk)), float(np.min(tail))


def _unfinished(lp: xr.DataArray) -> Found:
    made = np.isfinite(lp.transpose("draw", "chain", "q_bin").values).any(axis=2).all(axis=1)
    return [] if made.all() else [("interrupted", f"{made.sum()} of {made.size} draws were made")]


def _mixing(group: xr.Dataset, used: xr.Dataset, diverging: np.ndarray) -> Found:
    r_hat, *ess = _worst(group, used)
    found: Found = []
    if not r_hat <= LARGEST_RHAT:
        apart = [
            str(name)
            for name, value in zip(group.parameter.values, group.r_hat.values, strict=True)
            if not value <= LARGEST_RHAT
        ]
        found.append(
            ("poor_mixing", f"R-hat {r_hat:.3f} > {LARGEST_RHAT} ({', '.join(apart) or 'parameters of the bins'})")
        )
    if not np.min(ess) >= LEAST_ESS:
        found.append(("poor_mixing", f"ESS {np.min(ess):.0f} < {LEAST_ESS:.0f}"))
    if diverging.sum() > LARGEST_DIVERGENT_SHARE * diverging.size:
        found.append(("poor_mixing", f"{diverging.sum()} of {diverging.size} transitions diverged"))
    return found


def _misfits(checked: list[Checked], used: xr.Dataset) -> Found:
    """Poolings that the bins refute, the surest first; and more bins that do not fit than chance makes."""
    surest = sorted(checked, key=lambda one: np.nanmin([1.0, *(one.numbers[name] for name in P_VALUES)]))
    found = [("misfit", text) for one in surest if (text := pooling_refuted(one, used.q_bin.values))]
    misfits, bins = int((used.verdict.values == "misfit").sum()), used.sizes["q_bin"]
    if misfits and stats.binom.sf(misfits - 1, bins, FALSE_ALARMS) < LEAST_P:
        found.append(("misfit", f"{misfits} of {bins} bins do not fit"))
    return found


def _identification(names: list[str], narrowed: np.ndarray) -> Found:
    low = [
        f"{name} (contraction {value:.2f})"
        for name, value in zip(names, narrowed, strict=True)
        if value < LEAST_CONTRACTION and not name.endswith(SCALES)
    ]
    return [("not_identified", "the data hardly narrow the prior: " + ", ".join(low))] if low else []

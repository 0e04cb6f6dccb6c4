"""The verdict on what bins have in common, parameter by parameter, and on a joint fit as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import special

from bayesfit.data.dependence import Dependence
from bayesfit.diagnose.contraction import contraction, prior_quantiles
from bayesfit.diagnose.limits import in_words
from bayesfit.diagnose.pooling_check import Checked, pooling_refuted
from bayesfit.diagnose.prior_conflict import conflicts
from bayesfit.diagnose.prior_range import NEAR_END, cut_off, limit_at, near_ends
from bayesfit.diagnose.residual_checks import NUMBERS, P_VALUES
from bayesfit.diagnose.rules import LEAST_P, Case, is_identified, weigh
from bayesfit.sample.convergence import worst
from bayesfit.sample.draws import FEWEST_DRAWS, LARGEST_RHAT

SCALES = ("_scatter", "_spread")  # of the bins' deviations; a few bins may not determine them
FALSE_ALARMS = 0.02  # share of healthy bins that are called misfits, at most
WORDS = {
    "r_hat": "rank and folded R-hat",
    "ess_bulk": "bulk effective sample size",
    "ess_tail": "tail effective sample size",
    "contraction": "1 - variance of the posterior over that of the prior",
}
TAIL = "probability under its prior of a value as far out"
NO_RANGE = (np.nan, np.nan)
DEVIATES = "whether bins have values of their own about what they have in common"

Cut = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Common:
    """What bins have in common, to be judged.

    `draws`: variables (chain, draw), or (chain, draw, group), of which the worst group counts; `prior`, `compared`:
    parameter name to draws of the prior, and of the one that its width is compared with; `tails`: parameter name to the
    prior's probability of a value as far out; `ranges`: parameter name to the ends of its log-uniform prior, NaN for
    other priors; `checked`: how each pooling fares; `bins`: the diagnostics of the fitted bins, with their labels
    q_bin; `sample_stats`: the statistics of the chains; `dependence`: which bins are not independent of each other;
    `unjudged`: the parameters that the data need not determine.
    """

    draws: xr.Dataset
    prior: Mapping[str, Float[np.ndarray, " draw *group"]]
    compared: Mapping[str, Float[np.ndarray, " draw *group"]]
    tails: Mapping[str, float]
    ranges: Mapping[str, Float[np.ndarray, 2]]
    checked: list[Checked]
    bins: xr.Dataset
    sample_stats: xr.Dataset
    dependence: Dependence
    unjudged: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """The names of the parameters."""
        return [str(name) for name in self.draws.data_vars]

    def is_judged(self, name: str) -> bool:
        """Whether the fit as a whole must determine a parameter."""
        return not name.endswith(SCALES) and name not in self.unjudged


def judge(common: Common) -> xr.Dataset:
    """The verdicts on each parameter that bins have in common and on the joint fit.

    Returns:
        Dataset with the names in `WORDS`, `prior_tail`, `near_end`, `verdict` and `reason` (parameter); `pooling` in
        words, `deviates` and the names in `residual_checks.NUMBERS` (pooled); and the scalars `joint_verdict` and
        `joint_reason` (see `rules.RULES`), `divergences`, `thin` and `escalation`.
    """
    names = common.names
    numbers = np.array([_numbers(common.draws[name], common.compared[name]) for name in names]).reshape(-1, len(WORDS))
    disputed, (cut, limits, near) = _disputed(common), _cut_off(common)
    narrowed = {name for name, value in zip(names, numbers[:, -1], strict=True) if is_identified(value)}
    limits = {name: limit for name, limit in limits.items() if name in narrowed}
    coords = {name: np.array(of, dtype=object) for name, of in (("parameter", names), ("pooled", _pooled(common)))}
    group = xr.Dataset(
        {**_of_parameters(common, numbers, disputed, cut, limits), **_of_poolings(common.checked)}, coords
    )
    diverging = common.sample_stats.diverging.any("q_bin").values
    verdict, reason = weigh(replace(_case(common, group), conflicts=tuple(disputed.values()), limits=limits, cut=cut))
    return group.assign(
        near_end=("parameter", np.array([near.get(name, np.nan) for name in names]), {"long_name": NEAR_END}),
        joint_verdict=verdict,
        joint_reason=reason,
        divergences=int(diverging.sum()),
        thin=int(common.bins["thin"].max()),
        escalation=str(common.bins["escalation"].values[0]),
    )


def _numbers(array: xr.DataArray, prior: Float[np.ndarray, " draw *group"]) -> tuple[float, ...]:
    """R-hat, bulk and tail effective sample size, and contraction: the worst of the groups."""
    made = _made_of_groups(array)
    if made.shape[-1] < FEWEST_DRAWS:
        return (np.nan,) * len(WORDS)
    quantiles = prior_quantiles(prior.reshape(len(prior), -1).T)
    return (*worst(made), min(contraction(draws, own) for draws, own in zip(made, quantiles, strict=True)))


def _made_of_groups(array: xr.DataArray) -> Float[np.ndarray, "group chain draw"]:
    """The draws that were made, of every group; of one where there are no groups."""
    values = array.transpose(..., "chain", "draw").values
    series = values.reshape(-1, *values.shape[-2:])
    return series[..., np.isfinite(series).all(axis=(0, 1))]


def _cut_off(common: Common) -> tuple[Cut, dict[str, str], dict[str, float]]:
    """The parameters whose posterior the range of the prior cuts off in some group, each with the others that change
    with it, and with its limit in words; and the largest share of draws near an end of each range."""
    made = {name: _made_of_groups(common.draws[name]) for name in filter(common.is_judged, common.names)}
    made = {name: groups for name, groups in made.items() if groups.shape[-1] >= FEWEST_DRAWS}
    cut: dict[str, tuple[str, ...]] = {}
    limits: dict[str, str] = {}
    near: dict[str, float] = {}
    for draws in _group_by_group(made):
        shares = {name: near_ends(draws[name], *common.ranges.get(name, NO_RANGE)) for name in draws}
        for name, others in cut_off(draws, shares).items():
            cut[name] = tuple(dict.fromkeys(cut.get(name, ()) + others))
            units = common.draws[name].attrs.get("units", "")
            limits.setdefault(name, in_words(limit_at(draws[name], shares[name]), units))
        near |= {name: float(np.fmax(near.get(name, np.nan), np.fmax(*of))) for name, of in shares.items()}
    return cut, limits, near


def _group_by_group(
    made: Mapping[str, Float[np.ndarray, "group chain draw"]],
) -> Iterator[dict[str, Float[np.ndarray, "chain draw"]]]:
    """The draws in each group of the parameters that have so many groups, with those that have one value in all."""
    for count in sorted({len(groups) for groups in made.values()}):
        for group in range(count):
            yield {name: groups[group % len(groups)] for name, groups in made.items() if len(groups) in (1, count)}


def _disputed(common: Common) -> dict[str, str]:
    """The parameters whose posterior lies in the far tail of the prior, each with its reason in words."""
    tails = {name: common.tails[name] for name in common.names if name in common.tails}
    draws = {name: common.draws[name].values[np.isfinite(common.draws[name].values)] for name in tails}
    return conflicts(tails, draws, {name: prior_quantiles(np.ravel(common.prior[name])) for name in tails})


def _of_parameters(
    common: Common,
    numbers: Float[np.ndarray, "parameter number"],
    disputed: Mapping[str, str],
    cut: Cut,
    limits: Mapping[str, str],
) -> dict[str, Any]:
    """The variables of each parameter: its numbers, its verdict and its reason."""
    names = common.names
    cases = (
        Case(
            r_hat=r_hat,
            ess_bulk=bulk,
            ess_tail=tail,
            conflicts=_known(disputed, name),
            contractions={} if name in common.unjudged else {name: narrowed},
            limits=limits,
            cut={of: others for of, others in cut.items() if name in (of, *others)},
        )
        for name, (r_hat, bulk, tail, narrowed) in zip(names, numbers, strict=True)
    )
    verdicts = np.array([weigh(case) for case in cases], dtype=object).reshape(-1, 2)
    return {
        **{
            name: ("parameter", column, {"long_name": words})
            for (name, words), column in zip(WORDS.items(), numbers.T, strict=True)
        },
        "prior_tail": ("parameter", np.array([common.tails.get(name, np.nan) for name in names]), {"long_name": TAIL}),
        "verdict": ("parameter", verdicts[:, 0]),
        "reason": ("parameter", verdicts[:, 1]),
    }


def _known(disputed: Mapping[str, str], name: str) -> tuple[str, ...]:
    return (disputed[name],) if name in disputed else ()


def _pooled(common: Common) -> list[str]:
    return [one.pooling.parameter for one in common.checked]


def _of_poolings(checked: Iterable[Checked]) -> dict[str, Any]:
    """The variables of each pooling: how it is pooled, and what the residuals from it say."""
    return {
        "pooling": ("pooled", np.array([one.pooling.words for one in checked], dtype=object)),
        "deviates": ("pooled", np.array([one.pooling.hierarchical for one in checked]), {"long_name": DEVIATES}),
        **{
            name: ("pooled", np.array([one.numbers[name] for one in checked]), {"long_name": words})
            for name, words in NUMBERS.items()
        },
    }


def _case(common: Common, group: xr.Dataset) -> Case:
    """The joint fit as a whole, as the rules look at it: the worst of the parameters that bins have in common and of
    the bins' own."""
    diverging = common.sample_stats.diverging.any("q_bin").values
    made = _made(common.sample_stats.lp)
    r_hat, bulk, tail = (np.concatenate([group[name], common.bins[name]]) for name in ("r_hat", "ess_bulk", "ess_tail"))
    apart = [str(name) for name in group.parameter.values[~(group.r_hat.values <= LARGEST_RHAT)]]
    contractions = zip(common.names, group.contraction.values, strict=True)
    return Case(
        made=int(made.sum()),
        wanted=made.size,
        r_hat=float(np.max(r_hat)),
        ess_bulk=float(np.min(bulk)),
        ess_tail=float(np.min(tail)),
        unconverged=", ".join(apart) or "parameters of the bins",
        transitions=diverging.size,
        divergences=int(diverging.sum()),
        misfits=tuple(_misfits(common)),
        contractions={name: value for name, value in contractions if common.is_judged(name)},
        dependent=common.dependence.words,
        too_narrow=common.dependence.too_narrow,
    )


def _made(lp: xr.DataArray) -> np.ndarray:
    """Whether each draw was made, in every chain (draw,)."""
    return np.isfinite(lp.transpose("draw", "chain", "q_bin").values).any(axis=2).all(axis=1)


def _misfits(common: Common) -> list[str]:
    """Poolings that the bins refute, the surest first; and whether more bins do not fit than by chance."""
    surest = sorted(common.checked, key=lambda one: np.nanmin([1.0, *(one.numbers[name] for name in P_VALUES)]))
    found = [text for one in surest if (text := pooling_refuted(one, common.bins.q_bin.values))]
    misfits, bins = int((common.bins.verdict.values == "misfit").sum()), common.bins.sizes["q_bin"]
    if misfits and special.bdtrc(misfits - 1, bins, FALSE_ALARMS) < LEAST_P:
        found.append(f"{misfits} of {bins} bins do not fit")
    return found

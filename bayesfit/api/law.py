"""A law in q from the posteriors of all bins, in two stages: the bins' own posteriors first, then the law's.

The marginal likelihood of a parameter in each bin is its posterior over its prior (`posterior.bin_likelihood`), so that
no data are needed beside the draws; the law's parameters are sampled given these (`posterior.second_stage`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import InputError, SettingsError, nearest, warn
from bayesfit.compute.kinds import expect_result
from bayesfit.compute.operations import computing
from bayesfit.data.dependence import warned_of
from bayesfit.diagnose.law_verdict import LawFit, judge, residuals_of
from bayesfit.diagnose.rules import VERDICTS
from bayesfit.modelling.laws import get_law
from bayesfit.posterior.bin_likelihood import Bins, likelihoods
from bayesfit.posterior.fitted_problem import fitted_curves
from bayesfit.posterior.second_stage import SecondStage, UncertainQ
from bayesfit.result.datasets import is_series, joined, one_dataset
from bayesfit.result.law_result import grid, law_result
from bayesfit.sample.law_nuts import LawSampler

EXACT, UNCERTAIN = "exact", "uncertain"
LARGEST_ERROR = 0.2  # of q, relative


def law(
    result: xr.DataTree,
    law: Any = "diffusion",
    parameter: str = "rate",
    *,
    scatter: bool = True,
    q: str | float = "exact",
    verdicts: Sequence[str] = ("ok",),
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    draws: int = 1000,
    chains: int = 4,
    seed: int = 0,
    model: Any = None,
) -> xr.DataTree:
    """Posterior of a law in q, from the posteriors of all bins of a fit, each bin's own prior divided out.

    Args:
        result: what `fit` or `series` returned or `load` read.
        law: "diffusion" (rate = D q^2), "diffusion_extrapolated" (D0 q^2 (1 + C q^2)), "power_law" (D q^n),
            "diffusion_plus_offset" (D q^2 + rate_0), "de_gennes" (D0 q^2 H(q)/S(q)), "from_table", "constant"; a table
            of a name and its options, `{"name": "power_law", "n": 1}`; a `bayesfit.Law`; or a NumPyro program
            `(q, tau) -> value`.
        parameter: the sampled parameter that follows the law, as in `result.posterior`.
        scatter: whether bins scatter about the law, with a normal distribution of the parameter's logarithm (of the
            parameter itself where it may be negative), whose sd is inferred with the prior HalfNormal(0.3).
        q: "exact"; "uncertain", in which all q of the bins are off together by the same multiple, `q_shift`, of their
            `q_err`, which curves have from a calibrated detector or from `bayesfit.curves(q_err=...)`; or the relative
            standard error of all q, a number. D then has the relative variance of an exact q and (2 dq/q)^2 besides.
        verdicts: bins with these verdicts are used; one that is "not_identified" counts as "ok" if the parameter itself
            is identified there.
        priors, fixed: the name of a parameter of the law, or "scatter", to a prior as `fit` takes it, or to a number.
        draws, chains, seed: kept draws per chain, after 500 transitions of warm-up; the number of chains; the same seed
            gives the same draws.
        model: the model that was fitted, where the result's own cannot be found by its name or its file.

    Returns:
        DataTree in ArviZ's schema with groups `posterior` (chain, draw) and `sample_stats`; `law_curve` (point: `q`,
        `mean`, `lower`, `upper`: the law's posterior mean and central 95 % band, without scatter); `bins` (q_bin:
        `mean` and `sd` of the parameter, `used`, `left_out` in words, `law`, `residual` from the law in sd of the bin's
        likelihood, NaN where not used, `residual_with_scatter`, in which the inferred scatter is allowed for and which
        is standard normal where the law holds, `distance` of the bin's draws from the density that describes them);
        and `diagnostics` (`verdict` of each bin; of the law itself `law_verdict`, "misfit" where these residuals are
        too large, one of them is, or they follow an order in q, `law_reason`, `r_hat`, `ess_bulk`, `ess_tail`,
        `divergences`, `chi2`, `freedom`, `p_chi2`, `p_farthest`, `p_order`). Of a series all have a dimension
        `dataset`; a dataset whose bins cannot be used is left out with a warning.

    Raises:
        InputError: there are too few bins, or the law is not known at their q. SettingsError: an unknown name, an
            impossible value, or a parameter whose prior cannot be known.
    """
    expect_result(result, "fit", "series")
    _check_choices(scatter, {"priors": priors, "fixed": fixed})
    choices = _Choices(
        SecondStage(get_law(law), scatter, priors or {}, fixed or {}),
        parameter,
        _error_of_q(q),
        _names_of(verdicts),
        _whole_number(draws, "draws", 4),
        _whole_number(chains, "chains", 1),
        _whole_number(seed, "seed"),
        model,
    )
    return _of_series(result, choices) if is_series(result) else _of_one(result, choices)


@dataclass(frozen=True)
class _Choices:
    """What a user asks for, checked; `samplers` are kept so that the datasets of a series share what is compiled."""

    stage: SecondStage
    parameter: str
    q: str | float
    verdicts: tuple[str, ...]
    draws: int
    chains: int
    seed: int
    model: Any
    samplers: dict[Any, LawSampler] = field(default_factory=dict)

    def sampler(self, bins: Bins, tau: Float[np.ndarray, " tau"]) -> LawSampler:
        """The sampler for data of this shape."""
        shapes = (bins.logarithmic, *(np.shape(array) for array in jax.tree.leaves((bins.likelihood, tau))))
        if shapes not in self.samplers:
            self.samplers[shapes] = LawSampler(self.stage.program(bins.logarithmic), self.draws, self.chains)
        return self.samplers[shapes]

    @property
    def settings(self) -> dict[str, Any]:
        """What a result states of them."""
        return {
            "seed": self.seed,
            "scatter_inferred": int(self.stage.scatter),
            **({} if self.q == EXACT else {"q": self.q}),
            "verdicts": ", ".join(self.verdicts),
            "priors": json.dumps(dict(self.stage.priors), default=str),
            "fixed": json.dumps(dict(self.stage.fixed), default=str),
        }


def _of_one(result: xr.DataTree, choices: _Choices) -> xr.DataTree:
    """The law of one dataset."""
    with computing():
        bins = likelihoods(result, choices.parameter, choices.verdicts, choices.model)
        dependent = warned_of(fitted_curves(result).isel(q_bin=bins.used))
        fitted = _fitted(bins, _delays(result), _errors(result, bins, choices.q), choices)
        residuals = residuals_of(fitted)
    verdict = judge(fitted, residuals, dependent)
    settings = choices.settings | ({"correlated_bins": dependent.words} if dependent.words else {})
    return law_result(result, fitted, residuals, verdict, settings)


def _errors(result: xr.DataTree, bins: Bins, q: str | float) -> Float[np.ndarray, " used"] | None:
    """Standard errors of q in the used bins; None where q is exact.

    Raises:
        InputError: they are asked for, and are not known.
    """
    if not isinstance(q, str):
        return q * bins.q[bins.used]
    if q == EXACT:
        return None
    remedy = "Give curves(..., q_err=...) or a calibrated detector, or the relative error itself: q=0.002"
    posterior = result["posterior"]
    if "q_err" not in posterior.coords:
        raise InputError("the result does not hold them", field="q_err", remedy=remedy)
    found = posterior.q_err.values.astype(float)
    for bin in np.flatnonzero(bins.used & ~np.isfinite(found))[:1]:
        raise InputError("it is not known", field="q_err", bin=int(bin), remedy=remedy)
    errors: Float[np.ndarray, " used"] = found[bins.used]
    return errors


def _fitted(
    bins: Bins, tau: Float[np.ndarray, " tau"], errors: Float[np.ndarray, " used"] | None, choices: _Choices
) -> LawFit:
    """The law's draws."""
    stage, q = choices.stage, _with_grid(bins.q[bins.used], errors)
    sampler = choices.sampler(bins, tau)
    sites = stage.sampled(bins, q, tau)
    data = jax.random.PRNGKey(choices.seed), q, tau, bins.likelihood
    samples, stats = sampler(*data)
    prior = sampler.prior(*data)
    values, scatter = samples.pop("_law"), samples.get("scatter")
    samples = {name: array for name, array in samples.items() if name not in stage.fixed}
    return LawFit(stage.law, choices.parameter, bins, sites, samples, scatter, stats, prior, values)


def _with_grid(q: Float[np.ndarray, " used"], errors: Float[np.ndarray, " used"] | None) -> Any:
    """The bins' q and a grid after them, with standard errors if there are any; relative ones change smoothly."""
    points = grid(q)
    if errors is None:
        return points
    order = np.argsort(q)
    relative = np.interp(points[q.size :], q[order], (errors / q)[order])
    return UncertainQ(points, np.concatenate([errors, relative * points[q.size :]]))


def _of_series(result: xr.DataTree, choices: _Choices) -> xr.DataTree:
    """The law of each dataset, as one result; datasets whose bins cannot be used are left out."""
    labels = result["steps"].coords["dataset"].values
    results: dict[int, xr.DataTree] = {}
    refused: dict[str, InputError] = {}
    for place, label in enumerate(labels.tolist()):
        try:
            results[place] = _of_one(one_dataset(result, label), choices)
        except InputError as error:
            refused[str(label)] = error
    if not results:
        raise next(iter(refused.values()))
    for label, reason in refused.items():
        warn(f"dataset {label} is left out: {reason}")
    whole = joined(list(results.values()), labels[list(results)])
    if refused:
        whole.attrs["datasets_left_out"] = ", ".join(refused)
    return whole


def _error_of_q(given: Any) -> str | float:
    if isinstance(given, str) and given in (EXACT, UNCERTAIN):
        return given
    number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    if not number or not 0 < given < LARGEST_ERROR:
        remedy = f"It is 'exact', 'uncertain', or a relative standard error below {LARGEST_ERROR:g}"
        raise SettingsError(f"got {given!r}", field="q", remedy=remedy)
    return float(given)


def _names_of(verdicts: Any) -> tuple[str, ...]:
    if not isinstance(verdicts, str | Sequence):
        raise SettingsError(f"got {verdicts!r}, expected names of verdicts", field="verdicts")
    names = (verdicts,) if isinstance(verdicts, str) else tuple(verdicts)
    for name in names:
        if name not in VERDICTS:
            raise SettingsError(f"unknown verdict {name!r}", field="verdicts", remedy=nearest(str(name), VERDICTS))
    return names


def _check_choices(scatter: Any, tables: Mapping[str, Any]) -> None:
    if not isinstance(scatter, bool):
        raise SettingsError(f"got {scatter!r}, expected true or false", field="scatter")
    for name, table in tables.items():
        if table is not None and not isinstance(table, Mapping):
            raise SettingsError(f"got {table!r}, expected a table by parameter", field=name)


def _whole_number(value: Any, field: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**32:
        raise SettingsError(f"got {value!r}, expected a whole number from {least}", field=field)
    return int(value)


def _delays(result: xr.DataTree) -> Float[np.ndarray, " tau"]:
    tau = result["observed_data"].tau.values.astype(float)
    if not np.any(tau > 0):
        raise InputError("the result holds no delays above 0", field="tau")
    return tau[tau > 0]

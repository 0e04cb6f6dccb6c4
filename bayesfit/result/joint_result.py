"""What a joint fit adds to the result of its bins: what they have in common, how far each is from it, and verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray as xr

from bayesfit.compute.devices import TRACING
from bayesfit.diagnose.joint_verdict import Common, judge
from bayesfit.diagnose.outcome import Outcome, Together
from bayesfit.diagnose.pooling_check import Checked, Fit, check_poolings
from bayesfit.diagnose.rules import Case, weigh
from bayesfit.modelling.laws import Law
from bayesfit.posterior.joint import Joint, compiled
from bayesfit.posterior.joint import start_compiling as start
from bayesfit.posterior.joint_prior import all_of_prior, prior_draws, tails_and_ranges
from bayesfit.posterior.pooling_interface import Pooling
from bayesfit.result.tree import Groups, described
from bayesfit.sample.variational import LARGEST_K

PRIOR_DRAWS = 2000
TAIL_DRAWS = 20  # posterior draws, evenly spaced, for which it is computed how far out in their priors they lie
RESIDUAL = {"units": "1", "long_name": "distance of the bin from what its pooling says, in standard deviations"}

Arrays = dict[str, np.ndarray]


def with_common(groups: Groups, outcome: Outcome) -> Groups:
    """The groups of the fitted bins, and what they have in common.

    It joins the posterior, where shared parameters lose q_bin, or have one value per group. Group `across` judges it
    and the fit as a whole; `law_curve` and `law_residuals` hold each pooling over q, and the bins' distances from it.
    """
    together = outcome.together
    assert together is not None
    prior, checked = _prior_draws(together.joint), _checked(outcome, together)
    posterior = groups["posterior"]
    common = _all_in_common(together, prior, posterior)
    units = {one.pooling.parameter: posterior[one.pooling.parameter].attrs.get("units", "1") for one in checked}
    bins = groups["diagnostics"]
    bins = bins.assign(independence_accepted=xr.full_like(bins.independence_accepted, np.nan))  # NumPyro makes none
    labelled = bins.assign_coords(q_bin=outcome.curves.q_bin)
    tails, ranges = in_prior(together)
    of_chains, unjudged = groups["sample_stats"], outcome.problem.unjudged
    compared = _compared(outcome, together, prior)
    across = judge(
        Common(common, prior, compared, tails, ranges, checked, labelled, of_chains, together.dependence, unjudged)
    )
    if together.pareto_k is not None:
        across, bins = _as_approximate(across, bins, together)
    own = posterior.drop_vars([name for name in common.data_vars if name in posterior])
    return groups | {
        "posterior": own.merge(common, combine_attrs="no_conflicts"),
        "diagnostics": bins,
        "across": across,
        "law_curve": _curves(checked, units),
        "law_residuals": _residuals(checked, units),
    }


def attributes_of(together: Together) -> dict[str, str]:
    """The attributes of a joint fit's result."""
    priors = {name: {"family": prior.family, **prior.values} for name, prior in together.priors.items()}
    attrs = {
        "across": json.dumps({name: _in_words(spec) for name, spec in together.across.items()}, sort_keys=True),
        "start": together.start,
        "priors_in_common": json.dumps(priors, default=float),
        "fixed_in_common": json.dumps(dict(together.fixed)),
    }
    if together.pareto_k is not None:
        attrs["inference_method"] = "variational inference (SVI), a quick look"
    return attrs | ({"correlated_bins": together.dependence.words} if together.dependence.words else {})


def _as_approximate(across: xr.Dataset, bins: xr.Dataset, together: Together) -> tuple[xr.Dataset, xr.Dataset]:
    """Group `across` and the bins' diagnostics of a variational fit, of which no number of convergence is stated."""
    k = together.pareto_k
    assert k is not None
    trust = "its means may be used" if k <= LARGEST_K else "do not use it"
    case = Case(approximate=f"a quick look by variational inference, not sampled; Pareto k {k:.2f}: {trust}")
    verdict, reason = weigh(case)
    bins = bins.assign(verdict=xr.full_like(bins.verdict, verdict), reason=xr.full_like(bins.reason, reason))
    whole, words = weigh(replace(case, dependent=together.dependence.words, too_narrow=together.dependence.too_narrow))
    across = across.assign(pareto_k=k, joint_verdict=whole, joint_reason=words)
    across["verdict"], across["reason"] = xr.full_like(across.verdict, verdict), xr.full_like(across.reason, "")
    return across.assign({name: np.nan * across[name] for name in ("r_hat", "ess_bulk", "ess_tail")}), bins


def start_compiling(joint: Joint) -> None:
    """Begin to compile in the background."""
    start(prior_draws, joint, np.zeros((PRIOR_DRAWS, 2), np.uint32))
    with TRACING:
        shapes = jax.eval_shape(partial(prior_draws, joint), np.zeros((TAIL_DRAWS, 2), np.uint32))
    start(tails_and_ranges, joint, {name: np.zeros(shape.shape) for name, shape in shapes.items()})


def _prior_draws(joint: Joint) -> Arrays:
    """Prior draws (draw, ...) of what the bins have in common."""
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(0), PRIOR_DRAWS)))
    return {name: np.asarray(array) for name, array in compiled(prior_draws, joint, keys).items()}


def _compared(outcome: Outcome, together: Together, prior: Arrays) -> Arrays:
    """Draws (draw, ...) of the prior that verdicts compare with: of the original one, where the prior was made from
    other data."""
    shared = {name: of for name, of in outcome.problem.priors.items() if name in together.joint.names}
    given = {**shared, **together.priors}
    original = {name: of.compared for name, of in given.items() if of.compared is not None}
    if not original:
        return prior
    closed = {pooling.parameter for pooling in together.joint.closed}
    sampled = {name: draws for name, draws in original.items() if name not in closed}
    return {**prior, **original, **(compiled(all_of_prior, together.joint, sampled) if sampled else {})}


def in_prior(together: Together) -> tuple[dict[str, float], Arrays]:
    """How far out in its prior each parameter lies that the bins have in common, and the range of that prior; empty
    without draws."""
    flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in together.draws.items()}
    made = np.all([np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in flat.values()], axis=0)
    if not made.any():
        return {}, {}
    places = np.flatnonzero(made)[np.linspace(0, made.sum() - 1, TAIL_DRAWS).astype(int)]
    tails, ranges = compiled(tails_and_ranges, together.joint, {name: array[places] for name, array in flat.items()})
    return {name: float(tail) for name, tail in tails.items()}, {name: np.asarray(of) for name, of in ranges.items()}


def _checked(outcome: Outcome, together: Together) -> list[Checked]:
    """The checks of each pooling."""
    curves, fits = outcome.curves, together.fits
    q = curves.q.values.astype(float) if "q" in curves.coords else np.full(outcome.bins, np.nan)
    freedom = np.maximum(outcome.problem.points - len(fits.solution.sd), 1)
    fit = Fit(together.joint, q, fits, freedom, outcome.draws, together.draws)
    return check_poolings(fit)


def _all_in_common(together: Together, prior: Arrays, posterior: xr.Dataset) -> xr.Dataset:
    """What the bins have in common (chain, draw), or (chain, draw, group), pooling by pooling."""
    common = xr.Dataset()
    for pooling in together.joint.all_poolings:
        common = common.merge(_common_of(pooling, together.draws, prior, posterior))
    return common


def _common_of(pooling: Pooling, shared: Arrays, prior: Arrays, posterior: xr.Dataset) -> xr.Dataset:
    """What one pooling's bins have in common (chain, draw), or (chain, draw, group)."""
    found = xr.Dataset(coords={name: posterior[name] for name in ("chain", "draw")})
    if pooling.shares_value:
        dims = ("chain", "draw") if pooling.groups is None else ("chain", "draw", f"{pooling.parameter}_group")
        found[pooling.parameter] = (dims, shared[pooling.parameter], posterior[pooling.parameter].attrs)
        return found if pooling.groups is None else found.assign_coords({dims[-1]: list(pooling.groups)})
    own = {"units": posterior[pooling.parameter].attrs.get("units", "1")}
    for parameter in pooling.parameters:
        if parameter.name in shared and np.ptp(prior[parameter.name]) > 0:  # not fixed
            attrs = described(parameter) | (own if parameter.name in pooling.in_own_unit else {})
            found[parameter.name] = (("chain", "draw"), shared[parameter.name], attrs)
    return found


def _curves(checked: list[Checked], units: dict[str, str]) -> xr.Dataset:
    """Each pooling over q: posterior mean NAME, and its central 95 % band, NAME_lower and NAME_upper (point)."""
    group = xr.Dataset()
    for one in checked:
        name = one.pooling.parameter
        dims = ("point",) if one.curve.ndim == 2 else ("point", f"{name}_group")
        for suffix, curve in zip(("", "_lower", "_upper"), one.curve, strict=True):
            group[name + suffix] = (dims, curve, {"units": units[name]})
        if len(dims) == 2:
            group = group.assign_coords({dims[1]: list(one.pooling.groups or ())})
    return group.assign_coords(q=("point", checked[0].q, {"units": "1/angstrom"}))


def _residuals(checked: list[Checked], units: dict[str, str]) -> xr.Dataset:
    """Each bin's distance NAME from what its pooling says, NAME_law, and the bin's own value, at the maximum of its
    profile likelihood, NAME_own with its 95 % interval, NAME_own_lower and NAME_own_upper (q_bin)."""
    group = xr.Dataset()
    for one in checked:
        name = one.pooling.parameter
        arrays = {"": one.residual, "_law": one.common}
        arrays |= dict(zip(("_own", "_own_lower", "_own_upper"), one.own, strict=True))
        for suffix, array in arrays.items():
            group[name + suffix] = ("q_bin", np.asarray(array, float), {"units": units[name]} if suffix else RESIDUAL)
    return group


def _in_words(spec: Any) -> Any:
    """How a parameter is pooled, as JSON holds it."""
    if isinstance(spec, Law):
        return spec.name
    return getattr(spec, "__name__", None) or (
        {key: _in_words(value) for key, value in spec.items()} if isinstance(spec, dict) else str(spec)
    )

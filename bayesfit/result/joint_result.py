"""The result of a fit whose bins have parameters in common: that of single bins, and what they share."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import xarray as xr

from bayesfit.data.dependence import Dependence
from bayesfit.diagnose.joint_verdict import judged
from bayesfit.diagnose.pooling_check import Checked, Fit, check_pooling
from bayesfit.modelling.laws import Law
from bayesfit.posterior.joint import Joint, compiled
from bayesfit.posterior.joint_prior import prior_draws, prior_tails
from bayesfit.posterior.pooling_interface import Pooling
from bayesfit.result.files import describe
from bayesfit.sample.draws import Draws
from bayesfit.sample.least_squares import PointEstimate
from bayesfit.sample.variational import LARGEST_K

PRIOR_DRAWS = 2000
TAIL_DRAWS = 20  # evenly from the posterior, looked at for how far out in their priors they lie
RESIDUAL = {"units": "1", "long_name": "distance of the bin from what its pooling says, in standard deviations"}

Arrays = dict[str, np.ndarray]


def with_common(
    result: xr.DataTree,
    joint: Joint,
    usable: np.ndarray,
    points: PointEstimate,
    draws: Draws,
    shared: Arrays,
    across: dict[str, Any],
) -> xr.DataTree:
    """The result with what the bins have in common: among its posterior, where shared parameters lose q_bin, or have
    one value a group, and the laws' parameters join them; group `across` judges these and the fit as a whole;
    `law_curve` and `law_residuals` hold each pooling over q, and the `usable` bins' distances from it. All groups but the
    posterior have the bins' `q`."""
    with jax.enable_x64(True):
        keys = jax.random.key_data(jax.random.split(jax.random.key(0), PRIOR_DRAWS))
        prior = {name: np.asarray(array) for name, array in compiled(prior_draws, joint, keys).items()}
        tails = _tails(joint, shared)
        checked = _checked(joint, usable, points, draws, shared, result)
    posterior, common = result["posterior"].dataset, xr.Dataset()
    for pooling in joint.all_poolings:
        common = common.merge(_common_of(pooling, shared, prior, posterior))
    units = {pooling.parameter: posterior[pooling.parameter].attrs.get("units", "1") for pooling in joint.all_poolings}
    posterior = posterior.drop_vars([name for name in common.data_vars if name in posterior])
    posterior = posterior.merge(common, combine_attrs="no_conflicts").assign_attrs(posterior.attrs)
    result["posterior"] = posterior.reset_coords(drop=True)  # `az.summary` takes no q that only some variables have
    bins = result["diagnostics"].to_dataset()
    result["diagnostics"] = bins.assign(
        independence_accepted=xr.full_like(bins.independence_accepted, np.nan)
    )  # there are no global moves
    result["across"] = judged(common, prior, tails, checked, result)
    result["law_curve"] = _curves(checked, units)
    result["law_residuals"] = _residuals(checked, usable, units, result)
    described = json.dumps({name: _in_words(spec) for name, spec in across.items()}, sort_keys=True)
    result.attrs["across"] = described
    return result


def called_dependent(result: xr.DataTree, found: Dependence) -> xr.DataTree:
    """The result whose verdict and reason on the whole say which bins are not independent."""
    if not found.words:
        return result
    across = result["across"].to_dataset()
    verdict, reason = found.judged(str(across.joint_verdict.item()), str(across.joint_reason.item()))
    result["across"] = across.assign(joint_verdict=verdict, joint_reason=reason)
    result.attrs["correlated_bins"] = found.words
    return result


def called_approximate(result: xr.DataTree, k: float) -> xr.DataTree:
    """The result of a variational fit, named as such: the verdict of every bin that has draws, and the Pareto k."""
    diagnostics = result["diagnostics"].to_dataset()
    made = diagnostics.verdict != "unusable_data"
    trust = "its means may be used" if k <= LARGEST_K else "do not use it"
    reason = f"a quick look by variational inference, not sampled; Pareto k {k:.2f}: {trust}"
    diagnostics["verdict"] = diagnostics.verdict.where(~made, "approximate")
    diagnostics["reason"] = diagnostics.reason.where(~made, reason)
    result["diagnostics"] = diagnostics
    across = result["across"].to_dataset().assign(pareto_k=k, joint_verdict="approximate", joint_reason=reason)
    across["verdict"], across["reason"] = xr.full_like(across.verdict, "approximate"), xr.full_like(across.reason, "")
    result["across"] = across.assign({name: np.nan * across[name] for name in ("r_hat", "ess_bulk", "ess_tail")})
    result.attrs["inference_method"] = "variational inference (SVI), a quick look"
    return result


def _tails(joint: Joint, shared: Arrays) -> dict[str, float]:
    """How far out in its prior each thing that the bins have in common lies; nothing without draws."""
    flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in shared.items()}
    made = np.all([np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in flat.values()], axis=0)
    if not made.any():
        return {}
    places = np.flatnonzero(made)[np.linspace(0, made.sum() - 1, TAIL_DRAWS).astype(int)]
    found = compiled(prior_tails, joint, {name: array[places] for name, array in flat.items()})
    return {name: float(value) for name, value in found.items()}


def _checked(
    joint: Joint, usable: np.ndarray, points: PointEstimate, draws: Draws, shared: Arrays, result: xr.DataTree
) -> list[Checked]:
    """How each pooling fares."""
    bins = result["diagnostics"].dataset.isel(q_bin=usable)
    q = bins.q.values.astype(float) if "q" in bins.coords else np.full(usable.size, np.nan)
    freedom = np.maximum(bins.points.values - len(points.solution.sd), 1)
    fit = Fit(joint, q, points, freedom, draws, shared)
    return [check_pooling(pooling, fit) for pooling in joint.all_poolings]


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
            attrs = describe(parameter) | (own if parameter.name in pooling.in_own_unit else {})
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


def _residuals(checked: list[Checked], usable: np.ndarray, units: dict[str, str], result: xr.DataTree) -> xr.Dataset:
    """Each bin's distance NAME from what its pooling says, NAME_law, and the bin's own value, freed from the pooling,
    NAME_own with its 95 % interval, NAME_own_lower and NAME_own_upper (q_bin)."""
    coords = {str(name): coord for name, coord in result["diagnostics"].coords.items() if coord.dims == ("q_bin",)}
    group = xr.Dataset(coords=coords)
    for one in checked:
        name = one.pooling.parameter
        arrays = {"": one.residual, "_law": one.common}
        arrays |= dict(zip(("_own", "_own_lower", "_own_upper"), one.own, strict=True))
        for suffix, array in arrays.items():
            whole = np.full(group.sizes["q_bin"], np.nan)
            whole[usable] = array
            group[name + suffix] = ("q_bin", whole, {"units": units[name]} if suffix else RESIDUAL)
    return group


def _in_words(spec: Any) -> Any:
    if isinstance(spec, Law):
        return spec.name
    return getattr(spec, "__name__", None) or (
        {key: _in_words(value) for key, value in spec.items()} if isinstance(spec, dict) else str(spec)
    )

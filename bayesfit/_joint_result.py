"""The result of a fit whose bins have parameters in common: that of single bins, and what they share."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from bayesfit._across import Link
from bayesfit._convergence import worst
from bayesfit._joint_svi import LARGEST_K
from bayesfit._laws import Law
from bayesfit._result import describe
from bayesfit._sample import FEWEST_DRAWS

Arrays = dict[str, np.ndarray]


def with_common(result: xr.DataTree, links: tuple[Link, ...], shared: Arrays, across: dict[str, Any]) -> xr.DataTree:
    """The result with what the bins have in common among its posterior: shared parameters lose q_bin, or have one value
    a group, and the laws' parameters join them; group `across` says how these have converged."""
    posterior = result["posterior"].dataset
    common = xr.Dataset()
    for link in links:
        common = common.merge(_common_of(link, shared, posterior))
    posterior = posterior.drop_vars([name for name in common.data_vars if name in posterior])
    result["posterior"] = posterior.merge(common, combine_attrs="no_conflicts").assign_attrs(posterior.attrs)
    result["across"] = _convergence_of(common)
    described = json.dumps({name: _in_words(spec) for name, spec in across.items()}, sort_keys=True)
    result.attrs["across"] = described
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
    result["across"] = result["across"].to_dataset().assign(pareto_k=k)
    result.attrs["inference_method"] = "variational inference (SVI), a quick look"
    return result


def _common_of(link: Link, shared: Arrays, posterior: xr.Dataset) -> xr.Dataset:
    """What one link's bins have in common (chain, draw), or (chain, draw, group)."""
    found = xr.Dataset(coords={name: posterior[name] for name in ("chain", "draw")})
    if link.kind == "shared":
        dims = ("chain", "draw") if link.groups is None else ("chain", "draw", f"{link.parameter}_group")
        found[link.parameter] = (dims, shared[link.parameter], posterior[link.parameter].attrs)
        return found if link.groups is None else found.assign_coords({dims[-1]: list(link.groups)})
    for parameter in link.parameters:
        if parameter.name in shared and np.nanstd(shared[parameter.name]) > 0:  # not fixed
            found[parameter.name] = (("chain", "draw"), shared[parameter.name], describe(parameter))
    return found


def _convergence_of(common: xr.Dataset) -> xr.Dataset:
    """R-hat and effective sample sizes of each parameter that bins have in common, the worst of its groups."""
    names = [str(name) for name in common.data_vars]
    rows = []
    for name in names:
        array = common[name].transpose(..., "chain", "draw").values
        series = array.reshape(-1, *array.shape[-2:])
        rows.append(worst(series) if series.shape[-1] >= FEWEST_DRAWS else (np.nan,) * 3)
    columns = np.array(rows).reshape(-1, 3).T
    group = xr.Dataset(
        {name: ("parameter", column) for name, column in zip(("r_hat", "ess_bulk", "ess_tail"), columns, strict=True)}
    )
    return group.assign_coords(parameter=np.array(names, dtype=object))


def _in_words(spec: Any) -> Any:
    if isinstance(spec, Law):
        return spec.name
    return getattr(spec, "__name__", None) or (
        {key: _in_words(value) for key, value in spec.items()} if isinstance(spec, dict) else str(spec)
    )

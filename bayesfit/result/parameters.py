"""The parameters of a fit in its result: what was inferred, what was fixed, and what the pipeline derives."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.diagnose.outcome import Outcome
from bayesfit.modelling.model import Model
from bayesfit.modelling.registry import get_pipeline
from bayesfit.posterior.prepare import Problem
from bayesfit.result.tree import described

DIMS = ("chain", "draw", "q_bin")

Values = dict[str, Float[np.ndarray, "q_bin chain draw"]]


def values_of(outcome: Outcome) -> Values:
    """The draws of every parameter; NaN where none was made, and the same value in all draws where it is fixed."""
    shape = (outcome.bins, outcome.settings.chains, outcome.settings.kept)
    values = dict(outcome.draws.values) or {name: np.full(shape, np.nan) for name in outcome.problem.parameters}
    for name, value in outcome.problem.fixed.items():
        values[name] = np.broadcast_to(value[..., None, None], shape).copy()
    return values


def posterior_group(parameters: xr.Dataset, derived: xr.Dataset) -> xr.Dataset:
    """The inferred parameters, which have draws, and the derived quantities."""
    inferred = {name: array for name, array in parameters.data_vars.items() if "draw" in array.dims}
    group = xr.Dataset(inferred).assign(derived.data_vars).reset_coords(drop=True)
    return group.transpose(*DIMS).assign_coords(
        chain=np.arange(group.sizes["chain"]), draw=np.arange(group.sizes["draw"])
    )


def parameters_of(problem: Problem, values: Values) -> xr.Dataset:
    """Every parameter with its description, in the model's order: (chain, draw, q_bin), or (q_bin) if not inferred."""
    fixed = _not_inferred(problem)
    order = dict.fromkeys([*(name for name in problem.parameters if name in values), *values])
    group = xr.Dataset()
    for name in order:
        array = xr.DataArray(np.moveaxis(values[name], 0, -1), dims=DIMS)
        if name in problem.parameters:
            array.attrs.update(described(problem.parameters[name]))
        group[name] = array.isel(chain=0, draw=0, drop=True) if name in fixed else array
    return group


def derived_from(parameters: xr.Dataset, curves: xr.Dataset, model: Model) -> xr.Dataset:
    """The quantities that the pipeline and the model derive from the draws, (chain, draw, q_bin)."""
    pipeline = curves.attrs.get("pipeline")
    derive = get_pipeline(pipeline).derive if pipeline else None
    known, found = of_bins_alone(curves), xr.Dataset()
    for own in filter(None, (derive, model.derive)):
        found = found.assign(own(parameters, known).data_vars)
    return found[[name for name, array in found.data_vars.items() if "draw" in array.dims]]


def distribution_from(parameters: xr.Dataset, curves: xr.Dataset, model: Model) -> dict[str, xr.Dataset]:
    """Group `distribution` (q_bin, point), where the model's parameters describe one."""
    if model.distribution is None:
        return {}
    return {"distribution": model.distribution(parameters, of_bins_alone(curves))}


def of_bins_alone(curves: xr.Dataset) -> xr.Dataset:
    """The curves with no coordinates of their bins but q and phi."""
    return curves.drop_vars([name for name in curves.coords if name not in ("q", "phi")])


def _not_inferred(problem: Problem) -> set[str]:
    """Parameters that are fixed by the user, or by a prior that is a point."""
    inferred = {*problem.posterior.names, *problem.posterior.marginal}
    return {name for name in problem.parameters if name not in inferred}

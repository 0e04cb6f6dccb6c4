"""The parameters of a fit in its result: what was inferred, what was fixed, and what the pipeline derives."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.diagnose.outcome import Outcome
from bayesfit.modelling.registry import get_pipeline
from bayesfit.posterior.prepare import Problem
from bayesfit.result.tree import described

DIMS = ("chain", "draw", "q_bin")

Values = dict[str, Float[np.ndarray, "q_bin chain draw"]]


def values_of(outcome: Outcome) -> Values:
    """The draws of every parameter; NaN where none was made, and the same value in all draws where it is fixed."""
    shape = (outcome.bins, outcome.settings.chains, outcome.settings.draws)
    values = dict(outcome.draws.values) or {name: np.full(shape, np.nan) for name in outcome.problem.parameters}
    for name, value in outcome.problem.fixed.items():
        values[name] = np.broadcast_to(value[..., None, None], shape).copy()
    return values


def of_fixed(problem: Problem, values: Values) -> xr.Dataset:
    """The value in each bin (q_bin) of the parameters that are not inferred."""
    fixed = _not_inferred(problem)
    return xr.Dataset({name: ("q_bin", array[:, 0, 0]) for name, array in values.items() if name in fixed})


def posterior_group(outcome: Outcome, values: Values) -> xr.Dataset:
    """Every inferred parameter, in the model's order, and the pipeline's derived quantities."""
    fixed = _not_inferred(outcome.problem)
    arrays = _described(outcome.problem, values)
    inferred = xr.Dataset({name: array for name, array in arrays.items() if name not in fixed})
    first = {name: array.isel(chain=0, draw=0, drop=True) for name, array in arrays.items() if name in fixed}
    group = inferred.assign(_derived(xr.Dataset(arrays | first), outcome.curves)).reset_coords(drop=True)
    return group.transpose(*DIMS).assign_coords(
        chain=np.arange(group.sizes["chain"]), draw=np.arange(group.sizes["draw"])
    )


def _not_inferred(problem: Problem) -> set[str]:
    """Parameters that are fixed by the user, or by a prior that is a point."""
    inferred = {*problem.posterior.names, *problem.posterior.marginal}
    return {name for name in problem.parameters if name not in inferred}


def _described(problem: Problem, values: Values) -> dict[str, xr.DataArray]:
    """Each parameter (chain, draw, q_bin) with its description, in the model's order."""
    order = dict.fromkeys([*(name for name in problem.parameters if name in values), *values])
    arrays = {name: xr.DataArray(np.moveaxis(values[name], 0, -1), dims=DIMS) for name in order}
    for name, array in arrays.items():
        if name in problem.parameters:
            array.attrs.update(described(problem.parameters[name]))
    return arrays


def _derived(parameters: xr.Dataset, curves: xr.Dataset) -> dict[str, xr.DataArray]:
    """The quantities that the pipeline derives from the draws (chain, draw, q_bin), if it derives any."""
    pipeline = curves.attrs.get("pipeline")
    derive = get_pipeline(pipeline).derive if pipeline else None
    if derive is None:
        return {}
    derived = derive(parameters, curves.drop_vars([name for name in curves.coords if name not in ("q", "phi")]))
    return {str(name): array for name, array in derived.data_vars.items() if "draw" in array.dims}

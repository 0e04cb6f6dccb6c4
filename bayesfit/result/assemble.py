"""Puts the outcome of a fit together: fitted curves, verdicts, derived quantities, and the tree that holds them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from bayesfit.data import describe as _describe
from bayesfit.data.curves import by_bin
from bayesfit.modelling.model_choice import source_of
from bayesfit.modelling.registry import get_pipeline
from bayesfit.modelling.settings import FitSettings, as_text
from bayesfit.posterior.prepare import Problem
from bayesfit.result.diagnostics import classical_fit, in_table, of_dataset, said_of, verdicts_of
from bayesfit.result.files import CONVENTION, describe, provenance, tree
from bayesfit.result.predict import BINS, check_groups, groups
from bayesfit.sample.draws import STATS, Draws
from bayesfit.sample.least_squares import PointEstimate
from bayesfit.sample.scheduler import CHAINS_PER_DEVICE

DIMS = ("chain", "draw", "q_bin")
OF_THE_INPUT = ("file", "sha256", "understood")  # attributes of the data that results keep under other names


def assemble(
    curves: xr.Dataset,
    problem: Problem,
    settings: FitSettings,
    usable: np.ndarray,
    keys: np.ndarray,
    points: PointEstimate | None,
    mode_potential: np.ndarray | None,
    draws: Draws | None,
) -> xr.DataTree:
    """The result of a fit; `keys`, `points`, the lowest potential that was seen (bin,) and `draws` are those of the
    `usable` bins only."""
    curves = by_bin(curves)
    count = curves.sizes["q_bin"]
    sampled = _whole(problem, draws, usable, count, settings)
    posterior = _posterior_group(problem, sampled, curves)
    pinned = {name: ("q_bin", values[:, 0, 0]) for name, values in sampled.items() if name in _pinned(problem)}
    said = said_of(problem, usable, draws, curves)
    verdicts = verdicts_of(problem, usable, keys, points, mode_potential, draws, said, curves, settings)
    diagnostics = in_table(verdicts, problem, curves).assign(_means(draws, usable, count))
    made = {
        "posterior": posterior,
        "sample_stats": _sample_stats(draws, usable, count, settings),
        "observed_data": curves[["g2"]],
        "constant_data": curves.drop_vars("g2").assign(pinned),
        "point_estimate": classical_fit(problem, usable, points, count),
        "fit_curve": said.band,
        "diagnostics": diagnostics.assign_attrs(of_dataset(verdicts, diagnostics, settings.noise, curves)),
        **groups(check_groups(settings.include), problem, usable, keys, sampled, curves),
    }
    return tree(made, curves, _attrs(curves, problem, settings))


def _means(draws: Draws | None, usable: np.ndarray, count: int) -> dict[str, Any]:
    """What it took to sample each bin, `escalation` in a word, and `thin`: transitions for each kept draw, 0 where
    none was made."""
    thin, adaptations = np.zeros((2, count), int)
    if draws is not None:
        thin[usable], adaptations[usable] = np.where(draws.done > 0, [draws.thin, draws.adaptations], 0)
    words = np.select([adaptations > 1, thin > 1, thin > 0], ["readapted", "longer", "none"], "")
    return {
        "thin": ("q_bin", thin, {"long_name": "transitions for each kept draw"}),
        "escalation": ("q_bin", words.astype(object), {"long_name": "means beyond the plain run that the bin needed"}),
    }


def _pinned(problem: Problem) -> set[str]:
    """Parameters that are not inferred: fixed by the user, or by a prior that is a point."""
    posterior = problem.posterior
    inferred = {*posterior.names, *posterior.marginal}
    return {name for name in problem.parameters if name not in inferred}


def _whole(
    problem: Problem, draws: Draws | None, usable: np.ndarray, count: int, settings: FitSettings
) -> dict[str, np.ndarray]:
    """Values (q_bin, chain, draw) of every parameter over all bins, NaN for those not sampled."""
    shape = (count, settings.chains, settings.draws)
    if draws is None or not draws.values:
        whole = {name: np.full(shape, np.nan) for name in problem.parameters}
    else:
        whole = {name: _over_all(values, usable, shape, np.nan) for name, values in draws.values.items()}
    for name, value in problem.fixed.items():
        whole[name] = np.broadcast_to(value[..., None, None], whole[name].shape).copy()
    return whole


def _over_all(array: np.ndarray, usable: np.ndarray, shape: tuple[int, ...], fill: Any) -> np.ndarray:
    """An array of the usable bins as one of all; the array itself where all are usable, since it may be large."""
    if len(usable) == shape[0]:
        return array
    whole = np.full(shape, fill, array.dtype)
    whole[usable] = array
    return whole


def _posterior_group(problem: Problem, sampled: dict[str, np.ndarray], curves: xr.Dataset) -> xr.Dataset:
    """Every inferred parameter, in the model's order, and the pipeline's derived quantities."""
    pinned = _pinned(problem)
    group, everything = xr.Dataset(), xr.Dataset()
    order = [name for name in problem.parameters if name in sampled]
    order += [name for name in sampled if name not in order]
    for name in order:
        array = xr.DataArray(np.moveaxis(sampled[name], 0, -1), dims=DIMS)
        if name in problem.parameters:
            array.attrs.update(describe(problem.parameters[name]))
        everything[name] = array.isel(chain=0, draw=0, drop=True) if name in pinned else array
        if name not in pinned:
            group[name] = array
    if pipeline := curves.attrs.get("pipeline"):
        derive = get_pipeline(pipeline).derive
        if derive is not None:
            derived = derive(everything, curves.drop_vars([n for n in curves.coords if n not in ("q", "phi")]))
            group = group.assign({name: array for name, array in derived.data_vars.items() if "draw" in array.dims})
    group = group.reset_coords(drop=True)
    return group.transpose(*DIMS).assign_coords(
        chain=np.arange(group.sizes["chain"]), draw=np.arange(group.sizes["draw"])
    )


def _sample_stats(draws: Draws | None, usable: np.ndarray, count: int, settings: FitSettings) -> xr.Dataset:
    """The sampler's statistics under the schema's names; where nothing was sampled, NaN, 0 or False."""
    shape = (count, settings.chains, settings.draws)
    made = {} if draws is None else draws.stats
    whole = {
        name: np.moveaxis(_over_all(made[name], usable, shape, fill) if name in made else np.full(shape, fill), 0, -1)
        for name, fill in STATS.items()
    }
    steps = whole["n_steps"]
    deepest = np.zeros(count, np.int32)
    if draws is not None:
        deepest[usable] = draws.tree_depth
    stats = {
        "lp": -whole.pop("potential"),
        **whole,
        "tree_depth": np.ceil(np.log2(steps + np.float32(1.0))).astype(np.int8),
        "reached_max_treedepth": (steps > 0) & (steps >= 2**deepest - 1),
    }
    coords = {"chain": np.arange(shape[1]), "draw": np.arange(shape[2])}
    return xr.Dataset({name: (DIMS, array) for name, array in stats.items()}, coords=coords)


def _attrs(curves: xr.Dataset, problem: Problem, settings: FitSettings) -> dict[str, Any]:
    model = problem.posterior.model
    kept = {f"data_{name}": value for name, value in curves.attrs.items() if name not in OF_THE_INPUT}
    return {
        "creator": "bayesfit",
        "inference_library": "numpyro",
        "model": model.name,
        "model_formula": model.formula,
        "model_source": source_of(model),
        "model_options": json.dumps(model.options),
        "convention": CONVENTION,
        "understood": "\n".join(_describe.describe(curves)),
        "input_file": curves.attrs.get("file", ""),
        "input_sha256": curves.attrs.get("sha256", ""),
        "settings": as_text(settings),
        "seed": settings.seed,
        "priors": {name: {"family": p.family, **p.values} for name, p in problem.priors.items()},
        "fixed": problem.fixed,
        "q_bins": curves.q_bin.values,
        "chains_per_device": CHAINS_PER_DEVICE,
        "bin_width": BINS,
        **provenance(),
        **kept,
    }

"""Puts the outcome of a fit together: fitted curves, verdicts, derived quantities, and the tree that holds them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from bayesfit._check import over_all, speckle_evidence
from bayesfit._curves import by_bin, error_audit
from bayesfit._devices import take
from bayesfit._draws import STATS, Draws
from bayesfit._noise import NOISES
from bayesfit._point import PointEstimate, with_scaled_errors
from bayesfit._predict import BINS, check_groups, fitted, groups
from bayesfit._prepare import Problem
from bayesfit._registry import get_pipeline, source_of
from bayesfit._result import CONVENTION, describe, provenance, tree
from bayesfit._sample import LANES
from bayesfit._settings import FitSettings, as_text
from bayesfit._verdict import NUMBERS, Evidence, Verdict, judge, unusable

QUANTILES = 65
DIMS = ("chain", "draw", "q_bin")


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
    band, scores = _fitted(problem, usable, draws, curves)
    verdicts = _verdicts(problem, usable, points, mode_potential, draws, band, scores, curves, settings)
    diagnostics = _diagnostics(verdicts, problem, curves).assign(_means(draws, usable, count))
    made = {
        "posterior": posterior,
        "sample_stats": _sample_stats(draws, usable, count, settings),
        "observed_data": curves[["g2"]],
        "constant_data": curves.drop_vars("g2").assign(pinned),
        "point_estimate": classical_fit(problem, usable, points, count),
        "fit_curve": band,
        "diagnostics": diagnostics.assign_attrs(_pooled(diagnostics, settings.noise, curves)),
        **groups(check_groups(settings.include), problem, usable, keys, sampled, curves),
    }
    return tree(made, curves, _attrs(curves, problem, settings))


def _pooled(diagnostics: xr.Dataset, noise: str, curves: xr.Dataset) -> dict[str, str]:
    """What the residuals of all bins together say of the noise model."""
    refuted, to_try = over_all(diagnostics, noise)
    suits = to_try and to_try != noise and (curves.attrs.get("delays", 1) or not NOISES[to_try].delays)
    return {"refuted": refuted, "noise_to_try": to_try if suits else ""}


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


def classical_fit(problem: Problem, usable: np.ndarray, points: PointEstimate | None, count: int) -> xr.Dataset:
    """The least-squares fit: each parameter with its standard error (scaled by the residuals where the noise has a
    scale of its own), chi2 and whether the solver converged."""
    if points is None:
        return xr.Dataset()
    solution = with_scaled_errors(points, problem.posterior, problem.points[usable]).solution
    arrays = {name: solution.values[name] for name in solution.sd}
    arrays |= {f"{name}_sd": sd for name, sd in solution.sd.items()}
    arrays |= {"chi2": solution.chi2, "converged": solution.converged.astype(float)}
    variables: dict[str, Any] = {}
    for name, values in arrays.items():
        whole = np.full(count, np.nan)
        whole[usable] = values
        parameter = problem.parameters.get(name.removesuffix("_sd"))
        variables[name] = ("q_bin", whole, describe(parameter) if parameter else {})
    variables["converged"] = ("q_bin", np.nan_to_num(variables["converged"][1]).astype(bool))
    return xr.Dataset(variables)


def _fitted(
    problem: Problem, usable: np.ndarray, draws: Draws | None, curves: xr.Dataset
) -> tuple[xr.Dataset, dict[int, np.ndarray]]:
    """Posterior mean curve, its central 95 % band and the noise's sigma at the data's delays; and for each place among
    the usable bins the normal scores (draw, point) of its valid points."""
    count, length = curves.sizes["q_bin"], curves.sizes["tau"]
    arrays, scores = np.full((4, count, length), np.nan), {}
    if draws is not None and draws.values:
        for place, (summaries, score) in fitted(problem, usable, draws.values, draws.done):
            arrays[:, usable[place]] = summaries[:, :length]
            scores[place] = score[:, :length][:, curves.valid.values[usable[place]]]
    names = ("mean", "lower", "upper", "sigma")
    return xr.Dataset({name: (("q_bin", "tau"), array) for name, array in zip(names, arrays, strict=True)}), scores


def _verdicts(
    problem: Problem,
    usable: np.ndarray,
    points: PointEstimate | None,
    mode_potential: np.ndarray | None,
    draws: Draws | None,
    band: xr.Dataset,
    scores: dict[int, np.ndarray],
    curves: xr.Dataset,
    settings: FitSettings,
) -> list[Verdict]:
    """The verdict of every bin of the dataset, in order."""
    needed = len(problem.posterior.curve_names) + len(problem.posterior.marginal)
    verdicts = [unusable(int(points), needed) for points in problem.points]
    if points is None or mode_potential is None or draws is None:
        return verdicts
    names = [*problem.posterior.names, *problem.posterior.marginal]
    prior = _prior_quantiles(problem, usable, points)
    evidence = _speckle_evidence(problem, usable, scores, curves)
    classical = classical_fit(problem, usable, points, len(problem.points))
    for place, bin in enumerate(usable):
        made = int(draws.done[place])
        valid = curves.valid.values[bin]
        residual = (curves.g2.values[bin] - band["mean"].values[bin])[valid] / curves.g2_err.values[bin][valid]
        stats = {name: array[place][:, :made] for name, array in draws.stats.items()}
        verdicts[bin] = judge(
            Evidence(
                draws={name: draws.values[name][place][:, :made] for name in names} if draws.values else {},
                convergence=tuple(draws.convergence[place]),
                potential=stats.get("potential", np.zeros((1, 0))),
                n_steps=stats.get("n_steps", np.zeros((1, 0))),
                diverging=stats.get("diverging", np.zeros((1, 0))),
                jumped=stats.get("jumped", np.zeros((1, 0))),
                mode_potential=float(mode_potential[place]),
                sampled=len(problem.posterior.names),
                prior_quantiles={name: quantiles[place] for name, quantiles in prior.items()},
                noise=problem.posterior.noise.name,
                scores=scores.get(place, np.zeros((0, int(valid.sum())))),
                speckle_evidence=float(evidence[bin]),
                chi2=float(np.sum(residual**2)),
                tau=curves.tau.values[valid],
                delays=bool(curves.attrs.get("delays", 1)),
                free=needed,
                contrast=_number(classical, "contrast", bin),
                contrast_sd=_number(classical, "contrast_sd", bin),
                max_tree_depth=int(draws.tree_depth[place]),
                wanted=settings.draws,
            )
        )
    return verdicts


def _speckle_evidence(
    problem: Problem, usable: np.ndarray, scores: dict[int, np.ndarray], curves: xr.Dataset
) -> np.ndarray:
    """What `speckle_evidence` says of the mean scores of each bin (q_bin,), NaN for data without delays."""
    if not curves.attrs.get("delays", 1):
        return np.full(curves.sizes["q_bin"], np.nan)
    valid, means = curves.valid.values, np.zeros(curves.valid.shape)
    tau = problem.bins.tau[0, : valid.shape[1]]
    for place, score in scores.items():
        means[usable[place], valid[usable[place]]] = score.mean(axis=0)
    found = [speckle_evidence(means[i : i + 64], valid[i : i + 64], tau) for i in range(0, len(means), 64)]
    return np.concatenate(found)


def _number(group: xr.Dataset, name: str, bin: int) -> float:
    return float(group[name].values[bin]) if name in group else float("nan")


def _prior_quantiles(problem: Problem, usable: np.ndarray, points: PointEstimate) -> dict[str, np.ndarray]:
    """`QUANTILES` evenly spaced quantiles (bin, quantile) of the prior of every parameter of the curve, or of that with
    which it is compared."""
    posterior, bins = problem.posterior, take(problem.bins, usable)
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    sampled = {name: np.quantile(values, levels, axis=1).T for name, values in points.prior_values.items()}
    sampled |= {name: posterior.amplitude_prior_quantiles(name, levels, bins) for name in posterior.marginal}
    compared = {name: prior.compared[usable] for name, prior in problem.priors.items() if prior.compared is not None}
    return sampled | {name: np.quantile(draws, levels, axis=1).T for name, draws in compared.items()}


def _diagnostics(verdicts: list[Verdict], problem: Problem, curves: xr.Dataset) -> xr.Dataset:
    """One row a bin: verdict, reason, and the numbers behind them."""
    group = xr.Dataset(
        {
            "verdict": ("q_bin", np.array([v.name for v in verdicts], dtype=object)),
            "reason": ("q_bin", np.array([v.reason for v in verdicts], dtype=object)),
            "points": ("q_bin", problem.points),
            **error_audit(curves),
        }
    )
    for name, words in NUMBERS.items():
        group[name] = ("q_bin", np.array([v.numbers[name] for v in verdicts]), {"long_name": words})
    group["noise_to_try"] = (
        "q_bin",
        np.array([v.noise_to_try for v in verdicts], dtype=object),
        {"long_name": "noise model to try where the residuals refute the one chosen"},
    )
    names = [*problem.posterior.curve_names, *problem.posterior.marginal]
    contractions = [[v.contractions.get(name, np.nan) for name in names] for v in verdicts]
    group["contraction"] = (
        ("q_bin", "parameter"),
        np.array(contractions).reshape(len(verdicts), -1),
        {"long_name": "1 - variance of the posterior over that of the prior"},
    )
    return group.assign_coords(parameter=np.array(names, dtype=object))


def _attrs(curves: xr.Dataset, problem: Problem, settings: FitSettings) -> dict[str, Any]:
    model = problem.posterior.model
    kept = {f"data_{name}": value for name, value in curves.attrs.items() if name not in ("file", "sha256")}
    return {
        "creator": "bayesfit",
        "inference_library": "numpyro",
        "model": model.name,
        "model_formula": model.formula,
        "model_source": source_of(model),
        "model_options": json.dumps(model.options),
        "convention": CONVENTION,
        "input_file": curves.attrs.get("file", ""),
        "input_sha256": curves.attrs.get("sha256", ""),
        "settings": as_text(settings),
        "seed": settings.seed,
        "priors": {name: {"family": p.family, **p.values} for name, p in problem.priors.items()},
        "fixed": problem.fixed,
        "q_bins": curves.q_bin.values,
        "lane_width": LANES,
        "bin_width": BINS,
        **provenance(),
        **kept,
    }

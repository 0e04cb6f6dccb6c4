"""The result of a fit: the groups of the fitted bins, put back among all bins of the dataset, in one tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.hardware import lanes_per_device, lanes_together
from bayesfit.data import describe as _describe
from bayesfit.diagnose.covariance_check import sd_ratios
from bayesfit.diagnose.one_shape import p_one_shape
from bayesfit.diagnose.outcome import Outcome
from bayesfit.diagnose.verdict import Verdict
from bayesfit.modelling.model_choice import source_hash, source_of
from bayesfit.modelling.options import without_folders
from bayesfit.modelling.settings import FitSettings, as_text
from bayesfit.posterior.prepare import Problem
from bayesfit.result.diagnostics import diagnostics_of, of_all_bins, of_dataset
from bayesfit.result.joint_result import attributes_of, with_common
from bayesfit.result.on_request import Drawn, check_groups, group_of
from bayesfit.result.parameters import derived_from, distribution_from, parameters_of, posterior_group, values_of
from bayesfit.result.predictions import BINS, predictions_of
from bayesfit.result.tree import Groups, build, described, in_all_bins, provenance
from bayesfit.result.verdicts import verdicts_of
from bayesfit.sample.draws import STATS

DIMS = ("chain", "draw", "q_bin")
CONVENTION = "rates are Gamma in 1/s: g2 = baseline + contrast * |g1|^2 with g1 = exp(-(rate tau)^beta)"
FILL = {"diagnostics": {"verdict": "unusable_data", "tau_min_to_try": 0.0}}  # in bins that were not fitted
OF_THE_INPUT = ("file", "sha256", "understood")  # attributes of the data that results keep under other names


def assemble(outcome: Outcome, problem: Problem, curves: xr.Dataset) -> xr.DataTree:
    """The result of a fit, from the outcome in those bins of `problem` and `curves` that have enough points."""
    places, count = problem.usable, len(problem.points)
    curves = curves.assign_attrs(file=Path(curves.attrs.get("file", "")).name)  # folders are the user's own
    values = values_of(outcome)
    own = parameters_of(outcome.problem, values)
    parameters = in_all_bins(own, places, count)
    model = problem.posterior.model
    derived = derived_from(parameters, curves, model).isel(q_bin=places, missing_dims="ignore")
    verdicts, groups = _of_fitted(outcome, values)
    groups = {"posterior": posterior_group(own, derived), **groups}
    groups = with_common(groups, outcome) if outcome.together else groups
    groups = {name: in_all_bins(group, places, count, FILL.get(name)) for name, group in groups.items()}
    made = {
        "posterior": groups["posterior"],
        "sample_stats": groups["sample_stats"],
        "observed_data": curves[["g2"]],
        "constant_data": curves.drop_vars("g2").assign(_fixed(parameters, problem)),
        **groups,
        "diagnostics": _of_all_bins(groups, verdicts, problem, curves, outcome.together is not None),
        **distribution_from(parameters, curves, model),
    }
    attrs = _attributes(curves, problem, outcome.settings)
    return build(made, curves, attrs, attributes_of(outcome.together) if outcome.together else {})


def _of_fitted(
    outcome: Outcome, values: dict[str, Float[np.ndarray, "q_bin chain draw"]]
) -> tuple[list[Verdict], Groups]:
    """The verdicts on the fitted bins, and all groups of these bins but the posterior."""
    predictions = predictions_of(outcome)
    ratios = sd_ratios(outcome)
    verdicts = verdicts_of(outcome, predictions, ratios)
    drawn = Drawn(outcome.problem, outcome.curves, outcome.keys, values)
    return verdicts, {
        "sample_stats": _sample_stats(outcome),
        "point_estimate": least_squares_group(outcome),
        "fit_curve": predictions.band,
        "diagnostics": diagnostics_of(outcome, verdicts, ratios),
        **{name: group_of(name, drawn) for name in check_groups(outcome.settings.include)},
    }


def _of_all_bins(
    groups: Groups, verdicts: list[Verdict], problem: Problem, curves: xr.Dataset, pooled: bool
) -> xr.Dataset:
    """The diagnostics of all bins, with the advice from all bins together as attributes."""
    diagnostics = of_all_bins(groups["diagnostics"], problem, curves)
    if np.isfinite(p := _p_one_shape(groups["fit_curve"], curves)):
        diagnostics = diagnostics.assign_attrs(p_one_shape=p)
    noise, delays = problem.posterior.noise.name, bool(curves.attrs.get("delays", 1))
    together = of_dataset(diagnostics, verdicts, noise, delays, pooled)
    return diagnostics.assign_attrs(together)


def _p_one_shape(band: xr.Dataset, curves: xr.Dataset) -> float:
    """The probability that the residuals of all bins are so much alike, if it is noise that makes them."""
    mean, sigma = band["mean"].values, band["sigma"].values
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.where(curves.valid.values, (curves.g2.values - mean) / sigma, np.nan)
    return p_one_shape(residual, mean, curves.tau.values)


def _fixed(parameters: xr.Dataset, problem: Problem) -> dict[str, Any]:
    """The values of the parameters that are not inferred. Those that the user fixed also have one in bins that were not
    fitted."""
    fixed = {str(name): array.values for name, array in parameters.data_vars.items() if "draw" not in array.dims}
    shape = problem.points.shape
    fixed |= {name: np.broadcast_to(problem.fixed[name], shape).copy() for name in fixed if name in problem.fixed}
    return {name: ("q_bin", values) for name, values in fixed.items()}


def _sample_stats(outcome: Outcome) -> xr.Dataset:
    """The sampler's statistics under the names of ArviZ's schema; NaN, 0 or False where a draw was not made."""
    shape = (outcome.bins, outcome.settings.chains, outcome.settings.kept)
    made = outcome.draws.stats
    stats = {
        name: np.moveaxis(made[name] if name in made else np.full(shape, fill), 0, -1) for name, fill in STATS.items()
    }
    steps, deepest = stats["n_steps"], outcome.draws.tree_depth.astype(np.int32)
    variables = {
        "lp": -stats.pop("potential"),
        **stats,
        "tree_depth": np.ceil(np.log2(steps + np.float32(1.0))).astype(np.int8),
        "reached_max_treedepth": (steps > 0) & (steps >= 2**deepest - 1),
    }
    coords = {"chain": np.arange(shape[1]), "draw": np.arange(shape[2])}
    return xr.Dataset({name: (DIMS, array) for name, array in variables.items()}, coords=coords)


def least_squares_group(outcome: Outcome) -> xr.Dataset:
    """The least-squares fit: each parameter with its standard error (scaled by the residuals where the noise has a
    scale), chi2 and whether the solver converged."""
    points = outcome.least_squares
    if points is None:
        return xr.Dataset(coords={"q_bin": np.zeros(0, int)})
    solution = points.solution
    arrays = {name: solution.values[name] for name in solution.sd}
    arrays |= {f"{name}_sd": sd for name, sd in solution.sd.items()}
    parameters = outcome.problem.parameters
    of = {name: parameters.get(name.removesuffix("_sd")) for name in arrays}
    attrs = {name: described(parameter) if parameter else {} for name, parameter in of.items()}
    fit = {name: ("q_bin", np.asarray(array, float), attrs[name]) for name, array in arrays.items()}
    converged = np.asarray(solution.converged).astype(bool)
    return xr.Dataset({**fit, "chi2": ("q_bin", np.asarray(solution.chi2, float)), "converged": ("q_bin", converged)})


def _attributes(curves: xr.Dataset, problem: Problem, settings: FitSettings) -> dict[str, Any]:
    """The attributes of the tree: model, settings, priors, data, and the versions of the packages."""
    model = problem.posterior.model
    return {
        "creator": "bayesfit",
        "inference_library": "numpyro",
        "model": model.name,
        "model_formula": model.formula,
        "model_source": Path(source_of(model)).name,
        "model_sha256": source_hash(model),
        "model_options": json.dumps(without_folders(model.options)),
        "convention": CONVENTION,
        "understood": "\n".join(_describe.describe(curves)),
        "input_file": curves.attrs["file"],
        "input_sha256": curves.attrs.get("sha256", ""),
        "settings": as_text(settings),
        "seed": settings.seed,
        "priors": {name: {"family": p.family, **p.values} for name, p in problem.priors.items()},
        "fixed": problem.fixed,
        "q_bins": curves.q_bin.values,
        "chains_per_device": lanes_per_device(),
        "chains_together": lanes_together(),
        "bin_width": BINS,
        **provenance(),
        **{f"data_{name}": value for name, value in curves.attrs.items() if name not in OF_THE_INPUT},
    }

"""The verdict of every bin of a fit, the table that holds them, and what all bins together say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from bayesfit.compute.devices import take
from bayesfit.data.curves import error_audit
from bayesfit.diagnose.advice import over_all
from bayesfit.diagnose.first_delays import first_good_delays
from bayesfit.diagnose.predictive_checks import speckle_log_ratio
from bayesfit.diagnose.prior_conflict import in_most_bins
from bayesfit.diagnose.verdict import NUMBERS, Findings, Verdict, judge, unusable
from bayesfit.modelling.settings import FitSettings
from bayesfit.posterior.prepare import Problem
from bayesfit.result.files import describe
from bayesfit.result.predict import fitted
from bayesfit.sample.draws import Draws
from bayesfit.sample.least_squares import PointEstimate, with_scaled_errors

QUANTILES = 65


class Fitted(NamedTuple):
    """What draws say of the data. `band`: posterior mean curve, its central 95 % band and the noise's sigma at the
    data's delays; `scores`: place among the usable bins to normal scores (draw, point) of the bin's valid points;
    `tails`: place to name to how far out in its prior each parameter of the curve lies."""

    band: xr.Dataset
    scores: dict[int, np.ndarray]
    tails: dict[int, dict[str, float]]


def said_of(problem: Problem, usable: np.ndarray, draws: Draws | None, curves: xr.Dataset) -> Fitted:
    """What the draws say of the data."""
    count, length = curves.sizes["q_bin"], curves.sizes["tau"]
    arrays = np.full((4, count, length), np.nan)
    scores, tails = {}, {}
    if draws is not None and draws.values:
        for place, (summaries, score, tail) in fitted(problem, usable, draws.values, draws.done):
            arrays[:, usable[place]] = summaries[:, :length]
            scores[place] = score[:, :length][:, curves.valid.values[usable[place]]]
            tails[place] = {name: float(p) for name, p in tail.items()}
    names = ("mean", "lower", "upper", "sigma")
    band = xr.Dataset({name: (("q_bin", "tau"), array) for name, array in zip(names, arrays, strict=True)})
    return Fitted(band, scores, tails)


def verdicts_of(
    problem: Problem,
    usable: np.ndarray,
    keys: np.ndarray,
    points: PointEstimate | None,
    mode_potential: np.ndarray | None,
    draws: Draws | None,
    said: Fitted,
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
    delays = bool(curves.attrs.get("delays", 1))
    log_ratio = _speckle_log_ratio(problem, usable, said.scores, curves)
    tau_min = first_good_delays(problem, usable, keys, said.scores if delays else {})
    classical = classical_fit(problem, usable, points, len(problem.points))
    for place, bin in enumerate(usable):
        made = int(draws.done[place])
        valid = curves.valid.values[bin]
        residual = (curves.g2.values[bin] - said.band["mean"].values[bin])[valid] / curves.g2_err.values[bin][valid]
        stats = {name: array[place][:, :made] for name, array in draws.stats.items()}
        verdicts[bin] = judge(
            Findings(
                draws={name: draws.values[name][place][:, :made] for name in names} if draws.values else {},
                convergence=tuple(draws.convergence[place]),
                potential=stats.get("potential", np.zeros((1, 0))),
                n_steps=stats.get("n_steps", np.zeros((1, 0))),
                diverging=stats.get("diverging", np.zeros((1, 0))),
                independence_accepted=stats.get("independence_accepted", np.zeros((1, 0))),
                mode_potential=float(mode_potential[place]),
                sampled=len(problem.posterior.names),
                prior_quantiles={name: quantiles[place] for name, quantiles in prior.items()},
                prior_tails=said.tails.get(place, {}),
                noise=problem.posterior.noise.name,
                scores=said.scores.get(place, np.zeros((0, int(valid.sum())))),
                speckle_log_ratio=float(log_ratio[bin]),
                chi2=float(np.sum(residual**2)),
                tau=curves.tau.values[valid],
                delays=delays,
                tau_min=float(tau_min[place]),
                free=needed,
                contrast=_number(classical, "contrast", bin),
                contrast_sd=_number(classical, "contrast_sd", bin),
                max_tree_depth=int(draws.tree_depth[place]),
                wanted=settings.draws,
            )
        )
    return verdicts


def _speckle_log_ratio(
    problem: Problem, usable: np.ndarray, scores: dict[int, np.ndarray], curves: xr.Dataset
) -> np.ndarray:
    """What `speckle_log_ratio` says of the mean scores of each bin (q_bin,), NaN for data without delays."""
    if not curves.attrs.get("delays", 1):
        return np.full(curves.sizes["q_bin"], np.nan)
    valid, means = curves.valid.values, np.zeros(curves.valid.shape)
    tau = problem.bins.tau[0, : valid.shape[1]]
    for place, score in scores.items():
        means[usable[place], valid[usable[place]]] = score.mean(axis=0)
    found = [speckle_log_ratio(means[i : i + 64], valid[i : i + 64], tau) for i in range(0, len(means), 64)]
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


def in_table(verdicts: list[Verdict], problem: Problem, curves: xr.Dataset) -> xr.Dataset:
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
        np.array([v.advice.noise for v in verdicts], dtype=object),
        {"long_name": "noise model to try where the residuals refute the one chosen"},
    )
    group["tau_min_to_try"] = (
        "q_bin",
        np.array([v.advice.tau_min for v in verdicts]),
        {"long_name": "smallest delay to keep where only the first ones are off, else 0", "units": "s"},
    )
    names = [*problem.posterior.curve_names, *problem.posterior.marginal]
    for name, of_one, words in (
        ("contraction", [v.contractions for v in verdicts], "1 - variance of the posterior over that of the prior"),
        ("prior_tail", [v.prior_tails for v in verdicts], "probability under its prior of a value as far out"),
    ):
        rows = np.array([[one.get(parameter, np.nan) for parameter in names] for one in of_one])
        group[name] = (("q_bin", "parameter"), rows.reshape(len(verdicts), -1), {"long_name": words})
    return group.assign_coords(parameter=np.array(names, dtype=object))


def of_dataset(
    verdicts: list[Verdict], diagnostics: xr.Dataset, noise: str, curves: xr.Dataset
) -> dict[str, str | float]:
    """What all bins together say of noise model, range of delays and priors, and in one line what to try."""
    refuted, found = over_all(diagnostics, noise, bool(curves.attrs.get("delays", 1)))
    judged = sum(verdict.name != "unusable_data" for verdict in verdicts)
    conflict = in_most_bins([verdict.conflicts for verdict in verdicts], judged)
    words = "; ".join(filter(None, (refuted, found.words, conflict)))
    return {"refuted": refuted, "noise_to_try": found.noise, "tau_min_to_try": found.tau_min, "advice": words}


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

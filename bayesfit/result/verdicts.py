"""Collects what is known of each bin after a fit, and asks for its verdict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bayesfit.diagnose.contraction import LEVELS, prior_quantiles
from bayesfit.diagnose.covariance_check import SdRatios
from bayesfit.diagnose.findings import Findings
from bayesfit.diagnose.first_delays import first_good_delays
from bayesfit.diagnose.outcome import Outcome
from bayesfit.diagnose.predictive_checks import speckle_log_ratio
from bayesfit.diagnose.verdict import Verdict, judge
from bayesfit.result.joint_result import in_prior
from bayesfit.result.predictions import Predictions
from bayesfit.sample.least_squares import PointEstimate

AT_ONCE = 64  # bins, in arrays of log likelihoods
DIMS_OF_DRAWS = 2  # chain and draw; what groups of bins have in common has a third

OfBins = Float[np.ndarray, " q_bin"]


class _OfAllBins(NamedTuple):
    """What is known of all bins at once: the delays, which points are valid, and whether these are delays; evenly
    spaced quantiles of each parameter's prior, the log ratio of `speckle_log_ratio`, the first delays that are good,
    the sum of squared residuals from the posterior mean curve, and the least-squares contrast with its standard error,
    what a measured covariance says against theory's; of a joint fit, draws of what all bins have in common, the ranges
    of its prior, and the parameters that follow from laws, whatever their own range."""

    tau: Float[np.ndarray, " tau"]
    valid: Bool[np.ndarray, "q_bin tau"]
    delays: bool
    prior_quantiles: dict[str, Float[np.ndarray, "q_bin quantile"]]
    original_quantiles: dict[str, Float[np.ndarray, "q_bin quantile"]]
    log_ratio: OfBins
    tau_min: OfBins
    chi2: OfBins
    contrast: OfBins
    contrast_sd: OfBins
    errors_disputed: list[str]
    in_common: dict[str, Float[np.ndarray, "chain draw"]]
    ranges: dict[str, Float[np.ndarray, 2]]
    of_laws: tuple[str, ...]


def verdicts_of(outcome: Outcome, predictions: Predictions, ratios: SdRatios) -> list[Verdict]:
    """The verdict on every bin, in order."""
    points = outcome.least_squares
    if points is None:
        return []
    solution, unknown = points.solution, np.full(outcome.bins, np.nan)
    fitted = "contrast" in solution.sd
    (own, original), (in_common, ranges, of_laws) = _prior_quantiles(outcome, points), _in_common(outcome)
    found = _OfAllBins(
        outcome.curves.tau.values,
        outcome.curves.valid.values,
        _delays(outcome),
        own,
        original,
        _speckle_log_ratio(outcome, predictions),
        first_good_delays(outcome.problem, outcome.keys, predictions.scores if _delays(outcome) else {}),
        _chi2(outcome, predictions),
        np.asarray(solution.values["contrast"]) if fitted else unknown,
        np.asarray(solution.sd["contrast"]) if fitted else unknown,
        ratios.words,
        in_common,
        ranges,
        of_laws,
    )
    return [judge(_findings(outcome, predictions, found, place)) for place in range(outcome.bins)]


def _delays(outcome: Outcome) -> bool:
    """Whether the data are of delays, not of any x."""
    return bool(outcome.curves.attrs.get("delays", 1))


def _findings(outcome: Outcome, predictions: Predictions, found: _OfAllBins, place: int) -> Findings:
    """The findings of the bin at this place."""
    draws, posterior = outcome.draws, outcome.problem.posterior
    made, valid = int(draws.done[place]), found.valid[place]
    names = [*posterior.names, *posterior.marginal]
    nothing = np.zeros((1, 0))
    stats = {
        name: draws.stats[name][place][:, :made] if name in draws.stats else nothing
        for name in ("potential", "n_steps", "diverging", "independence_accepted")
    }
    stands_for = posterior.model.stands_for
    own = {name: ends for name, ends in predictions.ranges.get(place, {}).items() if name not in found.of_laws}
    return Findings(
        draws={name: draws.values[name][place][:, :made] for name in names} if draws.values else {},
        convergence=tuple(draws.convergence[place]),
        **stats,
        mode_potential=float(outcome.lowest_potential[place]),
        sampled=len(posterior.names),
        prior_quantiles={name: quantiles[place] for name, quantiles in found.prior_quantiles.items()},
        original_quantiles={name: quantiles[place] for name, quantiles in found.original_quantiles.items()},
        prior_tails=predictions.tails.get(place, {}),
        prior_ranges={**own, **found.ranges},
        in_common={name: values[:, :made] for name, values in found.in_common.items()},
        noise=posterior.noise.name,
        scores=predictions.scores.get(place, np.zeros((0, int(valid.sum())))),
        speckle_log_ratio=float(found.log_ratio[place]),
        theory_change=0.0 if outcome.theory_change is None else float(outcome.theory_change[place]),
        errors_disputed=found.errors_disputed[place],
        learnt="" if stands_for is None else stands_for.approximate,
        chi2=float(found.chi2[place]),
        tau=found.tau[valid],
        delays=found.delays,
        tau_min=float(found.tau_min[place]),
        free=outcome.problem.needed,
        contrast=float(found.contrast[place]),
        contrast_sd=float(found.contrast_sd[place]),
        max_tree_depth=int(draws.tree_depth[place]),
        wanted=outcome.settings.kept,
        units={name: parameter.unit for name, parameter in outcome.problem.parameters.items()},
        unjudged=outcome.problem.unjudged,
    )


def _in_common(
    outcome: Outcome,
) -> tuple[dict[str, Float[np.ndarray, "chain draw"]], dict[str, Float[np.ndarray, 2]], tuple[str, ...]]:
    """The last three fields of `_OfAllBins`; empty where bins are fitted by themselves."""
    together = outcome.together
    if together is None:
        return {}, {}, ()
    draws = {name: values for name, values in together.draws.items() if values.ndim == DIMS_OF_DRAWS}
    _, ranges = in_prior(together)
    of_laws = tuple(pooling.parameter for pooling in together.joint.all_poolings if not pooling.needs_prior)
    return draws, {name: ends for name, ends in ranges.items() if name in draws}, of_laws


def _chi2(outcome: Outcome, predictions: Predictions) -> OfBins:
    """The sum of squared residuals of each bin from its posterior mean curve, in stated errors; where errors are those
    of counted photons, of the residuals as white as the noise model makes them."""
    if outcome.problem.counting is not None:
        scores, none = predictions.scores, np.full((1, 1), np.nan)
        return np.array([np.sum(scores.get(place, none).mean(axis=0) ** 2) for place in range(outcome.bins)])
    curves = outcome.curves
    rows = zip(
        curves.g2.values, predictions.band["mean"].values, curves.g2_err.values, curves.valid.values, strict=True
    )
    return np.array([np.sum(((g2 - mean)[valid] / err[valid]) ** 2) for g2, mean, err, valid in rows])


def _speckle_log_ratio(outcome: Outcome, predictions: Predictions) -> OfBins:
    """The `speckle_log_ratio` of the mean scores of each bin; NaN for data without delays."""
    if not _delays(outcome):
        return np.full(outcome.bins, np.nan)
    valid = outcome.curves.valid.values
    means = np.zeros(valid.shape)
    tau = outcome.problem.bins.tau[0, : valid.shape[1]]
    for place, score in predictions.scores.items():
        means[place, valid[place]] = score.mean(axis=0)
    parts = (slice(first, first + AT_ONCE) for first in range(0, len(means), AT_ONCE))
    return np.concatenate([speckle_log_ratio(means[part], valid[part], tau) for part in parts])


def _prior_quantiles(
    outcome: Outcome, points: PointEstimate
) -> tuple[dict[str, Float[np.ndarray, "q_bin quantile"]], dict[str, Float[np.ndarray, "q_bin quantile"]]]:
    """Evenly spaced quantiles of the prior of every parameter of the curve; and of the original prior, of those whose
    prior was made from other data."""
    problem, posterior = outcome.problem, outcome.problem.posterior
    sampled = {name: prior_quantiles(values) for name, values in points.prior_values.items()}
    sampled |= {name: posterior.amplitude_prior_quantiles(name, LEVELS, problem.bins) for name in posterior.marginal}
    compared = {name: prior.compared for name, prior in problem.priors.items() if prior.compared is not None}
    found = {name: prior_quantiles(np.atleast_2d(draws)) for name, draws in compared.items()}
    return sampled, {name: np.broadcast_to(of, (outcome.bins, of.shape[1])) for name, of in found.items()}

"""The table of diagnostics: verdict, reason and numbers of every bin, and what all bins together say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from bayesfit.data.error_audit import error_audit
from bayesfit.diagnose.advice import advise_dataset
from bayesfit.diagnose.covariance_check import SdRatios
from bayesfit.diagnose.outcome import Outcome
from bayesfit.diagnose.pooling_advice import advise_pooling
from bayesfit.diagnose.prior_conflict import in_most_bins
from bayesfit.diagnose.prior_range import NEAR_END
from bayesfit.diagnose.verdict import NUMBERS, Verdict, unusable
from bayesfit.posterior.prepare import Problem
from bayesfit.result.tree import bin_coordinates
from bayesfit.sample.draws import Draws

OF_ADVICE = {
    "noise_to_try": {"long_name": "noise model to try where the residuals refute the one chosen"},
    "tau_min_to_try": {"long_name": "smallest delay to keep where only the first ones are off, else 0", "units": "s"},
}
OF_CORRECTION = {
    "true_runs": "runs of the simulator at draws of the surrogate's posterior",
    "pareto_k": "Pareto k of the weights of these draws",
    "weights_ess": "effective sample size of these weights",
    "accepted": "share of these draws that delayed acceptance has accepted",
}
OF_PARAMETERS = {
    "contraction": "1 - variance of the posterior over that of the prior",
    "sd_ratio": "error by the measured covariance g2_cov over that by theory's, which the fit uses",
    "near_end": NEAR_END,
    "prior_tail": "probability under its prior of a value as far out",
    "lower_limit": "value above which a parameter that is not identified lies with 95 % probability, NaN without one",
    "upper_limit": "value below which a parameter that is not identified lies with 95 % probability, NaN without one",
}


def diagnostics_of(outcome: Outcome, verdicts: list[Verdict], ratios: SdRatios) -> xr.Dataset:
    """Verdict, reason and the numbers behind them, of every fitted bin."""
    advice = {
        "noise_to_try": _words(v.advice.noise for v in verdicts),
        "tau_min_to_try": [v.advice.tau_min for v in verdicts],
    }
    names = [*outcome.problem.posterior.curve_names, *outcome.problem.posterior.marginal]
    of_parameters = {
        "contraction": [v.contractions for v in verdicts],
        "near_end": [{name: np.fmax(*shares) for name, shares in v.near_ends.items()} for v in verdicts],
        "prior_tail": [v.prior_tails for v in verdicts],
        "lower_limit": [{name: low for name, (low, _) in v.limits.items()} for v in verdicts],
        "upper_limit": [{name: high for name, (_, high) in v.limits.items()} for v in verdicts],
    }
    if ratios.ratios:
        of_parameters["sd_ratio"] = [
            {name: row[place] for name, row in ratios.ratios.items()} for place in range(len(verdicts))
        ]
    identified = [[name in v.identified for name in names] for v in verdicts]
    return xr.Dataset(
        {
            "verdict": ("q_bin", _words(v.name for v in verdicts)),
            "reason": ("q_bin", _words(v.reason for v in verdicts)),
            **{
                name: ("q_bin", np.array([v.numbers[name] for v in verdicts], float), {"long_name": words})
                for name, words in NUMBERS.items()
            },
            **{name: ("q_bin", np.array(values), OF_ADVICE[name]) for name, values in advice.items()},
            **{name: _rows(values, names, OF_PARAMETERS[name]) for name, values in of_parameters.items()},
            "identified": (
                ("q_bin", "parameter"),
                np.reshape(identified, (len(verdicts), len(names))).astype(bool),
                {"long_name": "whether the data determine the parameter"},
            ),
            **_effort(outcome.draws),
            **_correction(outcome),
        },
        {"parameter": np.array(names, dtype=object)},
    )


def _words(found: Iterable[str]) -> np.ndarray:
    return np.array(list(found), dtype=object)


def _rows(values: list[dict[str, float]], names: list[str], words: str) -> tuple[Any, ...]:
    """A variable (q_bin, parameter) from each bin's numbers by name; NaN where a name is missing."""
    rows = np.array([[one.get(name, np.nan) for name in names] for one in values], float)
    return ("q_bin", "parameter"), rows.reshape(len(values), len(names)), {"long_name": words}


def _effort(draws: Draws) -> dict[str, Any]:
    """What it took to sample each bin: `thin`, transitions for each kept draw, 0 where none was made, and `escalation`
    in a word."""
    thin, adaptations = np.where(draws.done > 0, [draws.thin, draws.adaptations], 0)
    words = np.select([adaptations > 1, thin > 1, thin > 0], ["readapted", "longer", "none"], "")
    return {
        "thin": ("q_bin", thin, {"long_name": "transitions for each kept draw"}),
        "escalation": ("q_bin", words.astype(object), {"long_name": "means beyond the plain run that the bin needed"}),
    }


def _correction(outcome: Outcome) -> dict[str, Any]:
    """How draws were corrected from a surrogate's posterior to the simulator's; nothing where they were not."""
    if outcome.exact is None:
        return {}
    arrays = {name: getattr(outcome.exact, name) for name in OF_CORRECTION}
    return {name: ("q_bin", array, {"long_name": OF_CORRECTION[name]}) for name, array in arrays.items()}


def of_all_bins(table: xr.Dataset, problem: Problem, curves: xr.Dataset) -> xr.Dataset:
    """The table of all bins, with the number of points, the audit of the stated errors, and the reason why a bin was
    not fitted."""
    points, reason = problem.points, table.reason.values.copy()
    for place in np.setdiff1d(np.arange(len(points)), problem.usable):
        _, reason[place] = unusable(int(points[place]), problem.needed)
    first = {"verdict": table.verdict, "reason": ("q_bin", reason), "points": ("q_bin", points), **error_audit(curves)}
    rest = {str(name): array for name, array in table.data_vars.items() if name not in first}
    return xr.Dataset({**first, **rest}, table.coords, table.attrs).assign_coords(bin_coordinates(curves))


def of_dataset(
    diagnostics: xr.Dataset, verdicts: list[Verdict], noise: str, delays: bool, pooled: bool
) -> dict[str, Any]:
    """What all bins together say about noise model, range of delays and priors, and in one line what to try. `verdicts`
    are those on the fitted bins, `pooled` says whether they were fitted together."""
    refuted, found = advise_dataset(diagnostics, noise, delays)
    conflict = in_most_bins([verdict.conflicts for verdict in verdicts], len(verdicts))
    together, across = ("", dict[str, str]()) if refuted or pooled else advise_pooling(diagnostics)
    words = "; ".join(filter(None, (refuted, found.words, conflict, together)))
    to_try = {"noise": found.noise, "tau_min": found.tau_min, "across": across}
    return {
        "refuted": refuted,
        "noise_to_try": found.noise,
        "tau_min_to_try": found.tau_min,
        "settings_to_try": json.dumps({name: value for name, value in to_try.items() if value}),
        "advice": words,
    }

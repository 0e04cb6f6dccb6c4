"""The stages of a fit: prepare the data, fit the bins that have enough points, put the result of all bins together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import xarray as xr
from threadpoolctl import threadpool_limits

from bayesfit.api import photon_draws, photon_fit
from bayesfit.api.exact import check_exact, corrected
from bayesfit.api.made_of import made_of
from bayesfit.compute.devices import TRACING
from bayesfit.compute.journal import agree
from bayesfit.compute.kinds import expect_table
from bayesfit.compute.work import Progress, Report, heeded
from bayesfit.data.curves import by_bin
from bayesfit.diagnose.outcome import Outcome
from bayesfit.modelling.known_correlation import for_data
from bayesfit.modelling.model_choice import get_model
from bayesfit.modelling.noise import get_noise
from bayesfit.modelling.noise_model import Noise, without_approximation
from bayesfit.modelling.settings import KEPT_OF_COUNTS, KEPT_TOGETHER, FitSettings
from bayesfit.posterior.bin_layout import as_needed, oriented
from bayesfit.posterior.prepare import Problem, prepare
from bayesfit.posterior.trial import check_density, check_model
from bayesfit.result import predictions
from bayesfit.result.assemble import assemble
from bayesfit.sample import least_squares, scheduler, starts
from bayesfit.sample.target import BinTargets


class Choices(NamedTuple):
    """What a user chooses beside the settings: the model, priors and fixed values by parameter name, and how parameters
    are pooled `across` bins."""

    model: Any
    priors: Mapping[str, Any]
    fixed: Mapping[str, Any]
    across: Mapping[str, Any]

    @property
    def named(self) -> set[str]:
        """The parameters that the user chooses something of."""
        return {*self.priors, *self.fixed, *self.across}


class Begun(NamedTuple):
    """A fit of `curves` that is ready to be made: its `problem`, the bins that have enough points `before` they are
    fitted, and how these are fitted if not each by itself."""

    curves: xr.Dataset
    problem: Problem
    before: Outcome
    together: Callable[[Outcome, Report], Outcome] | None = None

    def made(self, report: Report) -> xr.DataTree:
        """The result of this fit."""
        stages = self.together or fit_each
        return self.end(stages(self.before, report) if self.before.bins else self.before, report)

    def end(self, outcome: Outcome, report: Report) -> xr.DataTree:
        """The result, from the outcome in the bins that have enough points."""
        outcome = corrected(outcome, report)
        report(Progress("check", outcome.bins))
        return assemble(outcome, self.problem, self.curves)


def run(curves: xr.Dataset, choices: Choices, settings: FitSettings, report: Report) -> xr.DataTree:
    """The result of a fit with these settings.

    Raises:
        InputError, SettingsError, ModelError: before any sampling.
    """
    return begin(curves, choices, settings).made(report)


def begin(curves: xr.Dataset, choices: Choices, settings: FitSettings) -> Begun:
    """Prepare the data and check the choices.

    Raises:
        InputError, SettingsError, ModelError: they cannot be used.
    """
    check_exact(get_model(choices.model), settings, bool(choices.across))
    curves = _allowed(as_needed(curves, get_noise(settings.noise)), choices, settings)
    if choices.across or settings.method != "nuts":
        settings = settings.keeping(KEPT_TOGETHER)
        problem, together = prepared_together(curves, choices, settings)
    else:
        problem, together = _prepared(curves, choices, for_data(get_noise(settings.noise), curves)), None
    curves = by_bin(curves)
    settings = settings if problem.counting is None else settings.keeping(KEPT_OF_COUNTS)
    agree(lambda: made_of(curves, problem, settings, choices.across))
    return Begun(curves, problem, _before(curves, problem, settings), together)


def _allowed(curves: xr.Dataset, choices: Choices, settings: FitSettings) -> xr.Dataset:
    """The curves with errors that allow for those of a model that only stands for another one; draws that are to be
    corrected have the errors of the data.

    Raises:
        InputError, SettingsError: the model is not known well enough, or not where it is asked for.
    """
    stands_for = get_model(choices.model).stands_for
    if stands_for is None:
        return curves
    expect_table(choices.priors, "priors")
    expect_table(choices.fixed, "fixed")
    stands_for.check_within(choices.priors, choices.fixed)
    return stands_for.allow(oriented(curves), get_noise(settings.noise), widen=settings.exact is None)


def _prepared(curves: xr.Dataset, choices: Choices, noise: Noise) -> Problem:
    with TRACING:
        return prepare(curves, choices.model, noise, choices.priors, choices.fixed)


def prepared_together(
    curves: xr.Dataset, choices: Choices, settings: FitSettings
) -> tuple[Problem, Callable[[Outcome, Report], Outcome] | None]:
    """The problem of a joint fit, and how its bins are fitted together; None if nothing is pooled."""
    from bayesfit.api import joint_fit

    joint_fit.check_included(settings.include)
    pooled = joint_fit.Pooled.parse(by_bin(curves), choices.across, choices.priors, choices.fixed, settings.method)
    priors, fixed = map(pooled.without_common, (choices.priors, choices.fixed))
    noise = for_data(get_noise(settings.noise), curves)
    noise = without_approximation(noise) if pooled.poolings else noise
    problem = _prepared(curves, choices._replace(priors=priors, fixed=fixed), noise)
    pooled.check(problem)
    return problem, partial(joint_fit.fit_together, pooled, problem.usable) if pooled.poolings else None


def _before(curves: xr.Dataset, problem: Problem, settings: FitSettings) -> Outcome:
    """The bins that have enough points, before they are fitted.

    Raises:
        ModelError: the user's model has no density there.
    """
    places = problem.usable
    own = problem.of_bins(places)
    check_model(own, own.usable)
    return Outcome.before(curves.isel(q_bin=places), own, settings)


def fit_each(before: Outcome, report: Report) -> Outcome:
    """Estimate and sample every bin by itself, while the programs of later stages compile in the background.

    Raises:
        ModelError: the user's model has no density at the estimates.
    """
    with threadpool_limits(1, "blas"):  # with matrices this small, threads of its own only hinder others
        return _fitted_each(before, report)


def _fitted_each(before: Outcome, report: Report) -> Outcome:
    problem, keys, chains = before.problem, before.keys, before.settings.chains
    posterior, bins = problem.posterior, problem.bins
    targets = BinTargets(posterior, bins, keys)
    stop = heeded()
    shapes = least_squares.start_compiling(posterior, bins)
    names = scheduler.start_compiling(targets, starts.shapes(posterior, shapes, chains), before.schedule)
    starts.start_compiling(posterior, bins, shapes)
    predictions.start_compiling(posterior, bins, names, chains)
    problem, points = photon_fit.point_estimates(problem, keys, report, stop)
    estimated = photon_fit.estimates(replace(before, problem=problem), points, report, stop)
    problem, potential = estimated.problem, estimated.estimates.mode_potential
    if not stop.asked:
        check_density(potential, problem)
    photon_draws.start_compiling(estimated, chains, stop)
    found = replace(before, problem=problem, points=points, lowest_potential=potential)
    found = replace(found, draws=photon_draws.with_errors_kept(found, estimated, report, stop))
    return photon_draws.with_theory_at_draws(found, estimated, report, stop)


def estimate_each(before: Outcome) -> Outcome:
    """The least-squares fit of every bin, without a posterior."""
    if not before.bins:
        return before
    problem, points = photon_fit.point_estimates(before.problem, before.keys, lambda progress: None, heeded())
    return replace(before, problem=problem, points=points)

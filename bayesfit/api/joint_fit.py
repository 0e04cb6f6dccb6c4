"""A joint fit: parameters are pooled across the bins, which then have one posterior and are sampled together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, UInt32

from bayesfit.api import photon_fit
from bayesfit.compute.devices import TRACING
from bayesfit.compute.errors import SettingsError, warn
from bayesfit.compute.hardware import cores
from bayesfit.compute.work import Report, Stop, heeded
from bayesfit.compute.workers import in_turn
from bayesfit.data.dependence import warned_of
from bayesfit.diagnose.outcome import Outcome, Together
from bayesfit.modelling.model import CONTRAST
from bayesfit.modelling.priors import Prior, one_number, parse_common
from bayesfit.posterior import photon_noise
from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.joint import Joint, compiled, joint_posterior, start_compiling, with_data
from bayesfit.posterior.law_pooling import LawPooling
from bayesfit.posterior.pooling import check_choices, check_poolings, parse_across
from bayesfit.posterior.pooling_interface import Pooling
from bayesfit.posterior.prepare import Problem
from bayesfit.posterior.trial import check_density
from bayesfit.result import joint_result, predictions
from bayesfit.sample import joint_nuts, joint_starts, least_squares, variational
from bayesfit.sample.draws import Draws
from bayesfit.sample.joint_starts import Modes, find_modes, modes_from, start_about
from bayesfit.sample.preconditioner import Start
from bayesfit.sample.theory_points import change_at
from bayesfit.sample.theory_tables import evenly

REFRESHED = 2  # times that theory's errors are made at modes
LOOKED_AT = 12  # draws by which it is told how far off theory's errors are
OF_ONE_BIN = ("log_prior", "prior", "prior_predictive")  # groups from the priors of single bins

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Pooled:
    """How parameters are pooled. `across` is what the user says, `poolings` is what follows from it, and `priors` and
    `fixed` are those of what the bins have in common."""

    across: Given
    poolings: tuple[Pooling, ...]
    priors: Mapping[str, Prior]
    fixed: Mapping[str, float]

    @classmethod
    def parse(cls, curves: xr.Dataset, across: Given, priors: Given, fixed: Given, method: str) -> Pooled:
        """Read the user's choices; they may pool nothing.

        Raises:
            SettingsError: a choice is impossible, or the method needs pooled parameters and there are none.
        """
        poolings = parse_across(across, curves)
        if not poolings and method != "nuts":
            remedy = "Give across, or take point_estimate"
            raise SettingsError(f"{method!r} is for joint fits", field="method", remedy=remedy)
        check_choices(poolings, priors, fixed)
        names = {parameter.name for pooling in poolings for parameter in pooling.parameters}
        own_priors = {name: parse_common(prior, name) for name, prior in priors.items() if name in names}
        values = {name: one_number(value, f"fixed.{name}") for name, value in fixed.items() if name in names}
        return cls(across, poolings, own_priors, values)

    def without_common(self, given: Given) -> dict[str, Any]:
        """The user's priors or fixed values of the bins' own parameters alone."""
        names = {parameter.name for pooling in self.poolings for parameter in pooling.parameters}
        return {name: value for name, value in given.items() if name not in names}

    def check(self, problem: Problem) -> None:
        """Refuse to pool anything that is no parameter of the bins.

        Raises:
            SettingsError: names it.
        """
        check_poolings(self.poolings, (*problem.posterior.names, *problem.posterior.marginal))

    def of_bins(self, places: Int[np.ndarray, " chosen"]) -> Pooled:
        """The same for the bins at these places alone."""
        return replace(self, poolings=tuple(pooling.of_bins(places) for pooling in self.poolings))


def check_included(include: tuple[str, ...]) -> None:
    """Refuse groups that a joint fit cannot have.

    Raises:
        SettingsError: names one.
    """
    if single := [name for name in include if name in OF_ONE_BIN]:
        remedy = "Leave it out, or leave out across"
        raise SettingsError(f"{single[0]!r} is of the prior of a single bin", field="include", remedy=remedy)


def fit_together(pooled: Pooled, places: Int[np.ndarray, " fitted"], before: Outcome, report: Report) -> Outcome:
    """Estimate every bin by itself, then sample all bins together. `places` are their indices in the dataset."""
    dependent = warned_of(before.curves)
    _warn_of_uncertain_q(pooled, before.curves)
    pooled = pooled.of_bins(places)
    stop = heeded()
    hierarchical = any(pooling.hierarchical for pooling in pooled.poolings)
    _start_compiling(before, pooled, hierarchical)
    joint, found = _estimated(pooled, before, report, stop)
    fits = found.least_squares
    assert fits is not None
    modes = find_modes(joint, fits, hierarchical, before.settings.chains, before.settings.seed)
    joint, found, modes = _with_theory_at(modes, joint, found)
    start = start_about(joint, modes, hierarchical, before.settings.seed)
    check_density(start.potential, before.problem)
    draws, shared, k = _sampled(joint, start, before, report, stop)
    found = replace(found, theory_change=_theory_change(found.problem, draws, stop))
    together = Together(pooled.across, joint, fits, shared, start.how, pooled.priors, pooled.fixed, dependent, k)
    return replace(found, lowest_potential=_lowest(draws.stats["potential"]), draws=draws, together=together)


def _start_compiling(before: Outcome, pooled: Pooled, hierarchical: bool) -> None:
    """Begin to compile in the background, in the order in which programs are needed."""
    problem, settings = before.problem, before.settings
    posterior, bins, chains = problem.posterior, problem.bins, settings.chains
    solution = least_squares.start_compiling(posterior, bins).solution
    least_squares.start_compiling_careful(posterior, bins)
    nothing = {name: np.ones(len(bins.y)) for name in solution.values}
    joint = _joint(pooled, problem, nothing, nothing)
    joint_starts.start_compiling(joint, solution.values, hierarchical, chains)
    if problem.counting is not None:
        photon_noise.start_compiling(problem, solution.values)
        start_compiling(_parameters, joint, np.zeros(joint.dimensions), before.keys)
    if settings.method == "nuts":
        target = joint_nuts.joint_target(joint, before.keys, settings.seed)
        joint_nuts.start_compiling(target, joint_starts.turned(joint, hierarchical), before.schedule)
    names = (*posterior.names, *posterior.marginal, *posterior.fixed)
    predictions.start_compiling(posterior, bins, names, chains)
    joint_result.start_compiling(joint)


def _warn_of_uncertain_q(pooled: Pooled, curves: xr.Dataset) -> None:
    """Say where a law takes q as exact that is known with an error."""
    if "q_err" not in curves or not np.any(curves.q_err.values > 0):
        return
    for pooling in pooled.poolings:
        if isinstance(pooling, LawPooling):
            warn(
                f"across.{pooling.parameter}: a joint fit takes q as exact, and q_err is up to "
                f"{100 * np.nanmax(curves.q_err.values / curves.q.values):.2g} % of q; fit the bins by themselves, and "
                "then bayesfit.law(result, q='uncertain') carries it into the law's parameters"
            )


def _estimated(pooled: Pooled, before: Outcome, report: Report, stop: Stop) -> tuple[Joint, Outcome]:
    """The joint posterior, and the outcome with the bins' least-squares fits.

    Raises:
        KeyboardInterrupt: the user asked to stop before all bins had one.
    """
    problem, points = photon_fit.point_estimates(before.problem, before.keys, report, stop)
    if stop.asked:
        raise KeyboardInterrupt
    found = replace(before, problem=problem, points=points)
    solution = least_squares.with_scaled_errors(points, problem.posterior, problem.points).solution
    return _joint(pooled, problem, solution.values, solution.sd), found


def _joint(pooled: Pooled, problem: Problem, values: Given, sd: Given) -> Joint:
    """The joint posterior, in coordinates that suit the bins' own fits."""
    with TRACING:
        joint = joint_posterior(problem, problem.bins, pooled.poolings, pooled.priors, pooled.fixed)
        return joint.with_fits(values, sd)


def _with_theory_at(modes: Modes, joint: Joint, found: Outcome) -> tuple[Joint, Outcome, Modes]:
    """The joint posterior, the outcome and the modes; with noise "photons", in units of the errors that theory gives at
    the best mode, which leads to other modes, and gives them again there: bins know their decay better together."""
    for _ in range(REFRESHED if found.problem.counting is not None else 0):
        values = compiled(_parameters, joint, modes.best, found.keys)
        problem = photon_noise.with_theory(found.problem, {name: np.asarray(value) for name, value in values.items()})
        joint, found = with_data(joint, problem.bins), replace(found, problem=problem)
        modes = modes_from(joint, modes.z)
    return joint, found, modes


def _theory_change(problem: Problem, draws: Draws, stop: Stop) -> Float[np.ndarray, " q_bin"] | None:
    """How far off the log likelihood of all bins together is if theory's errors are kept, in every bin: its standard
    deviation over some draws; None without noise "photons", or after a stop."""
    if problem.counting is None or stop.asked:
        return None
    flat = {name: value.reshape(len(value), -1) for name, value in draws.values.items()}
    chosen = evenly(flat[CONTRAST.name].shape[1], LOOKED_AT)
    at = (partial(change_at, problem, {name: value[:, draw] for name, value in flat.items()}) for draw in chosen)
    total = np.array([np.sum(change) for change in in_turn(at, cores())])
    return np.full(len(problem.bins.y), np.std(total))


def _parameters(joint: Joint, z: Float[Array, " param"], keys: UInt32[Array, "bin 2"]) -> Values:
    """Every parameter of every bin at a position; amplitudes that are integrated out are drawn."""
    return joint.draw(joint.point(z), jax.vmap(jax.random.wrap_key_data)(keys), jax.random.key(0))[0]


def _sampled(
    joint: Joint, start: Start, before: Outcome, report: Report, stop: Stop
) -> tuple[Draws, dict[str, np.ndarray], float | None]:
    """Draws of the bins' parameters and of what they have in common, and the Pareto k of a variational fit, None for
    NUTS."""
    settings = before.settings
    target = joint_nuts.joint_target(joint, before.keys, settings.seed)
    if settings.method == "svi":
        return variational.approximate(target, start, settings.kept, report)
    draws, shared = joint_nuts.sample_joint(target, start, before.schedule, report, stop)
    return draws, shared, None


def _lowest(potential: Float[np.ndarray, "q_bin chain draw"]) -> Float[np.ndarray, " q_bin"]:
    """For each bin the lowest of the chains' mean potentials."""
    made = np.isfinite(potential)
    mean = np.where(made, potential, 0.0).sum(axis=2) / np.maximum(made.sum(axis=2), 1)
    return np.where(made.any(axis=2), mean, np.inf).min(axis=1)

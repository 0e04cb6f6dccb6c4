"""The one composition of the stages: curves in, posterior with verdicts out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import xarray as xr

from bayesfit.compute.devices import TRACING, take
from bayesfit.compute.errors import SettingsError
from bayesfit.compute.keys import bin_keys
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Report, stop_on_signal
from bayesfit.data.curves import by_bin
from bayesfit.data.dependence import warned_of
from bayesfit.modelling.model import Model
from bayesfit.modelling.priors import one_number, parse_common
from bayesfit.modelling.settings import FitSettings
from bayesfit.posterior.prepare import Problem, prepare
from bayesfit.posterior.trial import check_density, check_model
from bayesfit.result.assemble import assemble
from bayesfit.result.diagnostics import classical_fit
from bayesfit.result.predict import check_groups
from bayesfit.sample import least_squares as _point
from bayesfit.sample import scheduler as _sample
from bayesfit.sample import starts as _estimate
from bayesfit.sample.draws import Schedule
from bayesfit.sample.target import BinTargets

OF_ONE_BIN = ("log_prior", "prior", "prior_predictive")  # groups that know nothing of what bins have in common


def fit(
    curves: xr.Dataset,
    model: str | Path | Mapping[str, Any] | Model = "stretched_exponential",
    *,
    noise: str = "scaled",
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    across: Mapping[str, Any] | None = None,
    chains: int = 4,
    draws: int = 500,
    warmup: int = 50,
    target_ess: float = 400.0,
    seed: int = 0,
    target_accept: float = 0.6,
    include: tuple[str, ...] = (),
    method: Literal["nuts", "svi"] = "nuts",
    progress: bool | Report = False,
) -> xr.DataTree:
    """Posterior of every bin by NUTS, with a verdict on each.

    Args:
        curves: what `bayesfit.curves` or `bayesfit.read` returned: dims (q_bin, tau).
        model: name of a model, path of a model file, a table of one of these and its options, `{"name":
            "master_curve", "table": (x, g1)}`, or a `Model`.
        noise: how the points scatter: "scaled" (the stated errors times one inferred factor a bin), "stated",
            "inferred" (one standard deviation a bin), "smooth" (one that varies with the delay), "robust" (Student-t),
            "correlated" (neighbouring delays), or "speckle" (finitely many speckles and photons).
        priors: parameter name to prior, as text `"LogNormal(3, 1)"`, as a table `{"family": ..., ...}`, or a NumPyro
            distribution; each value one number or one a bin. Amplitudes are `contrast` and `baseline`.
        fixed: parameter name to value, one number or one a bin (q_bin,); any prior of that parameter is left aside.
        across: parameter name to how it is pooled across bins, all others being each bin's own: "shared" (one value),
            `{"kind": "shared", "by": "phi"}` (one for each value of a coordinate of q_bin, or of an array of labels),
            "pooled" (drawn from a common normal distribution on the unconstrained scale), "smooth" (a random walk in
            log q there), or a law in q as `bayesfit.law` takes it: "diffusion", `{"name": "power_law", "n": 1}`, with
            `"scatter": True` for bins that scatter about it, in the parameter's logarithm (in the parameter itself
            where it may be negative). `priors` and `fixed` may name what the bins have in common (`D`). All bins then
            have one posterior, sampled by NumPyro's NUTS, with `warmup` and `target_accept` of its own; parameters of
            it have dims (chain, draw), and a bin's draws depend on the other bins.
        chains, draws, warmup: chains a bin, kept draws a chain, warm-up transitions before them.
        target_ess: effective sample size, bulk and tail, that the kept draws of a bin's worst parameter should have
            together, with R-hat at most 1.01. Chains that miss it go on to twice their length, of which every second
            draw is kept, and so on; a bin that 400 transitions have not brought there, or whose trajectories diverge,
            begins again from a frame of its own draws, up to five times and with ever longer chains, the last of 8,000
            transitions. A target of more than half the number of kept draws stands for that half. Verdicts ask for 400
            whatever the target: draws that have it are kept until there are better ones. 0, or too few draws both for
            the target and for 400: exactly `draws` transitions after the warm-up.
        seed: the same data, settings, seed and machine give the same bits; a bin's draws depend on no other bin.
        target_accept: acceptance rate that the step size is adapted to.
        include: more groups for the result, of "log_likelihood" (of each point given the others of its bin; amplitudes
            are drawn ones), "log_prior", "posterior_predictive", "prior" and "prior_predictive".
        method: "nuts", or, with `across`, "svi" for a quick look: a normal distribution fitted by variational
            inference, of which the draws are then. Bins are called `approximate`, and `pareto_k` in group `across` says
            how far off it is.
        progress: True for a progress bar on standard error, or a function that takes a `Progress`.

    Returns:
        DataTree in ArviZ's schema, with groups `posterior` and `sample_stats` (chain, draw, q_bin), `observed_data`,
        `constant_data`, `point_estimate` (the least-squares fit), `fit_curve` (posterior mean curve with its 95 % band)
        and `diagnostics` (per bin: r_hat, ess_bulk, ess_tail, divergences, verdict, reason, ...). Bins that cannot be
        used are NaN. On Ctrl-C the draws made so far are returned, and the bins that lack some say so.

    Raises:
        InputError, SettingsError, ModelError: before any sampling; one line that says what and where.

    Example:
        >>> import bayesfit
        >>> data, truth = bayesfit.simulate(bins=2, seed=1)
        >>> result = bayesfit.fit(data, model="single_exponential", fixed={"baseline": 1.0}, draws=200)
        >>> sorted(result.posterior.sizes.items())
        [('chain', 4), ('draw', 200), ('q_bin', 2)]
    """
    settings = FitSettings(
        noise=noise,
        chains=chains,
        draws=draws,
        warmup=warmup,
        target_ess=target_ess,
        seed=seed,
        target_accept=target_accept,
        include=include,
        method=method,
    )
    check_groups(settings.include)
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        report = progress if callable(progress) else stack.enter_context(progress_bar(progress))
        if across or settings.method != "nuts":
            return _run_joint(curves, model, priors or {}, fixed or {}, across or {}, settings, report)
        with TRACING:
            problem = prepare(curves, model, settings.noise, priors, fixed)
        return _run(curves, problem, settings, report)


def point_estimate(
    curves: xr.Dataset,
    model: str | Path | Mapping[str, Any] | Model = "stretched_exponential",
    *,
    noise: str = "scaled",
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """The classical least-squares fit of every bin, without a posterior: a quick look. Arguments as for `fit`.

    Returns:
        Dataset (q_bin) with each parameter, its standard error as NAME_sd, `chi2` and `converged`; what `fit` returns
        as group `point_estimate`. Priors are only where starts are looked for. Bins that cannot be used are NaN.

    Raises:
        InputError, SettingsError, ModelError: as `fit` does.

    Example:
        >>> import bayesfit
        >>> data, truth = bayesfit.simulate(bins=2, seed=1)
        >>> bayesfit.point_estimate(data).rate.sizes["q_bin"]
        2
    """
    settings = FitSettings(noise=noise, seed=seed)
    with jax.enable_x64(True), stop_on_signal() as stop:
        with TRACING:
            problem = prepare(curves, model, settings.noise, priors, fixed)
        usable = problem.usable
        check_model(problem, usable)
        points = None
        if usable.size:
            bins, keys = take(problem.bins, usable), bin_keys(settings.seed, problem.identity[usable])
            points = _point.point_estimates(problem.posterior, bins, keys, lambda progress: None, stop)
    count = len(problem.points)
    coords = {name: c for name, c in by_bin(curves).coords.items() if c.dims == ("q_bin",)}
    return classical_fit(problem, usable, points, count).assign_coords(coords)


def _run(curves: xr.Dataset, problem: Problem, settings: FitSettings, report: Report) -> xr.DataTree:
    """Estimate, sample and judge the bins that have points enough."""
    usable = problem.usable
    if usable.size == 0:
        return assemble(curves, problem, settings, usable, np.zeros((0, 2), np.uint32), None, None, None)
    check_model(problem, usable)
    posterior, bins = problem.posterior, take(problem.bins, usable)
    keys = bin_keys(settings.seed, problem.identity[usable])
    schedule = _schedule(settings)
    targets = BinTargets(posterior, bins, keys)
    with stop_on_signal() as stop:
        points = _point.start_compiling(posterior, bins)
        _sample.start_compiling(targets, _estimate.shapes(posterior, points, settings.chains), schedule)
        _estimate.start_compiling(posterior, bins, points)
        points = _point.point_estimates(posterior, bins, keys, report, stop)
        estimates = _estimate.estimate_bins(targets, points, settings.chains, report, stop)
        check_density(estimates.mode_potential, problem)
        draws = _sample.sample_bins(targets, estimates, schedule, report, stop)
    return assemble(curves, problem, settings, usable, keys, points, estimates.mode_potential, draws)


def _run_joint(
    curves: xr.Dataset,
    model: Any,
    priors: Mapping[str, Any],
    fixed: Mapping[str, Any],
    across: Mapping[str, Any],
    settings: FitSettings,
    report: Report,
) -> xr.DataTree:
    """Estimate every bin by itself, then sample all bins together, and judge each."""
    from bayesfit.posterior.joint import joint_posterior
    from bayesfit.posterior.pooling import check_choices, check_poolings, parse_across
    from bayesfit.result.joint_result import called_approximate, called_dependent, with_common
    from bayesfit.sample.joint_nuts import joint_target, sample_joint
    from bayesfit.sample.joint_starts import find_start
    from bayesfit.sample.variational import approximate

    if single := [name for name in settings.include if name in OF_ONE_BIN]:
        raise SettingsError(
            f"{single[0]!r} is of the prior of a single bin",
            field="include",
            remedy="Leave it out, or leave out across",
        )
    curves = by_bin(curves)
    poolings = parse_across(across, curves)
    if not poolings and settings.method != "nuts":
        raise SettingsError(
            f"{settings.method!r} is for joint fits", field="method", remedy="Give across, or take point_estimate"
        )
    check_choices(poolings, priors, fixed)
    common = {parameter.name for pooling in poolings for parameter in pooling.parameters}
    mine = {name: parse_common(prior, name) for name, prior in priors.items() if name in common}
    pinned = {name: one_number(value, f"fixed.{name}") for name, value in fixed.items() if name in common}
    with TRACING:
        problem = prepare(curves, model, settings.noise, _without(priors, common), _without(fixed, common))
    check_poolings(poolings, (*problem.posterior.names, *problem.posterior.marginal))
    usable = problem.usable
    if not poolings or usable.size == 0:
        return _run(curves, problem, settings, report)
    check_model(problem, usable)
    dependent = warned_of(curves.isel(q_bin=usable), stacklevel=3)
    bins, keys = take(problem.bins, usable), bin_keys(settings.seed, problem.identity[usable])
    poolings = tuple(pooling.of_bins(usable) for pooling in poolings)
    hierarchical = any(pooling.hierarchical for pooling in poolings)
    with stop_on_signal() as stop:
        with TRACING:
            joint = joint_posterior(problem, bins, poolings, mine, pinned)
        points = _point.point_estimates(problem.posterior, bins, keys, report, stop)
        if stop.asked:
            raise KeyboardInterrupt
        fits = _point.with_scaled_errors(points, problem.posterior, problem.points[usable])
        with TRACING:
            joint = joint.with_fits(fits.solution.values, fits.solution.sd)
        start = find_start(joint, fits, hierarchical, settings.chains, settings.seed)
        check_density(start.potential, problem)
        target = joint_target(joint, keys, settings.seed)
        if settings.method == "svi":
            draws, shared, k = approximate(target, start, settings.draws, report)
        else:
            draws, shared = sample_joint(target, start, _schedule(settings), report, stop)
    lowest = _lowest(draws.stats["potential"])
    result = assemble(curves, problem, settings, usable, keys, points, lowest, draws)
    result = with_common(result, joint, usable, fits, draws, shared, dict(across))
    result.attrs["start"] = start.how
    in_numbers = {name: {"family": prior.family, **prior.values} for name, prior in mine.items()}
    result.attrs["priors_in_common"] = json.dumps(in_numbers, default=float)
    result.attrs["fixed_in_common"] = json.dumps(pinned)
    result = called_approximate(result, k) if settings.method == "svi" else result
    return called_dependent(result, dependent)


def _schedule(settings: FitSettings) -> Schedule:
    return Schedule(settings.chains, settings.draws, settings.warmup, settings.target_accept, settings.target_ess)


def _lowest(potential: np.ndarray) -> np.ndarray:
    """Of each bin the lowest mean potential that a chain has (bin,), from (bin, chain, draw)."""
    made = np.isfinite(potential)
    mean = np.where(made, potential, 0.0).sum(axis=2) / np.maximum(made.sum(axis=2), 1)
    return np.where(made.any(axis=2), mean, np.inf).min(axis=1)


def _without(given: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}

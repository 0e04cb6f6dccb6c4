"""Fits curves: data and choices in, posteriors with verdicts out."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from bayesfit.api.automatic_noise import answered, noises
from bayesfit.api.stages import Choices, begin, estimate_each, run
from bayesfit.compute.errors import SettingsError, nearest
from bayesfit.compute.operations import computing
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Report, stop_on
from bayesfit.modelling.model import Model
from bayesfit.modelling.settings import FitSettings
from bayesfit.result.assemble import least_squares_group
from bayesfit.result.on_request import check_groups
from bayesfit.result.tree import bin_coordinates, in_all_bins

OF_ONE_FIT = "curves", "model", "progress", "on_interrupt"  # arguments that these functions give themselves


def fit(
    curves: xr.Dataset,
    model: str | Path | Mapping[str, Any] | Model = "stretched_exponential",
    *,
    noise: str = "auto",
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    across: Mapping[str, Any] | None = None,
    chains: int = 4,
    draws: int | None = None,
    warmup: int = 50,
    target_ess: float = 400.0,
    seed: int = 0,
    target_accept: float = 0.6,
    include: tuple[str, ...] = (),
    method: Literal["nuts", "svi"] = "nuts",
    exact: Literal["psis", "delayed"] | None = None,
    progress: bool | Report = False,
    on_interrupt: Literal["raise", "return"] = "raise",
) -> xr.DataTree:
    """Posterior of every bin by NUTS, with a verdict on each.

    Args:
        curves: what `bayesfit.curves` or `bayesfit.read` returned: dims (q_bin, tau).
        model: name of a model, path of a model file, a table of one of these and its options, `{"name":
            "master_curve", "table": (x, g1)}`, or a `Model`.
        noise: how the points scatter: "photons" (photon pairs are counted, and theory says how speckles make them
            correlate; needs the numbers `counts`, `pixels` and `frames` of `bayesfit.curves`), "scaled" (the stated
            errors times one inferred factor per bin), "stated", "inferred" (one standard deviation per bin), "smooth"
            (one that varies with the delay), "robust" (Student-t), "correlated" (neighbouring delays), or "speckle"
            (finitely many speckles and photons). "auto" is "photons" where its numbers are known, else "scaled"; if
            the residuals of all bins refute it, the noise model that they ask for is fitted too, and so on, at most
            twice, and the one that describes most bins is kept.
        priors: parameter name to prior, as text `"LogNormal(3, 1)"`, as a table `{"family": ..., ...}`, or a NumPyro
            distribution; each value is one number or one per bin. Amplitudes are `contrast` and `baseline`.
        fixed: parameter name to value, one number or one per bin (q_bin,), in place of any prior of that parameter.
        across: parameter name to how it is pooled across bins, while all others have a value in each bin: "shared"
            (one value), `{"kind": "shared", "by": "phi"}` (one for each value of a coordinate of q_bin, or of an array
            of labels), "pooled" (drawn from a common normal distribution on the unconstrained scale), "smooth" (a
            random walk in log q on that scale), or a law in q as `bayesfit.law` takes it: "diffusion", `{"name":
            "power_law", "n": 1}`, with `"scatter": True` for bins that scatter about it, in the parameter's logarithm
            (in the parameter itself where it may be negative). `priors` and `fixed` may name what the bins have in
            common (`D`). All bins then have one posterior, sampled by NumPyro's NUTS, with `warmup` and
            `target_accept` of its own; what the bins have in common has dims (chain, draw), and the draws of a bin
            depend on the other bins.
        chains, warmup: chains per bin, and warm-up transitions before the kept draws.
        draws: kept draws per chain, the same in all bins. By default as many as `target_ess` asks for: twice the target
            in all chains together, and at least 200 per chain, since R-hat of fewer is often too large by chance; at
            least 500 of bins that are fitted together, and with noise "photons", where draws are chosen among these.
        target_ess: effective sample size, bulk and tail, that the kept draws of a bin's worst parameter should have in
            all chains together, with R-hat at most 1.01. Chains that miss it go on to twice their length, of which
            every second draw is kept, and so on. A bin that 400 transitions have not brought there, or whose
            trajectories diverge, begins again with a preconditioner made from its own draws, up to five times and with
            ever longer chains, the last of 8,000 transitions. A target above half the number of kept draws is lowered
            to that half. Verdicts ask for 400 whatever the target: draws that have it are kept until there are better
            ones. With 0, or too few draws both for the target and for 400, exactly `draws` transitions follow the
            warm-up.
        seed: the same data, settings, seed and machine give the same bits; a bin's draws depend on no other bin.
        target_accept: acceptance rate to which the step size is adapted.
        include: more groups for the result, of "log_likelihood" (of each point given the others of its bin and drawn
            amplitudes), "log_prior", "posterior_predictive", "prior" and "prior_predictive".
        method: "nuts", or, with `across`, "svi" for a quick look: draws from a normal distribution that is fitted by
            variational inference. The verdict on each bin is then `approximate`, and `pareto_k` in group `across` says
            how far off the fit is.
        exact: for a model of `bayesfit.surrogate`: at most 600 draws of each bin are corrected by runs of the simulator
            at all of them. "psis" chooses among them by importance weights (`pareto_k` and `weights_ess` in
            `diagnostics` say how even these are), "delayed" accepts or rejects each (`accepted`). The result holds as
            many draws.
        progress: True for a progress bar on standard error, or in a notebook's cell; or a function that takes a
            `Progress`.
        on_interrupt: what Ctrl-C does: "raise" KeyboardInterrupt, as anywhere in Python, or "return" the draws made so
            far, where bins that lack some have the verdict `interrupted`. Within `bayesfit.checkpoint`, which keeps
            them, it raises.

    Returns:
        DataTree in ArviZ's schema, with groups `posterior` and `sample_stats` (chain, draw, q_bin), `observed_data`,
        `constant_data`, `point_estimate` (the least-squares fit), `fit_curve` (posterior mean curve with its 95 % band)
        and `diagnostics` (per bin: r_hat, ess_bulk, ess_tail, divergences, verdict, reason, ...). Bins that cannot be
        used are NaN. With noise "auto", attribute `noise_chosen` says what was chosen and why, and `noise_tried` in
        JSON what was tried.

    Raises:
        InputError, SettingsError, ModelError: before any sampling, in one line that says what is wrong and where.

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
        exact=exact,
    )
    check_groups(settings.include)
    choices = Choices(model, priors or {}, fixed or {}, across or {})
    with at_work(progress, on_interrupt) as report:
        return answered(noises(curves, choices, settings), lambda own: run(curves, choices, own, report))


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what is no argument of `fit`, for functions that fit several datasets with the same ones.

    Raises:
        SettingsError: an unknown option.
    """
    known = [name for name in inspect.signature(fit).parameters if name not in OF_ONE_FIT]
    for name in options:
        if name not in known:
            raise SettingsError("unknown setting", field=name, remedy=nearest(name, known))


@contextmanager
def at_work(progress: bool | Report, on_interrupt: str) -> Iterator[Report]:
    """What long work is done in: double precision, a report of its progress, and what Ctrl-C does.

    Raises:
        SettingsError: it is no such thing.
    """
    if on_interrupt not in ("raise", "return"):
        raise SettingsError(f"got {on_interrupt!r}", field="on_interrupt", remedy="It is 'raise' or 'return'")
    with ExitStack() as stack:
        stack.enter_context(computing())
        if on_interrupt == "return":
            stack.enter_context(stop_on(signal.SIGINT))
        yield progress if callable(progress) else stack.enter_context(progress_bar(progress))


def point_estimate(
    curves: xr.Dataset,
    model: str | Path | Mapping[str, Any] | Model = "stretched_exponential",
    *,
    noise: str = "auto",
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """The classical least-squares fit of every bin, without a posterior: a quick look. Arguments as for `fit`; priors
    only say where to look for starts.

    Returns:
        Dataset (q_bin) with each parameter, its standard error as NAME_sd, `chi2` and `converged`, as in group
        `point_estimate` of what `fit` returns. Bins that cannot be used are NaN.

    Raises:
        InputError, SettingsError, ModelError: as `fit` does.

    Example:
        >>> import bayesfit
        >>> data, truth = bayesfit.simulate(bins=2, seed=1)
        >>> bayesfit.point_estimate(data).rate.sizes["q_bin"]
        2
    """
    choices = Choices(model, priors or {}, fixed or {}, {})
    with computing():
        begun = begin(curves, choices, next(noises(curves, choices, FitSettings(noise=noise, seed=seed))))
        outcome = estimate_each(begun.before)
    group = in_all_bins(least_squares_group(outcome), begun.problem.usable, len(begun.problem.points))
    return group.assign_coords(bin_coordinates(begun.curves))

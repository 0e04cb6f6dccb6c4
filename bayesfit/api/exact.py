"""Draws of a surrogate's posterior, corrected to be draws of the simulator's: by importance weights, or by delayed
acceptance. Both take true runs of the simulator at some of the draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayesfit.api.compare import largest_good_k
from bayesfit.compute.devices import on_one_device
from bayesfit.compute.errors import SettingsError, warn
from bayesfit.compute.work import Progress, Report
from bayesfit.diagnose.outcome import Exact, Outcome
from bayesfit.modelling.model import AMPLITUDES, Model
from bayesfit.modelling.scatter import Observed
from bayesfit.modelling.settings import LEAST_ESS, FitSettings
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample import convergence as _convergence
from bayesfit.sample import redrawn
from bayesfit.sample.redrawn import Assessed

RUNS = 600  # true runs for each bin, at most
HOW = {"psis": 1, "delayed": 2}  # each with random numbers of its own

OfDraws = Float[np.ndarray, "chain draw"]
Values = dict[str, OfDraws]


class Chosen(NamedTuple):
    """Which of the draws (chain * draw) are those of the corrected posterior, and what that took: Pareto k of the
    weights, their effective sample size, and the share of proposals that were accepted; NaN where there is no such."""

    places: Int[np.ndarray, "chain draw"]
    pareto_k: float = np.nan
    ess: float = np.nan
    accepted: float = np.nan


def check_exact(model: Model, settings: FitSettings, pooled: bool) -> None:
    """Refuse a correction that cannot be made.

    Raises:
        SettingsError: the model stands for no simulator, or for a random one, or bins are fitted together.
    """
    if settings.exact is None:
        return
    if pooled:
        raise SettingsError("is for bins that are fitted each by itself", field="exact", remedy="Leave out across")
    if model.stands_for is None:
        raise SettingsError(f"model {model.name!r} stands for no simulator", field="exact", remedy="Leave it out")
    model.stands_for.check_runs()


def corrected(outcome: Outcome, report: Report) -> Outcome:
    """The outcome with draws of the simulator's posterior, if the settings ask for them: as many draws as there are
    true runs."""
    how, made = outcome.settings.exact, outcome.draws.done
    if how is None or not outcome.draws.values or np.any(made < outcome.settings.kept):
        return outcome
    thinned = _thinned(outcome)
    chosen = []
    for place in range(outcome.bins):
        report(Progress("exact", outcome.bins, place))
        rng = np.random.default_rng([outcome.settings.seed, HOW[how], *outcome.keys[place].tolist()])
        log_ratio = _log_ratio(thinned, place)
        chosen.append(weighted(log_ratio, rng) if how == "psis" else delayed(log_ratio, rng))
    report(Progress("exact", outcome.bins, outcome.bins))
    return _replaced(thinned, chosen)


def _thinned(outcome: Outcome) -> Outcome:
    """The outcome with so few draws, evenly over each chain, that the simulator can be run at all of them."""
    settings, draws = outcome.settings, outcome.draws
    count = min(settings.kept, max(RUNS // settings.chains, 4))
    places = np.linspace(settings.kept - 1, 0, count).astype(int)[::-1]
    fewer = replace(
        draws,
        values={name: array[:, :, places] for name, array in draws.values.items()},
        stats={name: array[:, :, places] for name, array in draws.stats.items()},
        done=np.full_like(draws.done, count),
        thin=draws.thin * max(settings.kept // count, 1),
    )
    return replace(outcome, draws=fewer, settings=settings.model_copy(update={"draws": count}))


def _log_ratio(outcome: Outcome, place: int) -> OfDraws:
    """Log likelihood with the simulator's own curve over that with the surrogate's, at all draws of one bin; minus
    infinity where the simulator gives no curve."""
    posterior, problem = outcome.problem.posterior, outcome.problem
    drawn = {name: array[place] for name, array in outcome.draws.values.items()}
    shape = next(iter(drawn.values())).shape
    fixed = {name: value[place] if np.ndim(value) else value for name, value in problem.fixed.items()}
    flat = {**drawn, **{name: np.full(shape, value) for name, value in fixed.items()}}
    flat = {name: array.reshape(-1) for name, array in flat.items()}
    bin = jax.tree.map(lambda array: array[place], problem.bins)
    stands_for = posterior.model.stands_for
    assert stands_for is not None
    curves = stands_for.true_curves(flat, bin.tau)
    found = on_one_device(_ratios, flat, np.nan_to_num(curves, nan=0.5), bin, static=(posterior,))
    return np.where(np.isfinite(curves).all(axis=1), np.asarray(found), -np.inf).reshape(shape)


def _ratios(
    values: Mapping[str, Float[Array, " draw"]], curves: Float[Array, "draw tau"], bin: Bin, posterior: Posterior
) -> Float[Array, " draw"]:
    g2 = bin.y / jnp.where(bin.valid, bin.inverse_error, 1.0)

    def one(values: Any, shape: Array) -> Array:
        scatter = posterior.scatter_at(values, bin)
        contrast, baseline = (values[name] for name in AMPLITUDES)
        with_simulator = Observed(baseline + contrast * posterior.seen(shape, bin), scatter, bin).log_prob(g2)
        return with_simulator - Observed(posterior.mean(values, bin), scatter, bin).log_prob(g2)

    return jax.vmap(one)(dict(values), curves)


def weighted(log_ratio: OfDraws, rng: np.random.Generator) -> Chosen:
    """Draws chosen by their Pareto smoothed importance weights (Vehtari et al., J. Mach. Learn. Res. 25, 72 (2024)), in
    random order."""
    from arviz_stats.base.array import array_stats

    flat = log_ratio.ravel()
    finite = np.where(np.isfinite(flat), flat, np.min(flat[np.isfinite(flat)], initial=0.0) - 700.0)
    if np.ptp(finite) < 1e-12:
        log_weights, k = finite - finite.max(), 0.0
    else:
        log_weights, k = array_stats.psislw(-finite)
    weight = np.exp(log_weights - log_weights.max())
    weight /= weight.sum()
    levels = (np.arange(flat.size) + rng.random()) / flat.size
    places = np.minimum(np.searchsorted(np.cumsum(weight), levels), flat.size - 1)
    return Chosen(rng.permutation(places).reshape(log_ratio.shape), float(k), float(1.0 / np.sum(weight**2)))


def delayed(log_ratio: OfDraws, rng: np.random.Generator) -> Chosen:
    """Draws accepted by the simulator's likelihood over the surrogate's."""
    places, accepted = redrawn.delayed(log_ratio, rng)
    return Chosen(places, accepted=accepted)


def _reweighted(before: Assessed, chosen: Chosen, limit: float) -> Assessed:
    """R-hat of the draws that were reweighted, and their effective sample sizes times the share that weights leave."""
    share = chosen.ess / chosen.places.size * (chosen.pareto_k <= limit)
    return before[0], share * before[1], share * before[2]


def _replaced(outcome: Outcome, chosen: list[Chosen]) -> Outcome:
    """The outcome with the chosen draws, and an assessment of these."""
    draws, posterior = outcome.draws, outcome.problem.posterior
    names = (*posterior.names, *posterior.marginal)
    found = redrawn.redrawn(draws, np.array([each.places for each in chosen]), names)
    size = outcome.settings.chains * outcome.settings.kept
    limit = largest_good_k(size)
    for place, each in enumerate(chosen):
        if not np.isnan(each.ess):
            before = _convergence.worst(np.stack([draws.values[name][place] for name in names]))
            found.convergence[place] = _reweighted(before, each, limit)
    columns = (np.array(column, float) for column in zip(*(each[1:] for each in chosen), strict=True))
    exact = Exact(outcome.settings.exact or "", np.full(outcome.bins, size), *columns)
    _warn_of(exact, limit)
    return replace(outcome, draws=found, exact=exact)


def _warn_of(exact: Exact, limit: float) -> None:
    """Warn where weights are too uneven, or proposals are seldom accepted."""
    poor = int(np.sum(exact.pareto_k > limit)) + int(np.sum(exact.accepted < LEAST_ESS / RUNS / 4.0))
    if poor:
        warn(
            f"the surrogate is too far off in {poor} of {exact.true_runs.size} bins to be corrected: learn it near them"
        )

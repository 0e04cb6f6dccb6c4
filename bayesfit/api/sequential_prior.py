"""The posterior of one dataset as the prior of the next.

The posterior of each parameter is matched by a normal distribution on an unconstrained scale: that of the logarithm for
a positive parameter (LogNormal), of the logit for one between bounds (LogitNormal), and of the parameter itself for
others (Normal). A parameter with another lower bound, such as the contrast, has a normal distribution that is cut at
the bound (TruncatedNormal).

Such priors ignore how the parameters correlate. Independent normal distributions of the same widths would be narrower
than the posterior in some combinations of the parameters: if two parameters have the correlation r, the variance of the
sum of their standardised values is 2 (1 + r) in the posterior, but 2 in the prior. Therefore all standard deviations
are multiplied by the square root of the largest eigenvalue of the correlation matrix. This is the smallest common
factor with which the product of the normal distributions is nowhere narrower than the posterior. Then they are
multiplied by the widening that the user asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import xarray as xr
from jaxtyping import Bool, Float
from numpyro.distributions.transforms import ExpTransform

from bayesfit.compute.errors import SettingsError
from bayesfit.compute.keys import bin_keys
from bayesfit.diagnose.prior_range import LARGEST_NEAR_END
from bayesfit.modelling.priors import Prior, build, parse_common
from bayesfit.modelling.settings import LEAST_ESS
from bayesfit.posterior.pooling_interface import Pooling
from bayesfit.posterior.prepare import Problem
from bayesfit.result.joint_result import PRIOR_DRAWS
from bayesfit.result.on_request import Drawn, group_of
from bayesfit.result.tree import in_all_bins
from bayesfit.sample.draws import LARGEST_RHAT

CLEAR = 4.0  # standard deviations by which a posterior must lie above a cut to be described by a normal distribution

Array = np.ndarray
PerBin = Float[np.ndarray, " q_bin"]


@dataclass(frozen=True)
class Scale:
    """The scale on which a parameter's posterior is matched: the `family` of the prior, and the bounds that it takes,
    each one number or one per bin."""

    family: str
    bounds: dict[str, Array] = field(default_factory=dict)

    def of(self, x: Float[np.ndarray, "q_bin draw"]) -> Float[np.ndarray, "q_bin draw"]:
        """Values on the unconstrained scale, from draws (q_bin, draw)."""
        if self.family == "LogNormal":
            return np.log(x)
        if self.family == "LogitNormal":
            low, high = (np.reshape(self.bounds[name], (-1, 1)) for name in ("low", "high"))
            return np.log((x - low) / (high - x))
        return x

    def clear(self, mean: PerBin, sd: PerBin) -> Bool[np.ndarray, " q_bin"]:
        """Where (q_bin,) a normal of this mean and sd lies clear of the family's cut."""
        return mean - CLEAR * sd > self.bounds["low"] if self.family == "TruncatedNormal" else np.full(mean.shape, True)

    def prior(self, mean: PerBin, sd: PerBin, compared: Float[np.ndarray, "q_bin draw"] | None = None) -> Prior:
        """The prior of this mean and sd on the unconstrained scale."""
        return Prior(self.family, {"loc": mean, "scale": sd, **self.bounds}, compared)


def priors_of_bins(
    result: xr.DataTree, problem: Problem, curves: xr.Dataset, seed: int, widen: float
) -> tuple[dict[str, Prior], Array]:
    """Priors of the curve's parameters and amplitudes for the next dataset; and in which bins (q_bin,) they are the
    posterior of the last dataset.

    The posterior of a bin is used if its verdict is "ok" and its amplitudes lie well above their bounds. The priors of
    the other bins have the mean and sd of their original priors on the unconstrained scale, since all bins must have
    one family. If the posterior of no bin can be used, no priors are returned. Parameters of the noise belong to the
    measurement and not to the specimen, so they keep their priors.

    Args:
        result: result of the dataset before.
        problem, curves: the next dataset, with its original priors.
        seed: seed of the draws from these priors.
        widen: factor of the standard deviations.
    """
    names = _names_of_bins(problem)
    scales = _scales(problem, names)
    draws = {name: _draws(result, name) for name in names}
    with np.errstate(invalid="ignore", divide="ignore"):  # bins without draws
        z = np.stack([scales[name].of(draws[name]) for name in names], axis=1)
    mean, sd = z.mean(axis=2), z.std(axis=2)
    ok = (result["diagnostics"].verdict.values == "ok") & np.isfinite(z).all(axis=(1, 2)) & (sd > 0).all(axis=1)
    with np.errstate(invalid="ignore"):
        for place, name in enumerate(names):
            ok &= scales[name].clear(mean[:, place], sd[:, place])
    if not ok.any():
        return {}, ok
    sd[ok] *= widen * np.array([spread_factor(rows) for rows in z[ok]])[:, None]
    before = _prior_draws(problem, curves, seed)
    priors = {}
    for place, name in enumerate(names):
        loc, scale = _moments(problem, name, scales[name], before[name])
        priors[name] = scales[name].prior(
            np.where(ok, mean[:, place], loc), np.where(ok, sd[:, place], scale), before[name]
        )
    return priors, ok


def spread_factor(z: Float[np.ndarray, "param draw"]) -> float:
    """The smallest common factor of the standard deviations with which independent normals are nowhere narrower than
    the normal of draws z (param, draw)."""
    return float(np.sqrt(np.linalg.eigvalsh(np.atleast_2d(np.corrcoef(z)))[-1]))


def priors_in_common(
    result: xr.DataTree, problem: Problem, poolings: tuple[Pooling, ...], given: Mapping[str, Any], widen: float
) -> dict[str, Prior]:
    """Priors for the next dataset of what the bins of a joint fit have in common; none if its chains have not
    converged, or the range of a prior cuts off the posterior. Parameters that belong to single bins keep their priors.
    `given` are the user's own priors."""
    checks, poolings = result["across"].dataset, _of_usable(problem, poolings)
    converged = (checks.r_hat <= LARGEST_RHAT) & (checks.ess_bulk >= LEAST_ESS) & (checks.ess_tail >= LEAST_ESS)
    posterior = result["posterior"].dataset
    scales = {name: scale for name, scale in _common_scales(problem, poolings).items() if name in posterior}
    if not scales or not bool(converged.all()) or bool((checks.near_end > LARGEST_NEAR_END).any()):
        return {}
    draws = {name: posterior[name].values.reshape(1, -1) for name in scales}
    z = np.concatenate([scales[name].of(draws[name]) for name in scales])
    factor = widen * spread_factor(z)
    original = _original_draws(problem, poolings, given)
    return {
        name: scales[name].prior(np.asarray(row.mean()), np.asarray(factor * row.std()), original[name])
        for name, row in zip(scales, z, strict=True)
    }


def _of_usable(problem: Problem, poolings: tuple[Pooling, ...]) -> tuple[Pooling, ...]:
    """The poolings of the bins that are fitted."""
    return tuple(pooling.of_bins(problem.usable) for pooling in poolings)


def _original_draws(problem: Problem, poolings: tuple[Pooling, ...], given: Mapping[str, Any]) -> dict[str, Array]:
    """Draws (draw,) of the original prior of what bins have in common."""
    priors: dict[str, dist.Distribution] = {}
    for pooling in poolings:
        of_law = pooling.priors_of_law()
        own = {name: parse_common(given[name], name) for name in of_law.keys() & given.keys()}
        priors |= of_law | {name: build(prior.family, prior.values) for name, prior in own.items()}
        if pooling.shares_value:
            priors |= _priors_of_a_bin(problem, pooling.parameter)
    keys = dict(zip(priors, jax.random.split(jax.random.key(0), len(priors)), strict=True))
    return {name: np.asarray(prior.sample(keys[name], (PRIOR_DRAWS,))) for name, prior in priors.items()}


def _priors_of_a_bin(problem: Problem, name: str) -> dict[str, dist.Distribution]:
    """The prior of a parameter in the first bin, by its name."""
    program = numpyro.handlers.seed(problem.posterior.full_program, 0)
    trace = numpyro.handlers.trace(program).get_trace(jax.tree.map(lambda array: array[0], problem.bins))
    return {name: trace[name]["fn"]}


def check_sequential(problem: Problem, poolings: tuple[Pooling, ...]) -> None:
    """Refuse datasets whose posteriors cannot be the priors of the next one.

    Raises:
        SettingsError: the pooling has scatter or groups, or the range of a prior depends on other parameters.
    """
    for pooling in poolings:
        if pooling.hierarchical or pooling.groups is not None:
            raise SettingsError(
                f"{pooling.parameter!r} has values of bins or groups that scatter, no prior for the next dataset",
                field="sequential_prior",
                remedy="Take 'shared' or a law without scatter, or leave it out",
            )
    if poolings:
        _common_scales(problem, _of_usable(problem, poolings))
    else:
        _scales(problem, _names_of_bins(problem))


def _names_of_bins(problem: Problem) -> tuple[str, ...]:
    return (*problem.posterior.curve_names, *problem.posterior.marginal)


def _draws(result: xr.DataTree, name: str) -> Array:
    array = result["posterior"][name].transpose("q_bin", "chain", "draw").values.astype(float)
    return array.reshape(len(array), -1)


def _scales(problem: Problem, names: tuple[str, ...]) -> dict[str, Scale]:
    """The scale of each parameter, from the supports of the priors of all bins."""

    def bounds(bin: Any, seed: int) -> dict[str, tuple[Any, ...]]:
        program = numpyro.handlers.seed(problem.posterior.full_program, seed)
        trace = numpyro.handlers.trace(program).get_trace(bin)
        families.update({name: _family(problem, name, trace[name]["fn"]) for name in names})
        return {name: _bounds(trace[name]["fn"], families[name]) for name in names}

    families: dict[str, str] = {}
    one, other = (jax.vmap(lambda bin, seed=seed: bounds(bin, seed))(problem.bins) for seed in (0, 1))
    for name in names:
        if not all(np.array_equal(a, b) for a, b in zip(one[name], other[name], strict=True)):
            raise SettingsError(
                "the range of its prior depends on other parameters, so that no posterior can replace it",
                field=f"priors.{name}",
                remedy="Give it a prior",
            )
    return {name: _scale(families[name], [np.asarray(bound, float) for bound in one[name]]) for name in names}


def _scale(family: str, bounds: list[Array]) -> Scale:
    return Scale(family, dict(zip(("low", "high"), bounds, strict=False)))


def _family(problem: Problem, name: str, fn: dist.Distribution) -> str:
    """The family of the new prior, from the prior that the parameter had."""
    if name in problem.posterior.marginal:
        return "Normal" if dict(problem.posterior.families)[name] == "Normal" else "TruncatedNormal"
    if isinstance(fn, dist.TransformedDistribution) and isinstance(fn.transforms[0], ExpTransform):
        return "LogNormal"
    if hasattr(fn.support, "upper_bound") and hasattr(fn.support, "lower_bound"):
        return "LogitNormal"
    if isinstance(fn.support, type(dist.constraints.positive)):
        return "LogNormal"
    return "TruncatedNormal" if hasattr(fn.support, "lower_bound") else "Normal"


def _bounds(fn: dist.Distribution, family: str) -> tuple[Any, ...]:
    wanted = {"LogitNormal": ("lower_bound", "upper_bound"), "TruncatedNormal": ("lower_bound",)}.get(family, ())
    return tuple(jnp.asarray(getattr(fn.support, name), float) for name in wanted)


def _common_scales(problem: Problem, poolings: tuple[Pooling, ...]) -> dict[str, Scale]:
    """The scale of each parameter that bins have in common, in the order of the poolings."""
    scales: dict[str, Scale] = {}
    for pooling in poolings:
        if pooling.shares_value:
            own = _scales(problem, (pooling.parameter,))[pooling.parameter]
            scales[pooling.parameter] = Scale(own.family, {name: bound[0] for name, bound in own.bounds.items()})
        for name, prior in pooling.priors_of_law().items():
            family = _family(problem, name, prior)
            scales[name] = _scale(family, [np.asarray(bound) for bound in _bounds(prior, family)])
    return scales


def _moments(problem: Problem, name: str, scale: Scale, draws: Array) -> tuple[Array, Array]:
    """Mean and sd of the original prior of each bin (q_bin,) on the unconstrained scale. For the normal prior of an
    amplitude they are its own; for others they are those of draws (q_bin, draw). They are 0 and 1 in bins that cannot
    be used."""
    if name in problem.posterior.marginal:
        values = problem.bins.priors[name]
        return np.asarray(values.get("loc", np.zeros_like(values["scale"]))), np.asarray(values["scale"])
    z = scale.of(draws)
    finite = np.isfinite(z).all(axis=1)
    return np.where(finite, z.mean(axis=1), 0.0), np.where(finite, z.std(axis=1), 1.0)


def _prior_draws(problem: Problem, curves: xr.Dataset, seed: int) -> dict[str, Array]:
    """Draws (q_bin, draw) of every parameter from its original prior."""
    places = problem.usable
    used = problem.of_bins(places)
    drawn = Drawn(used, curves.isel(q_bin=places), bin_keys(seed, used.identity), {})
    prior = in_all_bins(group_of("prior", drawn), places, len(problem.points))
    return {
        str(name): array.transpose("q_bin", ...).values.reshape(prior.sizes["q_bin"], -1)
        for name, array in prior.items()
    }

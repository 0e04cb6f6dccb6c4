"""A law in q from the posteriors of all bins, in two stages: the bins' own posteriors first, then the law's.

With x the parameter's logarithm (or the parameter itself where it may be negative), the marginal likelihood of x in a
bin is L(x), proportional to posterior(x) / prior(x); no data are needed beside the draws. The law's parameters then
have the likelihood prod_b L_b(f(q_b)), or, where the bins scatter about the law, prod_b of the integral of L_b(x)
N(x; f(q_b), scatter^2) over x. See Lunn et al., J. R. Stat. Soc. C 62, 551 (2013), for the two stages.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optimistix
import xarray as xr
from numpyro.infer import MCMC, NUTS, init_to_median
from numpyro.infer.util import log_density, potential_energy, unconstrain_fn

from bayesfit.compute.errors import BayesfitError, BayesfitWarning, InputError, SettingsError, nearest
from bayesfit.compute.kinds import expect_result
from bayesfit.data.dependence import warned_of
from bayesfit.diagnose.law_verdict import LawFit, judge, residuals_of
from bayesfit.diagnose.rules import VERDICTS
from bayesfit.modelling.laws import Law, get_law, sites_of
from bayesfit.modelling.priors import build, one_number, parse_common
from bayesfit.posterior.bin_likelihood import (
    Bins,
    Likelihood,
    fitted_curves,
    likelihoods,
    log_likelihood,
    log_scattered,
    reasons,
)
from bayesfit.posterior.coordinates import Override
from bayesfit.result.datasets import is_series, joined, one_dataset
from bayesfit.result.law_result import STATS, grid, law_result

Array = np.ndarray

SCATTER_PRIOR = 0.3
WARMUP = 500
STARTS = 1000
REFINING = 200
WORSE_START = 10.0  # nats
TARGET_ACCEPT = 0.95


def law(
    result: xr.DataTree,
    law: Any = "diffusion",
    parameter: str = "rate",
    *,
    scatter: bool = True,
    verdicts: Sequence[str] = ("ok",),
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    draws: int = 1000,
    chains: int = 4,
    seed: int = 0,
    model: Any = None,
) -> xr.DataTree:
    """Posterior of a law in q, from the posteriors of all bins of a fit, each bin's own prior divided out.

    Args:
        result: what `fit` or `series` returned or `load` read.
        law: "diffusion" (rate = D q^2), "diffusion_extrapolated" (D0 q^2 (1 + C q^2)), "power_law" (D q^n),
            "diffusion_plus_offset" (D q^2 + rate_0), "de_gennes" (D0 q^2 H(q)/S(q)), "from_table", "constant"; a table
            of a name and its options, `{"name": "power_law", "n": 1}`; a `bayesfit.Law`; or a NumPyro program
            `(q, tau) -> value`.
        parameter: the sampled parameter that follows the law, as in `result.posterior`.
        scatter: whether bins scatter about the law, normally, in the parameter's logarithm (in the parameter itself
            where it may be negative), with an inferred sd that has the prior HalfNormal(0.3).
        verdicts: bins with these verdicts are used.
        priors, fixed: parameter of the law, or "scatter", to a prior as `fit` takes it, or to a number.
        draws, chains, seed: kept draws a chain, after 500 of warm-up; the same seed gives the same draws.
        model: the model that was fitted, where the result's own cannot be found by its name or its file.

    Returns:
        DataTree in ArviZ's schema with groups `posterior` (chain, draw) and `sample_stats`; `law_curve` (point: `q`,
        `mean`, `lower`, `upper`: the law's posterior mean and central 95 % band, without scatter); `bins` (q_bin:
        `mean` and `sd` of the parameter, `used`, `left_out` in words, `law`, `residual` from the law in sd of the bin's
        likelihood, NaN where not used, `residual_with_scatter`, in which the inferred scatter is allowed for and which
        is standard normal where the law holds, `distance` of the bin's draws from the density that describes them);
        and `diagnostics` (`verdict` of each bin; of the law itself `law_verdict`, "misfit" where these residuals are
        too large, one of them is, or they go with q, `law_reason`, `r_hat`, `ess_bulk`, `ess_tail`, `divergences`,
        `chi2`, `freedom`, `p_chi2`, `p_farthest`, `p_order`). Of a series all have a dimension `dataset`; a dataset
        whose bins cannot be used is left out with a warning.

    Raises:
        InputError: there are too few bins, or the law is not known at their q. SettingsError: an unknown name, an
            impossible value, or a parameter whose prior cannot be known.
    """
    expect_result(result, "fit", "series")
    _check_choices(scatter, {"priors": priors, "fixed": fixed})
    choices = _Choices(
        get_law(law),
        parameter,
        scatter,
        _known_verdicts(verdicts),
        priors or {},
        fixed or {},
        _whole_number(draws, "draws", 4),
        _whole_number(chains, "chains", 1),
        _whole_number(seed, "seed"),
        model,
    )
    return _of_series(result, choices) if is_series(result) else _of_one(result, choices)


@dataclass(frozen=True)
class _Choices:
    """What a user asks for, checked; `samplers` are kept so that the datasets of a series share what is compiled."""

    law: Law
    parameter: str
    scatter: bool
    verdicts: tuple[str, ...]
    priors: Mapping[str, Any]
    fixed: Mapping[str, Any]
    draws: int
    chains: int
    seed: int
    model: Any
    samplers: dict[Any, Sampler] = field(default_factory=dict)

    def sampler(self, bins: Bins, tau: Array) -> Sampler:
        """The law's for data of this shape: NumPyro's kernel holds what it made of the first."""
        shapes = (bins.logarithmic, *(np.shape(array) for array in jax.tree.leaves((bins.likelihood, tau))))
        if shapes not in self.samplers:
            program = second_stage(self.law, bins.logarithmic, self.scatter, self.priors, self.fixed)
            self.samplers[shapes] = Sampler(program, self.draws, self.chains)
        return self.samplers[shapes]

    @property
    def settings(self) -> dict[str, Any]:
        """What a result states of them."""
        return {
            "seed": self.seed,
            "scatter_inferred": int(self.scatter),
            "verdicts": ", ".join(self.verdicts),
            "priors": json.dumps(dict(self.priors), default=str),
            "fixed": json.dumps(dict(self.fixed), default=str),
        }


def _of_one(result: xr.DataTree, choices: _Choices) -> xr.DataTree:
    """The law of one dataset."""
    law = choices.law
    with jax.enable_x64(True):
        bins = likelihoods(result, choices.parameter, choices.verdicts, choices.model)
        dependent = warned_of(fitted_curves(result).isel(q_bin=bins.used), stacklevel=3)
        tau = _delays(result)
        sampler = choices.sampler(bins, tau)
        sites = _sites(sampler.program, law, bins, tau, choices)
        _check_count(bins, len(sites), law)
        data = jax.random.PRNGKey(choices.seed), grid(bins.q[bins.used]), tau, bins.likelihood
        samples, stats = sampler(*data)
        prior = sampler.prior(*data)
        values, scatter = samples.pop("_law"), samples.get("scatter")
        samples = {name: array for name, array in samples.items() if name not in choices.fixed}
        fitted = LawFit(law, choices.parameter, bins, sites, samples, scatter, stats, prior, values)
        residuals = residuals_of(fitted)
    verdict = judge(fitted, residuals)
    name, reason = dependent.judged(verdict.name, verdict.reason)
    verdict = verdict._replace(name=name, reason=reason)
    settings = choices.settings | ({"correlated_bins": dependent.words} if dependent.words else {})
    return law_result(result, fitted, residuals, verdict, settings)


def _of_series(result: xr.DataTree, choices: _Choices) -> xr.DataTree:
    """The law of each dataset, as one result; datasets whose bins cannot be used are left out."""
    labels = result["steps"].coords["dataset"].values
    results: dict[int, xr.DataTree] = {}
    refused: dict[str, InputError] = {}
    for place, label in enumerate(labels.tolist()):
        try:
            results[place] = _of_one(one_dataset(result, label), choices)
        except InputError as error:
            refused[str(label)] = error
    if not results:
        raise next(iter(refused.values()))
    for label, reason in refused.items():
        warnings.warn(f"dataset {label} is left out: {reason}", BayesfitWarning, stacklevel=3)
    whole = joined(list(results.values()), labels[list(results)])
    if refused:
        whole.attrs["datasets_left_out"] = ", ".join(refused)
    return whole


def _known_verdicts(verdicts: Any) -> tuple[str, ...]:
    if not isinstance(verdicts, str | Sequence):
        raise SettingsError(f"got {verdicts!r}, expected names of verdicts", field="verdicts")
    names = (verdicts,) if isinstance(verdicts, str) else tuple(verdicts)
    for name in names:
        if name not in VERDICTS:
            raise SettingsError(f"unknown verdict {name!r}", field="verdicts", remedy=nearest(str(name), VERDICTS))
    return names


def _check_choices(scatter: Any, tables: Mapping[str, Any]) -> None:
    if not isinstance(scatter, bool):
        raise SettingsError(f"got {scatter!r}, expected true or false", field="scatter")
    for name, table in tables.items():
        if table is not None and not isinstance(table, Mapping):
            raise SettingsError(f"got {table!r}, expected a table by parameter", field=name)


def _whole_number(value: Any, field: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**32:
        raise SettingsError(f"got {value!r}, expected a whole number from {least}", field=field)
    return int(value)


def _delays(result: xr.DataTree) -> Array:
    tau = result["observed_data"].tau.values.astype(float)
    if not np.any(tau > 0):
        raise InputError("the result holds no delays above 0", field="tau")
    return tau[tau > 0]


def second_stage(
    law: Law, logarithmic: bool, scatter: bool, priors: Mapping[str, Any] | None, fixed: Mapping[str, Any] | None
) -> Callable[..., None]:
    """The NumPyro program `(q, tau, likelihood)` of a law; the first of `q` are those of the bins (see `grid`).

    Raises:
        SettingsError: a prior or a value cannot be read.
    """
    given = {name: parse_common(spec, name) for name, spec in (priors or {}).items()}
    built = {name: build(prior.family, prior.values) for name, prior in given.items()}
    pinned = {name: one_number(value, f"fixed.{name}") for name, value in (fixed or {}).items()}

    def program(q: Any, tau: Any, likelihood: Likelihood) -> None:
        values = law.program(q, tau)
        if jnp.shape(values) != jnp.shape(q):
            raise SettingsError(
                f"returns shape {jnp.shape(values)}, expected that of q, {jnp.shape(q)}", field=f"law {law.name!r}"
            )
        numpyro.deterministic("_law", values)
        x = values[: likelihood.centre.shape[0]]
        x = jnp.log(x) if logarithmic else x
        if scatter:
            spread = numpyro.sample("scatter", dist.HalfNormal(SCATTER_PRIOR))
            logs = jax.vmap(log_scattered, (0, None, 0))(x, spread, likelihood)
        else:
            logs = jax.vmap(log_likelihood)(x, likelihood)
        numpyro.factor("_bins", jnp.sum(logs))

    return Override(program, pinned, built)


def _sites(program: Callable[..., None], law: Law, bins: Bins, tau: Array, choices: _Choices) -> tuple[str, ...]:
    """The names of the law's sampled parameters, "scatter" left out, after checking law and choices.

    Raises:
        SettingsError: the program fails, samples what it may not, or a choice names no parameter.
        InputError: the law is not known at some bin's q.
    """
    q, field = bins.q[bins.used], f"law {law.name!r}"
    law.check_range(np.where(bins.used, bins.q, np.nan), field)
    alone, _ = sites_of(law, grid(q), tau, field)
    for kind, names in (("priors", choices.priors), ("fixed", choices.fixed)):
        alone.refuse_derived(kind, names)
        known = (*alone.sampled, *(("scatter",) if choices.scatter else ()))
        for name in names:
            if name not in known:
                raise SettingsError(f"unknown parameter {name!r}", field=kind, remedy=nearest(name, known))
    seeded = numpyro.handlers.seed(program, jax.random.PRNGKey(0))
    try:
        trace = numpyro.handlers.trace(seeded).get_trace(grid(q), tau, bins.likelihood)
    except BayesfitError:
        raise
    except Exception as error:
        raise SettingsError(f"raises: {type(error).__name__}: {error}", field=field) from error
    sites = [name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]]
    values = np.asarray(trace["_law"]["value"])
    if not np.all(np.isfinite(values)) or (bins.logarithmic and not np.all(values > 0)):
        need = "positive and finite" if bins.logarithmic else "finite"
        raise SettingsError(f"its values must be {need}, got {values.min():g}", field=field)
    if not sites:
        raise SettingsError("nothing is left to sample", field="fixed", remedy="Leave a parameter of the law free")
    return tuple(name for name in sites if name != "scatter")


def _check_count(bins: Bins, parameters: int, law: Law) -> None:
    count = int(bins.used.sum())
    if count < parameters + 1:
        raise InputError(
            f"{count} usable bins for {parameters} parameters of the law; left out: {reasons(bins.left_out)}",
            field=f"law {law.name!r}",
            remedy="Give more bins, or let more verdicts in: verdicts=(...)",
        )


class Sampler:
    """NUTS on the second stage; compiled once for all data of one shape."""

    def __init__(self, program: Callable[..., None], draws: int, chains: int) -> None:
        self.program, self.chains = program, chains
        kernel = NUTS(
            program, dense_mass=True, target_accept_prob=TARGET_ACCEPT, init_strategy=init_to_median(num_samples=2)
        )
        self._mcmc = MCMC(
            kernel,
            num_warmup=WARMUP,
            num_samples=draws,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
            jit_model_args=True,
        )
        self._starts = jax.jit(self._find_starts)
        self.prior = jax.jit(self._draw_prior)

    def __call__(self, key: Any, *data: Any) -> tuple[dict[str, Array], dict[str, Array]]:
        """Draws (chain, draw, ...) of every site, and the sampler's statistics (chain, draw)."""
        data = jax.tree.map(jnp.asarray, data)
        starting, sampling = jax.random.split(key)
        starts, finite = self._starts(starting, *data)
        if not bool(finite):
            raise InputError(
                "the law has no likelihood at any draw of its prior", field="law", remedy="Widen its prior"
            )
        if self.chains == 1:  # of which NumPyro wants no axis
            starts = jax.tree.map(lambda x: x[0], starts)
        names = ("potential_energy", *STATS)
        self._mcmc.run(sampling, *data, init_params=starts, extra_fields=names)
        samples = {name: np.asarray(x) for name, x in self._mcmc.get_samples(group_by_chain=True).items()}
        stats = {name: np.asarray(x) for name, x in self._mcmc.get_extra_fields(group_by_chain=True).items()}
        return samples, stats

    def _draw_prior(self, key: Any, *data: Any) -> dict[str, Any]:
        """Draws (STARTS,) of every sampled site from its prior."""

        def draw(key: Any) -> dict[str, Any]:
            trace = numpyro.handlers.trace(numpyro.handlers.seed(self.program, key)).get_trace(*data)
            return {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}

        return jax.vmap(draw)(jax.random.split(key, STARTS))

    def _find_starts(self, key: Any, *data: Any) -> tuple[dict[str, Any], Any]:
        """Where the chains begin, on the unconstrained scale: the modes reached from the best prior draws."""
        drawn = self._draw_prior(key, *data)
        potential = jax.vmap(lambda values: -log_density(self.program, data, {}, values)[0])(drawn)
        best = jnp.argsort(jnp.where(jnp.isfinite(potential), potential, jnp.inf))[: self.chains]
        first = jax.tree.map(lambda x: x[best], drawn)
        unconstrained = jax.vmap(lambda values: unconstrain_fn(self.program, data, {}, values))(first)

        def energy(z: Any, _: Any = None) -> Any:
            return potential_energy(self.program, data, {}, z)

        def refine(z: Any) -> tuple[Any, Any]:
            solver: Any = optimistix.BFGS(rtol=1e-6, atol=1e-6)
            found = optimistix.minimise(energy, solver, z, max_steps=REFINING, throw=False).value
            before, after = energy(z), energy(found)
            better = after < before
            return jax.tree.map(lambda a, b: jnp.where(better, a, b), found, z), jnp.where(better, after, before)

        modes, energies = jax.vmap(refine)(unconstrained)
        lowest = jnp.argmin(jnp.where(jnp.isfinite(energies), energies, jnp.inf))
        kept = energies < energies[lowest] + WORSE_START
        starts = jax.tree.map(lambda x: jnp.where(kept, x, x[lowest]), modes)
        return starts, jnp.isfinite(energies[lowest])

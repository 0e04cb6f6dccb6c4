"""A law in q from the posteriors of all bins, in two stages: the bins' own posteriors first, then the law's.

With x the parameter's logarithm (or the parameter itself where it may be negative), the marginal likelihood of x in a
bin is L(x), proportional to posterior(x) / prior(x); no data are needed beside the draws. The law's parameters then
have the likelihood prod_b L_b(f(q_b)), or, where the bins scatter about the law, prod_b of the integral of L_b(x)
N(x; f(q_b), scatter^2) over x. See Lunn et al., J. R. Stat. Soc. C 62, 551 (2013), for the two stages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optimistix
import xarray as xr
from numpyro.infer import MCMC, NUTS, init_to_median
from numpyro.infer.util import log_density, potential_energy, unconstrain_fn
from scipy.stats import chi2

from bayesfit._bin_likelihood import Bins, Likelihood, likelihoods, log_likelihood, log_scattered, reasons
from bayesfit._convergence import worst
from bayesfit._coordinates import Override
from bayesfit._draws import LARGEST_DIVERGENT_SHARE, LARGEST_RHAT, LEAST_ESS
from bayesfit._errors import BayesfitError, InputError, SettingsError, nearest
from bayesfit._laws import Law, get_law, sites_of
from bayesfit._model import Parameter
from bayesfit._priors import build, one_number, parse_common
from bayesfit._result import describe, provenance
from bayesfit._verdict import LEAST_CONTRACTION, LEAST_P, VERDICTS, contraction

Array = np.ndarray

SCATTER = Parameter("scatter", "", "s", "sd of the bins about the law")
SCATTER_PRIOR = 0.3
WARMUP = 500
STARTS = 1000
REFINING = 200
WORSE_START = 10.0  # nats
CURVE_POINTS = 100
TARGET_ACCEPT = 0.95
STATS = {"diverging": "diverging", "num_steps": "n_steps", "accept_prob": "acceptance_rate", "energy": "energy"}


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
        result: what `fit` returned or `load` read.
        law: "diffusion" (rate = D q^2), "power_law" (D q^n), "diffusion_plus_offset" (D q^2 + rate_0), "de_gennes"
            (D0 q^2 H(q)/S(q)), "from_table", "constant"; a table of a name and its options, `{"name": "power_law", "n":
            1}`; a `bayesfit.Law`; or a NumPyro program `(q, tau) -> value`.
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
        likelihood, NaN where not used, `distance` of the bin's draws from the density that describes them); and
        `diagnostics` (`verdict` of each bin; of the law itself `law_verdict`, `law_reason`, `r_hat`, `ess_bulk`,
        `ess_tail`, `divergences`, `chi2` of the residuals).

    Raises:
        InputError: there are too few bins, or the law is not known at their q. SettingsError: an unknown name, an
            impossible value, or a parameter whose prior cannot be known.
    """
    chosen = get_law(law)
    _check_choices(scatter, {"priors": priors, "fixed": fixed})
    draws, chains, seed = (
        _whole_number(draws, "draws", 4),
        _whole_number(chains, "chains", 1),
        _whole_number(seed, "seed"),
    )
    with jax.enable_x64(True):
        bins = likelihoods(result, parameter, _known_verdicts(verdicts), model)
        tau = _delays(result)
        program = second_stage(chosen, bins.logarithmic, scatter, priors, fixed)
        sites = _sites(program, chosen, bins, tau, scatter, (priors or {}, fixed or {}))
        _check_count(bins, len(sites), chosen)
        sampler = Sampler(program, draws, chains)
        samples, stats = sampler(jax.random.PRNGKey(seed), grid(bins.q[bins.used]), tau, bins.likelihood)
        prior = sampler.prior(jax.random.PRNGKey(seed), grid(bins.q[bins.used]), tau, bins.likelihood)
    values = samples.pop("_law")
    samples = {name: array for name, array in samples.items() if name not in (fixed or {})}
    settings = {"seed": seed, "scatter_inferred": int(scatter), "verdicts": ", ".join(_known_verdicts(verdicts))}
    settings |= {"priors": _as_json(priors), "fixed": _as_json(fixed)}
    verdict = _judge(samples, stats, prior, sites, bins, values, scatter)
    return _tree(result, chosen, parameter, bins, samples, stats, values, verdict, settings)


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


def grid(q: Array) -> Array:
    """The bins' q and, after them, a fine grid over their range; (q_bin + CURVE_POINTS,)."""
    return np.concatenate([q, np.geomspace(q.min(), q.max(), CURVE_POINTS)])


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


def _sites(
    program: Callable[..., None],
    law: Law,
    bins: Bins,
    tau: Array,
    scatter: bool,
    choices: tuple[Mapping[str, Any], ...],
) -> tuple[str, ...]:
    """The names of the law's sampled parameters, "scatter" left out, after checking law and choices.

    Raises:
        SettingsError: the program fails, samples what it may not, or a choice names no parameter.
        InputError: the law is not known at some bin's q.
    """
    q, field = bins.q[bins.used], f"law {law.name!r}"
    law.check_range(np.where(bins.used, bins.q, np.nan), field)
    alone, _ = sites_of(law, grid(q), tau, field)
    for kind, names in zip(("priors", "fixed"), choices, strict=True):
        alone.refuse_derived(kind, names)
        known = (*alone.sampled, *(("scatter",) if scatter else ()))
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


# What comes out


class _Verdict(NamedTuple):
    name: str
    reason: str
    numbers: dict[str, float]
    residual: Array
    chi2: float


def _judge(
    samples: Mapping[str, Array],
    stats: Mapping[str, Array],
    prior: Mapping[str, Any],
    sites: tuple[str, ...],
    bins: Bins,
    values: Array,
    scatter: bool,
) -> _Verdict:
    """The verdict on the law: the first that applies of poor_mixing, misfit, not_identified, ok."""
    sampled = [name for name in samples if np.ptp(samples[name]) > 0]
    r_hat, ess_bulk, ess_tail = worst(np.stack([samples[name] for name in sampled]))
    divergences = int(stats["diverging"].sum())
    likelihood = bins.likelihood
    at = np.log(values) if bins.logarithmic else values
    residual = (likelihood.centre - at[..., : likelihood.centre.size].mean(axis=(0, 1))) / likelihood.width
    squares = float(np.sum(residual**2))
    found = []
    if not r_hat <= LARGEST_RHAT:
        found.append(("poor_mixing", f"R-hat {r_hat:.3f} > {LARGEST_RHAT}"))
    if not min(ess_bulk, ess_tail) >= LEAST_ESS:
        found.append(("poor_mixing", f"ESS {min(ess_bulk, ess_tail):.0f} < {LEAST_ESS:.0f}"))
    if divergences > LARGEST_DIVERGENT_SHARE * stats["diverging"].size:
        found.append(("poor_mixing", f"{divergences} divergences"))
    p = float(chi2.sf(squares, max(residual.size - len(sites), 1)))
    if not scatter and p < LEAST_P:
        reason = f"the bins scatter about the law by more than their own widths (chi2 {squares:.3g}, p {p:.1g})"
        found.append(("misfit", f"{reason}; try scatter or another law"))
    for name in sites:
        levels = np.quantile(np.asarray(prior[name]), (np.arange(65) + 0.5) / 65)
        narrowed = contraction(samples[name], levels)
        if narrowed < LEAST_CONTRACTION:
            found.append(("not_identified", f"the bins hardly narrow the prior: {name} (contraction {narrowed:.2f})"))
    numbers = {"r_hat": r_hat, "ess_bulk": ess_bulk, "ess_tail": ess_tail, "divergences": divergences}
    name, reason = found[0] if found else ("ok", f"R-hat {r_hat:.3f}, ESS {min(ess_bulk, ess_tail):.0f}")
    return _Verdict(name, reason, numbers, residual, squares)


def _tree(
    result: xr.DataTree,
    law: Law,
    parameter: str,
    bins: Bins,
    samples: Mapping[str, Array],
    stats: Mapping[str, Array],
    values: Array,
    verdict: _Verdict,
    settings: Mapping[str, Any],
) -> xr.DataTree:
    """The result of a law, in ArviZ's schema."""
    unit = {"units": result["posterior"][parameter].attrs.get("units", "1")}
    coords = {"chain": np.arange(values.shape[0]), "draw": np.arange(values.shape[1])}
    described = {known.name: known for known in (*law.parameters, SCATTER)}
    order = [name for name in described if name in samples] + [name for name in samples if name not in described]
    posterior = xr.Dataset(
        {name: (("chain", "draw"), samples[name], describe(described.get(name, Parameter(name)))) for name in order},
        coords,
    )
    if "scatter" in posterior and not bins.logarithmic:
        posterior["scatter"].attrs.update(unit)
    sampling = {ours: (("chain", "draw"), stats[theirs]) for theirs, ours in STATS.items()}
    sampling["lp"] = (("chain", "draw"), -stats["potential_energy"])
    attrs = {
        "creator": "bayesfit",
        "inference_library": "numpyro",
        "law": law.name,
        "law_formula": law.formula,
        "parameter": parameter,
        "scale": "logarithmic" if bins.logarithmic else "linear",
        **settings,
        "model": result.attrs["model"],
        "input_file": result.attrs.get("input_file", ""),
        "input_sha256": result.attrs.get("input_sha256", ""),
        **provenance(),
        **{str(name): value for name, value in result.attrs.items() if str(name).startswith("data_")},
    }
    verdicts = result["diagnostics"].verdict.values.astype(str).astype(object)
    diagnostics = xr.Dataset({"verdict": ("q_bin", verdicts), **verdict.numbers}, _bin_coords(result))
    tree = xr.DataTree.from_dict(
        {
            "posterior": posterior.assign_attrs(attrs),
            "sample_stats": xr.Dataset(sampling, coords, attrs=attrs),
            "law_curve": _curve(values[..., bins.used.sum() :], grid(bins.q[bins.used])[bins.used.sum() :], unit),
            "bins": _bins_group(result, bins, values[..., : bins.used.sum()], verdict, unit),
            "diagnostics": diagnostics.assign(law_verdict=verdict.name, law_reason=verdict.reason, chi2=verdict.chi2),
        }
    )
    tree.attrs.update(attrs)
    return tree


def _as_json(given: Mapping[str, Any] | None) -> str:
    return json.dumps(dict(given or {}), default=str)


def _bin_coords(result: xr.DataTree) -> dict[str, Any]:
    coords = result["posterior"].dataset.coords
    return {str(name): coord for name, coord in coords.items() if coord.dims == ("q_bin",)}


def _curve(values: Array, q: Array, unit: dict[str, str]) -> xr.Dataset:
    """The law on the grid (chain, draw, point): posterior mean and central 95 % band."""
    lower, upper = np.quantile(values, [0.025, 0.975], axis=(0, 1))
    arrays = {"q": q, "mean": values.mean(axis=(0, 1)), "lower": lower, "upper": upper}
    units = {"q": {"units": "1/angstrom"}}
    return xr.Dataset({name: ("point", array, units.get(name, unit)) for name, array in arrays.items()}).set_coords("q")


def _bins_group(result: xr.DataTree, bins: Bins, values: Array, verdict: _Verdict, unit: dict[str, str]) -> xr.Dataset:
    """The bins as the law sees them."""
    made = np.isfinite(bins.draws)
    count = np.maximum(made.sum(axis=1), 1)
    mean = np.where(made.any(axis=1), np.where(made, bins.draws, 0.0).sum(axis=1) / count, np.nan)
    spread = np.sqrt(np.where(made, (bins.draws - mean[:, None]) ** 2, 0.0).sum(axis=1) / count)

    def over_all(of_used: Array) -> Array:
        whole = np.full(bins.q.size, np.nan)
        whole[bins.used] = of_used
        return whole

    in_own = {"long_name": "distance of the bin from the law, in sd of its likelihood"}
    return xr.Dataset(
        {
            "mean": ("q_bin", mean, unit),
            "sd": ("q_bin", np.where(np.isfinite(mean), spread, np.nan), unit),
            "used": ("q_bin", bins.used),
            "left_out": ("q_bin", bins.left_out),
            "law": ("q_bin", over_all(values.mean(axis=(0, 1))), unit),
            "residual": ("q_bin", over_all(verdict.residual), in_own),
            "distance": ("q_bin", over_all(bins.distance), {"long_name": "Kolmogorov-Smirnov distance of the draws"}),
        },
        _bin_coords(result),
    )

"""The marginal likelihood of one parameter in each bin of a fit: posterior over prior, whatever its shape.

With x the parameter's logarithm (or the parameter itself where it may be negative), a bin's likelihood is L(x),
proportional to posterior(x) / prior(x), all other parameters integrated out. The posterior is a sinh-arcsinh normal
fitted to the draws of the bin; the prior is that which the result states.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import interpax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import xarray as xr
from jax.lax import stop_gradient
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from bayesfit.compute.errors import BayesfitError, BayesfitWarning, InputError, SettingsError, nearest
from bayesfit.compute.kinds import expect_result
from bayesfit.modelling.registry import get_model, source_of
from bayesfit.posterior import sinh_arcsinh as _sinh_arcsinh
from bayesfit.posterior.prepare import Problem, prepare
from bayesfit.posterior.sinh_arcsinh import SinhArcsinh

Array = np.ndarray

NODES = 15
NEWTON_STEPS = 8
LONGEST_STEP = 5.0  # in normal scores
REACH, POINTS = 8.0, 129  # of the table of a bin's likelihood, in sd of its posterior
PRIOR_DRAWS = 1024
LARGEST_DISTANCE = 0.04  # Kolmogorov-Smirnov, of a bin's draws from the density that describes them, and its noise


class Likelihood(NamedTuple):
    """The marginal likelihood of one bin's x, or, with a leading axis, of many.

    `posterior` describes the bin's draws; `prior` is None where x has a flat prior, and else log prior and its slope
    on a table (2, point) over the posterior's centre - REACH sd to + REACH sd; `start` and `step` place that table.
    `centre` and `width` are mean and sd of the normalised likelihood.
    """

    posterior: SinhArcsinh
    prior: Any
    start: Any
    step: Any
    centre: Any
    width: Any


@dataclass(frozen=True)
class Bins:
    """The bins' parameter as it enters a law: `labels`, `q` and `used` (q_bin,), `left_out` in words, "" where used;
    `draws` (q_bin, draw) as sampled; `logarithmic` where x is its logarithm; of the used bins the `likelihood`, and the
    `distance` of their draws from the density that describes them."""

    labels: Array
    q: Array
    left_out: Array
    draws: Array
    logarithmic: bool
    likelihood: Likelihood
    distance: Array

    @property
    def used(self) -> Array:
        """Which bins the law is fitted to (q_bin,)."""
        return self.left_out == ""


def likelihoods(result: xr.DataTree, parameter: str, verdicts: Sequence[str], model: Any = None) -> Bins:
    """The parameter's marginal likelihood in every bin that has one of these verdicts and a known q. Call it with x64
    on.

    Raises:
        SettingsError: there is no such parameter, or its prior cannot be known. InputError: no bin can be used.
    """
    expect_result(result, "fit")
    posterior = result["posterior"].dataset
    if parameter not in posterior:
        known = [str(name) for name in posterior.data_vars]
        raise SettingsError(f"unknown parameter {parameter!r}", field="parameter", remedy=nearest(parameter, known))
    prior = _Prior(result, parameter, model)
    array = posterior[parameter].transpose("q_bin", "chain", "draw").values.astype(float)
    draws = array.reshape(len(array), -1)
    q = posterior.q.values.astype(float) if "q" in posterior.coords else np.full(len(draws), np.nan)
    left_out = _left_out(result["diagnostics"].verdict.values.astype(str), verdicts, q, draws)
    used = left_out == ""
    if not used.any():
        raise InputError(f"no bin can be used ({reasons(left_out)})", field="verdicts")
    x = np.log(draws[used]) if prior.positive else draws[used]
    shape, distance = _sinh_arcsinh.fit(x)
    for bin in np.flatnonzero(used)[~np.isfinite(distance)][:1]:
        raise InputError("its draws cannot be described by a density", bin=int(bin), remedy="Leave the bin out")
    _warn_of(distance, np.isfinite(x).sum(axis=1), np.flatnonzero(used))
    likelihood = _likelihood(shape, x, np.flatnonzero(used), prior)
    return Bins(posterior.q_bin.values, q, left_out, draws, prior.positive, likelihood, distance)


def _left_out(found: Array, verdicts: Sequence[str], q: Array, draws: Array) -> Array:
    """Why each bin is not used, "" where it is."""
    reasons = np.array(["" if name in verdicts else f"verdict {name}" for name in found], dtype=object)
    reasons[(reasons == "") & ~(np.isfinite(q) & (q > 0))] = "q is not known"
    made = [np.ptp(row[np.isfinite(row)]) > 0 if np.isfinite(row).any() else False for row in draws]
    reasons[(reasons == "") & ~np.array(made)] = "no draws"
    return reasons


def reasons(left_out: Array) -> str:
    """How many bins are left out, and why."""
    names, counts = np.unique(left_out[left_out != ""].astype(str), return_counts=True)
    return ", ".join(f"{count} of {name}" for name, count in zip(names, counts, strict=True)) or "none left out"


def _warn_of(distance: Array, draws: Array, bins: Array) -> None:
    poor = distance > LARGEST_DISTANCE + 1.0 / np.sqrt(draws)
    if poor.any():
        worst_bin = int(np.argmax(distance))
        warnings.warn(
            f"the draws of {poor.sum()} of {bins.size} bins are no sinh-arcsinh normal (bin {bins[worst_bin]}: "
            f"Kolmogorov-Smirnov distance {distance[worst_bin]:.2f}); leave such bins out",
            BayesfitWarning,
            stacklevel=3,
        )


class _Prior:
    """The prior of one parameter in each bin of a result, made again from the model's program."""

    def __init__(self, result: xr.DataTree, parameter: str, model: Any) -> None:
        self.problem = _problem(result, model)
        self.parameter = parameter
        if parameter in result["constant_data"] or self._site(jax.random.PRNGKey(0), self._bin(0)) is None:
            inferred = [*self.problem.posterior.names, *self.problem.posterior.marginal]
            raise SettingsError(
                f"{parameter!r} is not sampled but follows from others, so that its prior is not known",
                field="parameter",
                remedy=f"Give one of {', '.join(inferred)}",
            )
        self.positive = self._positive()

    def _bin(self, place: int) -> Any:
        return jax.tree.map(lambda array: jnp.asarray(array[place]), self.problem.bins)

    def _site(self, key: Any, bin: Any) -> Any:
        """The parameter's distribution given one draw of all others, None where it is not sampled."""
        program = numpyro.handlers.seed(self.problem.posterior.full_program, key)
        site = numpyro.handlers.trace(program).get_trace(bin).get(self.parameter)
        return site["fn"] if site is not None and site["type"] == "sample" and not site["is_observed"] else None

    def _positive(self) -> bool:
        fn = self._site(jax.random.PRNGKey(0), self._bin(0))
        return not bool(np.any(fn.support(jnp.asarray(-np.geomspace(1e-6, 1e6, 25)))))

    def log_density(self, places: Array, x: Array) -> Array:
        """Log prior density of x at a table of each bin (bin, point), the other parameters averaged out; -inf outside
        the support. Only its differences within a bin are meant."""
        bins = jax.tree.map(lambda array: jnp.asarray(array[places]), self.problem.bins)

        def given(key: Any, bin: Any, x: Any) -> Any:
            fn, value = self._site(key, bin), jnp.exp(x) if self.positive else x
            log_jacobian = x if self.positive else 0.0
            return jnp.where(fn.support(value), fn.log_prob(value) + log_jacobian, -jnp.inf)

        def drawn(count: int, fold: Callable[[Any], Any]) -> Array:
            keys = jax.random.split(jax.random.PRNGKey(0), count)
            each = jax.vmap(given, (0, None, None))
            return np.asarray(jax.lax.map(lambda pair: fold(each(keys, *pair)), (bins, jnp.asarray(x))))

        one, another = np.moveaxis(drawn(2, lambda logs: logs), 1, 0)
        if np.array_equal(one, another):
            return one
        return drawn(PRIOR_DRAWS, lambda logs: logsumexp(logs, axis=0) - jnp.log(PRIOR_DRAWS))


def _problem(result: xr.DataTree, model: Any) -> Problem:
    """The problem that was fitted, from what the result says of it."""
    attrs = {str(name): value for name, value in result.attrs.items()}
    if "model" not in attrs or "constant_data" not in result.children:
        raise SettingsError(
            "is no result of bayesfit.fit", field="result", remedy="Give what fit returned or load read"
        )
    if "across" in attrs:
        raise SettingsError(
            "its bins were fitted jointly, so that their posteriors are not independent",
            field="result",
            remedy="Fit them without across",
        )
    data = fitted_curves(result)
    labels = json.loads(attrs.get("q_bins", "[]"))
    places = [labels.index(label) if labels else label for label in data.q_bin.values.tolist()]
    given = {name: _of_bins(prior, places) for name, prior in json.loads(attrs["priors"]).items()}
    fixed = {name: _one_of_bins(value, places) for name, value in json.loads(attrs["fixed"]).items()}
    noise = json.loads(attrs["settings"])["noise"]
    try:
        return prepare(data, _model_of(attrs, model), noise, given, fixed)
    except BayesfitError as error:
        raise SettingsError(
            f"the model's priors cannot be made again ({error})",
            field="result",
            remedy="Give the model that was fitted: law(..., model=...)",
        ) from error


def fitted_curves(result: xr.DataTree) -> xr.Dataset:
    """The curves that were fitted, as `bayesfit.curves` gives them."""
    data = result["constant_data"].to_dataset().assign(g2=result["observed_data"].dataset["g2"])
    data = data.assign(valid=data.valid.astype(bool))
    attrs = {str(name): value for name, value in result.attrs.items()}
    data.attrs = {name.removeprefix("data_"): value for name, value in attrs.items() if name.startswith("data_")}
    return data


def _of_bins(prior: Mapping[str, Any], places: list[int]) -> dict[str, Any]:
    return {name: _one_of_bins(value, places) for name, value in prior.items()}


def _one_of_bins(value: Any, places: list[int]) -> Any:
    """A value, or those of the bins that are left of a result."""
    return [value[place] for place in places] if isinstance(value, list) else value


def _model_of(attrs: Mapping[str, Any], model: Any) -> Any:
    """The fitted model: as given, else the installed one of its name if it is the same, else that of its file; made
    with the options that the result states."""
    if model is not None:
        found = get_model(model)
        if found.name != attrs["model"]:
            raise SettingsError(f"is {found.name!r}, but {attrs['model']!r} was fitted", field="model")
        return found
    source, options = Path(attrs.get("model_source", "")), json.loads(attrs.get("model_options", "{}"))
    try:
        found = get_model({**options, "name": attrs["model"]})
    except SettingsError:
        return get_model({**options, "name": source})
    same = Path(source_of(found)).parts[-2:] == source.parts[-2:] and found.formula == attrs["model_formula"]
    return found if same else get_model({**options, "name": source})


def _likelihood(shape: SinhArcsinh, x: Array, places: Array, prior: _Prior) -> Likelihood:
    """Posterior over prior of x (bin, draw), as a function of x for each bin."""
    centre, sd = np.nanmean(x, axis=1), np.nanstd(x, axis=1)
    u = np.linspace(-REACH, REACH, POINTS)
    table = centre[:, None] + sd[:, None] * u
    log_prior = prior.log_density(places, table)
    for bin in places[~np.any(log_prior > -np.inf, axis=1)][:1]:
        raise InputError(
            "its draws lie outside the model's prior", bin=int(bin), remedy="Give the model that was fitted"
        )
    log_prior = _filled(log_prior)
    start, step = table[:, 0], sd * (u[1] - u[0])
    flat = np.ptp(log_prior, axis=1).max() < 1e-9
    slope = np.asarray(jax.vmap(lambda f: interpax.approx_df(jnp.arange(float(POINTS)), f, "cubic2"))(log_prior))
    made = Likelihood(shape, None if flat else np.stack([log_prior, slope], axis=1), start, step, centre, sd)
    values = np.asarray(jax.vmap(jax.vmap(log_likelihood, (0, None)))(table, made))
    weight = np.exp(values - values.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = np.sum(weight * table, axis=1)
    width = np.sqrt(np.sum(weight * (table - mean[:, None]) ** 2, axis=1))
    return made._replace(centre=mean, width=width)


def _filled(log_prior: Array) -> Array:
    """A table (bin, point) with the nearest value inside the prior's support where it has no mass, less its middle: of
    what lies outside, the draws know nothing."""
    places = np.arange(log_prior.shape[1])
    rows = [np.interp(places, places[row > -np.inf], row[row > -np.inf]) for row in log_prior]
    return np.array(rows) - np.array(rows)[:, POINTS // 2, None]


def log_likelihood(x: Any, bin: Likelihood) -> Any:
    """Log marginal likelihood of x in one bin, up to a constant."""
    return _sinh_arcsinh.log_density(x, bin.posterior) - _log_prior(x, bin)


def _log_prior(x: Any, bin: Likelihood) -> Any:
    """Log prior density of x in one bin, from its table, up to a constant."""
    if bin.prior is None:
        return 0.0
    place = jnp.clip((x - bin.start) / bin.step, 0.0, POINTS - 1.0)
    left = jnp.clip(jnp.floor(place).astype(int), 0, POINTS - 2)
    t = place - left
    (f0, f1), (d0, d1) = (jnp.take(row, jnp.stack([left, left + 1])) for row in bin.prior)
    return f0 * (1 + 2 * t) * (1 - t) ** 2 + d0 * t * (1 - t) ** 2 + f1 * t**2 * (3 - 2 * t) + d1 * t**2 * (t - 1)


# The second stage: the law


def log_scattered(x: Any, scatter: Any, bin: Likelihood) -> Any:
    """Log of the integral of one bin's likelihood times Normal(x, scatter), by adaptive Gauss-Hermite quadrature (Liu &
    Pierce, Biometrika 81, 624 (1994)).

    What is integrated over is the normal score of the bin's posterior, so that the nodes are exact for a scatter much
    larger than the bin's width, however skewed the bin, as they are for one much smaller.
    """
    nodes, weights = np.polynomial.hermite.hermgauss(NODES)
    centre, sd = stop_gradient(_node_places(*stop_gradient((x, scatter)), bin.posterior))
    scores = centre + np.sqrt(2.0) * sd * nodes
    at = _sinh_arcsinh.from_normal_score(scores, bin.posterior)
    logs = norm.logpdf(scores) + norm.logpdf(at, x, scatter) - jax.vmap(_log_prior, (0, None))(at, bin)
    return logsumexp(logs + np.log(weights) + nodes**2) + jnp.log(np.sqrt(2.0) * sd)


def _node_places(x: Any, scatter: Any, posterior: SinhArcsinh) -> tuple[Any, Any]:
    """Mode and sd, in normal scores, of a bin's posterior times Normal(x, scatter), by the Gauss-Newton method."""

    def line(score: Any) -> tuple[Any, Any]:
        """Distance from x, and its slope, in units of the scatter."""
        at, slope = jax.jvp(lambda z: _sinh_arcsinh.from_normal_score(z, posterior), (score,), (jnp.ones_like(score),))
        return (at - x) / scatter, slope / scatter

    def step(_: Any, score: Any) -> Any:
        distance, slope = line(score)
        change = (score + slope * distance) / (1.0 + slope**2)
        return score - jnp.clip(change, -LONGEST_STEP, LONGEST_STEP)

    score = _sinh_arcsinh.normal_score(x, posterior)
    tight = line(score)[1] ** 2
    mode = jax.lax.fori_loop(0, NEWTON_STEPS, step, score * tight / (1.0 + tight))
    return mode, jax.lax.rsqrt(1.0 + line(mode)[1] ** 2)

"""The marginal likelihood of one parameter in each bin of a fit: posterior over prior, whatever its shape.

With x the parameter's logarithm (or the parameter itself where it may be negative), a bin's likelihood is L(x),
proportional to posterior(x) / prior(x), all other parameters integrated out. The posterior is a sinh-arcsinh normal
fitted to the draws of the bin; the prior is the one that the result states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.lax import stop_gradient
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int

from bayesfit.compute.errors import InputError, SettingsError, nearest, warn
from bayesfit.compute.kinds import expect_result
from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior import sinh_arcsinh as _sinh_arcsinh
from bayesfit.posterior.fitted_problem import FittedPrior
from bayesfit.posterior.sinh_arcsinh import SinhArcsinh

NODES = 15
NEWTON_STEPS = 8
LONGEST_STEP = 5.0  # in normal scores
REACH, POINTS = 8.0, 129  # of the table of a bin's likelihood, in sd of its posterior
LARGEST_DISTANCE = 0.04  # Kolmogorov-Smirnov distance of a bin's draws from the density that describes them

Real = Float[Array, ""]
Draws = Float[np.ndarray, "bin draw"]
Texts = np.ndarray  # of text, (q_bin,)


class Likelihood(NamedTuple):
    """The marginal likelihood of one bin's x, or, with a leading axis, of many.

    `posterior` describes the bin's draws. `prior` is None where x has a flat prior; else it holds the log prior and its
    slope at points from REACH sd below the posterior's mean to REACH sd above; `start` and `step` are those of the
    points. `centre` and `width` are mean and sd of the normalised likelihood.
    """

    posterior: SinhArcsinh
    prior: Float[AnyArray, "*bins 2 point"] | None
    start: Float[AnyArray, "*bins"]
    step: Float[AnyArray, "*bins"]
    centre: Float[AnyArray, "*bins"]
    width: Float[AnyArray, "*bins"]


@dataclass(frozen=True)
class Bins:
    """The parameter of all bins as it enters a law.

    `labels` and `q` (1/angstrom) are of all bins; `left_out` says why a bin is not used, "" where it is; `draws` are as
    sampled; `logarithmic` says whether x is the parameter's logarithm. `likelihood`, and the Kolmogorov-Smirnov
    `distance` of the draws from the density that is fitted to them, are of the used bins only.
    """

    labels: np.ndarray
    q: Float[np.ndarray, " q_bin"]
    left_out: Texts
    draws: Float[np.ndarray, "q_bin draw"]
    logarithmic: bool
    likelihood: Likelihood
    distance: Float[np.ndarray, " used"]

    @property
    def used(self) -> Bool[np.ndarray, " q_bin"]:
        """Which bins the law is fitted to."""
        return self.left_out == ""


def likelihoods(result: xr.DataTree, parameter: str, verdicts: Sequence[str], model: Any = None) -> Bins:
    """The parameter's marginal likelihood in every bin that has one of these verdicts and a known q. Call it with x64
    on. `model` is needed where the fitted one cannot be found again.

    Raises:
        SettingsError: there is no such parameter, or its prior cannot be known. InputError: no bin can be used.
    """
    expect_result(result, "fit")
    posterior = result["posterior"].dataset
    if parameter not in posterior:
        known = [str(name) for name in posterior.data_vars]
        raise SettingsError(f"unknown parameter {parameter!r}", field="parameter", remedy=nearest(parameter, known))
    prior = FittedPrior(result, parameter, model)
    array = posterior[parameter].transpose("q_bin", "chain", "draw").values.astype(float)
    draws = array.reshape(len(array), -1)
    q = posterior.q.values.astype(float) if "q" in posterior.coords else np.full(len(draws), np.nan)
    left_out = _left_out(_verdicts_on(result["diagnostics"].dataset, parameter), verdicts, q, draws)
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


def _verdicts_on(diagnostics: xr.Dataset, parameter: str) -> Texts:
    """The verdict on each bin as far as it concerns one parameter: "ok" where only others are not identified."""
    found = diagnostics.verdict.values.astype(str)
    if "identified" in diagnostics and parameter in diagnostics.parameter:
        known = diagnostics.identified.sel(parameter=parameter).values.astype(bool)
        found = np.where((found == "not_identified") & known, "ok", found)
    return found


def _left_out(
    found: Texts, verdicts: Sequence[str], q: Float[np.ndarray, " q_bin"], draws: Float[np.ndarray, "q_bin draw"]
) -> Texts:
    """Why each bin is not used, "" where it is."""
    reasons = np.array(["" if name in verdicts else f"verdict {name}" for name in found], dtype=object)
    reasons[(reasons == "") & ~(np.isfinite(q) & (q > 0))] = "q is not known"
    made = [np.ptp(row[np.isfinite(row)]) > 0 if np.isfinite(row).any() else False for row in draws]
    reasons[(reasons == "") & ~np.array(made)] = "no draws"
    return reasons


def reasons(left_out: Texts) -> str:
    """In words, how many bins are left out, and why."""
    names, counts = np.unique(left_out[left_out != ""].astype(str), return_counts=True)
    return ", ".join(f"{count} of {name}" for name, count in zip(names, counts, strict=True)) or "none left out"


def _warn_of(
    distance: Float[np.ndarray, " used"], draws: Int[np.ndarray, " used"], bins: Int[np.ndarray, " used"]
) -> None:
    """Warn if the density that is fitted to a bin's draws is farther from them than their number explains."""
    poor = distance > LARGEST_DISTANCE + 1.0 / np.sqrt(draws)
    if poor.any():
        worst_bin = int(np.argmax(distance))
        warn(
            f"the draws of {poor.sum()} of {bins.size} bins are no sinh-arcsinh normal (bin {bins[worst_bin]}: "
            f"Kolmogorov-Smirnov distance {distance[worst_bin]:.2f}); leave such bins out"
        )


def _likelihood(shape: SinhArcsinh, x: Draws, places: Int[np.ndarray, " bin"], prior: FittedPrior) -> Likelihood:
    """Posterior over prior as a function of x for each bin, from its draws of x."""
    import interpax

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


def _filled(log_prior: Float[np.ndarray, "bin point"]) -> Float[np.ndarray, "bin point"]:
    """The table relative to its middle. Points where the prior has no mass get the nearest value inside its support: no
    draws are there, so that posterior over prior has no meaning."""
    places = np.arange(log_prior.shape[1])
    rows = [np.interp(places, places[row > -np.inf], row[row > -np.inf]) for row in log_prior]
    return np.array(rows) - np.array(rows)[:, POINTS // 2, None]


def log_likelihood(x: Float[AnyArray, ""], bin: Likelihood) -> Real:
    """Log marginal likelihood of x in one bin, up to a constant."""
    return _sinh_arcsinh.log_density(x, bin.posterior) - _log_prior(x, bin)


def _log_prior(x: Real, bin: Likelihood) -> Real | float:
    """Log prior density of x in one bin, up to a constant, by cubic Hermite interpolation in its table."""
    if bin.prior is None:
        return 0.0
    place = jnp.clip((x - bin.start) / bin.step, 0.0, POINTS - 1.0)
    left = jnp.clip(jnp.floor(place).astype(int), 0, POINTS - 2)
    t = place - left
    (f0, f1), (d0, d1) = (jnp.take(row, jnp.stack([left, left + 1])) for row in bin.prior)
    return f0 * (1 + 2 * t) * (1 - t) ** 2 + d0 * t * (1 - t) ** 2 + f1 * t**2 * (3 - 2 * t) + d1 * t**2 * (t - 1)


def log_scattered(x: Real, scatter: Real, bin: Likelihood) -> Real:
    """Log of the integral of one bin's likelihood times Normal(x, scatter), by adaptive Gauss-Hermite quadrature (Liu &
    Pierce, Biometrika 81, 624 (1994)).

    The variable of integration is the normal score of the bin's posterior. The quadrature is then exact not only for a
    scatter much smaller than the bin's width, but also for one much larger, however skewed the bin.
    """
    nodes, weights = np.polynomial.hermite.hermgauss(NODES)
    centre, sd = stop_gradient(_node_places(*stop_gradient((x, scatter)), bin.posterior))
    scores = centre + np.sqrt(2.0) * sd * nodes
    at = _sinh_arcsinh.from_normal_score(scores, bin.posterior)
    logs = norm.logpdf(scores) + norm.logpdf(at, x, scatter) - jax.vmap(_log_prior, (0, None))(at, bin)
    return logsumexp(logs + np.log(weights) + nodes**2) + jnp.log(np.sqrt(2.0) * sd)


def _node_places(x: Real, scatter: Real, posterior: SinhArcsinh) -> tuple[Real, Real]:
    """Mode and sd, in normal scores, of a bin's posterior times Normal(x, scatter), by the Gauss-Newton method."""

    def line(score: Real) -> tuple[Real, Real]:
        """Distance from x, and its slope, in units of the scatter."""
        at, slope = jax.jvp(lambda z: _sinh_arcsinh.from_normal_score(z, posterior), (score,), (jnp.ones_like(score),))
        return (at - x) / scatter, slope / scatter

    def step(_: Real, score: Real) -> Real:
        distance, slope = line(score)
        change = (score + slope * distance) / (1.0 + slope**2)
        return score - jnp.clip(change, -LONGEST_STEP, LONGEST_STEP)

    score = _sinh_arcsinh.normal_score(x, posterior)
    tight = line(score)[1] ** 2
    mode = jax.lax.fori_loop(0, NEWTON_STEPS, step, score * tight / (1.0 + tight))
    return mode, jax.lax.rsqrt(1.0 + line(mode)[1] ** 2)

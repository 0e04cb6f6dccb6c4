"""One bin's posterior: log density on the unconstrained scale, with the amplitudes integrated out.

The mean curve is linear in its amplitudes, mean = baseline + contrast * shape. With normal priors and normal noise
they integrate out exactly (Gaussian conditioning: Bishop 2006, eqs. 2.113-2.117), and their conditional distribution
given the sampled parameters is a normal in closed form, cut at the contrast's lower bound. Where the noise is not
normal, they are sampled; and where the shape is intricate too, each in a coordinate about the regression that would be
exact if the noise were normal, in which their posterior has the same place and width whatever the shape.

Data are held standardised: y and the baseline's column are divided by the stated errors and are zero where a point is
not valid, so that masked points drop out of every sum. The noise model's scatter whitens what is then left to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.lax import stop_gradient
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jax.scipy.stats import norm
from scipy import special

from bayesfit.modelling.model import AMPLITUDES, Model
from bayesfit.modelling.noise import SMALLEST_SCALE, Noise, Observed, Scatter
from bayesfit.modelling.priors import build
from bayesfit.posterior.coordinates import ABOUT, Coordinates, Override, PriorDensity, PriorTails, Values, coordinates

INTRICATE = 3  # coordinates of a shape


class Bin(NamedTuple):
    """The data of one bin, or, with a leading axis, of many.

    `tau`, `y` = g2 / g2_err, `inverse_error` = 1 / g2_err (both 0 where not valid) and `valid` have shape (tau,); `layout` (tau,
    columns) is what the noise asks to know of the delays. `log_constant` is what `Posterior.log_constant` says; `fixed`
    and `priors` hold the values given for this bin.
    """

    tau: Any
    y: Any
    inverse_error: Any
    valid: Any
    layout: Any
    log_constant: Any
    fixed: Values
    priors: dict[str, Values]


class Curve(NamedTuple):
    """What the program says at one point: mean = offset + contrast * shape + baseline * its column, standardised, (tau,)."""

    offset: Any
    shape: Any
    baseline: Any


class Columns(NamedTuple):
    """The data less the curve's offset, the shape and the baseline's column, (tau,), where the noise is white."""

    y: Any
    shape: Any
    baseline: Any


def _white(curve: Curve, scatter: Scatter, bin: Bin) -> Columns:
    return Columns(*scatter.whiten(bin, bin.y - curve.offset, curve.shape, curve.baseline))


class Regression(NamedTuple):
    """What white columns say of the contrast, its own prior left out: its `precision`, and `product`, precision times
    mean; and of the baseline given the contrast: Normal(level - contrast * slope, weight^-0.5), with its prior."""

    precision: Any
    product: Any
    level: Any
    slope: Any
    weight: Any


class Amplitudes(NamedTuple):
    """Conditional distribution of (contrast, baseline) given the rest, before the cut at the contrast's lower bound.

    contrast ~ Normal(contrast, contrast_sd); baseline | contrast ~ Normal(level - contrast * slope, baseline_sd).
    """

    contrast: Any
    contrast_sd: Any
    level: Any
    slope: Any
    baseline_sd: Any


@dataclass(frozen=True)
class Posterior:
    """The posterior of one bin for a model, a noise model and a choice of priors; data come as a `Bin`.

    Args:
        model, noise: the two halves of the program.
        families: parameter name to family, for every prior that `Bin.priors` gives the values of; the amplitudes of
            a model of Siegert's form are always among them.
        fixed: names of the parameters that `Bin.fixed` pins.
        curve_names, noise_names: the sampled sites of the two halves, in the order of their coordinates.
    """

    model: Model
    noise: Noise
    families: tuple[tuple[str, str], ...]
    fixed: tuple[str, ...]
    curve_names: tuple[str, ...]
    noise_names: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The sampled sites, in the order of the coordinates z (param,)."""
        return self.curve_names + self.noise_names

    @property
    def identity(self) -> str | None:
        """What its programs are made of, in words; None for a model that is not the package's own, whose files may be
        anywhere, and for one made by a function that does not say of what."""
        program = self.model.program
        if not program.__module__.startswith("bayesfit.models."):
            return None
        if "<locals>" in getattr(program, "__qualname__", "<locals>") and not self.model.options:
            return None
        choices = self.families, self.fixed, self.curve_names, self.noise_names, self.model.form, self.model.starts
        options = json.dumps(self.model.options, sort_keys=True)
        return f"{program.__module__} {self.model.name} {self.noise.name} {choices} {options}"

    @cached_property
    def marginal(self) -> tuple[str, ...]:
        """The amplitudes that are integrated out."""
        return marginal_amplitudes(self.model, self.noise, dict(self.families), self.fixed)

    @cached_property
    def relative(self) -> tuple[str, ...]:
        """The amplitudes with normal priors that are sampled all the same, each in a coordinate about its regression,
        where the shape is intricate; the last of the curve's coordinates."""
        closed = closed_amplitudes(self.model, dict(self.families), self.fixed)
        sampled = tuple(name for name in closed if name not in self.marginal)
        intricate = sum(name not in AMPLITUDES for name in self.curve_names) >= INTRICATE
        return sampled if intricate else ()

    def overridden(self, program: Callable[..., Any], bin: Bin) -> Callable[..., Any]:
        """A program of one bin with the user's priors and fixed values in place of the model's."""
        priors = {name: build(family, bin.priors[name]) for name, family in self.families}
        return Override(program, bin.fixed, priors)

    def curve_program(self, bin: Bin) -> Curve:
        """The curve's half of the marginal program: every amplitude that is not integrated out is sampled."""
        shape = self.model.program(bin.tau)
        zero = jnp.zeros_like(bin.inverse_error)
        if self.model.form == "curve":
            return Curve(shape * bin.inverse_error, zero, zero)
        columns = {"contrast": shape * bin.inverse_error, "baseline": bin.inverse_error}
        offset = zero
        for name in sorted(AMPLITUDES, key=lambda name: name in self.relative):
            if name not in self.marginal:
                about = self._about(name, Columns(bin.y - offset, columns["contrast"], columns["baseline"]), bin)
                offset = offset + _amplitude(name, about) * columns[name]
                columns[name] = zero
        return Curve(offset, columns["contrast"], columns["baseline"])

    def _about(self, name: str, columns: Columns, bin: Bin) -> Values:
        """What an amplitude is measured about: mean and sd of its regression on what is left of the columns, as if the
        noise were normal with the scale of the residuals; nothing where it is not `relative`."""
        if name not in self.relative:
            return {}
        contrast, baseline = least_squares_amplitudes(columns)
        residual = columns.y - contrast * columns.shape - baseline * columns.baseline
        scale = jnp.sqrt(jnp.mean(residual**2, where=bin.valid) + SMALLEST_SCALE**2)
        given = self._conditional(columns, scale, bin)
        return {ABOUT: (given.contrast, given.contrast_sd) if name == "contrast" else (given.level, given.baseline_sd)}

    def full_program(self, bin: Bin) -> None:
        """The whole NumPyro program of one bin: every site sampled, `g2` observed."""
        self.overridden(self._full, bin)(bin)

    def _full(self, bin: Bin) -> None:
        mean, scatter = self.parameters(bin)
        g2 = bin.y / jnp.where(bin.valid, bin.inverse_error, 1.0)
        numpyro.sample("g2", Observed(mean, scatter, bin), obs=g2)

    def parameters(self, bin: Bin) -> tuple[Any, Scatter]:
        """Sample every parameter: mean curve (tau,), in the units of the data, and scatter."""
        mean = self.model.program(bin.tau)
        if self.model.form == "siegert":
            contrast, baseline = (_amplitude(name) for name in AMPLITUDES)
            mean = baseline + contrast * mean
        return mean, self.noise.program(bin)

    def _run(self, program: Callable[..., Any], names: tuple[str, ...], z: Any, bin: Bin, *args: Any) -> Any:
        handler = Coordinates(self.overridden(program, bin), z=dict(zip(names, z, strict=True)))
        return handler(*args), handler

    def curve(self, z: Any, bin: Bin) -> tuple[Curve, Values, Any]:
        """Curve, constrained values and log prior (with Jacobian) at the curve's coordinates z."""
        curve, handler = self._run(self.curve_program, self.curve_names, z, bin, bin)
        return curve, handler.values, handler.log_density

    def log_prior_of_shape(self, z: Any, bin: Bin) -> Any:
        """Log prior (with Jacobian) of the coordinates z of the shape, all of the curve's but `relative` amplitudes."""
        _, handler = self._run(self.curve_program, self.curve_names, z[: len(self.curve_names)], bin, bin)
        return sum((handler.log_densities[name] for name in self.curve_names[: self.shape_size]), start=0.0)

    @property
    def shape_size(self) -> int:
        """Number of the shape's coordinates, the first ones."""
        return len(self.curve_names) - len(self.relative)

    def with_regression(self, z: Any) -> Any:
        """Coordinates of the curve (any, param) with the `relative` amplitudes as their regression has them."""
        return z.at[:, self.shape_size :].set(0.0) if self.relative else z

    def scatter(self, z: Any, bin: Bin) -> tuple[Scatter, Values, Any]:
        """Scatter, constrained values and log prior (with Jacobian) at the noise's coordinates z."""
        scatter, handler = self._run(self.noise.program, self.noise_names, z, bin, bin)
        return scatter, handler.values, handler.log_density

    def log_density(self, z: Any, bin: Bin) -> Any:
        """Log of the posterior density at z (param,), up to the evidence; amplitudes integrated out.

        It may be differentiated once: likelihood times prior is stationary in the amplitudes at their conditional mean,
        which is therefore held there.
        """
        split = len(self.curve_names)
        curve, _, log_prior = self.curve(z[:split], bin)
        scatter, _, log_prior_noise = self.scatter(z[split:], bin)
        log_prior = log_prior + log_prior_noise + bin.log_constant
        columns = _white(curve, scatter, bin)
        if not self.marginal:
            return log_prior + scatter.log_likelihood(columns.y, bin)
        given = self._conditional(columns, scatter.scale, bin)
        contrast, baseline = map(stop_gradient, (given.contrast, given.level - given.contrast * given.slope))
        residual = columns.y - contrast * columns.shape - baseline * columns.baseline
        log_likelihood = scatter.log_likelihood(residual, bin)
        return log_prior + log_likelihood + self.amplitude_term(given, contrast, baseline, bin)

    def potential(self, z: Any, bin: Bin) -> Any:
        """Minus the log density, infinite where it is not a number."""
        value = -self.log_density(z, bin)
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    def amplitude_prior(self, name: str, bin: Bin) -> tuple[Any, Any]:
        """Mean and sd of an amplitude's normal prior; of one that is neither integrated out nor measured about its
        regression those of a standard normal, which cancels."""
        if name not in self.marginal + self.relative:
            return 0.0, 1.0
        return bin.priors[name].get("loc", 0.0), bin.priors[name]["scale"]

    def lower_bound(self, bin: Bin) -> Any:
        """The contrast's lower bound, or None where its prior has none."""
        family = dict(self.families).get("contrast")
        if "contrast" not in self.marginal or family == "Normal":
            return None
        return bin.priors["contrast"].get("low", 0.0)

    def _conditional(self, columns: Columns, scale: Any, bin: Bin) -> Amplitudes:
        """Amplitudes given the rest, from white columns."""
        return self.amplitudes(self.regression(columns, scale, bin), bin)

    def amplitudes(self, found: Regression, bin: Bin) -> Amplitudes:
        """Amplitudes given the rest, from what the columns say of them and the contrast's prior."""
        contrast_mean, contrast_sd = self.amplitude_prior("contrast", bin)
        contrast_weight = contrast_sd**-2
        precision = found.precision + contrast_weight
        contrast = (found.product + contrast_weight * contrast_mean) / precision
        return Amplitudes(contrast, precision**-0.5, found.level, found.slope, found.weight**-0.5)

    def regression(self, columns: Columns, scale: Any, bin: Bin) -> Regression:
        """The linear regression on the shape, from white columns. The baseline's prior enters as one more point, at
        shape 0; sums are centred on their weighted mean, so that nothing cancels where the shape is nearly flat. The
        noise's scale divides no array, so that the sums over the data alone are the same at every step.

        What the centred sums owe to a shift of their centres is known without summing again: the columns are
        orthogonal to the baseline's but for the prior's point.
        """
        baseline_mean, baseline_sd = self.amplitude_prior("baseline", bin)
        y, shape, ones = columns
        density, prior_weight = scale**-2, baseline_sd**-2
        weight = density * jnp.sum(ones * ones) + prior_weight
        slope = density * jnp.sum(ones * shape) / weight
        level = (density * jnp.sum(ones * y) + prior_weight * baseline_mean) / weight
        rest, rest_of_y = shape - stop_gradient(slope) * ones, y - stop_gradient(level) * ones
        ones_rest = stop_gradient(prior_weight / density * slope)  # sum(ones * rest), and of the rest of y
        ones_rest_of_y = stop_gradient(prior_weight / density * (level - baseline_mean))
        slope_shift, level_shift = slope - stop_gradient(slope), level - stop_gradient(level)  # 0, but for derivatives
        rest_rest = jnp.sum(rest * rest) - 2.0 * slope_shift * ones_rest
        rest_y = jnp.sum(rest * rest_of_y) - slope_shift * ones_rest_of_y - level_shift * ones_rest
        precision = density * rest_rest + prior_weight * slope**2
        product = density * rest_y - prior_weight * slope * (baseline_mean - level)
        return Regression(precision, product, level, slope, weight)

    def amplitude_term(self, given: Amplitudes, contrast: Any, baseline: Any, bin: Bin) -> Any:
        """log p(a) - log p(a | y, rest) at the conditional mean a: what turns the likelihood there into the marginal
        one (Chib 1995, eq. 3), with the change of the contrast's cut."""
        contrast_mean, contrast_sd = self.amplitude_prior("contrast", bin)
        baseline_mean, baseline_sd = self.amplitude_prior("baseline", bin)
        prior = norm.logpdf(contrast, contrast_mean, contrast_sd) + norm.logpdf(baseline, baseline_mean, baseline_sd)
        posterior = -jnp.log(2 * jnp.pi * given.contrast_sd * given.baseline_sd)
        low = self.lower_bound(bin)
        if low is None:
            return prior - posterior
        return prior - posterior + log_ndtr((given.contrast - low) / given.contrast_sd)

    def columns(self, z: Any, bin: Bin) -> tuple[Columns, Any]:
        """White columns (tau,) at coordinates z (param,), and the scatter's scale."""
        split = len(self.curve_names)
        curve, _, _ = self.curve(z[:split], bin)
        scatter, _, _ = self.scatter(z[split:], bin)
        return _white(curve, scatter, bin), scatter.scale

    def log_constant(self, bins: Bin) -> np.ndarray:
        """What the log density of each bin (bin,) has that depends on no parameter: the Jacobian of the whitening, and
        the mass of the contrast's prior above its cut; in NumPy, for many bins."""
        jacobian = np.sum(np.log(np.where(bins.valid, bins.inverse_error, 1.0)), axis=1)
        low = self.lower_bound(bins)
        if low is None:
            return jacobian
        mean, sd = self.amplitude_prior("contrast", bins)
        return jacobian - special.log_ndtr((mean - low) / sd)

    def constrain(self, z: Any, bin: Bin, key: Any) -> Values:
        """Every parameter at z: the sampled ones and an exact conditional draw of the amplitudes."""
        split = len(self.curve_names)
        curve, values, _ = self.curve(z[:split], bin)
        scatter, noise_values, _ = self.scatter(z[split:], bin)
        values = {**values, **noise_values}
        if not self.marginal:
            return values
        given = self._conditional(_white(curve, scatter, bin), scatter.scale, bin)
        return {**values, **self.draw_amplitudes(given, bin, key)}

    def draw_amplitudes(self, given: Amplitudes, bin: Bin, key: Any) -> Values:
        """Contrast and baseline from their conditional posterior, given the shape."""
        key_contrast, key_baseline = jax.random.split(key)
        low = self.lower_bound(bin)
        if low is None:
            contrast = given.contrast + given.contrast_sd * jax.random.normal(key_contrast)
        else:
            contrast = truncated_normal(key_contrast, given.contrast, given.contrast_sd, low)
        contrast = contrast if "contrast" in self.marginal else 0.0
        baseline = given.level - contrast * given.slope + given.baseline_sd * jax.random.normal(key_baseline)
        drawn = {"contrast": contrast, "baseline": baseline}
        return {name: drawn[name] for name in self.marginal}

    def residual(self, z: Any, bin: Bin, scatter: Scatter | None = None) -> Any:
        """Residuals (tau,) at the curve's coordinates z, the free amplitudes at their least-squares values (variable
        projection: Golub & Pereyra 1973). Standardised by the stated errors, which is what the point estimate
        minimises; or as white as a scatter makes them."""
        curve, _, _ = self.curve(z, bin)
        columns = _white(curve, scatter or Scatter(1.0), bin)
        contrast, baseline = least_squares_amplitudes(columns)
        return columns.y - contrast * columns.shape - baseline * columns.baseline

    def least_squares(self, z: Any, bin: Bin) -> tuple[Values, Values]:
        """Constrained values of a least-squares fit at the curve's coordinates z, and their standard errors for errors
        as stated (the square root of the diagonal of the inverse of J^T J; infinite where it is singular)."""
        curve, values, _ = self.curve(z, bin)
        found = least_squares_amplitudes(_white(curve, Scatter(1.0), bin))
        amplitudes = dict(zip(AMPLITUDES, found, strict=True))
        values = {**values, **{name: amplitudes[name] for name in self.marginal}}
        names = self.curve_names + self.marginal

        def whitened(vector: Any) -> Any:
            return self.mean({**values, **dict(zip(names, vector, strict=True))}, bin) * bin.inverse_error

        jacobian = jax.jacfwd(whitened)(jnp.stack([values[name] for name in names]) if names else jnp.zeros(0))
        length = jnp.sqrt(jnp.sum(jacobian**2, axis=0))
        scaled = jacobian / jnp.where(length > 0, length, 1.0)
        root = jnp.linalg.cholesky(scaled.T @ scaled)
        inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(len(names)), lower=True)
        sd = jnp.sqrt(jnp.sum(inverse**2, axis=0)) / length
        sd = jnp.where(jnp.isfinite(sd), sd, jnp.inf)
        return values, dict(zip(names, sd, strict=True))

    def mean(self, values: Values, bin: Bin) -> Any:
        """The mean curve g2 (tau,) at constrained values, in the units of the data."""
        pinned = Override(self.model.program, values, {})
        shape = pinned(bin.tau)
        return shape if self.model.form == "curve" else values["baseline"] + values["contrast"] * shape

    def scatter_at(self, values: Values, bin: Bin) -> Scatter:
        """The scatter at constrained values."""
        return Override(self.noise.program, values, {})(bin)

    def log_prior(self, values: Values, bin: Bin) -> Values:
        """Log prior density of every inferred parameter at constrained values; no Jacobian."""
        recorder = PriorDensity(self.overridden(self.parameters, bin), values)
        recorder(bin)
        return {name: recorder.found[name] for name in self.names + self.marginal}

    def prior_tails(self, values: Values, bin: Bin) -> Values:
        """How far out in its prior each parameter of the curve lies, at constrained values; see `PriorTails`."""
        recorder = PriorTails(self.overridden(self.parameters, bin), values, self.curve_names + self.marginal)
        recorder(bin)
        return recorder.found

    def draw_full_prior(self, key: Any, bin: Bin) -> Values:
        """A draw of every parameter from the prior, those with them that are fixed or follow from others."""
        program = numpyro.handlers.seed(self.overridden(self.parameters, bin), key)
        trace = numpyro.handlers.trace(program).get_trace(bin)
        return {name: jnp.asarray(site["value"], float) for name, site in trace.items()}

    def amplitude_prior_quantiles(self, name: str, levels: np.ndarray, bins: Bin) -> np.ndarray:
        """Quantiles (bin, level) of the prior of an amplitude that is integrated out, for many bins; in NumPy."""
        mean, sd = self.amplitude_prior(name, bins)
        low = self.lower_bound(bins) if name == "contrast" else None
        above = np.ones(len(sd)) if low is None else special.ndtr((mean - low) / sd)
        return np.reshape(mean, (-1, 1)) - sd[:, None] * special.ndtri((1.0 - levels) * above[:, None])

    def draw_prior(self, key: Any, bin: Bin) -> tuple[Any, Values]:
        """A draw of the coordinates z (param,) from the prior, and the constrained values there."""
        key_curve, key_noise = jax.random.split(key)
        curve = Coordinates(self.overridden(self.curve_program, bin), key=key_curve)
        curve(bin)
        noise = Coordinates(self.overridden(self.noise.program, bin), key=key_noise)
        noise(bin)
        z, values = {**curve.z, **noise.z}, {**curve.values, **noise.values}
        return jnp.stack([z[name] for name in self.names]) if z else jnp.zeros(0), values

    def unconstrain_curve(self, values: Mapping[str, Any], bin: Bin) -> Any:
        """Coordinates of the curve's parameters at constrained values."""
        return coordinates(self.overridden(self.curve_program, bin), self.curve_names, values, bin)

    def unconstrain_noise(self, values: Mapping[str, Any], bin: Bin) -> Any:
        """Coordinates of the noise's parameters at constrained values."""
        return coordinates(self.overridden(self.noise.program, bin), self.noise_names, values, bin)


def least_squares_amplitudes(columns: Columns) -> tuple[Any, Any]:
    """Contrast and baseline of the linear regression on the shape, without priors or bounds."""
    y, shape, ones = columns
    tiny = jnp.finfo(y.dtype).tiny
    weight = jnp.sum(ones**2) + tiny
    slope, level = jnp.sum(ones * shape) / weight, jnp.sum(ones * y) / weight
    rest = shape - slope * ones
    contrast = jnp.sum(rest * (y - level * ones)) / (jnp.sum(rest**2) + tiny)
    return contrast, level - contrast * slope


def _amplitude(name: str, infer: Values | None = None) -> Any:
    """Sample an amplitude; its prior always comes from `Bin.priors`, or its value from `Bin.fixed`."""
    return numpyro.sample(name, dist.Normal(), infer=infer)


def marginal_amplitudes(
    model: Model, noise: Noise, families: Mapping[str, str], fixed: tuple[str, ...]
) -> tuple[str, ...]:
    """The amplitudes that can be integrated out: normal noise, and a prior that allows it."""
    return closed_amplitudes(model, families, fixed) if noise.normal else ()


def closed_amplitudes(model: Model, families: Mapping[str, str], fixed: tuple[str, ...]) -> tuple[str, ...]:
    """The amplitudes with a normal prior; the contrast's may be cut below."""
    if model.form != "siegert":
        return ()
    closed = {"contrast": ("Normal", "TruncatedNormal", "HalfNormal"), "baseline": ("Normal",)}
    return tuple(name for name in AMPLITUDES if name not in fixed and families[name] in closed[name])


def truncated_normal(key: Any, mean: Any, sd: Any, low: Any) -> Any:
    """A draw from a normal cut below at `low`, exact also far in the tail (inverse survival function; beyond 30 sd the
    tail is exponential to within 1e-3)."""
    bound = (low - mean) / sd
    u = jax.random.uniform(key, minval=jnp.finfo(jnp.result_type(float)).tiny)
    near = -ndtri(u * ndtr(-jnp.minimum(bound, 30.0)))
    far = bound - jnp.log(u) / jnp.maximum(bound, 30.0)
    return mean + sd * jnp.where(bound > 30.0, far, jnp.maximum(near, bound))

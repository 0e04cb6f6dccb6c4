"""The algebra of the two linear amplitudes, mean = baseline + contrast * shape, given the shape and white noise.

With normal priors and normal noise the amplitudes integrate out exactly (Gaussian conditioning: Bishop 2006, eqs.
2.113-2.117), and their conditional distribution given the rest is a normal in closed form, cut at the contrast's lower
bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from scipy import special

from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.bin_data import Columns

Real = Float[Array, ""]


class AmplitudePriors(NamedTuple):
    """Means and standard deviations of the amplitudes' normal priors, and the contrast's lower bound, None where its
    prior has none; with a leading axis, of many bins."""

    contrast_mean: Float[AnyArray, "*bins"]
    contrast_sd: Float[AnyArray, "*bins"]
    baseline_mean: Float[AnyArray, "*bins"]
    baseline_sd: Float[AnyArray, "*bins"]
    lower_bound: Float[AnyArray, "*bins"] | None


class Regression(NamedTuple):
    """What the white columns determine of the amplitudes. Of the contrast, without its prior: the `precision`, and the
    `product` of precision and mean. Of the baseline given the contrast, with its prior: Normal(level - contrast *
    slope, weight^-0.5)."""

    precision: Real
    product: Real
    level: Real
    slope: Real
    weight: Real


class Amplitudes(NamedTuple):
    """Conditional distribution of (contrast, baseline) given the rest, before the cut at the contrast's lower bound.

    contrast ~ Normal(contrast, contrast_sd); baseline | contrast ~ Normal(level - contrast * slope, baseline_sd).
    """

    contrast: Real
    contrast_sd: Real
    level: Real
    slope: Real
    baseline_sd: Real

    @property
    def mean(self) -> tuple[Real, Real]:
        """Contrast and baseline at their conditional mean."""
        return self.contrast, self.level - self.contrast * self.slope


def regression(columns: Columns, scale: Real | float, priors: AmplitudePriors) -> Regression:
    """The linear regression on the shape, from white columns with noise of this `scale`.

    The baseline's prior enters as one more point, at shape 0. Sums are centred on their weighted mean, so that no
    digits cancel if the shape is nearly flat. No array is divided by the noise's scale, so that the sums over the data
    alone are the same at every step. Derivatives of the centred sums with respect to their centres follow without
    summing again: the centred columns are orthogonal to the baseline's column, except at the point of the prior.
    """
    y, shape, ones = columns
    density, prior_weight = scale**-2, priors.baseline_sd**-2
    weight = density * jnp.sum(ones * ones) + prior_weight
    slope = density * jnp.sum(ones * shape) / weight
    level = (density * jnp.sum(ones * y) + prior_weight * priors.baseline_mean) / weight
    rest, rest_of_y = shape - stop_gradient(slope) * ones, y - stop_gradient(level) * ones
    ones_rest = stop_gradient(prior_weight / density * slope)  # sum(ones * rest)
    ones_rest_of_y = stop_gradient(prior_weight / density * (level - priors.baseline_mean))  # sum(ones * rest_of_y)
    slope_shift, level_shift = slope - stop_gradient(slope), level - stop_gradient(level)  # 0, but have derivatives
    rest_rest = jnp.sum(rest * rest) - 2.0 * slope_shift * ones_rest
    rest_y = jnp.sum(rest * rest_of_y) - slope_shift * ones_rest_of_y - level_shift * ones_rest
    precision = density * rest_rest + prior_weight * slope**2
    product = density * rest_y - prior_weight * slope * (priors.baseline_mean - level)
    return Regression(precision, product, level, slope, weight)


def conditional(found: Regression, priors: AmplitudePriors) -> Amplitudes:
    """The distribution of the amplitudes given the rest, from their regression and the contrast's prior."""
    contrast_weight = priors.contrast_sd**-2
    precision = found.precision + contrast_weight
    contrast = (found.product + contrast_weight * priors.contrast_mean) / precision
    return Amplitudes(contrast, precision**-0.5, found.level, found.slope, found.weight**-0.5)


def log_marginal_ratio(given: Amplitudes, contrast: Real, baseline: Real, priors: AmplitudePriors) -> Real:
    """log p(a) - log p(a | y, rest) at the conditional mean a, with the change of the contrast's mass above its cut.

    This turns the likelihood at a into the marginal likelihood, p(y | rest) = p(y | a, rest) p(a) / p(a | y, rest)
    (Chib 1995, eq. 3).
    """
    prior_of_contrast = norm.logpdf(contrast, priors.contrast_mean, priors.contrast_sd)
    prior = prior_of_contrast + norm.logpdf(baseline, priors.baseline_mean, priors.baseline_sd)
    posterior = -jnp.log(2 * jnp.pi * given.contrast_sd * given.baseline_sd)
    if priors.lower_bound is None:
        return prior - posterior
    return prior - posterior + log_ndtr((given.contrast - priors.lower_bound) / given.contrast_sd)


def log_mass_above_cut(priors: AmplitudePriors) -> Any:
    """Log of the mass that the contrast's normal prior has above its lower bound, which must not be None; in NumPy."""
    return special.log_ndtr((priors.contrast_mean - priors.lower_bound) / priors.contrast_sd)


def draw_contrast(given: Amplitudes, lower_bound: Real | None, key: Array) -> Real:
    """A draw of the contrast from its conditional distribution."""
    if lower_bound is None:
        return given.contrast + given.contrast_sd * jax.random.normal(key)
    return truncated_normal(key, given.contrast, given.contrast_sd, lower_bound)


def draw_baseline(given: Amplitudes, contrast: Real | float, key: Array) -> Real:
    """A draw of the baseline from its conditional distribution given the contrast."""
    return given.level - contrast * given.slope + given.baseline_sd * jax.random.normal(key)


def least_squares_amplitudes(columns: Columns) -> tuple[Real, Real]:
    """Contrast and baseline of the linear regression on the shape, without priors or bounds."""
    y, shape, ones = columns
    tiny = jnp.finfo(y.dtype).tiny
    weight = jnp.sum(ones**2) + tiny
    slope, level = jnp.sum(ones * shape) / weight, jnp.sum(ones * y) / weight
    rest = shape - slope * ones
    contrast = jnp.sum(rest * (y - level * ones)) / (jnp.sum(rest**2) + tiny)
    return contrast, level - contrast * slope


def truncated_normal(key: Array, mean: Real, sd: Real, low: Real) -> Real:
    """A draw from a normal distribution cut below at `low`, exact also far in the tail (inverse survival function;
    beyond 30 sd the tail is exponential to within 1e-3)."""
    bound = (low - mean) / sd
    u = jax.random.uniform(key, minval=jnp.finfo(jnp.result_type(float)).tiny)
    near = -ndtri(u * ndtr(-jnp.minimum(bound, 30.0)))
    far = bound - jnp.log(u) / jnp.maximum(bound, 30.0)
    return mean + sd * jnp.where(bound > 30.0, far, jnp.maximum(near, bound))


def normal_quantiles(
    mean: Float[np.ndarray, " bin"],
    sd: Float[np.ndarray, " bin"],
    low: Float[np.ndarray, " bin"] | None,
    levels: Float[np.ndarray, " level"],
) -> Float[np.ndarray, "bin level"]:
    """Quantiles of normal distributions, cut below at `low` unless that is None; in NumPy."""
    above = np.ones(len(sd)) if low is None else special.ndtr((mean - low) / sd)
    return np.reshape(mean, (-1, 1)) - sd[:, None] * special.ndtri((1.0 - levels) * above[:, None])

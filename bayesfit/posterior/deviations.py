"""Standardised deviations of the bins from what they have in common, in coordinates that suit the sampler.

A bin's value is middle + spread * deviation, on one of the `pooling_scales`, with standard normal deviations. Given the
spread, the prior draws deviations towards zero and the data draw them towards the bins' own fits. If one of them is
much stronger, the posterior is a funnel in the coordinates that suit the other (the "centred" and the "non-centred"
ones: Papaspiliopoulos, Roberts & Skold, Stat. Sci. 22, 59 (2007)). Here prior and fits are both taken as normal, and
the coordinate x is defined by deviation = mean + root x, with the conditional mean and a root of the conditional
covariance at the current spread. The prior of the deviations is standard normal whatever the fits are: they only choose
the coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int
from numpyro.distributions.transforms import AffineTransform, IndependentTransform, LowerCholeskyAffine

from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.pooling_scales import Scale

DEVIATIONS = "_standardised"  # how the names of the sites of standardised deviations end
MOST_STEPS = 128  # of a random walk in fitted coordinates, each point of which costs a Cholesky factor


class Fits(NamedTuple):
    """The bins' own fits of a parameter, on the scale of its deviations: the fitted value `middle` and `precision`, one
    over the squared standard error; both 0 in bins without a fit."""

    middle: Float[Array, " q_bin"]
    precision: Float[Array, " q_bin"]


def fits_on(
    scale: Scale, prior: dist.Distribution, values: Float[AnyArray, " q_bin"], sd: Float[AnyArray, " q_bin"]
) -> Fits:
    """The bins' own values and their standard errors, transformed to a scale."""
    middle, width = jax.jvp(lambda value: scale.to(value, prior), (jnp.asarray(values),), (jnp.asarray(sd),))
    usable = jnp.isfinite(middle) & jnp.isfinite(width) & (width != 0.0)
    precision = jnp.where(usable, jnp.where(usable, width, 1.0) ** -2, 0.0)
    return Fits(jnp.where(usable, middle, 0.0), precision)


def independent(
    name: str, count: int, spread: Float[Array, ""], middle: Float[Array, "*q_bin"], fits: Fits | None
) -> Float[Array, " q_bin"]:
    """Sample independent standard normal deviations of `count` bins; the values are middle + spread * deviation."""
    if fits is None:
        return numpyro.sample(name, dist.Normal().expand([count]).to_event(1))
    root = (1.0 + spread**2 * fits.precision) ** -0.5
    mean = root**2 * spread * fits.precision * (fits.middle - middle)
    inner = dist.Normal(-mean / root, 1.0 / root).to_event(1)
    push = IndependentTransform(AffineTransform(mean, root), 1)
    return numpyro.sample(name, dist.TransformedDistribution(inner, push))


class Steps(NamedTuple):
    """The steps of a random walk through the bins: `order`, the bins' places in the order of q, and `sd`, the standard
    deviation of each step from one to the next."""

    order: Int[AnyArray, " q_bin"]
    sd: Float[AnyArray, " step"]


def random_walk(
    name: str, steps: Steps, spread: Float[Array, ""], middle: Float[Array, ""], fits: Fits | None
) -> Float[Array, " q_bin"]:
    """Sample a random walk through the bins that begins at 0; the values are middle + spread * walk."""
    count = steps.sd.shape[0]
    sums = jnp.concatenate([jnp.zeros((1, count)), jnp.tril(jnp.ones((count, count))) * steps.sd])
    if fits is None or count > MOST_STEPS:
        numbers = numpyro.sample(name, dist.Normal().expand([count]).to_event(1))
    else:
        precision = fits.precision[steps.order]
        upper = _upper_root(jnp.eye(count) + spread**2 * sums.T @ (precision[:, None] * sums))
        root = jax.scipy.linalg.solve_triangular(upper.T, jnp.eye(count), lower=True)
        mean = root @ (root.T @ (spread * sums.T @ (precision * (fits.middle[steps.order] - middle))))
        inner = dist.MultivariateNormal(-upper.T @ mean, scale_tril=upper.T)
        numbers = numpyro.sample(name, dist.TransformedDistribution(inner, LowerCholeskyAffine(mean, root)))
    return jnp.zeros(count + 1).at[steps.order].set(sums @ numbers)


def _upper_root(matrix: Float[Array, "step step"]) -> Float[Array, "step step"]:
    """The upper triangular U with U U^T = matrix."""
    return jnp.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1]

"""The sinh-arcsinh normal distribution, which describes a skewed posterior by four numbers, and its fit to draws.

With z = (x - location) / scale and S = sinh(tail arcsinh(z) - skew), S is standard normal (Jones & Pewsey, Biometrika
96, 761 (2009), eq. 2). `skew` = 0 and `tail` = 1 give the normal distribution; a `tail` below 1 gives heavier tails.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float, Int

from bayesfit.modelling.scatter import AnyArray

LIGHTEST, HEAVIEST = 4.0, 0.5  # tails; from 0.5 on they fall at least as fast as exp(-|x|): products have one mode
STEPS = 300
TOLERANCE = 1e-8
HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))

Numbers = Float[AnyArray, "*shape"]


class SinhArcsinh(NamedTuple):
    """One distribution, or, with a leading axis, many. `location` and `scale` have the unit of x, `skew` and `tail`
    have none."""

    location: Numbers
    scale: Numbers
    skew: Numbers
    tail: Numbers


def log_density(x: Numbers, shape: SinhArcsinh) -> Float[Array, "*shape"]:
    """Logarithm of the density at x."""
    z = (x - shape.location) / shape.scale
    s = _normal_score(z, shape)
    stretch = 0.5 * (jnp.log1p(s**2) - jnp.log1p(z**2))
    return jnp.log(shape.tail / shape.scale) + stretch - 0.5 * s**2 - HALF_LOG_2PI


def distribution(x: Numbers, shape: SinhArcsinh) -> Float[Array, "*shape"]:
    """Distribution function at x."""
    return ndtr(normal_score(x, shape))


def from_normal_score(score: Numbers, shape: SinhArcsinh) -> Float[Array, "*shape"]:
    """The x with this normal score; standard normal scores give draws."""
    return shape.location + shape.scale * jnp.sinh((jnp.arcsinh(score) + shape.skew) / shape.tail)


def normal_score(x: Numbers, shape: SinhArcsinh) -> Float[Array, "*shape"]:
    """The normal score S of x, where the standard normal distribution function is that of x."""
    return _normal_score((x - shape.location) / shape.scale, shape)


def _normal_score(z: Numbers, shape: SinhArcsinh) -> Float[Array, "*shape"]:
    return jnp.sinh(shape.tail * jnp.arcsinh(z) - shape.skew)


def fit(draws: Float[np.ndarray, "series draw"]) -> tuple[SinhArcsinh, Float[np.ndarray, " series"]]:
    """The distribution of largest likelihood for each series of draws, and how far it is from them.

    Args:
        draws: NaN are ignored; a series needs two different draws.

    Returns:
        The distributions, each number of shape (series,), and the Kolmogorov-Smirnov distance (series,) between their
        distribution function and that of the draws. Both NaN where no likelihood is finite.
    """
    with jax.enable_x64(True):
        centre, spread = np.nanmean(draws, axis=1), np.nanstd(draws, axis=1)
        scores = (draws - centre[:, None]) / spread[:, None]
        made = np.isfinite(scores)
        coordinates, loss = _fitted(np.where(made, scores, 0.0), made)
        shape = _shape(jnp.moveaxis(jnp.where(jnp.isfinite(loss)[:, None], coordinates, jnp.nan), -1, 0))
        distance = _distance(np.sort(scores, axis=1), made.sum(axis=1)[:, None], shape)
        placed = shape._replace(location=centre + spread * shape.location, scale=spread * shape.scale)
        return SinhArcsinh(*map(np.asarray, placed)), distance


def _shape(coordinates: Float[Array, "4 ..."]) -> SinhArcsinh:
    """The distribution at four unconstrained coordinates; (0, 0, 0, 0) is the standard normal."""
    location, scale, skew, tail = coordinates
    at_one = np.log((1.0 - HEAVIEST) / (LIGHTEST - 1.0))
    return SinhArcsinh(location, jnp.exp(scale), skew, HEAVIEST + (LIGHTEST - HEAVIEST) * jax.nn.sigmoid(tail + at_one))


def _loss(coordinates: Float[Array, " 4"], series: tuple[Array, Array]) -> Float[Array, ""]:
    """Mean negative log likelihood of one series."""
    scores, made = series
    return -jnp.mean(log_density(scores, _shape(coordinates)), where=made)


@jax.jit
@partial(jax.vmap, in_axes=(0, 0))
def _fitted(scores: Float[Array, " draw"], made: Bool[Array, " draw"]) -> tuple[Float[Array, " 4"], Float[Array, ""]]:
    """Coordinates and loss at the largest likelihood of one series of standardised draws, those that were `made`."""
    import optimistix

    solver: Any = optimistix.BFGS(rtol=TOLERANCE, atol=TOLERANCE)
    found = optimistix.minimise(_loss, solver, jnp.zeros(4), args=(scores, made), max_steps=STEPS, throw=False).value
    return found, _loss(found, (scores, made))


def _distance(
    ordered: Float[np.ndarray, "series draw"], count: Int[np.ndarray, "series 1"], shape: SinhArcsinh
) -> Float[np.ndarray, " series"]:
    """Largest distance between the distribution function and the empirical one of sorted draws. There are `count` of
    them, followed by NaN."""
    expected = np.asarray(distribution(ordered, SinhArcsinh(*(number[:, None] for number in shape))))
    place = np.arange(ordered.shape[1])
    apart = np.maximum((place + 1) / count - expected, expected - place / count)
    failed = np.isnan(np.asarray(shape.location))
    return np.where(failed, np.nan, np.max(np.where(place < count, apart, -np.inf), axis=1))

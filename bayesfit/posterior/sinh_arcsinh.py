"""The sinh-arcsinh normal, four numbers that describe a skewed posterior of one parameter, and its fit to draws.

With z = (x - location) / scale and S = sinh(tail arcsinh(z) - skew), S is standard normal (Jones & Pewsey, Biometrika
96, 761 (2009), eq. 2). `skew` = 0 and `tail` = 1 give the normal distribution; a `tail` below 1 gives heavier tails.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jax.scipy.special import ndtr

LIGHTEST, HEAVIEST = 4.0, 0.5  # tails; from 0.5 on they fall at least as exp(-|x|), so that products keep one mode
STEPS = 300
TOLERANCE = 1e-8
HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))


class SinhArcsinh(NamedTuple):
    """One distribution, or, with a leading axis, many; `location` and `scale` in the unit of x."""

    location: Any
    scale: Any
    skew: Any
    tail: Any


def log_density(x: Any, shape: SinhArcsinh) -> Any:
    """Logarithm of the density at x."""
    z = (x - shape.location) / shape.scale
    s = _normal_score(z, shape)
    stretch = 0.5 * (jnp.log1p(s**2) - jnp.log1p(z**2))
    return jnp.log(shape.tail / shape.scale) + stretch - 0.5 * s**2 - HALF_LOG_2PI


def distribution(x: Any, shape: SinhArcsinh) -> Any:
    """Distribution function at x."""
    return ndtr(normal_score(x, shape))


def from_normal_score(score: Any, shape: SinhArcsinh) -> Any:
    """The x whose normal score is this: standard normal scores give draws."""
    return shape.location + shape.scale * jnp.sinh((jnp.arcsinh(score) + shape.skew) / shape.tail)


def normal_score(x: Any, shape: SinhArcsinh) -> Any:
    """The normal score of x, that has the same distribution function."""
    return _normal_score((x - shape.location) / shape.scale, shape)


def _normal_score(z: Any, shape: SinhArcsinh) -> Any:
    return jnp.sinh(shape.tail * jnp.arcsinh(z) - shape.skew)


def fit(draws: np.ndarray) -> tuple[SinhArcsinh, np.ndarray]:
    """The distribution of largest likelihood for each series of draws, and how far it is from them.

    Args:
        draws: (series, draw); NaN are no draws, and a series needs two different ones.

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


def _shape(coordinates: Any) -> SinhArcsinh:
    """Four free numbers (4, ...) as a distribution; (0, 0, 0, 0) is the standard normal."""
    location, scale, skew, tail = coordinates
    at_one = np.log((1.0 - HEAVIEST) / (LIGHTEST - 1.0))
    return SinhArcsinh(location, jnp.exp(scale), skew, HEAVIEST + (LIGHTEST - HEAVIEST) * jax.nn.sigmoid(tail + at_one))


def _loss(coordinates: Any, series: tuple[Any, Any]) -> Any:
    """Mean negative log likelihood of one series."""
    scores, made = series
    return -jnp.mean(log_density(scores, _shape(coordinates)), where=made)


@jax.jit
@partial(jax.vmap, in_axes=(0, 0))
def _fitted(scores: Any, made: Any) -> tuple[Any, Any]:
    """Coordinates (4,) and loss at the largest likelihood of one series of standardised draws."""
    solver: Any = optimistix.BFGS(rtol=TOLERANCE, atol=TOLERANCE)
    found = optimistix.minimise(_loss, solver, jnp.zeros(4), args=(scores, made), max_steps=STEPS, throw=False).value
    return found, _loss(found, (scores, made))


def _distance(ordered: np.ndarray, count: np.ndarray, shape: SinhArcsinh) -> np.ndarray:
    """Largest distance (series,) between the distribution function and that of sorted draws (series, draw), of which
    there are `count` (series, 1), NaN behind them."""
    expected = np.asarray(distribution(ordered, SinhArcsinh(*(number[:, None] for number in shape))))
    place = np.arange(ordered.shape[1])
    apart = np.maximum((place + 1) / count - expected, expected - place / count)
    failed = np.isnan(np.asarray(shape.location))
    return np.where(failed, np.nan, np.max(np.where(place < count, apart, -np.inf), axis=1))

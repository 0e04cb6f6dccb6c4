"""Deviations of the bins from what they have in common: standard normal numbers, in coordinates that the data make
round.

Given their scale, deviations are drawn towards zero by their prior and towards the bins' own fits by the data. Where
either is much the stronger, the posterior is a funnel in the coordinates that suit the other ("centred" and
"non-centred": Papaspiliopoulos, Roberts & Skold, Stat. Sci. 22, 59 (2007)). Here the coordinate x of the numbers is
what is left after both are taken as normal, number = mean + root x, with the conditional mean and a root of the
conditional covariance at the scale in hand. The numbers' distribution is standard normal whatever the data are: the
fits choose coordinates and nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform, IndependentTransform, LowerCholeskyAffine

MOST_STEPS = 128  # of a random walk, whose coordinates cost a Cholesky factor at every point


class Fits(NamedTuple):
    """The bins' own fits of a parameter, on the scale of its deviations: `middle` and `precision` (q_bin,), 0 and 0
    where there is none."""

    middle: Any
    precision: Any


def independent(name: str, count: int, spread: Any, middle: Any, fits: Fits | None) -> Any:
    """Standard normal numbers (count,), of which the values are middle + spread * number."""
    if fits is None:
        return numpyro.sample(name, dist.Normal().expand([count]).to_event(1))
    root = (1.0 + spread**2 * fits.precision) ** -0.5
    mean = root**2 * spread * fits.precision * (fits.middle - middle)
    inner = dist.Normal(-mean / root, 1.0 / root).to_event(1)
    push = IndependentTransform(AffineTransform(mean, root), 1)
    return numpyro.sample(name, dist.TransformedDistribution(inner, push))


def walk(name: str, steps: Any, order: Any, spread: Any, middle: Any, fits: Fits | None) -> Any:
    """A random walk (q_bin,) that begins at 0, with these `steps` (q_bin - 1,) from bin to bin in this `order`; the
    values are middle + spread * walk."""
    count = steps.shape[0]
    sums = jnp.concatenate([jnp.zeros((1, count)), jnp.tril(jnp.ones((count, count))) * steps])
    if fits is None or count > MOST_STEPS:
        numbers = numpyro.sample(name, dist.Normal().expand([count]).to_event(1))
    else:
        precision = fits.precision[order]
        upper = _upper_root(jnp.eye(count) + spread**2 * sums.T @ (precision[:, None] * sums))
        root = jax.scipy.linalg.solve_triangular(upper.T, jnp.eye(count), lower=True)
        mean = root @ (root.T @ (spread * sums.T @ (precision * (fits.middle[order] - middle))))
        inner = dist.MultivariateNormal(-upper.T @ mean, scale_tril=upper.T)
        numbers = numpyro.sample(name, dist.TransformedDistribution(inner, LowerCholeskyAffine(mean, root)))
    return jnp.zeros(count + 1).at[order].set(sums @ numbers)


def _upper_root(matrix: Any) -> Any:
    """The upper triangular U with U U^T = matrix."""
    return jnp.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1]

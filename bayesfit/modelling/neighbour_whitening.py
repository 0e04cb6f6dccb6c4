"""Residuals whitened one by one: each by the residuals of a few delays before it (A. V. Vecchia, J. R. Stat. Soc. B 50,
297 (1988)).

A residual's conditional distribution given those at most BAND delays before it has a mean that is linear in these. The
residual less that mean, over the conditional standard deviation, is white. What lies farther back is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

BAND = 20  # delays before a delay with which it correlates by itself


@jax.custom_jvp
def banded(x: Any, weights: Float[Array, "tau band"]) -> Any:
    """sum_k weights[:, k] x[t - k], with 0 before the first x. Its derivative is written such that it is fast in
    reverse: slices of products."""
    band = weights.shape[1] - 1
    before = jax.lax.optimization_barrier(jnp.concatenate([jnp.zeros(band), x]))
    terms = (weights[:, off] * before[band - off : band - off + x.size] for off in range(band + 1))
    return jax.lax.optimization_barrier(sum(terms))


@banded.defjvp
def _banded_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    """Only in x: weights are data."""
    x, weights = primals
    return banded(x, weights), _of_slope(tangents[0], weights)


def _of_slope(dx: Any, weights: Float[Array, "tau band"]) -> Any:
    """What `banded` is, with padding where it has slices, whose reverse is one sum of slices. Only that of the last
    `band` entries, of which some products would lie behind the end, is not."""
    size, band = len(weights), weights.shape[1] - 1
    middle = max(size - band, 0)
    first, last = jnp.split(jax.lax.optimization_barrier(dx), [middle])
    terms = [
        weights[:, off] * jax.lax.pad(part, 0.0, [(start + off, size - start - off - len(part), 0)])
        for start, part in ((0, first), (middle, last))
        for off in range(band + 1)
        if len(part)
    ]
    return jax.lax.optimization_barrier(sum(terms))


def whitening_matrix(weights: Float[Array, "tau band"]) -> Float[Array, "tau tau"]:
    """What `banded` multiplies with, as a lower triangular matrix."""
    place, last = jnp.arange(len(weights)), weights.shape[1] - 1
    off = place[:, None] - place
    inside = (off >= 0) & (off <= last)
    return jnp.where(inside, jnp.take_along_axis(weights, jnp.clip(off, 0, last), axis=1), 0.0)


class NeighbourWhitening(NamedTuple):
    """The correlations of standardised residuals (tau,), each whitened by those of the BAND delays before it: `weights`
    (tau, BAND + 1) are their factors, and `log_weights` (tau,) belong to the residual itself. They depend on no
    parameter."""

    weights: Float[Array, "tau band"]
    log_weights: Float[Array, " tau"]

    def whiten(self, columns: Float[Array, "tau column"]) -> Float[Array, "tau column"]:
        """Columns in coordinates where the noise is independent and of unit variance."""
        return whitening_matrix(self.weights) @ columns

    def whiten_each(self, bin: Any, columns: tuple[Float[Array, " tau"], ...]) -> tuple[Float[Array, " tau"], ...]:
        """The same for a few columns, one by one, so that no derivative is taken of data; 0 where points are not
        valid."""
        return tuple(jnp.where(bin.valid, banded(column, self.weights), 0.0) for column in columns)

    def log_volume(self, bin: Any) -> Float[Array, ""]:
        """Log determinant of the map from white residuals to the correlated ones of the valid points."""
        return -jnp.sum(jnp.where(bin.valid, self.log_weights, 0.0))

    def color(self, white: Float[Array, " tau"]) -> Float[Array, " tau"]:
        """The column that `whiten` turns into this white one; what is not valid is independent."""
        root = jnp.where(self.weights[:, :1] == 0.0, jnp.eye(white.size), whitening_matrix(self.weights))
        return jax.scipy.linalg.solve_triangular(root, white, lower=True)

    def neighbours(self) -> Float[Array, " tau"]:
        """Correlation of each point with the one before, of which only derivatives are asked for: there are none."""
        return jnp.zeros_like(self.log_weights)


def neighbour_weights(
    correlation: Float[np.ndarray, "bin tau tau"], valid: Bool[np.ndarray, "bin tau"]
) -> Float[np.ndarray, "bin tau band"]:
    """The factors of each valid residual and of those before it, of which the white one is the sum, from their
    correlation matrices; 0 where not valid."""
    among, with_it = _windows(correlation, valid)
    factors = np.linalg.solve(among, with_it[..., None])[..., 0]
    first = (1.0 - np.sum(factors * with_it, axis=-1, keepdims=True)) ** -0.5
    return np.where(valid[..., None], np.concatenate([first, -factors * first], axis=-1), 0.0)


def _windows(
    correlation: Float[np.ndarray, "bin tau tau"], valid: Bool[np.ndarray, "bin tau"]
) -> tuple[Float[np.ndarray, "bin tau neighbour neighbour"], Float[np.ndarray, "bin tau neighbour"]]:
    """Correlations among the BAND points before each, the nearest first, and with it. Points that are not there, or not
    valid, correlate with none."""
    size = valid.shape[1]
    padded = np.broadcast_to(np.eye(BAND + size), (len(valid), BAND + size, BAND + size)).copy()
    padded[:, BAND:, BAND:] = np.where(valid[:, :, None] & valid[:, None, :], correlation, np.eye(size))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (BAND + 1, BAND + 1), axis=(1, 2))
    along = np.diagonal(windows, axis1=1, axis2=2)[..., ::-1, ::-1, :]  # the point itself comes first
    return np.moveaxis(along[:, 1:, 1:], -1, 1), np.moveaxis(along[:, 0, 1:], -1, 1)


def before_each(values: Float[np.ndarray, "*bins tau"]) -> Float[np.ndarray, "*bins tau neighbour"]:
    """The BAND values before each, the nearest first; 0 before the first."""
    padded = np.concatenate([np.zeros((*values.shape[:-1], BAND)), values], axis=-1)
    return np.lib.stride_tricks.sliding_window_view(padded, BAND, axis=-1)[..., :-1, ::-1]


def whitened_data(
    data: Float[np.ndarray, "*bins tau"], weights: Float[np.ndarray, "*bins tau band"]
) -> Float[np.ndarray, "*bins tau"]:
    """What `banded` does, in NumPy."""
    return weights[..., 0] * data + np.sum(weights[..., 1:] * before_each(data), axis=-1)

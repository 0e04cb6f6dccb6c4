"""What is learnt in place of |g1|^2, so that it stays a decay: a number without bounds at each delay.

h = log(-log(EDGE + (1 - 2 EDGE) |g1|^2)) is linear in the logarithms of delay and rate for a stretched exponential,
and smooth where |g1|^2 is 0 or 1; or h is |g1|^2 itself, whatever predicts better. What is predicted lies between 0
and 1. Between the delays, h is a cubic Hermite spline in log tau. If every curve of the simulator falls, so does what
is predicted: h is replaced by its running maximum (minimum, if it is |g1|^2), and the slopes are limited as Fritsch &
Carlson (SIAM J. Numer. Anal. 17, 238 (1980)) have it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline

EDGE = 1e-3
LINKS = ("loglog", "identity")
FALLS = 1e-9  # a rise of a curve up to this is rounding

OfDelays = Float[Any, "*any tau"]


def linked(curves: Float[np.ndarray, "run tau"], link: str) -> Float[np.ndarray, "run tau"]:
    """What is learnt of curves."""
    return curves if link == "identity" else np.log(-np.log(EDGE + (1.0 - 2.0 * EDGE) * curves))


def unlinked(h: OfDelays, link: str, xp: Any = np) -> OfDelays:
    """The curves of which this was learnt, from 0 to 1; in NumPy, or with `xp` in JAX."""
    curves = h if link == "identity" else (xp.exp(-xp.exp(xp.minimum(h, 5.0))) - EDGE) / (1.0 - 2.0 * EDGE)
    return xp.clip(curves, 0.0, 1.0)


def falls(curves: Float[np.ndarray, "run tau"]) -> bool:
    """Whether every curve falls with the delay."""
    return bool(np.all(np.diff(curves, axis=1) <= FALLS))


def slopes(log_tau: Float[np.ndarray, " tau"]) -> Float[np.ndarray, "tau tau"]:
    """The matrix that gives the slopes of a cubic spline with two continuous derivatives from its values."""
    return np.asarray(CubicSpline(log_tau, np.eye(log_tau.size))(log_tau, 1))


def rising(
    h: Float[Array, " tau"], slope: Float[Array, " tau"], log_tau: Float[np.ndarray, " tau"]
) -> tuple[Float[Array, " tau"], Float[Array, " tau"]]:
    """Values and slopes of a spline that rises."""
    h = jax.lax.cummax(h)
    secant = jnp.diff(h) / np.diff(log_tau)
    smallest = jnp.minimum(jnp.concatenate([secant[:1], secant]), jnp.concatenate([secant, secant[-1:]]))
    return h, jnp.clip(slope, 0.0, 3.0 * smallest)


def between(
    at: Float[Array, " any"],
    log_tau: Float[np.ndarray, " tau"],
    h: Float[Array, " tau"],
    slope: Float[Array, " tau"],
) -> Float[Array, " any"]:
    """The cubic Hermite spline at any log tau; beyond the ends its values there."""
    at = jnp.clip(at, log_tau[0], log_tau[-1])
    place = jnp.clip(jnp.searchsorted(jnp.asarray(log_tau), at, side="right") - 1, 0, log_tau.size - 2)
    step = jnp.asarray(np.diff(log_tau))[place]
    t = (at - jnp.asarray(log_tau)[place]) / step
    h0, h1, s0, s1 = h[place], h[place + 1], slope[place] * step, slope[place + 1] * step
    return h0 + t**2 * (3 - 2 * t) * (h1 - h0) + t * (1 - t) * ((1 - t) * s0 - t * s1)

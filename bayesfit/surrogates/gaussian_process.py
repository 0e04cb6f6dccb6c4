"""Gaussian processes for the principal components of what is learnt: for up to about six parameters.

Each component has a squared exponential kernel with a length for every parameter, beside a linear trend and a nugget
(Higdon et al., J. Am. Stat. Assoc. 103, 570 (2008)). The lengths maximise the marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import linalg
from scipy.optimize import minimize

from bayesfit.surrogates.emulator import Arrays, Fitted, of_mean, principal

LEFT_OUT = 1e-7  # of the variance, by components that are not learnt
COMPONENTS = 12  # at most
TREND = 3.0  # sd of the linear trend, in units of the component's sd
RUNS = 200  # the first ones, of which the lengths are learnt
NUGGET = (1e-9, 1.0)  # variance, in units of the component's
STEPS = {"maxiter": 40}
LENGTH, HEIGHT = (0.05, 50.0), (1e-2, 1e2)

Settings = Float[np.ndarray, " param+2"]  # logarithms of the lengths, the height, the nugget


def fit(
    x: Float[np.ndarray, "run param"], h: Float[np.ndarray, "run tau"], nuggets: Sequence[float] = (1e-6,)
) -> list[Fitted]:
    """The Gaussian process of these runs, whose settings are looked for from each of the `nuggets`. Each run is
    predicted from all others in closed form (Rasmussen & Williams, Gaussian Processes for Machine Learning (2006),
    eq. 5.12)."""
    mean, components, scores = principal(h, LEFT_OUT, COMPONENTS)
    settings = list[Settings]()
    for column in scores.T:  # each from the last, too, since components become rougher
        starts = settings[-1:] or [np.log([*[0.7] * x.shape[1], 1.0, nuggets[0]])]
        starts = starts + [np.log([*[0.7] * x.shape[1], 1.0, nugget]) for nugget in nuggets[1:]]
        settings.append(_learnt(x[:RUNS], column[:RUNS], starts))
    made = [_conditioned(x, column, each) for column, each in zip(scores.T, settings, strict=True)]
    kept = _predicted(scores, np.array([held_out for _, held_out, _ in made]))
    weights, held_out, leverage = (np.array(each)[kept] for each in zip(*made, strict=True))
    chosen, components = np.array(settings)[kept], components[kept]
    predicted = (components**2).sum(axis=1)[:, None] * np.exp(chosen[:, -1:]) / (1.0 - leverage)  # variance, with noise
    shares = np.clip((predicted * leverage).sum(axis=0) / predicted.sum(axis=0), 0.0, 1.0)
    arrays = {"x": x, "settings": chosen, "weights": weights, "mean": mean, "components": components}
    words = f"Gaussian processes of {len(components)} components"
    return [Fitted("gaussian_process", arrays, mean + held_out.T @ components, words, of_mean(shares))]


def _predicted(
    scores: Float[np.ndarray, "run component"], held_out: Float[np.ndarray, "component run"]
) -> Int[np.ndarray, " kept"]:
    """Which components are predicted better than by their mean, and the first: others are noise of the simulator."""
    useful = np.mean((scores - held_out.T) ** 2, axis=0) < np.mean(scores**2, axis=0)
    return np.flatnonzero(useful | (np.arange(useful.size) == 0))


def kernel(a: Float[Any, "*a param"], b: Float[Any, "run param"], settings: Settings, xp: Any) -> Float[Any, "*a run"]:
    """The covariance of a component at two points, the nugget left out."""
    size = b.shape[1]
    scaled_a, scaled_b = a / xp.exp(settings[:size]), b / xp.exp(settings[:size])
    distance = xp.sum((scaled_a[..., None, :] - scaled_b) ** 2, axis=-1)
    return xp.exp(settings[size] - 0.5 * distance) + TREND**2 * (1.0 + a @ b.T)


def _learnt(x: Float[np.ndarray, "run param"], y: Float[np.ndarray, " run"], starts: list[Settings]) -> Settings:
    """The settings of largest marginal likelihood that are reached from these starts."""
    bounds = [np.log(each) for each in (*[LENGTH] * x.shape[1], HEIGHT, NUGGET)]
    gaps = (x[:, None, :] - x) ** 2
    how: Any = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": STEPS}
    found = [minimize(_objective, start, (x, y, gaps), **how) for start in starts]
    return min(found, key=lambda each: each.fun).x


def _objective(
    settings: Settings, x: Float[np.ndarray, "run param"], y: Float[np.ndarray, " run"], gaps: np.ndarray
) -> tuple[float, np.ndarray]:
    """Minus the log marginal likelihood, and its slope (Rasmussen & Williams, eq. 5.9)."""
    size, identity = x.shape[1], np.eye(len(x))
    scaled = gaps / np.exp(2.0 * settings[:size])
    smooth = np.exp(settings[size] - 0.5 * scaled.sum(axis=-1))
    covariance = smooth + TREND**2 * (1.0 + x @ x.T) + np.exp(settings[-1]) * identity
    try:
        root = linalg.cho_factor(covariance, lower=True)
    except linalg.LinAlgError:
        return 1e10, np.zeros_like(settings)
    weights = linalg.cho_solve(root, y)
    change = linalg.cho_solve(root, identity) - np.outer(weights, weights)
    lengths = np.einsum("ij,ij,ijk->k", change, smooth, scaled)
    slope = [*lengths, np.sum(change * smooth), np.exp(settings[-1]) * np.trace(change)]
    return float(0.5 * y @ weights + np.sum(np.log(np.diag(root[0])))), 0.5 * np.array(slope)


def _conditioned(
    x: Float[np.ndarray, "run param"], y: Float[np.ndarray, " run"], settings: Settings
) -> tuple[Float[np.ndarray, " run"], ...]:
    """The weights of the runs, what is predicted for each from all others, and the share of each in what is predicted
    from all."""
    nugget = np.exp(settings[-1])
    inverse = np.linalg.inv(kernel(x, x, settings, np) + nugget * np.eye(len(x)))
    weights, precision = inverse @ y, np.diag(inverse)
    return weights, y - weights / precision, 1.0 - nugget * precision


def predict(arrays: Arrays, x: Float[Array, " param"]) -> Float[Array, " tau"]:
    """What is learnt, at one point."""
    runs = jnp.asarray(arrays["x"])

    def component(settings: Any, weights: Any) -> Array:
        return kernel(x, runs, settings, jnp) @ weights

    scores = jax.vmap(component)(jnp.asarray(arrays["settings"]), jnp.asarray(arrays["weights"]))
    return jnp.asarray(arrays["mean"]) + scores @ jnp.asarray(arrays["components"])

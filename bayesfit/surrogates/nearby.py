"""Where in a simulator's parameters the posterior of measured curves lies: weighted points, by adaptive importance
sampling. It is a search and no result: the amplitudes, and a factor of the errors, are at their best values."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.surrogates.learnt import Learnt

FIRST, MORE, ROUNDS = 2048, 512, 30  # points from the prior; in each round after that
LEAST_ESS = 40.0
KEPT = 64
WIDER = 1.2  # proposals, in sd
FREEDOM = 5.0

Coordinates = Float[np.ndarray, "point param"]


class Nearby(NamedTuple):
    """The posterior of one bin: `coordinates` of draws from it, the `contrast` that fits best there, and the factor of
    the stated errors that the residuals ask for."""

    coordinates: Coordinates
    contrast: float
    error_scale: float


class Search:
    """Finds the posterior of one bin after the other. Call it with x64 on."""

    def __init__(self, learnt: Learnt, tau: Float[np.ndarray, " tau"], seed: int = 0) -> None:
        self.learnt, self.tau, self.seed = learnt, tau, seed
        self.shapes = jax.jit(jax.vmap(lambda x: learnt.shape(x, jnp.asarray(tau))))
        self.first = learnt.space.coordinates(learnt.space.design(FIRST, seed))
        self.first_shapes = np.asarray(self.shapes(self.first))

    def __call__(self, curve: xr.Dataset) -> Nearby | None:
        """The posterior of one bin; None where it has too few points."""
        valid = curve.valid.values
        if valid.sum() < self.learnt.space.size + 3:
            return None
        g2, err = curve.g2.values[valid], curve.g2_err.values[valid]
        rng = np.random.default_rng(self.seed)
        x, log_q = self.first, self.learnt.space.log_prior(self.first)
        log_p = log_q + _log_likelihood(self.first_shapes[:, valid], g2, err)[0]
        power, weight = _tempered(log_p, log_q)
        for round in range(ROUNDS):
            if power == 1.0 and round:
                break
            x, log_q = _student(rng, *_moments(x, weight))
            log_p = self.learnt.space.log_prior(x)
            log_p += _log_likelihood(np.asarray(self.shapes(np.clip(x, -1, 1)))[:, valid], g2, err)[0]
            power, weight = _tempered(log_p, log_q)
        chosen = x[rng.choice(len(x), KEPT, p=weight)]
        found, contrast, scale = _log_likelihood(np.asarray(self.shapes(chosen))[:, valid], g2, err)
        best = int(np.argmax(found))
        freedom = g2.size - self.learnt.space.size - 2
        return Nearby(chosen, float(contrast[best]), float(scale[best] * np.sqrt(g2.size / freedom)))


def _log_likelihood(
    shapes: Float[np.ndarray, "point tau"], g2: Float[np.ndarray, " tau"], err: Float[np.ndarray, " tau"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At each point the log likelihood, the contrast, and the factor of the errors, all at their best values."""
    w = 1.0 / err**2 / np.sum(1.0 / err**2)
    s, y = shapes - (shapes @ w)[:, None], g2 - g2 @ w
    spread = np.maximum((s**2) @ w, 1e-300)
    contrast = np.maximum((s * y) @ w / spread, 0.0)
    scale = np.sqrt(np.mean(((y - contrast[:, None] * s) / err) ** 2, axis=1))
    return -g2.size * np.log(np.maximum(scale, 1e-300)), contrast, scale


def _tempered(log_p: np.ndarray, log_q: np.ndarray) -> tuple[float, np.ndarray]:
    """Weights, to so low a power that enough points have some (Koblents & Miguez, Stat. Comput. 25, 407 (2015)); and
    this power."""
    power = 1.0
    while True:
        tempered = power * (log_p - log_q)
        weight = np.exp(tempered - tempered.max())
        weight /= weight.sum()
        if 1.0 / np.sum(weight**2) >= min(LEAST_ESS, 0.5 * len(weight)) or power < 1e-6:
            return power, weight
        power *= 0.8


def _moments(x: Coordinates, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weighted mean, and a root of the covariance."""
    mean = weight @ x
    covariance = (x - mean).T @ ((x - mean) * weight[:, None])
    return mean, np.linalg.cholesky(covariance + 1e-12 * np.eye(x.shape[1]))


def _student(rng: np.random.Generator, mean: np.ndarray, root: np.ndarray) -> tuple[Coordinates, np.ndarray]:
    """Points of a Student-t distribution, and its log density there, up to a constant."""
    normal = rng.standard_normal((MORE, mean.size))
    z = WIDER * normal / np.sqrt(rng.chisquare(FREEDOM, (MORE, 1)) / FREEDOM)
    log_q = -0.5 * (FREEDOM + mean.size) * np.log1p(np.sum((z / WIDER) ** 2, axis=1) / FREEDOM)
    return mean + z @ root.T, log_q

"""Noise "photons": weighted points of one bin's posterior, from which walkers start, and mixtures that are aimed at
them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.importance_weights import systematic
from bayesfit.sample.mixture import KERNELS, fit_components, inverses, mixture, outwards
from bayesfit.sample.starts import BESIDE_FITTED, Estimate
from bayesfit.sample.theory_points import effective
from bayesfit.sample.theory_tables import evenly
from bayesfit.sample.walkers import AT_ONCE, Jumps

APART_AT_FIRST = 1e-4  # of the sd: two walkers may start at the same point
FITTED_TO, STEPS = 600, 12  # points that a mixture is fitted to, at most, and steps of its fit

Rng = np.random.Generator


class Weighted(NamedTuple):
    """Points of a posterior, the same number of each chain after those of the chain before, with logarithms of
    weights."""

    z: Float[np.ndarray, "point param"]
    log_weights: Float[np.ndarray, " point"]

    @classmethod
    def equally(cls, z: Float[np.ndarray, "*points param"]) -> Weighted:
        """Points of equal weights."""
        return cls(z.reshape(-1, z.shape[-1]), np.zeros(z[..., 0].size))

    def to_power(self, power: float) -> Weighted:
        """The points with their weights to this power."""
        return self._replace(log_weights=np.where(np.isfinite(self.log_weights), power * self.log_weights, -np.inf))

    @property
    def any(self) -> bool:
        """Whether any point has a weight."""
        return bool(np.isfinite(self.log_weights).any())

    @property
    def weights(self) -> Float[np.ndarray, " point"]:
        """Weights of sum 1."""
        return special.softmax(self.log_weights)

    def drawn(self, chains: int, count: int, rng: Rng) -> Float[np.ndarray, "chain walker param"]:
        """So many points for each chain, by their weights, of its own; of all, where none of them has a weight. Those
        that are the same are a little apart."""
        own = np.array_split(np.arange(len(self.z)), chains)
        own = [each if np.isfinite(self.log_weights[each]).any() else np.arange(len(self.z)) for each in own]
        weights = [special.softmax(self.log_weights[each]) for each in own]
        chosen = [each[systematic(rng.random(), w, count)] for each, w in zip(own, weights, strict=True)]
        z = self.z[np.stack([rng.permutation(each) for each in chosen])]
        return z + APART_AT_FIRST * rng.standard_normal(z.shape) * z.std(axis=(0, 1))

    def aimed(self) -> Jumps:
        """The mixture that these points are drawn from, by their weights."""
        weights = self.weights
        count = int(np.clip(effective(weights), KERNELS, FITTED_TO))
        chosen = self.z[systematic(0.5, weights, count)]
        location = chosen.mean(axis=0)
        covariance = np.atleast_2d(np.cov(chosen.T))
        factor = np.linalg.cholesky(covariance + APART_AT_FIRST**2 * np.diag(np.diag(covariance) + 1e-12))
        to_u = inverses(factor[None])[0]
        u = outwards((chosen - location) @ to_u.T)
        kernels = u[evenly(len(u), KERNELS)]
        return Jumps(location, factor, to_u, mixture(kernels, fit_components(u, STEPS), BESIDE_FITTED))


def aimed_at(estimate: Estimate) -> Jumps:
    """The mixture that is aimed at the posterior of one bin, as estimated."""
    to_u = inverses(estimate.factor[None])[0]
    return Jumps(estimate.location, estimate.factor, to_u, estimate.mixture)


def of_mixture(keys: Array, bin: Bin, jumps: Jumps, posterior: Posterior) -> tuple[dict[str, Array], Array, Array]:
    """Every parameter at draws of a mixture that is aimed at a posterior, logarithms of their weights, and the log
    likelihood there, of normal noise."""
    z = jumps.drawn(jax.vmap(jax.random.wrap_key_data)(keys[:, 0]))

    def at(given: tuple[Array, Array]) -> tuple[dict[str, Array], Array, Array]:
        values, correction = posterior.corrected(given[0], bin, jax.random.wrap_key_data(given[1]))
        return values, -posterior.potential(given[0], bin), posterior.log_likelihood(values, bin) - correction

    values, log_density, log_likelihood = jax.lax.map(at, (z, keys[:, 1]), batch_size=AT_ONCE)
    return values, log_density - jumps.log_density(z), log_likelihood

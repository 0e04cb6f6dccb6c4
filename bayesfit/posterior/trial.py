"""A trial of a user's model at prior draws, before anything expensive is compiled: is there a density to be sampled?"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from bayesfit.compute import keys as _keys
from bayesfit.compute.devices import on_one_device, take
from bayesfit.compute.errors import ModelError
from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.prepare import Problem

BINS, DRAWS = 16, 64  # bins that are tried, evenly spaced over all, and prior draws in each


class Finite(NamedTuple):
    """At which places the curve is finite at all valid points, at which the density is finite, and at which its
    gradient is."""

    curve: Bool[AnyArray, "*bins place"]
    density: Bool[AnyArray, "*bins place"]
    slope: Bool[AnyArray, "*bins place"]


def check_model(problem: Problem, usable: Int[np.ndarray, " used"]) -> None:
    """Refuse a user's model whose density, or its gradient, is finite neither at any of many prior draws nor at any
    start of its own. If it is finite at some of them, chains find these. `usable` are the indices of the bins that have
    enough points.

    Raises:
        ModelError: says what is not a number.
    """
    posterior = problem.posterior
    if posterior.identity is not None or not usable.size:
        return
    some = usable[np.unique(np.linspace(0, usable.size - 1, BINS).astype(int))]
    keys = _keys.bin_keys(0, problem.identity[some])
    found = on_one_device(_over_bins, take(problem.bins, some), keys, static=(posterior,))
    if not np.any(found.curve):
        remedy = "Look for 0/0, overflow, the root or logarithm of what is below 0"
        raise _refused(problem, "returns NaN or infinity at every prior draw, in every bin", remedy)
    check_density(np.where(found.density, 0.0, np.inf), problem)
    if not np.any(found.slope):
        remedy = "jnp.where hides NaN but not its derivative: keep what is not chosen finite too"
        raise _refused(problem, "its derivative is NaN or infinite at every prior draw, in every bin", remedy)


def check_density(potential: Float[np.ndarray, "*places"], problem: Problem) -> None:
    """Refuse a model whose potential is finite nowhere that chains would begin.

    Raises:
        ModelError: names the model.
    """
    if not np.any(np.isfinite(potential)):
        remedy = "Does the program return NaN" + (", or is a fixed value impossible?" if problem.fixed else "?")
        raise _refused(problem, "its density is not finite at any prior draw, in any bin", remedy)


def _refused(problem: Problem, words: str, remedy: str) -> ModelError:
    return ModelError(words, field=f"model {problem.posterior.model.name!r}", remedy=remedy)


def _over_bins(bins: Bin, keys: UInt32[Array, "bin 2"], posterior: Posterior) -> Finite:
    return jax.vmap(lambda bin, key: _places(posterior, bin, key))(bins, keys)


def _places(posterior: Posterior, bin: Bin, key: UInt32[Array, " 2"]) -> Finite:
    """What is finite at prior draws of one bin, and at the model's own starts, with the noise as drawn."""
    draws = jax.random.split(_keys.key_for(key, _keys.PRIOR_DRAWS), DRAWS)
    z = jax.vmap(lambda key: posterior.draw_prior(key, bin)[0])(draws)
    split = len(posterior.curve_names)
    for start in posterior.model.starts:
        given = {**start, **bin.fixed}
        if given.keys() >= set(posterior.curve_names):
            z = jnp.concatenate([z, jnp.concatenate([posterior.unconstrain_curve(given, bin), z[0, split:]])[None]])
    return jax.vmap(lambda z: _finite(posterior, bin, z))(z)


def _finite(posterior: Posterior, bin: Bin, z: Float[Array, " param"]) -> Finite:
    """What is finite at one place."""
    curve, _, _ = posterior.curve(z[: len(posterior.curve_names)], bin)
    density, slope = jax.value_and_grad(posterior.log_density)(z, bin)
    has_density = jnp.isfinite(density)
    has_curve = jnp.all(jnp.isfinite(curve.offset + curve.shape) | ~bin.valid)
    return Finite(has_curve, has_density, has_density & jnp.all(jnp.isfinite(slope)))

"""The prior of what bins have in common: draws from it, how far out in it values lie, and its range."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, UInt32

from bayesfit.modelling.priors import build
from bayesfit.posterior.coordinates import AtValues, Override, Values, constant_ends, place_in_prior
from bayesfit.posterior.deviations import DEVIATIONS
from bayesfit.posterior.joint import Joint


def prior_draws(joint: Joint, keys: UInt32[Array, "draw 2"]) -> Values:
    """Draws (draw, ...) of what the bins have in common from its prior, by name."""

    def one(key: UInt32[Array, " 2"]) -> Values:
        sampling, *closed = jax.random.split(jax.random.wrap_key_data(key), 1 + len(joint.closed))
        _, handler = joint.run(key=sampling)
        drawn = {
            pooling.parameter: joint.priors[pooling.parameter].sample(k, pooling.shape)
            for pooling, k in zip(joint.closed, closed, strict=True)
        }
        return {**handler.values, **drawn}

    return jax.vmap(one)(keys)


def all_of_prior(joint: Joint, values: Values) -> Values:
    """What bins have in common (draw, ...), at given values (draw, ...) of that part of it which is sampled."""
    given = {name: build(family, joint.given[name]) for name, family in joint.families}
    program = numpyro.handlers.seed(Override(joint.pooled, dict(joint.fixed), given), 0)

    def one(values: Values) -> Values:
        trace = numpyro.handlers.trace(numpyro.handlers.substitute(program, data=values)).get_trace(joint.priors)
        return values | {name: site["value"] for name, site in trace.items() if name not in values}

    return jax.vmap(one)(values)


def tails_and_ranges(joint: Joint, values: Values) -> tuple[Values, Values]:
    """How far out in its prior each parameter lies that the bins have in common, the median over the draws, and the
    farthest of the groups; and the ends of its prior where that is log-uniform (`log_range`). `values` (draw, ...) are
    those of every site of the poolings."""
    given = {name: build(family, joint.given[name]) for name, family in joint.families}
    names = tuple(name for name in values if not name.endswith(DEVIATIONS))

    def one(values: Values) -> Values:
        recorder = AtValues(Override(joint.pooled, dict(joint.fixed), given), values, place_in_prior, names)
        recorder(joint.priors)
        shared = (pooling.parameter for pooling in joint.closed)
        closed = {name: place_in_prior(joint.priors[name], values[name]) for name in shared}
        return {**recorder.found, **closed}

    found = jax.vmap(one)(values)
    tails = {name: jnp.median(of) for name, (of, _) in found.items()}
    return tails, {name: constant_ends(ends) for name, (_, ends) in found.items()}

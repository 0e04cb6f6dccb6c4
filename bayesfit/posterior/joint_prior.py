"""The prior of what bins have in common: draws from it, and how far out in it values lie."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bayesfit.modelling.priors import build
from bayesfit.posterior.coordinates import Override, PriorTails, Values, tail
from bayesfit.posterior.joint import Joint

DEVIATIONS = "_unit"  # the ending of the bins' deviations, standard normal numbers


def prior_draws(joint: Joint, keys: Any) -> Values:
    """Draws (draw, ...) of what the bins have in common, from its prior; `keys` (draw, 2) are the keys' data."""

    def one(key: Any) -> Values:
        sampling, *closed = jax.random.split(jax.random.wrap_key_data(key), 1 + len(joint.closed))
        _, handler = joint.run(key=sampling)
        shapes = [() if pooling.groups is None else (len(pooling.groups),) for pooling in joint.closed]
        names = [pooling.parameter for pooling in joint.closed]
        drawn = (joint.priors[name].sample(k, shape) for name, k, shape in zip(names, closed, shapes, strict=True))
        return {**handler.values, **dict(zip(names, drawn, strict=True))}

    return jax.vmap(one)(keys)


def prior_tails(joint: Joint, values: Values) -> Values:
    """How far out in its prior each thing that the bins have in common lies, the worst of groups and the median of the
    draws; `values` (draw, ...) are those of every site of the poolings."""
    given = {name: build(family, joint.given[name]) for name, family in joint.families}
    names = tuple(name for name in values if not name.endswith(DEVIATIONS))

    def one(values: Values) -> Values:
        recorder = PriorTails(Override(joint.pooled, dict(joint.fixed), given), values, names)
        recorder(joint.priors)
        closed = {
            pooling.parameter: tail(joint.priors[pooling.parameter], values[pooling.parameter])
            for pooling in joint.closed
        }
        return {name: jnp.min(found) for name, found in {**recorder.found, **closed}.items()}

    return {name: jnp.median(found) for name, found in jax.vmap(one)(values).items()}

"""An ensemble of small networks for the principal components of what is learnt: for many parameters.

Each member is trained without one part of the runs, and says how well it predicts these; their mean is the emulator.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesfit.surrogates.emulator import Arrays, Fitted, principal
from bayesfit.surrogates.training import Config, Data, begin, forward, trained

FEWEST = 6  # parameters, from which on networks are tried
LEFT_OUT, COMPONENTS = 1e-5, 12
CONFIG = Config()
SEED = 0


def fit(x: Float[np.ndarray, "run param"], h: Float[np.ndarray, "run tau"], config: Config = CONFIG) -> list[Fitted]:
    """The networks of these runs, each run predicted by the member that was trained without it."""
    mean, components, scores = principal(h, LEFT_OUT, COMPONENTS)
    part = np.arange(len(x)) % config.members
    weight = (part != np.arange(config.members)[:, None]).astype(float)
    layers = trained(begin(config, x.shape[1], len(components), SEED), Data(x, scores, weight), config)
    every = forward(layers, x, np)[-1]
    held_out = mean + every[part, np.arange(len(x))] @ components
    arrays = {"mean": mean, "components": components, **{f"layer_{n}": layer for n, layer in enumerate(layers)}}
    words = f"{config.members} networks of {config.depth} layers of {config.width}"
    return [Fitted("networks", arrays, held_out, words)]


def predict(arrays: Arrays, x: Float[Array, " param"]) -> Float[Array, " tau"]:
    """What is learnt, at one point."""
    layers: list[Any] = [jnp.asarray(arrays[f"layer_{n}"]) for n in range(len(arrays) - 2)]
    scores = jnp.mean(forward(layers, x[None], jnp)[-1][:, 0], axis=0)
    return jnp.asarray(arrays["mean"]) + scores @ jnp.asarray(arrays["components"])

"""Random keys. Each bin has one, made from the seed and the bin's own data but not from its place in the dataset; and
each use of random numbers in a bin has a key of its own, made from the bin's."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, Key, UInt32

# What a bin's random numbers are used for, as numbers that are hashed into its keys: draws from the prior, points about
# the modes, resampling of weighted points, the chains' transitions, draws of amplitudes, points from fitted mixtures,
# points at which theory's errors are computed.
PRIOR_DRAWS, NEAR_MODES, RESAMPLING, TRANSITIONS, AMPLITUDES, MIXTURE_DRAWS, WITH_THEORY = range(7)


def bin_keys(seed: int, identity: Int[np.ndarray, "bin 2"]) -> UInt32[np.ndarray, "bin 2"]:
    """The data of one random key per bin: a hash of the seed and of the bin's identity, itself a hash of its data."""
    texts = [f"{seed} {first} {second}".encode() for first, second in identity.tolist()]
    digests = [hashlib.sha256(text).digest()[:8] for text in texts]
    return np.frombuffer(b"".join(digests), np.uint32).reshape(-1, 2)


def key_for(bin_key: Any, *use: Any) -> Key[Array, ""]:
    """The key for one use of a bin's key, given as its data (2,): `use` is one of the numbers above, followed by those
    that distinguish the chain, the escalation step or the draw."""
    key = jax.random.wrap_key_data(bin_key)
    for number in use:
        key = jax.random.fold_in(key, number)
    return key


def part_keys(
    bin_keys: UInt32[np.ndarray, "any 2"], use: str, part: Int[np.ndarray, " any"]
) -> UInt32[np.ndarray, "any 2"]:
    """The data of one key per bin, for the part of this number of a use that has several."""
    texts = [f"{use} {number} {key.tolist()}".encode() for key, number in zip(bin_keys, part, strict=True)]
    return np.frombuffer(b"".join(hashlib.sha256(text).digest()[:8] for text in texts), np.uint32).reshape(-1, 2)

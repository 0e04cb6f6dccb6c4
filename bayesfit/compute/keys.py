"""Random keys: one for each bin, from the seed and the bin's own data, never from its place; and from it one for every
use, so that no two uses share one."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np

PRIOR_DRAWS, NEAR_MODES, STARTS, TRANSITIONS, AMPLITUDES, COMPONENTS = range(6)  # the uses


def bin_keys(seed: int, identity: np.ndarray) -> np.ndarray:
    """Data of one random key for each bin (bin, 2), by a hash of the seed and the bin's identity (bin, 2)."""
    texts = [f"{seed} {first} {second}".encode() for first, second in identity.tolist()]
    digests = [hashlib.sha256(text).digest()[:8] for text in texts]
    return np.frombuffer(b"".join(digests), np.uint32).reshape(-1, 2)


def key_for(bin_key: Any, *use: Any) -> Any:
    """The key for a use of a bin's key: one of those above, and numbers that tell it apart."""
    key = jax.random.wrap_key_data(bin_key)
    for number in use:
        key = jax.random.fold_in(key, number)
    return key


def part_keys(bin_keys: np.ndarray, use: str, part: np.ndarray) -> np.ndarray:
    """Data of a key for each of these parts (any,) of a use of each of these bins' keys (any, 2)."""
    texts = [f"{use} {number} {key.tolist()}".encode() for key, number in zip(bin_keys, part, strict=True)]
    return np.frombuffer(b"".join(hashlib.sha256(text).digest()[:8] for text in texts), np.uint32).reshape(-1, 2)

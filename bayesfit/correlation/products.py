"""What multiplies pixels with themselves, chosen by how many see photons, and by what there is to compute with."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from bayesfit.backends.choice import NUMPY
from bayesfit.backends.protocol import BackendProtocol
from bayesfit.correlation import compiled
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.dense import Dense
from bayesfit.correlation.dense_compiled import DenseCompiled
from bayesfit.correlation.lag_products import CHUNK
from bayesfit.correlation.photons import Chunk, Photons
from bayesfit.correlation.sparse import Sparse

FEW = 0.02  # photons in a pixel and frame, up to which only they are looked at

Products = Dense | DenseCompiled | Sparse


def products_of(blocks: Blocks, per_level: int, backend: BackendProtocol, few: bool) -> Products:
    """Of the `few` photons, or of all pixels, by compiled code where there is some."""
    if few:
        return Sparse(blocks, per_level)
    fast = backend.name == NUMPY and compiled.available
    return DenseCompiled(blocks, per_level) if fast else Dense(blocks, per_level, backend)


def few_photons(chunk: Chunk | Photons, usable: Bool[np.ndarray, " pixel"]) -> bool:
    """Whether few of the usable pixels of these frames see a photon."""
    if isinstance(chunk, Photons):
        return bool(np.count_nonzero(usable[chunk.pixel]) <= FEW * chunk.frames * np.count_nonzero(usable))
    if np.issubdtype(chunk.dtype, np.floating):
        return False
    seen = np.count_nonzero(chunk[:CHUNK], axis=0)[usable]
    return bool(seen.sum() <= FEW * len(chunk[:CHUNK]) * seen.size)

"""All that is summed over a series of photons, by compiled code."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.frame_sums import FrameSums, Sums
from bayesfit.correlation.photons import Photons
from bayesfit.correlation.sparse_compiled import SparseCompiled


class PhotonSums(FrameSums):
    """Takes in photons in order, those of some frames at a time, and sums them up."""

    def __init__(self, blocks: Blocks, per_level: int, by_frame: bool) -> None:
        self.made = SparseCompiled(blocks, per_level, by_frame)
        super().__init__(blocks, self.made, per_level, by_frame)
        self.blocks = blocks

    def _take(self, chunk: Photons, whole: Bool[np.ndarray, " frame"]) -> Float[np.ndarray, " frame"]:
        return self.made.take(chunk, whole)

    def finish(self) -> Sums:
        """The sums, when all frames have been taken in."""
        made, intensity = self.made, np.concatenate(self.intensity)
        pairs, frames = made.finish(), int(np.isfinite(intensity).sum())
        image, photons = np.zeros(self.blocks.detector), np.add.reduceat(made.image, self.blocks.starts)
        image[self.blocks.places] = made.image
        means, weights = made.means[:, :-1], made.means[0, -1]
        return self._with_time(Sums(pairs, means, weights, frames, photons, image, intensity, made.squares))

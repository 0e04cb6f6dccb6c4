"""All that is summed over the frames of a series: products of pixels at every delay, and intensities."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float

from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.lag_products import of_means
from bayesfit.correlation.levels import Levels
from bayesfit.correlation.photons import of_frame
from bayesfit.correlation.products import Products
from bayesfit.correlation.sparse_compiled import SparseCompiled
from bayesfit.correlation.states import Arrays, parts, within
from bayesfit.correlation.time_blocks import BY_DELAY, ByTime, TimeSums

AT_A_TIME, MOST_LONGER = 16384, 16  # blocks for which a multiple of the usual frames fits in the cache, and the most


class Sums(NamedTuple):
    """Sums over all pairs of frames at each delay. `pairs` (block, tau): products of each pixel with itself, and
    `squares`, of each pixel's sum, or None where pixels are not kept apart; `means` (4, block, tau): those of sums over
    blocks, as `lag_products.of_means` has them; `weights` (tau,): pairs of frames. And over the `frames` that were not
    missing: `photons` (block,); `image` (pixel,), those of every used pixel; and `intensity` (frame,), those per used
    pixel of each frame, NaN where it was missing. `by_time` are those of bins of too few blocks, apart for blocks of
    time, or None where there is no such bin."""

    pairs: Float[np.ndarray, "block tau"]
    means: Float[np.ndarray, "4 block tau"]
    weights: Float[np.ndarray, " tau"]
    frames: int
    photons: Float[np.ndarray, " block"]
    image: Float[np.ndarray, " pixel"]
    intensity: Float[np.ndarray, " frame"]
    squares: Float[np.ndarray, "block tau"] | None = None
    by_time: ByTime | None = None


def up_to(sums: Sums, delays: int) -> Sums:
    """Those at so many delays."""
    squares = None if sums.squares is None else sums.squares[:, :delays]
    pairs, means, weights = sums.pairs[:, :delays], sums.means[..., :delays], sums.weights[:delays]
    if (by_time := sums.by_time) is not None:
        cut = {name: getattr(by_time, name)[..., :delays] for name in BY_DELAY}
        sums = sums._replace(by_time=by_time._replace(**cut))
    return sums._replace(pairs=pairs, means=means, weights=weights, squares=squares)


class FrameSums:
    """Takes in frames in order, some at a time, and sums them up."""

    def __init__(self, blocks: Blocks, products: Products | SparseCompiled, per_level: int, by_frame: bool) -> None:
        self.products, self.pixels = products, max(int(blocks.pixels.sum()), 1)
        starts = np.flatnonzero(np.diff(np.append(blocks.static, -1), prepend=-1)) if by_frame else None
        longer = min(max(AT_A_TIME // (blocks.pixels.size + 1), 1), MOST_LONGER)
        self.means = Levels(per_level, np.zeros(blocks.pixels.size + 1), partial(of_means, starts), longer)
        few = blocks.bins_of_few()
        self.by_time = TimeSums(blocks, per_level, few) if few.size else None
        self.photons, self.image = np.zeros(blocks.pixels.size), np.zeros(blocks.detector)
        self.intensity: list[np.ndarray] = []
        self.spoilt, self.first_spoilt = 0, (-1, -1)  # frames, and the first one with its pixel

    @property
    def frames(self) -> int:
        """How many frames were taken in."""
        return sum(part.size for part in self.intensity)

    @property
    def used(self) -> int:
        """How many of them were not missing."""
        return sum(int(np.isfinite(part).sum()) for part in self.intensity)

    def take(self, chunk: Any, good: Bool[np.ndarray, " frame"]) -> None:
        """Take frames in, or the photons of some. Those that are not `good`, or in which a pixel holds no number of
        photons, count as missing."""
        unusable = self.products.unusable(chunk) & good
        if unusable.any() and not self.spoilt:
            first = int(np.argmax(unusable))
            self.first_spoilt = self.frames + first, self.products.fault(cast(Any, of_frame(chunk, first)))
        self.spoilt += int(unusable.sum())
        whole = good & ~unusable
        if self.by_time is not None:
            self.by_time.take(chunk, whole)
        self.intensity.append(np.where(whole, self._take(chunk, whole) / self.pixels, np.nan))

    def _take(self, chunk: Any, whole: Bool[np.ndarray, " frame"]) -> Float[np.ndarray, " frame"]:
        """Take frames in; the photons in each."""
        assert not isinstance(self.products, SparseCompiled)
        by_block, image = self.products.take(chunk, whole)
        self.means.take(np.column_stack([by_block, whole]))
        self.photons, self.image = self.photons + by_block.sum(axis=0), self.image + image
        return by_block.sum(axis=1)

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        own = {"photons": self.photons, "image": self.image, "spoilt": np.array(self.spoilt)}
        own["first_spoilt"] = np.array(self.first_spoilt)
        own["intensity"] = np.concatenate(self.intensity)
        if self.by_time is not None:
            own |= within([self.by_time.state()], "time")
        return own | within([self.means.state()], "means") | within([self.products.state()], "products")

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.photons, self.image, self.spoilt = state["photons"], state["image"], int(state["spoilt"])
        self.intensity = [state["intensity"]]
        frame, pixel = state["first_spoilt"].tolist()
        self.first_spoilt = frame, pixel
        self.means.restore(parts(state, "means")[0])
        self.products.restore(parts(state, "products")[0])
        if self.by_time is not None:
            self.by_time.restore(parts(state, "time")[0])

    def finish(self) -> Sums:
        """The sums, when all frames have been taken in."""
        means, intensity = self.means.finish(), np.concatenate(self.intensity)
        frames = int(np.isfinite(intensity).sum())
        pairs = self.products.finish()
        means, weights = means[:, :-1], means[0, -1]
        found = Sums(pairs, means, weights, frames, self.photons, self.image, intensity, self.products.squares)
        return self._with_time(found)

    def _with_time(self, sums: Sums) -> Sums:
        return sums if self.by_time is None else sums._replace(by_time=self.by_time.finish())

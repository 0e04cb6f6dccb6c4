"""All that is summed over the frames of a series, kept apart by age: by all pixels, or by photons alone."""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Float

from bayesfit.backends.protocol import BackendProtocol
from bayesfit.correlation.age_levels import AgeLevels, of_some_means, pixels_in_blocks
from bayesfit.correlation.ages import Ages
from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.delays import own_delays
from bayesfit.correlation.dense import Dense
from bayesfit.correlation.frame_sums import FrameSums, Sums
from bayesfit.correlation.levels import Levels
from bayesfit.correlation.sparse import Events, Sparse, SparseLevel
from bayesfit.correlation.states import Arrays


class AgeDense(Dense):
    """Takes in frames (frame, pixel)."""

    def __init__(self, blocks: Blocks, per_level: int, backend: BackendProtocol, ages: Ages) -> None:
        super().__init__(blocks, per_level, backend)
        self.ages = ages
        self.levels = [self._of_tile(tile, per_level, backend) for tile in self.tiles]

    def _of_tile(self, tile: slice, per_level: int, backend: BackendProtocol) -> Levels:
        starts = np.maximum(self.starts[self._blocks(tile)] - tile.start, 0)
        frame = np.zeros(tile.stop - tile.start, np.float32)
        return AgeLevels(self.ages, per_level, frame, partial(pixels_in_blocks, backend, starts), (starts.size,))

    def finish(self) -> Float[np.ndarray, "age block tau"]:
        """The products, when all frames have been taken in."""
        by_tile = self._each(lambda tile, levels: levels.finish())
        found = np.zeros((self.ages.slice_count, self.blocks.pixels.size, by_tile[0].shape[-1]))
        for tile, products in zip(self.tiles, by_tile, strict=True):
            found[:, self._blocks(tile)] += products
        return found


class AgeSparse(Sparse):
    """Takes in photons. Products of single pixels are not kept."""

    def __init__(self, blocks: Blocks, per_level: int, ages: Ages) -> None:
        super().__init__(blocks, per_level)
        self.ages = ages

    def finish(self) -> Float[np.ndarray, "age block tau"]:
        """The products, when all frames have been taken in."""
        found = [np.concatenate([level.products for level in levels], axis=-1) for levels in self.levels]
        return np.sum(found, axis=0)

    def _level(self, number: int) -> SparseLevel:
        return AgeSparseLevel(self, number)


class AgeSparseLevel(SparseLevel):
    """One level, whose `products` are (age, block, delay)."""

    def __init__(self, whole: AgeSparse, number: int) -> None:
        super().__init__(own_delays(number, whole.per_level), whole.block, 0)
        self.ages, self.number = whole.ages, number
        self.products = np.zeros((whole.ages.slice_count, whole.blocks.pixels.size, len(self.delays)))

    def _add_products(self, events: Events, early: np.ndarray, late: np.ndarray) -> None:
        delay, time = events.time[late] - events.time[early], events.time[late]
        age = self.ages.of_pairs(self.number, time, delay)
        counted = (delay >= self.delays.start) & (time >= self.end) & (age >= 0)
        early, late, delay, age = early[counted], late[counted], delay[counted], age[counted]
        place = age, self.row[events.pixel[early]], delay - self.delays.start
        flat = np.ravel_multi_index(place, self.products.shape)
        products = events.number[early] * events.number[late]
        self.products += np.bincount(flat, products, self.products.size).reshape(self.products.shape)


class AgeMeans(AgeLevels):
    """Levels of sums over blocks, and the `photons` (age, block) of the frames of each slice; of the column of frames
    that are not missing, in the end, too."""

    def __init__(self, ages: Ages, per_level: int, blocks: Blocks, by_frame: bool) -> None:
        starts = np.flatnonzero(np.diff(np.append(blocks.static, -1), prepend=-1)) if by_frame else None
        columns = blocks.pixels.size + 1
        super().__init__(ages, per_level, np.zeros(columns), partial(of_some_means, starts), (4, columns))
        self.photons, self.taken = np.zeros((ages.slice_count, columns)), 0

    def take(self, frames: np.ndarray, number: int = 0) -> None:
        """Take frames in, or sums of them that are ready for the level of this number."""
        if number == 0:
            own = self.ages.slices(self.taken + np.arange(len(frames)))
            np.add.at(self.photons, own[own >= 0], frames[own >= 0])
            self.taken += len(frames)
        super().take(frames, number)

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        return super().state() | {"photons": self.photons, "taken": np.array(self.taken)}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        super().restore(state)
        self.photons, self.taken = state["photons"], int(state["taken"])


class AgeSums(FrameSums):
    """Takes in frames in order, some at a time, and sums them up, each slice of ages by itself."""

    def __init__(self, blocks: Blocks, products: AgeDense | AgeSparse, per_level: int, by_frame: bool) -> None:
        super().__init__(blocks, products, per_level, by_frame)
        self.blocks, self.by_time = blocks, None
        self.means = self.by_age = AgeMeans(products.ages, per_level, blocks, by_frame)

    def of_slices(self) -> list[Sums]:
        """The sums of each slice, when all frames have been taken in. `intensity` is NaN outside of the slice."""
        means, pairs, intensity = self.means.finish(), self.products.finish(), np.concatenate(self.intensity)
        own = self.by_age.ages.slices(np.arange(intensity.size))
        return [
            Sums(
                pairs[number],
                means[number][:, :-1],
                means[number][0, -1],
                int(photons[-1]),
                photons[:-1],
                self._image(photons[:-1]),
                np.where(own == number, intensity, np.nan),
            )
            for number, photons in enumerate(self.by_age.photons)
        ]

    def _image(self, photons: Float[np.ndarray, " block"]) -> Float[np.ndarray, " pixel"]:
        """The image of all frames with the photons that each block has in one slice: pixels are not kept by age."""
        share = np.divide(photons, self.photons, out=np.zeros_like(photons), where=self.photons > 0)
        image = np.zeros_like(self.image)
        image[self.blocks.places] = self.image[self.blocks.places] * share[self.blocks.of_pixels]
        return image

"""Products of a series with itself, kept apart by the ages of their pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.backends.protocol import BackendProtocol
from bayesfit.correlation.ages import Ages
from bayesfit.correlation.lag_products import of_pixels
from bayesfit.correlation.levels import Levels
from bayesfit.correlation.states import Arrays, parts, within

Wanted = Bool[np.ndarray, "delay late"]  # pairs of a late frame and one so many frames before
Compute = Callable[[np.ndarray, Wanted], np.ndarray]
STATE = "ages"


class ByAge:
    """The `sums` (age, ..., delay) of one level, and how many sums of frames were `taken`; `compute` multiplies the
    wanted pairs of some frames."""

    def __init__(self, ages: Ages, level: int, delays: range, compute: Compute) -> None:
        self.ages, self.level, self.delays, self.compute = ages, level, np.array(delays), compute
        self.taken = 0
        self.sums: dict[int, np.ndarray] = {}

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        """Multiply new frames with those before them, as `Level` asks for. The sums stay here; none is given back."""
        new = len(frames) - self.delays[-1]
        found = self.ages.of_pairs(self.level, self.taken + np.arange(new), self.delays[:, None])
        self.taken += new
        for number in np.unique(found[found >= 0]).tolist():
            self.sums[number] = self.sums.get(number, 0.0) + self.compute(frames, found == number)
        return np.zeros(1)

    def state(self) -> Arrays:
        """All that is needed to go on from here."""
        return {"taken": np.array(self.taken)} | {f"sums{number}": array for number, array in self.sums.items()}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.taken = int(state["taken"])
        self.sums = {int(name.removeprefix("sums")): array for name, array in state.items() if name != "taken"}

    def finished(self, shape: tuple[int, ...]) -> np.ndarray:
        """The sums of all slices (age, *shape, delay)."""
        found = np.zeros((self.ages.slice_count, *shape, self.delays.size))
        for number, array in self.sums.items():
            found[number] = array
        return found


class AgeLevels(Levels):
    """Levels whose products (*shape, tau) are kept apart by age; `compute` makes the products of the delays of a level,
    from the first to the last one."""

    def __init__(
        self, ages: Ages, per_level: int, frame: np.ndarray, compute: Callable[[int, int], Compute], shape: tuple
    ) -> None:
        super().__init__(per_level, frame, self._of_level)
        self.ages, self.compute, self.shape = ages, compute, shape
        self.by_age: list[ByAge] = []

    def _of_level(self, first: int, window: int) -> ByAge:
        delays, compute = range(first, window + 1), self.compute(first, window)
        self.by_age.append(ByAge(self.ages, len(self.by_age), delays, compute))
        return self.by_age[-1]

    def state(self) -> Arrays:
        """All that levels of the same kind need to go on from here."""
        return super().state() | within((each.state() for each in self.by_age), STATE)

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        super().restore({name: array for name, array in state.items() if not name.startswith(STATE)})
        for each, own in zip(self.by_age, parts(state, STATE), strict=True):
            each.restore(own)

    def finish(self) -> Float[np.ndarray, "age ... tau"]:
        """The products of all slices and levels, when all frames have been taken in."""
        for number, level in enumerate(self.levels):
            self.take(level.finish(), number + 1)
        return np.concatenate([each.finished(self.shape) for each in self.by_age], axis=-1)


def pixels_in_blocks(backend: BackendProtocol, starts: Int[np.ndarray, " block"], first: int, window: int) -> Compute:
    """Products of pixels, summed over blocks of them that begin at `starts`, (block, delay)."""
    every, some = of_pixels(backend, first, window), of_some_pixels(backend, first, window)

    def compute(frames: np.ndarray, wanted: Wanted) -> np.ndarray:
        by_pixel = every(frames) if wanted.all() else some(frames, wanted)
        return np.add.reduceat(by_pixel, starts, axis=0, dtype=float)

    return compute


@lru_cache
def of_some_pixels(backend: BackendProtocol, first: int, window: int) -> Compute:
    """As `of_pixels`, of the wanted pairs alone; written once, for NumPy and JAX."""
    xp: Any = backend.xp

    def compute(frames: Any, wanted: Any) -> Any:
        late, new = frames[window:, :], frames.shape[0] - window
        early = [frames[window - delay : window - delay + new, :] for delay in range(first, window + 1)]
        found = [xp.where(wanted[place, :, None], each * late, xp.zeros_like(late)) for place, each in enumerate(early)]
        return xp.stack([xp.sum(each, axis=0, dtype=frames.dtype) for each in found])

    run = backend.jit(compute)
    return lambda frames, wanted: np.asarray(run(frames, wanted)).T


def of_some_means(starts: Int[np.ndarray, " bin"] | None, first: int, window: int) -> Compute:
    """As `lag_products.of_means`, of the wanted pairs alone."""

    def compute(sums: Float[np.ndarray, "frame block"], wanted: Wanted) -> Float[np.ndarray, "4 block delay"]:
        late = np.arange(window, len(sums))
        early = late - np.arange(first, window + 1)[:, None]
        found = np.zeros((4, len(early), sums.shape[1]))
        partner = np.zeros((len(early), len(sums)))
        np.put_along_axis(partner, early, np.where(wanted, sums[late, -1], 0.0), axis=1)
        found[0] = partner @ sums
        found[1] = np.where(wanted, sums[early, -1], 0.0) @ sums[late]
        if starts is not None:
            size = np.diff(starts, append=sums.shape[1])
            whole = np.repeat(np.add.reduceat(sums, starts, axis=1), size, axis=1)
            for place, own in enumerate(wanted):
                first_of, last_of = early[place, own], late[own]
                found[2, place] = np.sum(sums[first_of] * whole[last_of] + whole[first_of] * sums[last_of], axis=0)
                found[3, place] = np.sum(sums[first_of] * sums[last_of], axis=0)
        return np.moveaxis(found, 1, 2)

    return compute

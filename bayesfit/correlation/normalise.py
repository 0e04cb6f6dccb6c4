"""Pairs of photons that are expected where intensities do not fluctuate, by three ways to normalise."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from bayesfit.correlation.blocks import Blocks
from bayesfit.correlation.frame_sums import Sums
from bayesfit.correlation.time_blocks import ByTime

Normalise = Literal["symmetric", "frame", "baseline"]
WAYS: tuple[Normalise, ...] = ("symmetric", "frame", "baseline")


class Pairs(NamedTuple):
    """Pairs `seen` and `expected`, of bins (bin, tau), and of a bin without each of its blocks (block, tau)."""

    seen: Float[np.ndarray, "bin tau"]
    expected: Float[np.ndarray, "bin tau"]
    seen_without: Float[np.ndarray, "block tau"]
    expected_without: Float[np.ndarray, "block tau"]


def pairs_of(sums: Sums, blocks: Blocks, normalise: Normalise) -> Pairs:
    """Pairs seen and expected.

    In a static bin of P pixels, S being its photons in a frame, or in a sum of frames, w how many frames that is of,
    and all sums over the pairs of an early and a late one,

        symmetric   sum S w' x sum w S' / (P sum w w')      early and late means: Lumma et al., Rev. Sci. Instrum. 71,
                                                            3274 (2000), for every missing frame alike
        frame       sum S S' / P                            each frame by its own mean
        baseline    (mean of all frames)^2 P sum w w'.
    """
    made = {"symmetric": _symmetric, "frame": _frame, "baseline": _baseline}[normalise]
    seen, size = blocks.by_dynamic(sums.pairs), blocks.by_static(blocks.pixels.astype(float))[:, None]
    of_static, without = made(sums, blocks, size)
    expected = blocks.over_static(of_static)
    return Pairs(
        seen,
        expected,
        seen[blocks.dynamic] - sums.pairs,
        expected[blocks.dynamic] - of_static[blocks.static] + without,
    )


def _symmetric(sums: Sums, blocks: Blocks, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected pairs of each static bin (static, tau), and of that of each block without this block (block, tau)."""
    early, late = blocks.by_static(sums.means[0]), blocks.by_static(sums.means[1])
    own, left = blocks.static, size[blocks.static] - blocks.pixels[:, None]
    whole = _ratio(early * late, size * sums.weights)
    return whole, _ratio((early[own] - sums.means[0]) * (late[own] - sums.means[1]), left * sums.weights)


def _frame(sums: Sums, blocks: Blocks, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = blocks.by_static(sums.means[2]) / 2
    own, left = blocks.static, size[blocks.static] - blocks.pixels[:, None]
    return _ratio(both, size), _ratio(both[own] - sums.means[2] + sums.means[3], left)


def _baseline(sums: Sums, blocks: Blocks, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    by_block = sums.photons[:, None] / max(sums.frames, 1)
    mean = blocks.by_static(by_block)
    own, left = blocks.static, size[blocks.static] - blocks.pixels[:, None]
    return _ratio(mean**2 * sums.weights, size), _ratio((mean[own] - by_block) ** 2 * sums.weights, left)


def expected_without(sums: ByTime, normalise: Normalise, block: int | None) -> Float[np.ndarray, "bin tau"]:
    """Pairs expected in the bins of `sums` without a block of time, or of all times.

    With "baseline", what seen pairs have in common with the means of their frames cancels only where both are left out
    with the same pairs, as with "symmetric"; what the means of early and late frames have not in common with that of
    all frames is left out frame by frame.
    """
    own = slice(0, 0) if block is None else slice(block, block + 1)

    def left(numbers: np.ndarray) -> np.ndarray:
        return numbers.sum(axis=0) - numbers[own].sum(axis=0)

    early, late, both = (left(each) for each in sums.means)
    weights, size = left(sums.weights), sums.size[:, None]
    of_static = both / size if normalise == "frame" else _ratio(early * late, size * weights)
    if normalise == "baseline":
        means = _ratio(left(sums.early), left(sums.early_weights)), _ratio(late, weights)
        overall = left(sums.photons) / max(float(left(sums.frames)), 1)
        of_static = of_static * _ratio(overall[:, None] ** 2, means[0] * means[1])
    found = np.zeros((sums.bins.size, weights.size))
    np.add.at(found, sums.of_static, of_static)
    return found


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Their ratio, 0 where nothing is left."""
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below > 0)

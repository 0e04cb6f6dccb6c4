"""Sums of neighbouring pixels by vector instructions: against sums written out, in whole numbers, to the last bit."""

import numpy as np
import pytest

from bayesfit.correlation import compiled, compiled_tiles


@pytest.mark.skipif(not compiled.available, reason="Numba is not installed")
@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("frames", [1, 16, 45])
def test_sums_over_runs_are_those_written_out(precision, frames):
    """The last pixels are of no run, as in a tile that is not full."""
    rng = np.random.default_rng(frames)
    own = rng.poisson(3, (frames, 128)).astype(precision)
    edges, block = np.array([0, 1, 7, 8, 64, 99]), np.array([2, 0, 1, 2, 0])
    found = np.ones((3, frames), precision)
    compiled_tiles.sum_tile(own, edges, block, found)
    byhand = np.ones((3, frames))
    for number, place in enumerate(block):
        byhand[place] += own[:, edges[number] : edges[number + 1]].sum(axis=1)
    np.testing.assert_array_equal(found, byhand)

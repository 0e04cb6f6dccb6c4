"""Products of frames by vector instructions: against the sums written out, in whole numbers, so to the last bit."""

import numpy as np
import pytest

from bayesfit.correlation import compiled, compiled_lags


@pytest.mark.skipif(not compiled.available, reason="Numba is not installed")
@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize(("first", "window"), [(1, 16), (9, 16), (5, 8), (4, 6), (1, 5)])
@pytest.mark.parametrize(("new", "pixels"), [(64, 128), (45, 37), (3, 16)])
def test_products_are_the_sums_written_out(precision, first, window, new, pixels):
    frames = np.random.default_rng(new).poisson(3, (window + new, pixels)).astype(precision)
    found = np.ones((window + 1 - first, pixels), precision)
    compiled_lags.lag_products(frames, first, window, found)
    late, delays = frames[window:], range(first, window + 1)
    byhand = [1 + (late * frames[window - delay : window - delay + new]).sum(axis=0) for delay in delays]
    np.testing.assert_array_equal(found, byhand)

"""Errors that correlate as the dataset itself says, in `error_correlation`: those of a model that is known by a noisy
average alone, added to the independent ones of the data."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.modelling.neighbour_whitening import BAND, NeighbourWhitening, neighbour_weights
from bayesfit.modelling.noise_model import Noise
from bayesfit.modelling.scatter import Points, Scatter

VARIABLE = "error_correlation"  # (q_bin, tau, tau_other), 1 on its diagonal
CORRELATES = ("stated", "scaled")  # noise models of independent normal errors, which can be made to correlate


def for_data(noise: Noise, data: xr.Dataset) -> Noise:
    """The noise model, with the correlations that these data state."""
    return correlating(noise) if VARIABLE in data and noise.name in CORRELATES else noise


@lru_cache
def correlating(noise: Noise) -> Noise:
    """The same noise model with correlations, which `layout_of` lays out."""

    def program(bin: Points) -> Scatter:
        layout = bin.layout
        return noise.program(bin)._replace(correlation=NeighbourWhitening(layout[:, :-1], layout[:, -1]))

    return replace(noise, program=program, layout=lambda tau: np.zeros((tau.size, BAND + 2)), correlates=True)


def layout_of(data: xr.Dataset, length: int) -> Float[np.ndarray, "q_bin padded column"]:
    """The factors by which each point is whitened, and the logarithm of its own, for delays padded to this length."""
    more = length - data.sizes["tau"]
    valid = np.pad(data.valid.values, ((0, 0), (0, more)))
    correlation = np.tile(np.eye(length), (len(valid), 1, 1))
    correlation[:, : length - more, : length - more] = data[VARIABLE].transpose("q_bin", "tau", "tau_other").values
    weights = neighbour_weights(correlation, valid)
    own = np.log(np.where(valid, weights[..., 0], 1.0))
    return np.concatenate([weights, own[..., None]], axis=-1)

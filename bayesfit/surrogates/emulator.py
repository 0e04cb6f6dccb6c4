"""What every kind of emulator gives: arrays from which it predicts, and what it predicts for held-out runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Arrays = dict[str, np.ndarray]


class Fitted(NamedTuple):
    """An emulator of one `kind`: its `arrays`, what it predicts for each run when that run is `held_out` (run, tau),
    and what it is in `words`. `of_mean` (run,) is the factor that makes a held-out error, where it comes from noise of
    the runs, one of the predicted mean; see `of_mean`."""

    kind: str
    arrays: Arrays
    held_out: Float[np.ndarray, "run tau"]
    words: str
    of_mean: Float[np.ndarray, "*run"] | float = 1.0


def of_mean(leverage: Float[np.ndarray, " run"]) -> Float[np.ndarray, " run"]:
    """What held-out errors of noisy runs are multiplied with to be those of the mean that is predicted where no run is.
    With noise of variance s^2 and a leverage h (the share of each run in its own prediction) of a linear smoother, the
    former have variance s^2 / (1 - h), of which s^2 is noise of the run itself and the share h is the prediction's. An
    emulator that takes noise for signal has h = 1: then all of the error is its own."""
    return np.sqrt(leverage)


class Components(NamedTuple):
    """Principal components of curves: their `mean` (tau,), the components (component, tau), and the `scores`
    (run, component) of each curve, of unit mean square."""

    mean: Float[np.ndarray, " tau"]
    components: Float[np.ndarray, "component tau"]
    scores: Float[np.ndarray, "run component"]


def principal(h: Float[np.ndarray, "run tau"], left_out: float, most: int) -> Components:
    """The components that leave out at most this share of the variance, or the first ones if there are more."""
    mean = h.mean(axis=0)
    left, size, right = np.linalg.svd(h - mean, full_matrices=False)
    kept = min(max(1, int(np.sum(np.cumsum(size[::-1] ** 2)[::-1] > left_out * np.sum(size**2)))), most)
    scale = np.maximum(size[:kept] / np.sqrt(len(h)), 1e-12)
    return Components(mean, right[:kept] * scale[:, None], left[:, :kept] * size[:kept] / scale)

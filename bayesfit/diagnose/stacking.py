"""Stacking: the mixture of several models' predictive distributions that predicts the points of a bin best.

Y. Yao, A. Vehtari, D. Simpson & A. Gelman, Bayesian Analysis 13, 917 (2018).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

STEPS = 100
BARRIER = 0.1  # of each Newton step: how far down the central path it aims
GAP = 1e-9  # largest loss of mean log score


def stacking_weights(elpd: Float[np.ndarray, "model *bin point"]) -> Float[np.ndarray, " model *bin"]:
    """Weights on the simplex with the largest sum over points of log(sum over models of weight * exp(elpd)).

    The multiplier of the simplex is the number of points, so that this is concave in positive weights alone, and a
    primal-dual interior-point method solves it for all bins at once (Koenker & Mizera 2014). If many sets of weights
    are equally good, the result is in the middle of them: models that predict the same share equally.

    Args:
        elpd: log predictive density (model, ..., point); NaN are ignored.

    Returns:
        Weights (model, ...).
    """
    counted = np.isfinite(elpd).all(axis=0)
    density = np.where(counted, elpd, 0.0)
    density = np.moveaxis(np.exp(density - density.max(axis=0)), 0, -1)
    points, models = density.shape[-2:]
    weight, slack = np.full((*density.shape[:-2], models), 1.0 / models), np.full((*density.shape[:-2], models), 1.0)
    for _ in range(STEPS):
        ratio = density / (density @ weight[..., None])
        gradient, curvature = ratio.mean(axis=-2), np.swapaxes(ratio, -1, -2) @ ratio / points
        gap = np.sum(weight * slack, axis=-1, keepdims=True)
        unsolved = np.maximum(gap, np.abs(1.0 - gradient - slack).max(axis=-1, keepdims=True)) > GAP
        if not unsolved.any():
            break
        aim = np.maximum(BARRIER * gap / models, 0.1 * GAP / models)
        curvature += (slack / weight)[..., None] * np.eye(models)
        step = np.linalg.solve(curvature, (aim / weight - 1.0 + gradient)[..., None])[..., 0]
        change = (aim - slack * step) / weight - slack
        shrinking = np.maximum(np.max(-step / weight, axis=-1), np.max(-change / slack, axis=-1))
        length = unsolved / np.maximum(1.0, shrinking / 0.9)[..., None]
        weight, slack = weight + length * step, slack + length * change
    return np.moveaxis(weight / weight.sum(axis=-1, keepdims=True), -1, 0)

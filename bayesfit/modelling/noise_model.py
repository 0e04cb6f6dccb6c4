"""What a noise model is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from bayesfit.modelling.model import Parameter
from bayesfit.modelling.scatter import Points, PointScatter, Scatter

Real = Float[Array, ""]
Layout = Float[np.ndarray, "tau column"]


@dataclass(frozen=True, eq=False)
class Noise:
    """One noise model.

    Args:
        name: how users call it.
        program: NumPyro program `bin -> Scatter` for the points of one bin, of which it may use `tau`, `valid` and
            `layout`. It samples the noise's parameters, scalars, with `numpyro.sample(name, prior)`.
        start: `(rms, bin) -> start values` of the parameters, from the root mean square standardised residual of a
            least-squares fit.
        normal: whether whitened residuals are normal, so that the amplitudes can be integrated out in closed form.
        stated: whether residuals are standardised by the stated errors; otherwise they stay in the units of g2.
        delays: whether it needs delays, which are positive, and not just any x.
        layout: `tau -> (tau, column)`, computed once in NumPy: what the program must know of the delays beside `tau`.
        counted: whether points are numbers of photon pairs; `layout` is then filled for each bin by itself.
        estimated: whether the covariance of the points was estimated from samples; `layout` is then filled likewise.
        observed: `(scatter, bin) -> scatter`: that of the points, where `program` only gives an approximation of it, in
            which amplitudes can be integrated out, and the sampler corrects for the difference; else None.
        averaged: `(curve, bin) -> curve`: what the points see of a curve, where that is not its value at the delay
            alone; else None.
        correlates: whether errors correlate as the data say; `layout` is then filled likewise.
        parameters: the sampled parameters, described.
        description, formula, reference: the scatter in words.
    """

    name: str
    program: Callable[[Points], Any]
    start: Callable[[Real, Points], dict[str, Any]]
    normal: bool = True
    stated: bool = True
    delays: bool = False
    layout: Callable[[np.ndarray], Layout] = lambda tau: np.zeros((tau.size, 0))
    counted: bool = False
    estimated: bool = False
    observed: Callable[[Scatter, Points], PointScatter] | None = None
    averaged: Callable[[Any, Points], Any] | None = None
    correlates: bool = False
    parameters: tuple[Parameter, ...] = ()
    description: str = ""
    formula: str = ""
    reference: str = ""


@lru_cache
def without_approximation(noise: Noise) -> Noise:
    """The same noise model with the points' own scatter in its program, so that nothing is to be corrected. Amplitudes
    are then sampled."""
    observed = noise.observed
    if observed is None:
        return noise
    return replace(noise, program=lambda bin: observed(noise.program(bin), bin), normal=False, observed=None)

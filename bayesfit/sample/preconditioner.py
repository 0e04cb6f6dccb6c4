"""The coordinates in which the chains of one large target move, scaled by the curvature of its potential, and where the
chains begin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

CURVATURE = 0.1, 1e14  # bounds; priors have a curvature of about 1
LONGEST = 3.0  # sd in any direction, for the same reason
SMALLEST_EIGENVALUE = 1e-8  # of the curvature scaled to a unit diagonal


class Preconditioner(NamedTuple):
    """Coordinates u in which a posterior is nearly round: z = location + factor @ u or, where `factor` has shape
    (param,), z = location + factor * u."""

    location: Float[Any, " param"]
    factor: Float[Any, "param param"] | Float[Any, " param"]

    def vector(self, u: Float[Any, "*any param"]) -> Float[Any, "*any param"]:
        """Positions z at u."""
        return self.location + (u @ self.factor.T if self.factor.ndim == 2 else u * self.factor)

    def inverse(self, z: Float[np.ndarray, "any param"]) -> Float[np.ndarray, "any param"]:
        """Positions u at z."""
        rest = z - self.location
        return np.linalg.solve(self.factor, rest.T).T if self.factor.ndim == 2 else rest / self.factor

    def gradient(self, gradient: Float[np.ndarray, " param"]) -> Float[np.ndarray, " param"]:
        """The gradient with respect to u, from that with respect to z."""
        return gradient @ self.factor if self.factor.ndim == 2 else gradient * self.factor


class Start(NamedTuple):
    """Where each chain begins: its position `u` in the coordinates of the preconditioner, with the potential and its
    gradient there. `turned` says whether the preconditioner is made from the full Hessian at a mode, and `how` says in
    words how the start was found."""

    preconditioner: Preconditioner
    u: Float[np.ndarray, "chain param"]
    potential: Float[np.ndarray, " chain"]
    gradient: Float[np.ndarray, "chain param"]
    turned: bool
    how: str


def none(size: int) -> Preconditioner:
    """The preconditioner that leaves all coordinates as they are."""
    return Preconditioner(np.zeros(size), np.ones(size))


def bounded(curvature: Float[np.ndarray, " param"]) -> Float[np.ndarray, " param"]:
    """The curvatures, clipped to the range that priors and data can give."""
    return np.clip(np.nan_to_num(np.abs(curvature), nan=1.0, posinf=1.0), *CURVATURE)


def root(hessian: Float[np.ndarray, "param param"]) -> Float[np.ndarray, "param param"]:
    """A matrix R with R R^T the inverse of the Hessian, whose negative eigenvalues are replaced by their absolute
    values. The Hessian is scaled to a unit diagonal first, so that units do not matter; and no column is longer than
    priors allow."""
    scale = bounded(np.diagonal(hessian)) ** -0.5
    values, vectors = np.linalg.eigh(np.nan_to_num(hessian * scale * scale[:, None]))
    columns = scale[:, None] * vectors * np.clip(np.abs(values), SMALLEST_EIGENVALUE, None) ** -0.5
    return columns * np.minimum(1.0, LONGEST / np.linalg.norm(columns, axis=0))

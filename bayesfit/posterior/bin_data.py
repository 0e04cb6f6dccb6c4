"""The data of one bin, and the mean curve as a linear function of its amplitudes.

Data are held standardised: y and the baseline's column are divided by the stated errors, and are zero where a point is
not valid, so that masked points drop out of every sum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jaxtyping import Array, Bool, Float

from bayesfit.modelling.scatter import AnyArray, Scatter
from bayesfit.posterior.coordinates import Values


class Bin(NamedTuple):
    """The data of one bin, or, with a leading axis, of many.

    `y` = g2 / g2_err and `inverse_error` = 1 / g2_err are both 0 where not `valid`. `layout` is what the noise model
    has computed from the delays `tau`; `log_constant` is what `Posterior.log_constant` returns; `fixed` and `priors`
    hold the values that are given for this bin.
    """

    tau: Float[AnyArray, "*bins tau"]
    y: Float[AnyArray, "*bins tau"]
    inverse_error: Float[AnyArray, "*bins tau"]
    valid: Bool[AnyArray, "*bins tau"]
    layout: Float[AnyArray, "*bins tau column"]
    log_constant: Float[AnyArray, "*bins"]
    fixed: Values
    priors: dict[str, Values]


def first_of(bins: Bin) -> Bin:
    """The first of many bins."""
    return jax.tree.map(lambda array: array[0], bins)


class Curve(NamedTuple):
    """The standardised mean curve of one bin: offset + contrast * shape + baseline * (column of the baseline)."""

    offset: Float[Array, " tau"]
    shape: Float[Array, " tau"]
    baseline: Float[Array, " tau"]


class Columns(NamedTuple):
    """The columns of a linear regression: the data less the curve's offset, the shape, and the column of the
    baseline."""

    y: Float[Array, " tau"]
    shape: Float[Array, " tau"]
    baseline: Float[Array, " tau"]

    def residual(self, contrast: Float[Array, ""], baseline: Float[Array, ""]) -> Float[Array, " tau"]:
        """The data less the curve with these amplitudes."""
        return self.y - contrast * self.shape - baseline * self.baseline


def whitened(curve: Curve, scatter: Scatter, bin: Bin) -> Columns:
    """The columns in coordinates where the noise is white."""
    return Columns(*scatter.whiten(bin, bin.y - curve.offset, curve.shape, curve.baseline))

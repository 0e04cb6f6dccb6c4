"""The curve of one bin at unconstrained coordinates, with the amplitudes as a linear regression.

The mean curve is linear in its amplitudes, mean = baseline + contrast * shape. Those that can be integrated out have no
coordinates. The others are sampled. Where only the noise is the reason, which is not normal, the coordinate of each is
measured from the regression that would be exact if it were, so that its posterior has nearly the same location and
width whatever the shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from bayesfit.modelling.model import AMPLITUDES
from bayesfit.modelling.scatter import SMALLEST_SCALE, AnyArray, Scatter
from bayesfit.posterior.bin_data import Bin, Columns, Curve, whitened
from bayesfit.posterior.bin_program import BinProgram, normal_amplitudes, sample_amplitude
from bayesfit.posterior.coordinates import ABOUT, Coordinates, Values, coordinates
from bayesfit.posterior.linear_amplitudes import (
    AmplitudePriors,
    conditional,
    least_squares_amplitudes,
    normal_quantiles,
    regression,
)


@dataclass(frozen=True)
class CurveCoordinates(BinProgram):
    """The programs of one bin, with the curve's half on the unconstrained scale.

    The curve's coordinates z (param,) are those of its shape, `shape_size` of them, and then those of the `relative`
    amplitudes.
    """

    @cached_property
    def relative(self) -> tuple[str, ...]:
        """The amplitudes that could be integrated out if the noise were normal. Where it is not, they are sampled, each
        in a coordinate about its regression, and come last among the curve's coordinates."""
        normal = normal_amplitudes(self.model, dict(self.families), self.fixed)
        return tuple(name for name in normal if name not in self.marginal)

    @property
    def shape_size(self) -> int:
        """Number of the shape's coordinates, the first ones."""
        return len(self.curve_names) - len(self.relative)

    def with_regression(self, z: Float[Array, "any param"]) -> Float[Array, "any param"]:
        """Coordinates of the curve with the `relative` amplitudes at their regression."""
        return z.at[:, self.shape_size :].set(0.0) if self.relative else z

    def curve_program(self, bin: Bin) -> Curve:
        """The curve's half of the marginal program: every amplitude that is not integrated out is sampled."""
        shape = self.seen(self.model.program(bin.tau), bin)
        zero = jnp.zeros_like(bin.inverse_error)
        if self.model.form == "curve":
            return Curve(shape * bin.inverse_error, zero, zero)
        columns = {"contrast": shape * bin.inverse_error, "baseline": bin.inverse_error}
        offset = zero
        for name in sorted(AMPLITUDES, key=lambda name: name in self.relative):
            if name not in self.marginal:
                about = self._about(name, Columns(bin.y - offset, columns["contrast"], columns["baseline"]), bin)
                offset = offset + sample_amplitude(name, about) * columns[name]
                columns[name] = zero
        return Curve(offset, columns["contrast"], columns["baseline"])

    def _about(self, name: str, columns: Columns, bin: Bin) -> Values:
        """The mean and sd about which an amplitude's coordinate is measured: those of its regression on the remaining
        columns, as if the noise were normal with the scale of the residuals; empty where it is not `relative`.

        The sum of squared residuals does not change with the amplitudes at its least, so that its derivatives need not
        follow them: these are unstable where the shape is nearly flat."""
        if name not in self.relative:
            return {}
        residual = columns.residual(*stop_gradient(least_squares_amplitudes(columns)))
        scale = jnp.sqrt(jnp.mean(residual**2, where=bin.valid) + SMALLEST_SCALE**2)
        priors = self.amplitude_priors(bin)
        given = conditional(regression(columns, scale, priors), priors)
        return {ABOUT: (given.contrast, given.contrast_sd) if name == "contrast" else (given.level, given.baseline_sd)}

    def curve(self, z: Float[Array, " param"], bin: Bin) -> tuple[Curve, Values, Float[Array, ""]]:
        """Curve, constrained values and log prior (with Jacobian) at the curve's coordinates."""
        handler = self.curve_at(z, bin)
        return handler(bin), handler.values, handler.log_density

    def log_prior_of_shape(self, z: Float[Array, " param"], bin: Bin) -> Float[AnyArray, ""]:
        """Log prior (with Jacobian) of the shape's coordinates, which come first in z."""
        handler = self.curve_at(z[: len(self.curve_names)], bin)
        handler(bin)
        return sum((handler.log_densities[name] for name in self.curve_names[: self.shape_size]), start=0.0)

    def curve_at(self, z: Float[Array, " param"], bin: Bin) -> Coordinates:
        """The curve's program at these coordinates, to be called with the bin."""
        return Coordinates(self.overridden(self.curve_program, bin), z=dict(zip(self.curve_names, z, strict=True)))

    def unconstrain_curve(self, values: Mapping[str, Any], bin: Bin) -> Float[Array, " param"]:
        """Coordinates of the curve's parameters at constrained values."""
        return coordinates(self.overridden(self.curve_program, bin), self.curve_names, values, bin)

    def amplitude_prior(self, name: str, bin: Bin) -> tuple[Any, Any]:
        """Mean and sd of an amplitude's normal prior, also for many bins. For an amplitude that is neither integrated
        out nor sampled about its regression they are 0 and 1, and cancel."""
        if name not in self.marginal + self.relative:
            return 0.0, 1.0
        return bin.priors[name].get("loc", 0.0), bin.priors[name]["scale"]

    def lower_bound(self, bin: Bin) -> Any:
        """The lower bound of a contrast that is integrated out, also for many bins; None where its prior has none."""
        if "contrast" not in self.marginal or dict(self.families)["contrast"] == "Normal":
            return None
        return bin.priors["contrast"].get("low", 0.0)

    def amplitude_priors(self, bin: Bin) -> AmplitudePriors:
        """The normal priors of both amplitudes, also for many bins."""
        contrast, baseline = (self.amplitude_prior(name, bin) for name in AMPLITUDES)
        return AmplitudePriors(*contrast, *baseline, self.lower_bound(bin))

    def amplitude_prior_quantiles(
        self, name: str, levels: Float[np.ndarray, " level"], bins: Bin
    ) -> Float[np.ndarray, "q_bin level"]:
        """Quantiles of the prior of an amplitude that is integrated out, for many bins; in NumPy."""
        low = self.lower_bound(bins) if name == "contrast" else None
        return normal_quantiles(*self.amplitude_prior(name, bins), low, levels)

    def residual(self, z: Float[Array, " param"], bin: Bin, scatter: Scatter | None = None) -> Float[Array, " tau"]:
        """Residuals at the curve's coordinates, the free amplitudes at their least-squares values (variable projection:
        Golub & Pereyra 1973). They are standardised by the stated errors, which is what the point estimate minimises,
        or whitened by a `scatter`."""
        curve, _, _ = self.curve(z, bin)
        columns = whitened(curve, scatter or Scatter(1.0), bin)
        return columns.residual(*least_squares_amplitudes(columns))

    def least_squares(self, z: Float[Array, " param"], bin: Bin) -> tuple[Values, Values]:
        """Constrained values of a least-squares fit at the curve's coordinates, and their standard errors for errors
        as stated (`standard_errors`)."""
        curve, values, _ = self.curve(z, bin)
        found = least_squares_amplitudes(whitened(curve, Scatter(1.0), bin))
        amplitudes = dict(zip(AMPLITUDES, found, strict=True))
        values = {**values, **{name: amplitudes[name] for name in self.marginal}}
        names = self.curve_names + self.marginal

        def standardised(vector: Float[Array, " param"]) -> Float[Array, " tau"]:
            return self.mean({**values, **dict(zip(names, vector, strict=True))}, bin) * bin.inverse_error

        jacobian = jax.jacfwd(standardised)(jnp.stack([values[name] for name in names]) if names else jnp.zeros(0))
        return values, dict(zip(names, standard_errors(jacobian), strict=True))


def standard_errors(jacobian: Float[Array, "tau param"]) -> Float[Array, " param"]:
    """The square root of the diagonal of (J^T J)^-1, from columns scaled to length 1; infinite where J is singular."""
    length = jnp.sqrt(jnp.sum(jacobian**2, axis=0))
    scaled = jacobian / jnp.where(length > 0, length, 1.0)
    root = jnp.linalg.cholesky(scaled.T @ scaled)
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(jacobian.shape[1]), lower=True)
    sd = jnp.sqrt(jnp.sum(inverse**2, axis=0)) / length
    return jnp.where(jnp.isfinite(sd), sd, jnp.inf)

"""One bin's posterior: its log density at unconstrained coordinates, with the amplitudes integrated out.

Given the sampled parameters, the amplitudes have a normal distribution in closed form (`linear_amplitudes`). It is
integrated out of the density, and exact conditional draws bring the amplitudes back afterwards, so that the posterior
is that of all parameters. Where the noise is not normal, amplitudes are sampled (`curve_coordinates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from bayesfit.modelling.model import AMPLITUDES
from bayesfit.modelling.photons import white_data
from bayesfit.modelling.scatter import Scatter
from bayesfit.posterior.bin_data import Bin, Columns, Curve, whitened
from bayesfit.posterior.coordinates import Coordinates, Values, coordinates
from bayesfit.posterior.curve_coordinates import CurveCoordinates
from bayesfit.posterior.linear_amplitudes import (
    Amplitudes,
    conditional,
    draw_baseline,
    draw_contrast,
    log_marginal_ratio,
    log_mass_above_cut,
    regression,
)


class AtPoint(NamedTuple):
    """The values of a bin's programs at one point: the `curve`, white `columns`, the `scatter`, constrained `values` of
    all sampled parameters, and their `log_prior` with Jacobian."""

    curve: Curve
    columns: Columns
    scatter: Scatter
    values: Values
    log_prior: Float[Array, ""]


@dataclass(frozen=True)
class Posterior(CurveCoordinates):
    """The posterior of one bin, for data that come as a `Bin`; see `BinProgram` for what it is made of.

    The coordinates z (param,) are those of the curve, in the order of `curve_names`, and then those of the noise.
    """

    def scatter(self, z: Float[Array, " param"], bin: Bin) -> tuple[Scatter, Values, Float[Array, ""]]:
        """Scatter, constrained values and log prior (with Jacobian) at the noise's coordinates."""
        sites = dict(zip(self.noise_names, z, strict=True))
        handler = Coordinates(self.overridden(self.noise.program, bin), z=sites)
        return handler(bin), handler.values, handler.log_density

    def at(self, z: Float[Array, " param"], bin: Bin) -> AtPoint:
        """The values of the programs at these coordinates."""
        split = len(self.curve_names)
        curve, values, log_prior = self.curve(z[:split], bin)
        scatter, noise_values, log_prior_of_noise = self.scatter(z[split:], bin)
        columns = self._whitened(curve, scatter, bin)
        return AtPoint(curve, columns, scatter, {**values, **noise_values}, log_prior + log_prior_of_noise)

    def _whitened(self, curve: Curve, scatter: Scatter, bin: Bin) -> Columns:
        """The white columns; where correlations depend on no parameter and both amplitudes are integrated out, only the
        shape is not known beforehand."""
        if self.noise.observed is None or self.marginal != AMPLITUDES:
            return whitened(curve, scatter, bin)
        y, ones = white_data(bin)
        (shape,) = scatter.whiten(bin, curve.shape)
        return Columns(y, shape, ones)

    def amplitudes(self, at: AtPoint, bin: Bin) -> Amplitudes:
        """The conditional distribution of the amplitudes at a point."""
        priors = self.amplitude_priors(bin)
        return conditional(regression(at.columns, at.scatter.scale, priors), priors)

    def log_density(self, z: Float[Array, " param"], bin: Bin) -> Float[Array, ""]:
        """Log of the posterior density at z, up to the log marginal likelihood of the data; amplitudes are integrated
        out.

        It may be differentiated once: likelihood times prior is stationary in the amplitudes at their conditional mean,
        where they are therefore kept constant.
        """
        at = self.at(z, bin)
        log_prior = at.log_prior + bin.log_constant
        if not self.marginal:
            return log_prior + at.scatter.log_likelihood(at.columns.y, bin)
        given = self.amplitudes(at, bin)
        contrast, baseline = map(stop_gradient, given.mean)
        log_likelihood = at.scatter.log_likelihood(at.columns.residual(contrast, baseline), bin)
        ratio = log_marginal_ratio(given, contrast, baseline, self.amplitude_priors(bin))
        return log_prior + log_likelihood + ratio

    def potential(self, z: Float[Array, " param"], bin: Bin) -> Float[Array, ""]:
        """Minus the log density, infinite where it is not a number."""
        value = -self.log_density(z, bin)
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    def log_constant(self, bins: Bin) -> Float[np.ndarray, " q_bin"]:
        """The part of each bin's log density that depends on no parameter, for many bins, in NumPy: the Jacobian of the
        standardisation, and the mass of the contrast's prior above its cut."""
        jacobian = np.sum(np.log(np.where(bins.valid, bins.inverse_error, 1.0)), axis=1)
        priors = self.amplitude_priors(bins)
        return jacobian if priors.lower_bound is None else jacobian - log_mass_above_cut(priors)

    def constrain(self, z: Float[Array, " param"], bin: Bin, key: Array) -> Values:
        """Every parameter at z: the sampled ones and an exact conditional draw of the amplitudes."""
        at = self.at(z, bin)
        if not self.marginal:
            return at.values
        return {**at.values, **self.draw_amplitudes(self.amplitudes(at, bin), bin, key)}

    def corrected(self, z: Float[Array, " param"], bin: Bin, key: Array) -> tuple[Values, Float[Array, ""]]:
        """Every parameter at z, as `constrain` gives them, and the log of the likelihood there over that of the noise
        model's normal approximation."""
        at = self.at(z, bin)
        values = {**at.values, **(self.draw_amplitudes(self.amplitudes(at, bin), bin, key) if self.marginal else {})}
        contrast, baseline = (values[name] if name in self.marginal else jnp.zeros(()) for name in AMPLITUDES)
        approximate = at.scatter.log_likelihood(at.columns.residual(contrast, baseline), bin)
        residual = Columns(bin.y - at.curve.offset, at.curve.shape, at.curve.baseline).residual(contrast, baseline)
        scatter = self.observed(at.scatter, bin)
        (white,) = scatter.whiten(bin, residual)
        return values, scatter.log_likelihood(white, bin) - approximate

    def draw_amplitudes(self, given: Amplitudes, bin: Bin, key: Array) -> Values:
        """Those amplitudes that are integrated out, drawn from their conditional distribution."""
        key_contrast, key_baseline = jax.random.split(key)
        drawn = draw_contrast(given, self.lower_bound(bin), key_contrast)
        contrast = drawn if "contrast" in self.marginal else 0.0
        both = {"contrast": contrast, "baseline": draw_baseline(given, contrast, key_baseline)}
        return {name: both[name] for name in self.marginal}

    def draw_prior(self, key: Array, bin: Bin) -> tuple[Float[Array, " param"], Values]:
        """A draw of the coordinates from the prior, and the constrained values there."""
        key_curve, key_noise = jax.random.split(key)
        curve = Coordinates(self.overridden(self.curve_program, bin), key=key_curve)
        curve(bin)
        noise = Coordinates(self.overridden(self.noise.program, bin), key=key_noise)
        noise(bin)
        z, values = {**curve.z, **noise.z}, {**curve.values, **noise.values}
        return jnp.stack([z[name] for name in self.names]) if z else jnp.zeros(0), values

    def unconstrain_noise(self, values: Mapping[str, Any], bin: Bin) -> Float[Array, " param"]:
        """Coordinates of the noise's parameters at constrained values."""
        return coordinates(self.overridden(self.noise.program, bin), self.noise_names, values, bin)

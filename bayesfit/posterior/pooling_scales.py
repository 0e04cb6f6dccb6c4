"""The scales on which the bins' values deviate from what they have in common.

A scale maps a parameter's value to a real number and back. `prior` is the parameter's own prior, which only the scale
`Unconstrained` needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Float

from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.coordinates import from_coordinate, to_coordinate


class Scale(Protocol):
    """A one-to-one map from a parameter's value to the real numbers, the same in all bins."""

    def to(self, value: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """The place on the scale of a value."""
        ...

    def back(self, place: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """The value at a place on the scale; undoes `to`."""
        ...


@dataclass(frozen=True)
class Linear:
    """The value itself, in its own unit: for parameters that may be negative."""

    def to(self, value: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """The value as it is."""
        return value

    def back(self, place: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """The place as it is."""
        return place


@dataclass(frozen=True)
class Logarithmic:
    """The natural logarithm of a positive value: a deviation is a factor."""

    def to(self, value: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """Its logarithm."""
        return jnp.log(value)

    def back(self, place: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """Its exponential."""
        return jnp.exp(place)


@dataclass(frozen=True)
class Unconstrained:
    """The unconstrained coordinate of the parameter's prior, so that every place on the scale is a possible value."""

    def to(self, value: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """The unconstrained coordinate of a value."""
        return to_coordinate(prior, value)

    def back(self, place: Float[AnyArray, "*bins"], prior: dist.Distribution) -> Float[AnyArray, "*bins"]:
        """The value at an unconstrained coordinate."""
        return from_coordinate(prior, place)

"""Quantities of the specimen that are given beside the curves, such as a temperature: a number, or a prior.

No curve depends on them, so their posterior is their prior: a draw from the prior together with a draw from a fit's
posterior is a draw from the joint posterior. All bins use the same draw, so their results share its error.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from bayesfit.compute.errors import SettingsError
from bayesfit.compute.keys import bin_keys
from bayesfit.compute.operations import computing
from bayesfit.modelling.priors import Prior, build, check_common, one_number, parse_prior

REACHING_ZERO = frozenset({"Normal", "TruncatedNormal", "StudentT", "Cauchy", "Laplace", "Uniform"})
LARGEST_SHARE = 1e-9  # of a prior, at and below 0


@dataclass(frozen=True)
class GivenQuantity:
    """A positive quantity with a name; its `value` is a number or a prior."""

    name: str
    value: float | Prior

    @property
    def exact(self) -> bool:
        """Whether it is a number."""
        return not isinstance(self.value, Prior)

    @property
    def described(self) -> float | dict[str, str | float]:
        """The number, or a table of the prior's family and values."""
        if not isinstance(self.value, Prior):
            return self.value
        return {"family": self.value.family, **{name: float(value) for name, value in self.value.values.items()}}

    def draws(self, shape: tuple[int, ...], seed: int) -> Float[np.ndarray, " *shape"]:
        """Independent draws of this shape, or the number alone, of shape ()."""
        if not isinstance(self.value, Prior):
            return np.asarray(self.value)
        with computing():
            key = jax.random.wrap_key_data(bin_keys(seed, np.array([("known", self.name)]))[0])
            return np.asarray(_distribution(self.value).sample(key, shape), float)


def parse_quantity(given: Any, name: str) -> GivenQuantity:
    """A positive quantity as users give it: a number, or a prior in any of its forms.

    Raises:
        SettingsError: it is neither of these, it is not positive, or its prior reaches 0.
    """
    if isinstance(given, Real | np.ndarray):
        value = one_number(given, name)
        if value <= 0:
            raise SettingsError(f"expected a number above 0, got {value:g}", field=name)
        return GivenQuantity(name, value)
    prior = parse_prior(given, name, name)
    check_common(prior, name)
    with computing():
        share = float(_distribution(prior).cdf(0.0)) if prior.family in REACHING_ZERO else 0.0
    if share > LARGEST_SHARE:
        raise SettingsError(
            f"a share of {share:.1g} of its prior is not above 0",
            field=name,
            remedy="Write a LogNormal, or TruncatedNormal(loc, scale, low=0)",
        )
    return GivenQuantity(name, prior)


def _distribution(prior: Prior) -> dist.Distribution:
    return build(prior.family, {name: np.asarray(value, float) for name, value in prior.values.items()})

"""Runs a NumPyro program on the unconstrained scale, at given values, or with other priors.

Each handler (`Messenger`) here gives the sites of a program their values and records what the posterior is made of. The
density that is sampled is that of the coordinates: the prior, times the Jacobian of the map from coordinate to value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import AffineTransform, ComposeTransform, Transform
from numpyro.primitives import Messenger

from bayesfit.modelling.scatter import AnyArray

Values = dict[str, Any]  # arrays by the name of a parameter
ABOUT = "about"  # key in `infer` of the mean and sd about which a site's coordinate is measured (`Coordinates`)
LOW_DENSITY = 0.1  # relative to the median density; where the density is lower, a distribution has its tails
MEDIAN_DRAWS, TAIL_DRAWS = 99, 20_000  # for the median density; for tails without a distribution function


class Override(Messenger):
    """Replace the priors of some sites and pin others to given values; a site whose prior is a point is pinned
    there."""

    def __init__(self, fn: Callable[..., Any], fixed: Values, priors: Mapping[str, dist.Distribution]) -> None:
        self.fixed, self.priors = fixed, priors
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        """Pin the site or replace its prior."""
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        if msg["name"] in self.fixed:
            msg["type"], msg["value"] = "deterministic", self.fixed[msg["name"]]
        elif msg["name"] in self.priors:
            msg["fn"] = self.priors[msg["name"]]
        elif isinstance(msg["fn"], dist.Delta):
            msg["type"], msg["value"] = "deterministic", msg["fn"].v


class Coordinates(Messenger):
    """Run a program on the unconstrained scale, adding up log prior and log Jacobian.

    With `z`, each site takes the value at its coordinate; with `key`, it draws from its prior and the coordinate is
    recorded. The coordinate of a transformed distribution is that of its base distribution (log rate for a log-uniform
    rate), which has the value `innermost`. With `infer={ABOUT: (mean, sd)}` a site has its coordinate measured about
    the mean, in units of sd.
    """

    def __init__(self, fn: Callable[..., Any], z: Values | None = None, key: Array | None = None) -> None:
        self.z: Values = {} if z is None else z
        self.key = key if z is None else None
        self.values: Values = {}
        self.innermost: Values = {}
        self.log_densities: Values = {}
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        """Give the site its value, and record its coordinate and log density."""
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        name = msg["name"]
        inner, push = base(msg["fn"])
        transform = biject_to(inner.support)
        if ABOUT in msg["infer"]:
            transform = ComposeTransform([_about(msg["infer"][ABOUT], transform), transform])
        if self.key is not None:
            self.key, key = jax.random.split(self.key)
            x = inner.sample(key)
            self.z[name] = transform._inverse(x)
        else:
            x = transform(self.z[name])
        self.log_densities[name] = inner.log_prob(x) + transform.log_abs_det_jacobian(self.z[name], x)
        self.innermost[name], msg["value"] = x, push(x)

    @property
    def log_density(self) -> Float[AnyArray, ""]:
        """Log prior with log Jacobian of all sites."""
        return sum(self.log_densities.values(), start=0.0)

    def postprocess_message(self, msg: Any) -> None:
        """Record the value of a site, also of one that follows from others."""
        if msg["type"] in ("sample", "deterministic"):
            self.values[msg["name"]] = msg["value"]


def _about(measure: tuple[Any, Any], transform: Transform) -> Transform:
    """The map from a coordinate measured about a mean, in units of sd, to the unconstrained scale.

    With a lower bound the unconstrained scale is the logarithm of the distance from the bound. There the mean is kept
    above the bound smoothly: far below it, its distance from the bound becomes sd^2 / distance.
    """
    mean, sd = measure
    if transform.domain is transform.codomain:
        return AffineTransform(mean, sd)
    low = transform(-jnp.inf)
    above = 0.5 * (mean - low + jnp.hypot(mean - low, 2.0 * sd))
    return AffineTransform(transform._inverse(low + above), sd / jnp.hypot(above, sd))


def base(fn: dist.Distribution) -> tuple[dist.Distribution, Callable[[Any], Any]]:
    """The innermost distribution of a transformed one, and the map from its values to those of the site."""
    transforms: list[Any] = []
    while isinstance(fn, dist.TransformedDistribution):
        transforms = [*fn.transforms, *transforms]
        fn = fn.base_dist

    def push(x: Any) -> Any:
        for transform in transforms:
            x = transform(x)
        return x

    return fn, push


def pull(fn: dist.Distribution, value: Float[AnyArray, "*shape"]) -> Float[AnyArray, "*shape"]:
    """The value of the innermost distribution that its transforms map to this one; undoes the map of `base`."""
    while isinstance(fn, dist.TransformedDistribution):
        for transform in reversed(fn.transforms):
            value = transform._inverse(value)
        fn = fn.base_dist
    return value


def to_coordinate(fn: dist.Distribution, value: Float[AnyArray, "*shape"]) -> Float[Array, "*shape"]:
    """The unconstrained coordinate of a site's value."""
    return biject_to(base(fn)[0].support)._inverse(pull(fn, value))


def from_coordinate(fn: dist.Distribution, coordinate: Float[AnyArray, "*shape"]) -> Float[Array, "*shape"]:
    """The value of a site at an unconstrained coordinate; undoes `to_coordinate`."""
    inner, push = base(fn)
    return push(biject_to(inner.support)(coordinate))


def coordinates(
    program: Callable[..., Any], names: tuple[str, ...], values: Mapping[str, Any], *args: Any
) -> Float[Array, " param"]:
    """Coordinates of these sites of a program at given values."""
    recorder = _Recorder(program, values)
    recorder(*args)
    return jnp.stack([recorder.z[name] for name in names]) if names else jnp.zeros(0)


class _Recorder(Messenger):
    """Give every sampled site its value from a mapping and record its coordinate."""

    def __init__(self, fn: Callable[..., Any], values: Mapping[str, Any]) -> None:
        self.given = values
        self.z: Values = {}
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        """Give the site its value and record the coordinate."""
        if msg["type"] == "sample" and not msg["is_observed"]:
            msg["value"] = jnp.asarray(self.given[msg["name"]], float)
            z = to_coordinate(msg["fn"], msg["value"])
            if ABOUT in msg["infer"]:
                z = _about(msg["infer"][ABOUT], biject_to(base(msg["fn"])[0].support))._inverse(z)
            self.z[msg["name"]] = z


class AtValues(Messenger):
    """Give every sampled site its value from a mapping, and record what a function says of its prior and value, for all
    sites or for those of these names."""

    def __init__(
        self,
        fn: Callable[..., Any],
        values: Values,
        says: Callable[[dist.Distribution, Any], Any],
        names: tuple[str, ...] | None = None,
    ) -> None:
        self.given, self.says, self.names = values, says, names
        self.found: Values = {}
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        """Give the site its value and record what the function says."""
        if msg["type"] == "sample" and not msg["is_observed"]:
            msg["value"] = self.given[msg["name"]]
            if self.names is None or msg["name"] in self.names:
                self.found[msg["name"]] = self.says(msg["fn"], msg["value"])


def log_density(fn: dist.Distribution, value: Float[AnyArray, "*shape"]) -> Float[AnyArray, "*shape"]:
    """The log density of a distribution at a value."""
    return fn.log_prob(value)


def log_range(fn: dist.Distribution, _value: Float[AnyArray, "*shape"]) -> Float[Array, 2]:
    """The two ends of a prior that is log-uniform, for one value or for several alike; NaN for any other."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return jnp.stack([fn.low, fn.high]) if isinstance(fn, dist.LogUniform) else jnp.full(2, jnp.nan)


def place_in_prior(fn: dist.Distribution, value: Float[AnyArray, "*shape"]) -> tuple[Float[Array, ""], Float[Array, 2]]:
    """How far out in its prior a value lies, of several the farthest (`tail`), and the ends of that prior
    (`log_range`)."""
    return jnp.min(tail(fn, value)), log_range(fn, value)


def constant_ends(ends: Float[Array, "draw 2"]) -> Float[Array, 2]:
    """The ends of a range at many draws, NaN where they differ: such an end is another parameter."""
    return jnp.where(jnp.all(ends == ends[0], axis=0), ends[0], jnp.nan)


def tail(fn: dist.Distribution, value: Float[AnyArray, "*shape"]) -> Float[Array, "*shape"]:
    """Probability of a value at least as far out in a distribution as this one, both tails together; 1 where the
    density is not low compared with the median one. Both are those of the innermost distribution: a log-normal has the
    tails of its normal. Of independent values the smallest probability is returned."""
    if isinstance(fn, dist.Independent):
        return jnp.min(tail(fn.base_dist, value))
    inner, x = base(fn)[0], pull(fn, value)
    try:
        below = inner.cdf(x)
        above = 1.0 - below
    except NotImplementedError:
        drawn = inner.sample(jax.random.key(1), (TAIL_DRAWS,))
        below, above = jnp.mean(drawn <= x, axis=0), jnp.mean(drawn >= x, axis=0)
    median = jnp.median(inner.log_prob(inner.sample(jax.random.key(0), (MEDIAN_DRAWS,))), axis=0)
    low = ~(inner.log_prob(x) > median + jnp.log(LOW_DENSITY))
    return jnp.where(low, jnp.minimum(2.0 * jnp.minimum(below, above), 1.0), 1.0)

"""One posterior over all bins, for parameters that are pooled across them.

The density is the product of the bins' own densities, amplitudes integrated out, at the values that the poolings give,
times the prior of what the bins have in common. It has up to some hundreds of dimensions. Bins and poolings are its
data, so that one compiled program serves all datasets of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bayesfit.compute.devices import on_one_device, program_for, start_on_one_device
from bayesfit.compute.errors import SettingsError
from bayesfit.modelling.priors import Prior, build
from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.bin_data import Bin, first_of
from bayesfit.posterior.complete_pooling import CompletePooling
from bayesfit.posterior.coordinates import Coordinates, Override, Values
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.pooling_interface import Pooling
from bayesfit.posterior.prepare import Problem
from bayesfit.posterior.shared_amplitudes import SharedAmplitudes, integrated

OWN = "_own"  # the coordinates of the parameters that each bin has for itself, (q_bin, param)

Point = dict[str, AnyArray]  # coordinates by name: of the poolings' sites, and `OWN`
Vector = Float[Array, " dimension"]
Real = Float[Array, ""]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("bins", "poolings", "given", "fixed", "amplitudes", "closed"),
    meta_fields=("unpooled", "per_bin", "families", "sites"),
)
@dataclass(frozen=True)
class Joint:
    """The joint posterior of some bins.

    `unpooled` is the posterior of one bin without pooling; `per_bin` is that of the bin's own parameters, given the
    values of the pooled ones. `poolings` are sampled; `closed` are those of shared `amplitudes` that are integrated
    out. `given`, with `families`, and `fixed` are priors and values of what the bins have in common, and `sites` the
    shapes of its coordinates.
    """

    unpooled: Posterior
    per_bin: Posterior
    bins: Bin
    poolings: tuple[Pooling, ...]
    families: tuple[tuple[str, str], ...]  # not NumPyro distributions, whose parts have no fixed order
    given: dict[str, Values]
    fixed: dict[str, Any]
    amplitudes: SharedAmplitudes | None = None
    closed: tuple[CompletePooling, ...] = ()
    sites: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def all_poolings(self) -> tuple[Pooling, ...]:
        """Every pooling, those of amplitudes that are integrated out last."""
        return (*self.poolings, *self.closed)

    @property
    def names(self) -> tuple[str, ...]:
        """The pooled parameters."""
        return tuple(pooling.parameter for pooling in self.all_poolings)

    @property
    def count(self) -> int:
        """How many bins there are."""
        return len(self.bins.y)

    @property
    def identity(self) -> str | None:
        """What its programs are made of, in words; None where the model or a law is not known by its name."""
        parts = [self.unpooled.identity, self.per_bin.identity, *(pooling.identity for pooling in self.poolings)]
        amplitudes = None if self.amplitudes is None else (self.amplitudes.names, self.amplitudes.groups)
        return None if None in parts else f"{parts} {self.families} {sorted(self.fixed)} {amplitudes}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the coordinates, by name."""
        return {**dict(self.sites), OWN: (self.count, len(self.per_bin.names))}

    @property
    def dimensions(self) -> int:
        """The number of coordinates."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    @property
    def priors(self) -> dict[str, dist.Distribution]:
        """The prior that every parameter has in the first bin; pooled ones have it in all bins."""
        return priors_of(self.unpooled, first_of(self.bins))

    def with_fits(self, values: Mapping[str, Any], sd: Mapping[str, Any]) -> Joint:
        """The same in coordinates that suit the bins' own fits: values and standard errors (q_bin,) by name."""
        priors = self.priors
        poolings = (
            pooling.with_fits(priors[name], values[name], sd[name])
            if (name := pooling.parameter) in values
            else pooling
            for pooling in self.poolings
        )
        return replace(self, poolings=tuple(poolings))

    def site_shapes(self, poolings: tuple[Pooling, ...]) -> dict[str, tuple[int, ...]]:
        """Shapes of the coordinates that these poolings sample, by name."""
        found = jax.eval_shape(lambda: replace(self, poolings=poolings).run(key=jax.random.key(0))[1].z)
        return {name: z.shape for name, z in found.items()}

    def point(self, vector: Vector) -> Point:
        """Coordinates by name from a vector."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        parts = jnp.split(vector, ends[:-1])
        return {name: jnp.reshape(part, shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def vector(self, point: Point) -> Vector:
        """A vector from coordinates by name."""
        return jnp.concatenate([jnp.ravel(point[name]) for name in self.shapes])

    def pooled(self, priors: Mapping[str, dist.Distribution]) -> Values:
        """The poolings' program: the value of each pooled parameter (q_bin,). `priors` are those of one bin."""
        return {pooling.parameter: pooling.values(priors[pooling.parameter]) for pooling in self.poolings}

    def run(self, z: Point | None = None, key: Array | None = None) -> tuple[Values, Coordinates]:
        """Pooled values at coordinates `z` by name, or at a draw from the prior, and the handler of the program."""
        given = {name: build(family, self.given[name]) for name, family in self.families}
        handler = Coordinates(Override(self.pooled, dict(self.fixed), given), z=z, key=key)
        return handler(self.priors), handler

    def at(self, values: Values) -> Bin:
        """The bins' data with these pooled values (q_bin,), by name, as fixed values."""
        return self.bins._replace(fixed={**self.bins.fixed, **values})

    def potential(self, point: Point) -> Real:
        """Minus the log density at a point; it may be differentiated once."""
        values, handler = self.run({name: z for name, z in point.items() if name != OWN})
        bins, z, log_density = self.at(values), point[OWN], handler.log_density
        if self.amplitudes is not None:
            shared, term = self.amplitudes.marginal(z, bins)
            bins, log_density = self.at({**values, **shared}), log_density + term
        potential = jnp.sum(jax.vmap(self.per_bin.potential)(z, bins)) - log_density
        return jnp.where(jnp.isnan(potential), jnp.inf, potential)

    def slope(self, vector: Vector) -> tuple[Real, Vector]:
        """The potential and its gradient at a vector."""
        return jax.value_and_grad(lambda vector: self.potential(self.point(vector)))(vector)

    def draw(self, point: Point, bin_keys: Array, key: Array) -> tuple[Values, Values]:
        """At a point, every parameter of every bin (q_bin,), amplitudes drawn, and what the bins have in common."""
        values, handler = self.run({name: z for name, z in point.items() if name != OWN})
        bins, common = self.at(values), dict(handler.values)
        if self.amplitudes is not None:
            shared, by_group = self.amplitudes.draw(point[OWN], bins, key)
            bins, common = self.at({**values, **shared}), {**common, **by_group}
        made = jax.vmap(self.per_bin.constrain)(point[OWN], bins, bin_keys)
        return {**made, **{name: bins.fixed[name] for name in self.names}}, common


def compiled(function: Callable[..., Any], joint: Joint, *arguments: Any, static: tuple[Any, ...] = ()) -> Any:
    """The value of a function of a joint posterior and other arrays; compiled once for each set of shapes."""
    return on_one_device(function, joint, *arguments, static=static, identity=joint.identity)


def start_compiling(function: Callable[..., Any], joint: Joint, *arguments: Any, static: tuple[Any, ...] = ()) -> None:
    """Begin to compile what `compiled` and `program_of` call for arguments of these shapes; returns at once."""
    start_on_one_device(function, joint, *arguments, static=static, identity=joint.identity)


def program_of(function: Callable[..., Any], joint: Joint, *arguments: Any, static: tuple[Any, ...] = ()) -> Any:
    """The program behind `compiled` for these arguments, as a function of the last one, an array."""
    return program_for(function, joint, *arguments, static=static, identity=joint.identity)


def joint_posterior(
    problem: Problem,
    bins: Bin,
    poolings: tuple[Pooling, ...],
    given: Mapping[str, Prior],
    fixed: Mapping[str, float],
) -> Joint:
    """The joint posterior of these bins; `given` and `fixed` are priors and values of what the bins have in common.

    Raises:
        SettingsError: a prior is not the same in all bins, or nothing is left to sample.
    """
    unpooled, bins = problem.posterior, jax.tree.map(jnp.asarray, bins)
    poolings = tuple(_suited(pooling, unpooled, bins) for pooling in poolings)
    amplitudes = integrated(unpooled, poolings)
    shared = () if amplitudes is None else amplitudes.names
    sampled = tuple(pooling for pooling in poolings if pooling.parameter not in shared)
    given_sampled = unpooled.given(tuple(pooling.parameter for pooling in sampled))
    per_bin = given_sampled.given(shared)
    _check_priors(unpooled, bins, poolings)
    joint = Joint(
        unpooled,
        per_bin,
        bins,
        sampled,
        families=tuple((name, prior.family) for name, prior in sorted(given.items())),
        given={name: dict(prior.values) for name, prior in given.items()},
        fixed=dict(fixed),
        amplitudes=None if amplitudes is None else replace(amplitudes, posterior=given_sampled),
        closed=tuple(
            pooling for pooling in poolings if isinstance(pooling, CompletePooling) and pooling.parameter in shared
        ),
    )
    joint = with_data(replace(joint, sites=tuple(joint.site_shapes(sampled).items())), bins)
    if not joint.dimensions:
        raise SettingsError("nothing is left to sample", field="fixed", remedy="Leave a parameter of the law free")
    return joint


def with_data(joint: Joint, bins: Bin) -> Joint:
    """The same joint posterior with other data of the bins."""
    constant = joint.per_bin.log_constant(jax.tree.map(np.asarray, bins))
    return replace(joint, bins=jax.tree.map(jnp.asarray, bins)._replace(log_constant=jnp.asarray(constant)))


def _suited(pooling: Pooling, posterior: Posterior, bins: Bin) -> Pooling:
    """The pooling with its scale chosen by the parameter's prior in the first bin."""
    if not pooling.hierarchical:
        return pooling
    return pooling.suited_to(priors_of(posterior, first_of(bins))[pooling.parameter])


@partial(jax.jit, static_argnames=("posterior", "seed"), inline=True)
def priors_of(posterior: Posterior, bin: Bin, seed: int = 0) -> dict[str, dist.Distribution]:
    """The prior of every sampled parameter of one bin; where it depends on other parameters, at a draw of these. It is
    traced once, and the curve, which is not asked for, is not computed."""
    program = numpyro.handlers.seed(posterior.overridden(posterior.parameters, bin), jax.random.key(seed))
    trace = numpyro.handlers.trace(program).get_trace(bin)
    return {name: site["fn"] for name, site in trace.items() if site["type"] == "sample"}


def _check_priors(posterior: Posterior, bins: Bin, poolings: tuple[Pooling, ...]) -> None:
    """Refuse to pool a parameter by its own prior if the bins do not share that prior.

    Raises:
        SettingsError: the prior differs between bins, or depends on other parameters.
    """
    names = tuple(pooling.parameter for pooling in poolings if pooling.needs_prior)
    one, other = (_numbers(posterior, bins, names, seed) for seed in (0, 1))
    for name in names:
        if not all(np.all(a == b[0]) for a, b in zip(one[name], other[name], strict=True)):
            raise SettingsError(
                "its prior is not the same in all bins, or depends on other parameters",
                field=f"across.{name}",
                remedy=f"Give one in priors.{name}",
            )


@partial(jax.jit, static_argnames=("posterior", "names", "seed"))
def _numbers(posterior: Posterior, bins: Bin, names: tuple[str, ...], seed: int) -> dict[str, list[Array]]:
    """The numbers (q_bin, ...) of which these parameters' priors are made."""

    def one(bin: Bin) -> dict[str, list[Array]]:
        priors = priors_of(posterior, bin, seed)
        return {name: [jnp.asarray(leaf) for leaf in jax.tree.leaves(priors[name])] for name in names}

    return jax.vmap(one)(bins)

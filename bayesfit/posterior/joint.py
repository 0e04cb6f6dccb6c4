"""One posterior over all bins, for parameters that are pooled across them.

The density is the product of the bins' own, amplitudes integrated out, at values that the poolings give, times the prior
of what the bins have in common. It has up to some hundred dimensions. Bins and poolings are data of it, so that one
compiled program serves all datasets of one shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfit.compute.devices import on_one_device, program_for
from bayesfit.compute.errors import SettingsError
from bayesfit.modelling.priors import Prior, build
from bayesfit.posterior.coordinates import Coordinates, Override, Values
from bayesfit.posterior.density import Bin, Posterior
from bayesfit.posterior.pooling import Pooling
from bayesfit.posterior.prepare import Problem
from bayesfit.posterior.shared_amplitudes import SharedAmplitudes

OWN = "_own"  # the coordinates of the bins' own parameters, (q_bin, param)

Point = dict[str, Any]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("bins", "poolings", "given", "fixed", "amplitudes", "closed"),
    meta_fields=("whole", "own", "families", "sites"),
)
@dataclass(frozen=True)
class Joint:
    """The joint posterior of some bins. `whole` is the posterior of one bin by itself, `own` that given the pooled
    values; `poolings` are those that are sampled, `closed` those of `amplitudes` that are integrated out; `given`, with
    `families`, and `fixed`: priors and values of what the bins have in common; `sites`: the shapes of the coordinates
    of these.

    Distributions of NumPyro are no part of it: the order of what they are made of is not the same in all processes.
    """

    whole: Posterior
    own: Posterior
    bins: Bin
    poolings: tuple[Pooling, ...]
    families: tuple[tuple[str, str], ...]
    given: dict[str, Values]
    fixed: dict[str, Any]
    amplitudes: SharedAmplitudes | None = None
    closed: tuple[Pooling, ...] = ()
    sites: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def all_poolings(self) -> tuple[Pooling, ...]:
        """Every pooling, those of amplitudes that are integrated out last."""
        return (*self.poolings, *self.closed)

    @property
    def count(self) -> int:
        """How many bins there are."""
        return len(self.bins.y)

    @property
    def identity(self) -> str | None:
        """What its programs are made of, in words; None where the model or a law is not known by its name."""
        parts = [self.whole.identity, self.own.identity, *(pooling.identity for pooling in self.poolings)]
        amplitudes = None if self.amplitudes is None else (self.amplitudes.names, self.amplitudes.groups)
        return None if None in parts else f"{parts} {self.families} {sorted(self.fixed)} {amplitudes}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the coordinates, by name."""
        return {**dict(self.sites), OWN: (self.count, len(self.own.names))}

    @property
    def dimensions(self) -> int:
        """The number of coordinates."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def with_fits(self, values: Mapping[str, Any], sd: Mapping[str, Any]) -> Joint:
        """The same with coordinates that suit the bins' own fits, name to values and standard errors (q_bin,)."""
        poolings = (
            pooling.with_fits(self.priors[pooling.parameter], values[pooling.parameter], sd[pooling.parameter])
            if pooling.hierarchical and pooling.parameter in values
            else pooling
            for pooling in self.poolings
        )
        return replace(self, poolings=tuple(poolings))

    def site_shapes(self, poolings: tuple[Pooling, ...]) -> dict[str, tuple[int, ...]]:
        """Shapes of the coordinates that these poolings sample, by name."""
        some = replace(self, poolings=poolings)
        found = jax.eval_shape(lambda: some.run(key=jax.random.key(0))[1].z)
        return {name: z.shape for name, z in found.items()}

    def point(self, vector: Any) -> Point:
        """Coordinates by name from a vector (dimension,)."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        parts = jnp.split(vector, ends[:-1])
        return {name: jnp.reshape(part, shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def vector(self, point: Point) -> Any:
        """A vector (dimension,) from coordinates by name."""
        return jnp.concatenate([jnp.ravel(point[name]) for name in self.shapes])

    def pooled(self, priors: Mapping[str, dist.Distribution]) -> dict[str, Any]:
        """The poolings' program: samples what the bins have in common; the value of each pooled parameter (q_bin,).
        `priors` are those of one bin."""
        return {pooling.parameter: pooling.values(priors[pooling.parameter]) for pooling in self.poolings}

    def run(self, z: dict[str, Any] | None = None, key: Any = None) -> tuple[dict[str, Any], Coordinates]:
        """Linked values at coordinates `z` by name, or at a draw from the prior."""
        given = {name: build(family, self.given[name]) for name, family in self.families}
        handler = Coordinates(Override(self.pooled, dict(self.fixed), given), z=z, key=key)
        return handler(self.priors), handler

    def potential(self, point: Point) -> Any:
        """Minus the log density at a point; it may be differentiated once."""
        values, handler = self.run({name: z for name, z in point.items() if name != OWN})
        bins, z, log_density = self.at(values), point[OWN], handler.log_density
        if self.amplitudes is not None:
            shared, term = self.amplitudes.marginal(z, bins)
            bins, log_density = _with(bins, shared), log_density + term
        potential = jnp.sum(jax.vmap(self.own.potential)(z, bins)) - log_density
        return jnp.where(jnp.isnan(potential), jnp.inf, potential)

    def slope(self, vector: Any) -> tuple[Any, Any]:
        """The potential and its gradient at a vector (dimension,)."""
        return jax.value_and_grad(lambda vector: self.potential(self.point(vector)))(vector)

    def at(self, values: Values) -> Bin:
        """The bins at pooled values (q_bin,) by name."""
        return _with(self.bins, values)

    def draw(self, point: Point, bin_keys: Any, key: Any) -> tuple[Values, Values]:
        """Every parameter of every bin (q_bin,), amplitudes drawn, and what the bins have in common, at a point."""
        values, handler = self.run({name: z for name, z in point.items() if name != OWN})
        bins, common = self.at(values), dict(handler.values)
        if self.amplitudes is not None:
            shared, by_group = self.amplitudes.draw(point[OWN], bins, key)
            bins, common = _with(bins, shared), {**common, **by_group}
        made = jax.vmap(self.own.constrain)(point[OWN], bins, bin_keys)
        return {**made, **{name: bins.fixed[name] for name in self.names}}, common

    @property
    def names(self) -> tuple[str, ...]:
        """The pooled parameters."""
        return tuple(pooling.parameter for pooling in self.all_poolings)

    @property
    def priors(self) -> dict[str, dist.Distribution]:
        """The prior that every parameter has in one bin, the first."""
        return priors_of(self.whole, jax.tree.map(lambda array: array[0], self.bins))


def compiled(function: Any, joint: Joint, *arguments: Any, static: tuple[Any, ...] = ()) -> Any:
    """What a function makes of a joint posterior and other arrays; compiled once for all of one kind and shape."""
    return on_one_device(function, joint, *arguments, static=static, identity=joint.identity)


def program_of(function: Any, joint: Joint, *arguments: Any, static: tuple[Any, ...] = ()) -> Any:
    """The program behind `compiled`, for arguments of these shapes."""
    return program_for(function, joint, *arguments, static=static, identity=joint.identity)


def _with(bins: Bin, values: Values) -> Bin:
    return bins._replace(fixed={**bins.fixed, **values})


def joint_posterior(
    problem: Problem,
    bins: Bin,
    poolings: tuple[Pooling, ...],
    given: Mapping[str, Prior],
    fixed: Mapping[str, float],
) -> Joint:
    """The joint posterior of these bins; `given` and `fixed` are priors and values of what the bins have in common.

    Raises:
        SettingsError: a prior cannot be shared, or nothing is left to sample.
    """
    poolings = tuple(_with_scale(pooling, problem.posterior, bins) for pooling in poolings)
    whole, amplitudes = problem.posterior, _integrated(problem.posterior, poolings)
    shared = () if amplitudes is None else amplitudes.names
    sampled = tuple(pooling for pooling in poolings if pooling.parameter not in shared)
    given_poolings = _given(whole, tuple(pooling.parameter for pooling in sampled))
    if amplitudes is not None:
        amplitudes = replace(amplitudes, whole=given_poolings)
    own = _given(given_poolings, shared)
    bins = jax.tree.map(jnp.asarray, bins)
    bins = bins._replace(log_constant=jnp.asarray(own.log_constant(jax.tree.map(np.asarray, bins))))
    _check_priors(whole, bins, poolings)
    families = tuple((name, prior.family) for name, prior in sorted(given.items()))
    values = {name: dict(prior.values) for name, prior in given.items()}
    closed = tuple(pooling for pooling in poolings if pooling.parameter in shared)
    joint = Joint(whole, own, bins, sampled, families, values, dict(fixed), amplitudes, closed)
    joint = replace(joint, sites=tuple(joint.site_shapes(sampled).items()))
    if not joint.dimensions:
        raise SettingsError("nothing is left to sample", field="fixed", remedy="Leave a parameter of the law free")
    return joint


def _with_scale(pooling: Pooling, posterior: Posterior, bins: Bin) -> Pooling:
    """A pooling whose bins scatter about a law, additively if the parameter may be negative by its prior."""
    if not pooling.scatter:
        return pooling
    one = jax.tree.map(lambda array: jnp.asarray(array[0]), bins)
    support = priors_of(posterior, one)[pooling.parameter].support
    return replace(pooling, additive=bool(np.any(support(-np.geomspace(1e-6, 1e6, 25)))))


def _integrated(whole: Posterior, poolings: tuple[Pooling, ...]) -> SharedAmplitudes | None:
    """The shared amplitudes that have a closed form: both, if their groups are the same, or the contrast; the baseline
    only where no cut contrast stands beside it. None where there are none: then they are sampled."""
    shared = {
        pooling.parameter: pooling
        for pooling in poolings
        if pooling.kind == "shared" and pooling.parameter in whole.marginal
    }
    contrast, baseline = shared.get("contrast"), shared.get("baseline")
    if contrast is not None and baseline is not None and not np.array_equal(contrast.group, baseline.group):
        baseline = None
    if contrast is None and "contrast" in whole.marginal:
        baseline = None
    chosen = tuple(pooling for pooling in (contrast, baseline) if pooling is not None)
    if not chosen:
        return None
    groups = None if chosen[0].groups is None else len(chosen[0].groups)
    return SharedAmplitudes(whole, tuple(pooling.parameter for pooling in chosen), groups, jnp.asarray(chosen[0].group))


def _given(posterior: Posterior, names: tuple[str, ...]) -> Posterior:
    """The posterior of one bin given the values of these parameters."""
    return replace(
        posterior,
        families=tuple((name, family) for name, family in posterior.families if name not in names),
        fixed=(*posterior.fixed, *sorted(names)),
        curve_names=tuple(name for name in posterior.curve_names if name not in names),
        noise_names=tuple(name for name in posterior.noise_names if name not in names),
    )


def priors_of(posterior: Posterior, bin: Bin, seed: int = 0) -> dict[str, dist.Distribution]:
    """The prior of every sampled parameter of one bin; where it depends on other parameters, at a draw of these."""
    program = numpyro.handlers.seed(posterior.overridden(posterior.parameters, bin), jax.random.key(seed))
    trace = numpyro.handlers.trace(program).get_trace(bin)
    return {name: site["fn"] for name, site in trace.items() if site["type"] == "sample"}


def _check_priors(posterior: Posterior, bins: Bin, poolings: tuple[Pooling, ...]) -> None:
    """Refuse to pooling what has no prior that all bins share.

    Raises:
        SettingsError: it differs between bins, or depends on other parameters; a law does not ask for it.
    """
    names = [pooling.parameter for pooling in poolings if pooling.kind != "law"]

    def numbers(bin: Bin, seed: int) -> dict[str, list[Any]]:
        priors = priors_of(posterior, bin, seed)
        return {name: [jnp.asarray(leaf) for leaf in jax.tree.leaves(priors[name])] for name in names}

    one, other = (jax.vmap(lambda bin, seed=seed: numbers(bin, seed))(bins) for seed in (0, 1))
    for name in names:
        if not all(np.all(a == b[0]) for a, b in zip(one[name], other[name], strict=True)):
            raise SettingsError(
                "its prior is not the same in all bins, or depends on other parameters",
                field=f"across.{name}",
                remedy=f"Give one in priors.{name}",
            )

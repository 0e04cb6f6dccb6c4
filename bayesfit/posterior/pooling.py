"""How parameters are pooled across the bins of a dataset: shared, drawn from a common distribution, or given by a law.

A pooling is a piece of a NumPyro program over all bins: it samples what the bins have in common and returns the value of
its parameter in each, (q_bin,). The rest of a bin's posterior stays as it is, given these values.
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
import xarray as xr
from numpyro.distributions import biject_to

from bayesfit.compute.errors import InputError, SettingsError, nearest
from bayesfit.compute.kinds import expect_table
from bayesfit.modelling.laws import LAWS, Law, Sites, get_law, identity_of, sites_of
from bayesfit.modelling.model import Parameter
from bayesfit.posterior.coordinates import base, to_coordinate
from bayesfit.posterior.deviations import Fits, independent, walk

KINDS = ("per_bin", "shared", "pooled", "smooth")
SCATTER = 0.3
SPREAD = 1.0
OPTIONS = {"kind", "by", "scatter"}


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("q", "tau", "group", "order", "steps", "fits"),
    meta_fields=("parameter", "kind", "law", "scatter", "additive", "sites", "groups"),
)
@dataclass(frozen=True)
class Pooling:
    """How one parameter is pooled; a pytree, whose arrays are the data that a compiled program takes.

    `kind`: one of `KINDS`, or "law" with its `law`, of which the program has these `sites`; `scatter`: whether bins
    scatter about the law, in the parameter's logarithm, or, `additive`, in the parameter itself; `q`: of the bins,
    (q_bin,), None where it is not needed; `tau`: the delays; `group` (q_bin,): which group each bin shares the value
    with, and `groups` their names; `order` (q_bin,) and `steps` (q_bin - 1,): the bins by q, and the sd of a random
    walk from each to the next; `fits`: what the bins say of the parameter by themselves, once that is known.
    """

    parameter: str
    kind: str
    law: Law | None = None
    scatter: bool = False
    additive: bool = False
    sites: Sites | None = None
    q: Any = None
    tau: Any = None
    group: Any = None
    order: Any = None
    steps: Any = None
    fits: Fits | None = None
    groups: tuple[Any, ...] | None = None

    @property
    def hierarchical(self) -> bool:
        """Whether it has a scale that the bins' values have in common, towards which posteriors narrow as a funnel."""
        return self.kind in ("pooled", "smooth") or self.scatter

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the bins have in common, described; that of kind "shared" is the parameter itself."""
        name = self.parameter
        if self.kind == "law":
            what = name if self.additive else f"log {name}"
            spread = (Parameter(f"{name}_scatter", "", "s", f"sd of {what} about the law"),)
            return (*(self.law.parameters if self.law else ()), *(spread if self.scatter else ()))
        described = {
            "pooled": (
                Parameter(f"{name}_mean", "", "", f"{name} in the middle of the bins' common distribution"),
                Parameter(f"{name}_spread", "", "", f"sd of the bins' {name}, on its unconstrained scale"),
            ),
            "smooth": (
                Parameter(f"{name}_mean", "", "", f"{name} at the smallest q"),
                Parameter(f"{name}_spread", "", "", f"sd of {name} over a factor e in q, on its unconstrained scale"),
            ),
        }
        return described.get(self.kind, ())

    @property
    def in_own_unit(self) -> tuple[str, ...]:
        """The names of those of its `parameters` that have the unit of the parameter itself."""
        return (f"{self.parameter}_mean", *((f"{self.parameter}_scatter",) if self.additive else ()))

    @property
    def identity(self) -> str | None:
        """What its program is made of, in words; None where its law is not known by its name."""
        law = "" if self.law is None else identity_of(self.law)
        groups = None if self.groups is None else len(self.groups)
        scatter = "additive" if self.scatter and self.additive else self.scatter
        return None if law is None else f"{self.parameter} {self.kind} {law} {scatter} {groups}"

    def of_bins(self, places: np.ndarray) -> Pooling:
        """The pooling of these bins alone, and of their groups.

        Raises:
            InputError: one of them lacks q, or has one that the law does not know; there are too few.
        """
        field = f"across.{self.parameter}"
        if self.group is not None and self.groups is not None:
            for bin in places[self.group[places] < 0]:
                raise InputError("the bin is in no group", field=f"{field}.by", bin=int(bin), remedy="Leave it out")
            present, group = np.unique(self.group[places], return_inverse=True)
            return replace(self, group=group, groups=tuple(self.groups[place] for place in present))
        if self.q is None:
            return replace(self, group=self.group[places])
        q = self.q[places]
        for bin, value in zip(places[~(q > 0)], q[~(q > 0)], strict=True):
            what = "the bin has no q" if np.isnan(value) else f"q is {value:g}, not above 0"
            raise InputError(what, field=field, bin=int(bin), remedy="Give q to bayesfit.curves, or leave the bin out")
        if self.law is not None:
            self.law.check_range(np.where(np.isin(np.arange(self.q.size), places), self.q, np.nan), field)
            return replace(self, q=q)
        if q.size < 2:
            raise InputError("'smooth' needs two usable bins", field=field, remedy="Leave it out, or take 'shared'")
        order, steps = _walk(q)
        return replace(self, q=q, group=self.group[places], order=order, steps=steps)

    def values(self, prior: dist.Distribution) -> Any:
        """Sample what the bins have in common; the value in each bin (q_bin,). `prior` is the parameter's own."""
        if self.kind == "law":
            return self._by_law()
        if self.kind == "shared":
            assert self.group is not None
            if self.groups is None:
                return jnp.broadcast_to(numpyro.sample(self.parameter, prior), self.group.shape)
            return numpyro.sample(self.parameter, prior.expand([len(self.groups)]).to_event(1))[self.group]
        middle = numpyro.sample(f"{self.parameter}_mean", prior)
        spread = numpyro.sample(f"{self.parameter}_spread", dist.HalfNormal(SPREAD))
        middle = to_coordinate(prior, middle)
        return constrained(prior, middle + spread * self._deviations(spread, middle))

    def _by_law(self) -> Any:
        assert self.law is not None
        assert self.q is not None
        value = self.law.program(jnp.asarray(self.q), jnp.asarray(self.tau))
        if not self.scatter:
            return value
        spread = numpyro.sample(f"{self.parameter}_scatter", dist.HalfNormal(SCATTER))
        if self.additive:
            return value + spread * self._deviations(spread, value)
        return value * jnp.exp(spread * self._deviations(spread, jnp.log(value)))

    def _deviations(self, spread: Any, middle: Any) -> Any:
        """Deviations (q_bin,) of unit spread: independent ones, or a random walk in log q."""
        name = f"{self.parameter}_unit"
        if self.kind == "smooth":
            return walk(name, self.steps, self.order, spread, middle, self.fits)
        return independent(name, (self.q if self.kind == "law" else self.group).size, spread, middle, self.fits)

    def with_fits(self, prior: dist.Distribution, values: Any, sd: Any) -> Pooling:
        """The pooling with the bins' own values (q_bin,) and their standard errors, on the scale of its deviations."""

        def scale(value: Any) -> Any:
            if self.kind == "law":
                return value if self.additive else jnp.log(value)
            return to_coordinate(prior, value)

        middle, width = jax.jvp(scale, (jnp.asarray(values),), (jnp.asarray(sd),))
        known = jnp.isfinite(middle) & jnp.isfinite(width) & (width != 0.0)
        precision = jnp.where(known, jnp.where(known, width, 1.0) ** -2, 0.0)
        return replace(self, fits=Fits(jnp.where(known, middle, 0.0), precision))


def _walk(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bins in the order of q (q_bin,), and the root of each step in log q (q_bin - 1,)."""
    order = np.argsort(q, kind="stable")
    return order, np.sqrt(np.diff(np.log(q[order])))


def constrained(prior: dist.Distribution, coordinate: Any) -> Any:
    """The value of a site with this prior at an unconstrained coordinate; undoes `to_coordinate`."""
    inner, push = base(prior)
    return push(biject_to(inner.support)(coordinate))


def parse_across(across: Mapping[str, Any], curves: xr.Dataset) -> tuple[Pooling, ...]:
    """The poolings that a user asks for; parameters that stay per bin have none.

    Args:
        across: parameter name to "per_bin", "shared", "pooled", "smooth", the name of a law, a `Law` or its program, or
            a table: of a kind, `{"kind": "shared", "by": "phi"}`, or of a law's `name` and options, and `scatter`.
        curves: the dataset, with dims (q_bin, tau).

    Raises:
        SettingsError: an unknown kind, law or option. InputError: the bins lack what is needed.
    """
    expect_table(across, "across")
    poolings = (_parse(name, spec, curves) for name, spec in across.items())
    return tuple(pooling for pooling in poolings if pooling.kind != "per_bin")


def check_poolings(poolings: tuple[Pooling, ...], names: tuple[str, ...]) -> None:
    """Refuse poolings of parameters that are none of `names`, the inferred ones, and names that stand for two things."""
    taken = set(names)
    for pooling in poolings:
        if pooling.parameter not in names:
            raise SettingsError(
                f"no inferred parameter {pooling.parameter!r}", field="across", remedy=nearest(pooling.parameter, names)
            )
        for parameter in pooling.parameters:
            if parameter.name in taken:
                raise SettingsError(f"parameter {parameter.name!r} is taken", field=f"across.{pooling.parameter}")
            taken.add(parameter.name)


def check_choices(poolings: tuple[Pooling, ...], priors: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuse priors and values of what follows from a law.

    Raises:
        SettingsError: names the parameter.
    """
    expect_table(priors, "priors")
    expect_table(fixed, "fixed")
    for pooling in poolings:
        if pooling.sites is None:
            continue
        for kind, names in (("priors", priors), ("fixed", fixed)):
            pooling.sites.refuse_derived(kind, names)
        if pooling.parameter in priors:
            raise SettingsError(
                f"{pooling.parameter!r} follows from its law",
                field=f"priors.{pooling.parameter}",
                remedy=f"Give {' or '.join(pooling.sites.sampled)}",
            )


def _parse(name: str, spec: Any, curves: xr.Dataset) -> Pooling:
    field = f"across.{name}"
    options = dict(spec) if isinstance(spec, Mapping) else {}
    kind = options.pop("kind", options.pop("name", None)) if options else spec
    scatter = options.pop("scatter", False)
    if not isinstance(scatter, bool):
        raise SettingsError(f"got {scatter!r}, expected true or false", field=f"{field}.scatter")
    count = curves.sizes["q_bin"]
    if isinstance(kind, str) and kind in KINDS:
        by = options.pop("by", None)
        if options or scatter or (by is not None and kind != "shared"):
            raise SettingsError(f"{kind!r} has no such option", field=field, remedy="Only 'shared' has one, 'by'")
        q = _q(curves, field) if kind == "smooth" else None
        group, groups = (np.zeros(count, int), None) if by is None else _groups(by, curves, field)
        return Pooling(name, kind, q=q, group=group, groups=groups)
    if isinstance(kind, str) and kind not in LAWS and not kind.endswith(".py"):
        raise SettingsError(f"unknown kind or law {kind!r}", field=field, remedy=nearest(kind, (*KINDS, *LAWS)))
    if options and not isinstance(kind, str):
        raise SettingsError(f"a law of your own has no option {min(options)!r}", field=field)
    law = get_law({"name": kind, **options} if isinstance(kind, str) else kind)
    q, tau = _q(curves, field), curves.tau.values[curves.tau.values > 0]
    known = q[law.knows(q)]
    if not known.size:
        law.check_range(q, field)
    sites, values = sites_of(law, known, tau, field)
    if values.shape != known.shape or not np.all(np.isfinite(values)):
        raise SettingsError(f"the law must return a finite value for each of {known.size} q", field=field)
    return Pooling(name, "law", _described(law, sites), scatter, sites=sites, q=q, tau=tau)


def _described(law: Law, sites: Sites) -> Law:
    """The law with each of its parameters described."""
    known = {parameter.name for parameter in law.parameters}
    unknown = tuple(Parameter(name) for name in (*sites.sampled, *sites.derived) if name not in known)
    return replace(law, parameters=(*law.parameters, *unknown)) if unknown else law


def _q(curves: xr.Dataset, field: str) -> np.ndarray:
    """The bins' q (q_bin,), of which one at least is known."""
    q = curves.q.values.astype(float) if "q" in curves.coords else np.full(curves.sizes["q_bin"], np.nan)
    if not np.any(q > 0):
        raise InputError("no bin has a q", field=field, remedy="Give q to bayesfit.curves")
    return q


def _groups(by: Any, curves: xr.Dataset, field: str) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Which group each bin belongs to (q_bin,), -1 where it has no label, and the groups' names: of a coordinate, or of
    labels (q_bin,)."""
    import pandas as pd

    if isinstance(by, str):
        if by not in curves.variables or curves[by].dims != ("q_bin",):
            known = [str(name) for name in curves.variables if curves[name].dims == ("q_bin",)]
            raise SettingsError(f"bins have no {by!r}", field=f"{field}.by", remedy=nearest(by, known))
        by = curves[by].values
    labels = np.asarray(by)
    if labels.shape != (curves.sizes["q_bin"],):
        raise SettingsError(f"{labels.size} labels for {curves.sizes['q_bin']} bins", field=f"{field}.by")
    group, groups = pd.factorize(labels, sort=True)
    return group, tuple(groups.tolist())

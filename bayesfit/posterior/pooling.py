"""How users ask for pooling: from `across` to the poolings of a dataset, and what is refused.

The kinds are `CompletePooling` ("shared"), `PartialPooling` ("pooled"), `SmoothPooling` ("smooth") and `LawPooling`
(the name of a law), each in a file of its own name; `pooling_interface` says what a kind must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from bayesfit.compute.errors import InputError, SettingsError, nearest
from bayesfit.compute.kinds import expect_table
from bayesfit.modelling.laws import LAWS, Law, Sites, get_law, sites_of
from bayesfit.modelling.model import Parameter
from bayesfit.posterior.complete_pooling import CompletePooling
from bayesfit.posterior.law_pooling import LawPooling
from bayesfit.posterior.partial_pooling import PartialPooling, SmoothPooling
from bayesfit.posterior.pooling_interface import Pooling


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
    poolings = [_parse(name, spec, curves) for name, spec in across.items()]
    return tuple(pooling for pooling in poolings if pooling is not None)


def check_poolings(poolings: tuple[Pooling, ...], names: tuple[str, ...]) -> None:
    """Refuse poolings of parameters that are none of `names`, the inferred ones, and names that stand for two things.

    Raises:
        SettingsError: names the parameter.
    """
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
        pooling.refuse_choices(priors, fixed)


def _parse(name: str, spec: Any, curves: xr.Dataset) -> Pooling | None:
    """The pooling of one parameter; None where it stays per bin."""
    field = f"across.{name}"
    options = dict(spec) if isinstance(spec, Mapping) else {}
    kind = options.pop("kind", options.pop("name", None)) if options else spec
    scatter = options.pop("scatter", False)
    if not isinstance(scatter, bool):
        raise SettingsError(f"got {scatter!r}, expected true or false", field=f"{field}.scatter")
    if isinstance(kind, str) and kind in KINDS:
        return _of_kind(name, kind, options | ({"scatter": True} if scatter else {}), curves)
    if isinstance(kind, str) and kind not in LAWS and not kind.endswith(".py"):
        raise SettingsError(f"unknown kind or law {kind!r}", field=field, remedy=nearest(kind, (*KINDS, *LAWS)))
    if options and not isinstance(kind, str):
        raise SettingsError(f"a law of your own has no option {min(options)!r}", field=field)
    return _by_law(name, get_law({"name": kind, **options} if isinstance(kind, str) else kind), scatter, curves)


def _of_kind(name: str, kind: str, options: Mapping[str, Any], curves: xr.Dataset) -> Pooling | None:
    """The pooling of one of `KINDS`."""
    given = {option for option, value in options.items() if value is not None}
    if given - TAKEN.get(kind, set()):
        raise SettingsError(
            f"{kind!r} has no such option", field=f"across.{name}", remedy="Only 'shared' has one, 'by'"
        )
    return KINDS[kind](name, options, curves)


def _complete(name: str, options: Mapping[str, Any], curves: xr.Dataset) -> CompletePooling:
    if options.get("by") is None:
        return CompletePooling(name, np.zeros(curves.sizes["q_bin"], int))
    return CompletePooling(name, *_groups(options["by"], curves, f"across.{name}"))


def _partial(name: str, options: Mapping[str, Any], curves: xr.Dataset) -> PartialPooling:
    return PartialPooling(name, curves.sizes["q_bin"])


def _smooth(name: str, options: Mapping[str, Any], curves: xr.Dataset) -> SmoothPooling:
    return SmoothPooling(name, _q(curves, f"across.{name}"))


KINDS: dict[str, Callable[[str, Mapping[str, Any], xr.Dataset], Pooling | None]] = {
    "per_bin": lambda name, options, curves: None,
    CompletePooling.kind: _complete,
    PartialPooling.kind: _partial,
    SmoothPooling.kind: _smooth,
}
TAKEN = {CompletePooling.kind: {"by"}}  # the options that a kind takes


def _by_law(name: str, law: Law, scatter: bool, curves: xr.Dataset) -> LawPooling:
    """The pooling by a law, after a trial of its program at those q where the law is known."""
    field = f"across.{name}"
    q, tau = _q(curves, field), curves.tau.values[curves.tau.values > 0]
    within = q[law.knows(q)]
    if not within.size:
        law.check_range(q, field)
    sites, values = sites_of(law, within, tau, field)
    if values.shape != within.shape or not np.all(np.isfinite(values)):
        raise SettingsError(f"the law must return a finite value for each of {within.size} q", field=field)
    return LawPooling(name, _described(law, sites), sites, q, tau, scatter)


def _described(law: Law, sites: Sites) -> Law:
    """The law with each of its parameters described, if only by its name."""
    described = {parameter.name for parameter in law.parameters}
    missing = tuple(Parameter(name) for name in (*sites.sampled, *sites.derived) if name not in described)
    return replace(law, parameters=(*law.parameters, *missing)) if missing else law


def _q(curves: xr.Dataset, field: str) -> Float[np.ndarray, " q_bin"]:
    """The bins' q, NaN where it is unknown; at least one is known."""
    q = curves.q.values.astype(float) if "q" in curves.coords else np.full(curves.sizes["q_bin"], np.nan)
    if not np.any(q > 0):
        raise InputError("no bin has a q", field=field, remedy="Give q to bayesfit.curves")
    return q


def _groups(by: Any, curves: xr.Dataset, field: str) -> tuple[Int[np.ndarray, " q_bin"], tuple[Any, ...]]:
    """Which group each bin belongs to, -1 where it has no label, and the groups' names.

    Args:
        by: the name of a coordinate of the bins, or labels (q_bin,).
    """
    import pandas as pd

    if isinstance(by, str):
        if by not in curves.variables or curves[by].dims != ("q_bin",):
            coordinates = [str(name) for name in curves.variables if curves[name].dims == ("q_bin",)]
            raise SettingsError(f"bins have no {by!r}", field=f"{field}.by", remedy=nearest(by, coordinates))
        by = curves[by].values
    labels = np.asarray(by)
    if labels.shape != (curves.sizes["q_bin"],):
        raise SettingsError(f"{labels.size} labels for {curves.sizes['q_bin']} bins", field=f"{field}.by")
    group, groups = pd.factorize(labels, sort=True)
    return group, tuple(groups.tolist())

"""Priors as users write them: `"LogNormal(3, 1)"`, `{family = "Normal", loc = 1, scale = 0.1}`, or a NumPyro object."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, SigmoidTransform

from bayesfit.compute.errors import SettingsError, nearest

FAMILIES: dict[str, tuple[str, ...]] = {
    "Normal": ("loc", "scale"),
    "LogNormal": ("loc", "scale"),
    "Uniform": ("low", "high"),
    "LogUniform": ("low", "high"),
    "TruncatedNormal": ("loc", "scale", "low"),
    "HalfNormal": ("scale",),
    "HalfCauchy": ("scale",),
    "Exponential": ("rate",),
    "Gamma": ("concentration", "rate"),
    "InverseGamma": ("concentration", "rate"),
    "Beta": ("concentration1", "concentration0"),
    "StudentT": ("df", "loc", "scale"),
    "Cauchy": ("loc", "scale"),
    "Laplace": ("loc", "scale"),
    "LogitNormal": ("loc", "scale", "low", "high"),
}
POSITIVE = frozenset({"scale", "rate", "concentration", "concentration0", "concentration1", "df"})


OfBins = Float[np.ndarray, "*q_bin"]  # one number, or one per bin


@dataclass(frozen=True)
class Prior:
    """A prior of one parameter: the NumPyro family and its values, each one number or one number per bin.

    `compared` are draws of the prior that verdicts compare the posterior with, where that is not this one: a prior that
    was made from other data is compared with the original one. They are the same in all bins where these share a value.
    """

    family: str
    values: dict[str, OfBins]
    compared: Float[np.ndarray, "*q_bin draw"] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values, in the family's order."""
        return FAMILIES[self.family]

    def of_bins(self, places: np.ndarray) -> Prior:
        """The same prior for the bins at these places alone."""
        values = {name: value[places] if np.ndim(value) else value for name, value in self.values.items()}
        compared = self.compared
        if compared is not None and compared.ndim > 1:
            compared = compared[places]
        return replace(self, values=values, compared=compared)

    @classmethod
    def of_all(cls, priors: Sequence[Prior], bins: Sequence[int]) -> Prior:
        """One prior for the bins of several datasets, each with a prior of one family and so many bins."""
        values = {name: joined([prior.values[name] for prior in priors], bins) for name in priors[0].values}
        return cls(priors[0].family, values)


def joined(values: Sequence[OfBins], bins: Sequence[int]) -> OfBins:
    """The values in the bins of several datasets, one after the other, each given as one number or one per bin."""
    return np.concatenate([np.broadcast_to(value, count) for value, count in zip(values, bins, strict=True)])


class LogitNormal(dist.TransformedDistribution):
    """A variable between `low` and `high` whose logit, log((x - low) / (high - x)), is normal with `loc` and `scale`
    (Johnson's S_B: Biometrika 36, 149 (1949))."""

    arg_constraints = dict.fromkeys(("loc", "low", "high"), constraints.real) | {"scale": constraints.positive}
    pytree_data_fields = ("loc", "scale", "low", "high")

    def __init__(
        self, loc: Any, scale: Any, low: Any = 0.0, high: Any = 1.0, *, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.low, self.high = map(jnp.asarray, (loc, scale, low, high))
        to_range = [SigmoidTransform(), AffineTransform(self.low, self.high - self.low, constraints.unit_interval)]
        super().__init__(dist.Normal(self.loc, self.scale), to_range, validate_args=validate_args)


def build(family: str, values: Mapping[str, Any]) -> dist.Distribution:
    """The NumPyro distribution of a family at these values."""
    if family == "TruncatedNormal":
        return dist.TruncatedNormal(values["loc"], values["scale"], low=values["low"])
    return LogitNormal(**values) if family == "LogitNormal" else getattr(dist, family)(**values)


def parse_prior(spec: Any, parameter: str, field: str | None = None) -> Prior:
    """Read one prior from a string, a mapping with `family`, or a NumPyro distribution.

    Messages name the `field`, which is `priors.PARAMETER` unless it is given.

    Raises:
        SettingsError: the family is unknown, or a value is missing, given twice or impossible.
    """
    field = field or f"priors.{parameter}"
    if isinstance(spec, Prior):
        family, values = spec.family, dict(spec.values)
    elif isinstance(spec, str):
        family, values = _from_text(spec, field)
    elif isinstance(spec, Mapping):
        family, values = _from_mapping(spec, field)
    elif isinstance(spec, dist.Distribution):
        family, values = _from_numpyro(spec, field)
    else:
        raise SettingsError(
            f"got {type(spec).__name__}, expected a prior", field=field, remedy='Write it as "Normal(1, 0.1)"'
        )
    return replace(_checked(family, values, field), compared=spec.compared if isinstance(spec, Prior) else None)


def _from_text(text: str, field: str) -> tuple[str, dict[str, Any]]:
    wrong = SettingsError(f"cannot read {text!r} as a prior", field=field, remedy='Write it as "Normal(1, 0.1)"')
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise wrong
        given = [ast.literal_eval(argument) for argument in call.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two from deep nesting
        raise wrong from error
    names = _names(call.func.id, field)
    doubled = len(named) < len(call.keywords) or set(named) & set(names[: len(given)])
    if len(given) > len(names) or doubled:
        raise SettingsError(f"{call.func.id} takes {', '.join(names)}; got {text!r}", field=field)
    return call.func.id, {**dict(zip(names, given, strict=False)), **named}


def _from_mapping(spec: Mapping[str, Any], field: str) -> tuple[str, dict[str, Any]]:
    values = dict(spec)
    family = values.pop("family", None)
    if not isinstance(family, str):
        raise SettingsError("the table names no family", field=field, remedy='Add family = "Normal"')
    _names(family, field)
    return family, values


def _from_numpyro(prior: dist.Distribution, field: str) -> tuple[str, dict[str, Any]]:
    family = type(prior).__name__
    if family in ("LeftTruncatedDistribution", "TwoSidedTruncatedDistribution"):
        bounded = family == "TwoSidedTruncatedDistribution"
        if bounded or type(prior.base_dist).__name__ != "Normal":
            raise SettingsError("only a normal truncated from below can be given", field=field)
        values = {"loc": prior.base_dist.loc, "scale": prior.base_dist.scale, "low": prior.low}
        return "TruncatedNormal", _per_bin(values, prior)
    return family, _per_bin({name: getattr(prior, name) for name in _names(family, field)}, prior)


def _per_bin(values: dict[str, Any], prior: dist.Distribution) -> dict[str, Any]:
    """A distribution's values, broadcast to its batch shape; NumPyro leaves some of them at shape (1,)."""
    return {name: np.broadcast_to(np.asarray(value), prior.batch_shape) for name, value in values.items()}


def _names(family: str, field: str) -> tuple[str, ...]:
    """The names of a family's values."""
    if family not in FAMILIES:
        raise SettingsError(f"unknown prior family {family!r}", field=field, remedy=nearest(family, FAMILIES))
    return FAMILIES[family]


def _checked(family: str, values: Mapping[str, Any], field: str) -> Prior:
    """The prior of a family at these values, which must all be there and be possible."""
    names = _names(family, field)
    if unknown := set(values) - set(names):
        raise SettingsError(
            f"{family} has no {sorted(unknown)[0]!r}", field=field, remedy=f"It takes {', '.join(names)}"
        )
    if missing := [name for name in names if name not in values]:
        raise SettingsError(f"{family} needs {missing[0]!r}", field=field, remedy=f"It takes {', '.join(names)}")
    arrays = {name: as_numbers(values[name], f"{field}.{name}") for name in names}
    for name, array in arrays.items():
        if name in POSITIVE and np.any(array <= 0):
            raise SettingsError(f"impossible prior: {name} must be positive, got {array.min():g}", field=field)
    if "high" in arrays and np.any(arrays["high"] <= arrays["low"]):
        raise SettingsError("impossible prior: high must exceed low", field=field)
    if family == "LogUniform" and np.any(arrays["low"] <= 0):
        raise SettingsError("impossible prior: low must be positive", field=field)
    return Prior(family, arrays)


def as_numbers(value: Any, field: str) -> OfBins:
    """A finite float64 number, or one number per bin.

    Raises:
        SettingsError: not numbers, not finite, or more than one dimension.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SettingsError(f"got {value!r}, expected a number or one number per bin", field=field) from error
    if array.dtype.kind not in "fiu":
        raise SettingsError(f"got {value!r}, expected a number or one number per bin", field=field)
    array = array.astype(float)
    if array.ndim > 1 or not np.all(np.isfinite(array)):
        raise SettingsError("expected a finite number or one finite number per bin", field=field)
    return array


def one_number(value: Any, field: str) -> float:
    """A finite number for what all bins have in common.

    Raises:
        SettingsError: it is no number, or there is one per bin.
    """
    array = as_numbers(value, field)
    if array.ndim:
        raise SettingsError("expected one number", field=field)
    return float(array)


def parse_common(spec: Any, parameter: str) -> Prior:
    """The prior of what all bins have in common, as `parse_prior` reads it.

    Raises:
        SettingsError: it cannot be read, or has values for each bin.
    """
    prior = parse_prior(spec, parameter)
    check_common(prior, f"priors.{parameter}")
    return prior


def check_common(prior: Prior, field: str) -> None:
    """Raise SettingsError where a prior has values for each bin."""
    if any(np.ndim(value) for value in prior.values.values()):
        raise SettingsError("expected one prior, not one per bin", field=field)

"""The parameters of a simulator: their priors, the points at which it is run, and coordinates in which it is smooth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from scipy import special, stats

from bayesfit.compute.errors import ModelError, SettingsError, nearest
from bayesfit.compute.kinds import expect_table
from bayesfit.modelling.model import AMPLITUDES, RESERVED, Parameter
from bayesfit.modelling.priors import Prior, as_numbers, build, check_common, parse_prior

LOGARITHMIC = {"LogNormal", "LogUniform", "Gamma", "InverseGamma", "HalfCauchy"}  # coordinates of these are logarithms
END = 0.002  # of the prior's mass, beyond each end of what is learnt; none where the prior has ends of its own
BOUNDED = {"Uniform", "LogUniform"}
MOST = 64  # parameters
ROUNDING = 1e-9
WITHIN = "Stay within, or learn the simulator over a wider space"

Points = Float[np.ndarray, "run param"]


@dataclass(frozen=True, eq=False)
class Space:
    """The parameters of a simulator, in order, each with its prior.

    Coordinates (param,) run from -1 to 1 over what is learnt, which is all of a prior with ends, and all but 0.2 % of
    its mass at each end where it has none. They are linear in the parameter, or in its logarithm.
    """

    priors: Mapping[str, Prior]
    parameters: tuple[Parameter, ...]

    @classmethod
    def parse(cls, space: Any, parameters: Sequence[Parameter] = ()) -> Space:
        """Read the priors as a user writes them.

        Raises:
            SettingsError: a prior cannot be read, or there is none. ModelError: a name cannot stand in a result.
        """
        expect_table(space, "space")
        if not space or len(space) > MOST:
            raise SettingsError(f"holds {len(space or ())} priors, expected 1 to {MOST}", field="space")
        priors = {str(name): parse_prior(spec, str(name), f"space.{name}") for name, spec in space.items()}
        for name, prior in priors.items():
            check_common(prior, f"space.{name}")
            if name in RESERVED | set(AMPLITUDES) or not name.isidentifier():
                raise ModelError(f"parameter name {name!r} is reserved or no plain word", field="space")
        known = {each.name: each for each in parameters}
        for name in known:
            if name not in priors:
                raise SettingsError(f"unknown parameter {name!r}", field="parameters", remedy=nearest(name, priors))
        return cls(priors, tuple(known.get(name, Parameter(name)) for name in priors))

    @classmethod
    def of_plain(cls, stated: Sequence[Mapping[str, Any]]) -> Space:
        """The space that `plain` states."""
        priors = {each["name"]: parse_prior(each["prior"], each["name"]) for each in stated}
        words = ("name", "unit", "latex", "description")
        return cls(priors, tuple(Parameter(**{word: each[word] for word in words}) for each in stated))

    @property
    def plain(self) -> list[dict[str, Any]]:
        """The space as JSON can hold it."""
        return [
            {**vars(each), "prior": {"family": prior.family, **{k: float(v) for k, v in prior.values.items()}}}
            for each, prior in zip(self.parameters, self.priors.values(), strict=True)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order."""
        return tuple(self.priors)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.priors)

    @property
    def logarithmic(self) -> np.ndarray:
        """Which parameters enter by their logarithm, (param,)."""
        return np.array([prior.family in LOGARITHMIC for prior in self.priors.values()])

    @property
    def ends(self) -> Float[np.ndarray, "param 2"]:
        """The smallest and the largest value of each parameter that is learnt."""
        return np.array([_ends(prior) for prior in self.priors.values()])

    def design(self, count: int, seed: int) -> Points:
        """The first points of a scrambled Sobol sequence in the quantiles of the priors (Owen, J. Complexity 14, 466
        (1998)). More points begin with the same ones."""
        sobol = stats.qmc.Sobol(self.size, scramble=True, rng=np.random.default_rng(seed))
        return self.at_quantiles(sobol.random_base2(max(int(np.ceil(np.log2(max(count, 2)))), 1))[:count])

    def at_quantiles(self, quantiles: Points) -> Points:
        """The parameters at these quantiles, those of 0 and 1 at the ends of what is learnt."""
        columns = []
        for prior, column in zip(self.priors.values(), quantiles.T, strict=True):
            beyond = 0.0 if prior.family in BOUNDED else END
            columns.append(_at_quantile(prior, beyond + (1.0 - 2.0 * beyond) * column))
        return np.stack(columns, axis=1)

    def coordinates(self, points: Points) -> Points:
        """The coordinates of points."""
        scaled = [np.log(x) if log else x for x, log in zip(points.T, self.logarithmic, strict=True)]
        low, high = self._scaled_ends
        return (2.0 * (np.stack(scaled, axis=1) - low) / (high - low)) - 1.0

    def points(self, coordinates: Points) -> Points:
        """The points at coordinates."""
        low, high = self._scaled_ends
        scaled = low + (coordinates + 1.0) / 2.0 * (high - low)
        return np.where(self.logarithmic, np.exp(np.where(self.logarithmic, scaled, 0.0)), scaled)

    def log_prior(self, coordinates: Points) -> Float[np.ndarray, " run"]:
        """Log prior density of coordinates, up to a constant; minus infinity outside what is learnt."""
        points = np.clip(self.points(np.clip(coordinates, -1.0, 1.0)), *self.ends.T)  # not beyond them by rounding
        density = np.zeros(len(points))
        for prior, column, log in zip(self.priors.values(), points.T, self.logarithmic, strict=True):
            density += np.asarray(build(prior.family, prior.values).log_prob(column)) + (np.log(column) if log else 0.0)
        return np.where(np.all(np.abs(coordinates) <= 1.0, axis=1), density, -np.inf)

    def sample(self) -> Float[Array, " param"]:
        """Sample every parameter, in a NumPyro program; the coordinates, at most those of the ends."""
        low, high = self._scaled_ends
        found = [numpyro.sample(name, build(prior.family, prior.values)) for name, prior in self.priors.items()]
        scaled = [jnp.log(x) if log else x for x, log in zip(found, self.logarithmic, strict=True)]
        return jnp.clip(2.0 * (jnp.stack(scaled) - low) / (high - low) - 1.0, -1.0, 1.0)

    @property
    def _scaled_ends(self) -> tuple[np.ndarray, np.ndarray]:
        ends, log = self.ends, self.logarithmic
        low, high = np.where(log[:, None], np.log(np.where(log[:, None], ends, 1.0)), ends).T
        return low, high


def _ends(prior: Prior) -> tuple[float, float]:
    if prior.family in BOUNDED:
        return float(prior.values["low"]), float(prior.values["high"])
    low, high = _at_quantile(prior, np.array([END, 1.0 - END]))
    return float(low), float(high)


def check_within(space: Space, priors: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuse priors, of which more than 0.2 % is beyond an end of what is learnt, and fixed values out there.

    Raises:
        SettingsError: says which.
    """
    for name, (low, high) in zip(space.names, space.ends, strict=True):
        known, rounding = f"and the surrogate knows {low:.6g} to {high:.6g}", ROUNDING * (high - low)
        if name in priors:
            first, last = _widest(parse_prior(priors[name], name))
            if first < low - rounding or last > high + rounding:
                problem, remedy = f"reaches from {first:.6g} to {last:.6g}, {known}", WITHIN
                raise SettingsError(problem, field=f"priors.{name}", remedy=remedy)
        values = np.atleast_1d(as_numbers(fixed[name], f"fixed.{name}")) if name in fixed else np.zeros(0)
        for value in values[(values < low - rounding) | (values > high + rounding)][:1]:
            raise SettingsError(f"got {value:.6g}, {known}", field=f"fixed.{name}", remedy=WITHIN)


def _widest(prior: Prior) -> tuple[float, float]:
    """The ends of a prior, those farthest out if bins have priors of their own."""
    sizes = {np.size(value) for value in prior.values.values() if np.ndim(value)}
    each = [_ends(prior.of_bins(np.array(bin))) for bin in range(max(sizes, default=1))]
    return min(low for low, _ in each), max(high for _, high in each)


def _at_quantile(prior: Prior, quantile: Float[np.ndarray, " any"]) -> Float[np.ndarray, " any"]:
    """The values of a parameter at these quantiles of its prior."""
    v = {name: float(value) for name, value in prior.values.items()}
    match prior.family:
        case "LogitNormal":
            logit = v["loc"] + v["scale"] * special.ndtri(quantile)
            return v["low"] + (v["high"] - v["low"]) * special.expit(logit)
        case "Uniform":
            return v["low"] + (v["high"] - v["low"]) * quantile
        case "LogUniform":
            return v["low"] * np.exp(np.log(v["high"] / v["low"]) * quantile)
        case "TruncatedNormal":
            law = stats.truncnorm((v["low"] - v["loc"]) / v["scale"], np.inf, v["loc"], v["scale"])
        case "Gamma":
            law = stats.gamma(v["concentration"], scale=1.0 / v["rate"])
        case "InverseGamma":
            law = stats.invgamma(v["concentration"], scale=v["rate"])
        case "Beta":
            law = stats.beta(v["concentration1"], v["concentration0"])
        case "Exponential":
            law = stats.expon(scale=1.0 / v["rate"])
        case "StudentT":
            law = stats.t(v["df"], v["loc"], v["scale"])
        case "LogNormal":
            law = stats.lognorm(v["scale"], scale=np.exp(v["loc"]))
        case family:
            kinds = {"Normal": "norm", "HalfNormal": "halfnorm", "HalfCauchy": "halfcauchy", "Cauchy": "cauchy"}
            law = getattr(stats, kinds.get(family, "laplace"))(v.get("loc", 0.0), v["scale"])
    return law.ppf(quantile)

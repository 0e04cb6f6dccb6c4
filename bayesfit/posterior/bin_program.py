"""The NumPyro programs of one bin: what is sampled, with which priors, and the mean curve and scatter that follow.

Everything here is in constrained values, as users know them; `density` has the unconstrained coordinates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bayesfit.modelling.model import AMPLITUDES, Model
from bayesfit.modelling.noise_model import Noise
from bayesfit.modelling.priors import build
from bayesfit.modelling.scatter import Observed, PointScatter
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.coordinates import AtValues, Override, Values, log_density


@dataclass(frozen=True)
class BinProgram:
    """The programs of one bin for a model, a noise model and a choice of priors; data come as a `Bin`.

    Args:
        model, noise: the two halves of the program.
        families: parameter name to family, for every prior that `Bin.priors` gives the values of; the amplitudes of
            a model of Siegert's form are always among them.
        fixed: names of the parameters that `Bin.fixed` pins.
        curve_names, noise_names: the sampled sites of the two halves, in the order of their coordinates.
    """

    model: Model
    noise: Noise
    families: tuple[tuple[str, str], ...]
    fixed: tuple[str, ...]
    curve_names: tuple[str, ...]
    noise_names: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The sampled sites, in the order of the coordinates z (param,)."""
        return self.curve_names + self.noise_names

    @property
    def identity(self) -> str | None:
        """What the programs are made of, in words, so that compiled ones can be kept. None for a model that is not the
        package's own, whose files may be anywhere, and for one that a function made without stating its options."""
        program = self.model.program
        if not program.__module__.startswith("bayesfit.models."):
            return None
        if "<locals>" in getattr(program, "__qualname__", "<locals>") and not self.model.options:
            return None
        choices = self.families, self.fixed, self.curve_names, self.noise_names, self.model.form, self.model.starts
        noise = self.noise.name if self.noise.observed is None else f"{self.noise.name}, approximate"
        options = json.dumps(self.model.options, sort_keys=True)
        return f"{program.__module__} {self.model.name} {noise} {choices} {options}"

    @cached_property
    def marginal(self) -> tuple[str, ...]:
        """The amplitudes that are integrated out."""
        return marginal_amplitudes(self.model, self.noise, dict(self.families), self.fixed)

    def given(self, names: tuple[str, ...]) -> Self:
        """The programs of one bin in which these parameters are given, too."""
        return replace(
            self,
            families=tuple((name, family) for name, family in self.families if name not in names),
            fixed=(*self.fixed, *sorted(names)),
            curve_names=tuple(name for name in self.curve_names if name not in names),
            noise_names=tuple(name for name in self.noise_names if name not in names),
        )

    def overridden(self, program: Callable[..., Any], bin: Bin) -> Callable[..., Any]:
        """A program of one bin with the user's priors and fixed values in place of the model's."""
        priors = {name: build(family, bin.priors[name]) for name, family in self.families}
        return Override(program, bin.fixed, priors)

    def parameters(self, bin: Bin) -> tuple[Float[Array, " tau"], PointScatter]:
        """Sample every parameter; the mean curve, in the units of the data, and the scatter."""
        mean = self.seen(self.model.program(bin.tau), bin)
        if self.model.form == "siegert":
            contrast, baseline = (sample_amplitude(name) for name in AMPLITUDES)
            mean = baseline + contrast * mean
        return mean, self._scatter(bin)

    def seen(self, curve: Float[Array, " tau"], bin: Bin) -> Float[Array, " tau"]:
        """What the points see of a curve."""
        return curve if self.noise.averaged is None else self.noise.averaged(curve, bin)

    def _scatter(self, bin: Bin) -> PointScatter:
        """Sample the noise's parameters; the scatter of the points, without any approximation."""
        return self.observed(self.noise.program(bin), bin)

    def observed(self, scatter: Any, bin: Bin) -> PointScatter:
        """The scatter of the points, where that of the noise model's program may be an approximation."""
        return scatter if self.noise.observed is None else self.noise.observed(scatter, bin)

    def full_program(self, bin: Bin) -> None:
        """The whole NumPyro program of one bin: every site sampled, `g2` observed."""
        self.overridden(self._full, bin)(bin)

    def _full(self, bin: Bin) -> None:
        mean, scatter = self.parameters(bin)
        g2 = bin.y / jnp.where(bin.valid, bin.inverse_error, 1.0)
        numpyro.sample("g2", Observed(mean, scatter, bin), obs=g2)

    def mean(self, values: Values, bin: Bin) -> Float[Array, " tau"]:
        """The mean curve g2 at constrained values, in the units of the data."""
        pinned = Override(self.model.program, values, {})
        shape = self.seen(pinned(bin.tau), bin)
        return shape if self.model.form == "curve" else values["baseline"] + values["contrast"] * shape

    def scatter_at(self, values: Values, bin: Bin) -> PointScatter:
        """The scatter of the points at constrained values."""
        return Override(self._scatter, values, {})(bin)

    def log_likelihood(self, values: Values, bin: Bin) -> Float[Array, ""]:
        """Log density of the data, per unit of g2, at constrained values, without any approximation."""
        g2 = bin.y / jnp.where(bin.valid, bin.inverse_error, 1.0)
        return Observed(self.mean(values, bin), self.scatter_at(values, bin), bin).log_prob(g2)

    def log_prior(self, values: Values, bin: Bin) -> Values:
        """Log prior density of every inferred parameter at constrained values, without Jacobian."""
        recorder = AtValues(self.overridden(self.parameters, bin), values, log_density)
        recorder(bin)
        return {name: recorder.found[name] for name in self.names + self.marginal}

    def of_priors(self, says: Callable[[Any, Any], Any], values: Values, bin: Bin) -> Values:
        """What a function says of the prior of each parameter of the curve and of its constrained value."""
        recorder = AtValues(self.overridden(self.parameters, bin), values, says, self.curve_names + self.marginal)
        recorder(bin)
        return recorder.found

    def draw_full_prior(self, key: Array, bin: Bin) -> Values:
        """A draw of every parameter from the prior, and the values of those that are fixed or follow from others."""
        program = numpyro.handlers.seed(self.overridden(self.parameters, bin), key)
        trace = numpyro.handlers.trace(program).get_trace(bin)
        return {name: jnp.asarray(site["value"], float) for name, site in trace.items()}


def sample_amplitude(name: str, infer: dict[str, Any] | None = None) -> Float[Array, ""]:
    """Sample an amplitude. The prior here is a stand-in: it always comes from `Bin.priors`, or the value from
    `Bin.fixed`."""
    return numpyro.sample(name, dist.Normal(), infer=infer)


def marginal_amplitudes(
    model: Model, noise: Noise, families: Mapping[str, str], fixed: tuple[str, ...]
) -> tuple[str, ...]:
    """The amplitudes that can be integrated out, which requires normal noise and a normal prior."""
    return normal_amplitudes(model, families, fixed) if noise.normal else ()


def normal_amplitudes(model: Model, families: Mapping[str, str], fixed: tuple[str, ...]) -> tuple[str, ...]:
    """The amplitudes with a normal prior; the contrast's may be cut below."""
    if model.form != "siegert":
        return ()
    normal = {"contrast": ("Normal", "TruncatedNormal", "HalfNormal"), "baseline": ("Normal",)}
    return tuple(name for name in AMPLITUDES if name not in fixed and families[name] in normal[name])

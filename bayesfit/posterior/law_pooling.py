"""Pooling by a law: a law in q gives the bins' values of a parameter, with or without scatter of the bins about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, override

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from bayesfit.compute.devices import on_one_device
from bayesfit.compute.errors import SettingsError
from bayesfit.modelling.law import Law, Refutation, law_refuted
from bayesfit.modelling.laws import Sites, identity_of
from bayesfit.modelling.model import Parameter
from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.coordinates import Override, Values
from bayesfit.posterior.deviations import DEVIATIONS, Fits, fits_on, independent
from bayesfit.posterior.pooling_interface import Drawn, OfBins, Pooling, check_has_q
from bayesfit.posterior.pooling_scales import Linear, Logarithmic, Scale

SCATTER = 0.3  # scale of the half-normal prior of the bins' standard deviation about a law
NEGATIVE = -np.geomspace(1e-6, 1e6, 25)  # a parameter whose prior allows one of these values may be negative


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("q", "tau", "fits"),
    meta_fields=("parameter", "law", "sites", "scatter", "additive"),
)
@dataclass(frozen=True)
class LawPooling(Pooling):
    """Values given by a `law` in q, whose program has these `sites`.

    With `scatter`, value = law(q) exp(NAME_scatter * deviation) with NAME_scatter ~ HalfNormal(SCATTER); where the
    parameter may be negative by its prior the scatter is `additive`, value = law(q) + NAME_scatter * deviation. `q` and
    the delays `tau` have units 1/angstrom and s; `fits` are the bins' own fits, None until they are known.
    """

    kind = "law"
    law: Law
    sites: Sites
    q: Float[AnyArray, " q_bin"]
    tau: Float[AnyArray, " tau"]
    scatter: bool = False
    additive: bool = False
    fits: Fits | None = None

    @property
    @override
    def hierarchical(self) -> bool:
        return self.scatter

    @property
    @override
    def needs_prior(self) -> bool:
        return False

    @property
    @override
    def parameters(self) -> tuple[Parameter, ...]:
        if not self.scatter:
            return self.law.parameters
        what = self.parameter if self.additive else f"log {self.parameter}"
        return (*self.law.parameters, Parameter(f"{self.parameter}_scatter", "", "s", f"sd of {what} about the law"))

    @property
    @override
    def in_own_unit(self) -> tuple[str, ...]:
        return (f"{self.parameter}_scatter",) if self.additive else ()

    @property
    @override
    def scatter_site(self) -> str | None:
        return f"{self.parameter}_scatter" if self.scatter else None

    @property
    @override
    def identity(self) -> str | None:
        law = identity_of(self.law)
        return None if law is None else f"{super().identity} {law} {self.scatter} {self.additive}"

    @property
    @override
    def words(self) -> str:
        return f"{self.law.name} with scatter" if self.scatter else self.law.name

    @property
    @override
    def refutation(self) -> Refutation:
        return law_refuted(self.parameter, self.law.name, self.scatter)

    @property
    def scale(self) -> Scale:
        """The scale of the bins' deviations."""
        return Linear() if self.additive else Logarithmic()

    @override
    def of_bins(self, places: Int[np.ndarray, " used"]) -> LawPooling:
        q, field = np.asarray(self.q), f"across.{self.parameter}"
        check_has_q(q, places, field)
        self.law.check_range(np.where(np.isin(np.arange(q.size), places), q, np.nan), field)
        return replace(self, q=q[places])

    @override
    def values(self, prior: dist.Distribution) -> Float[Array, " q_bin"]:
        value = self.law.program(jnp.asarray(self.q), jnp.asarray(self.tau))
        if not self.scatter:
            return value
        spread = numpyro.sample(f"{self.parameter}_scatter", dist.HalfNormal(SCATTER))
        middle = self.scale.to(value, prior)
        deviations = independent(self.parameter + DEVIATIONS, self.q.size, spread, middle, self.fits)
        return value + spread * deviations if self.additive else value * jnp.exp(spread * deviations)

    @override
    def drawn(
        self,
        q: OfBins,
        grid: Float[np.ndarray, " point"],
        of_bins: Float[np.ndarray, "q_bin chain draw"],
        common: Mapping[str, np.ndarray],
    ) -> Drawn:
        scalars = {name: array for name, array in common.items() if array.ndim == 1}
        both = np.asarray(on_one_device(_law_at, self, np.concatenate([q, grid]), scalars, identity=self.identity))
        return Drawn(both[:, : q.size], both[:, q.size :])

    @override
    def residual_scale(self, values: Float[np.ndarray, "sample q_bin"]) -> Scale:
        return self.scale if self.additive else super().residual_scale(values)

    @override
    def suited_to(self, prior: dist.Distribution) -> LawPooling:
        return replace(self, additive=bool(np.any(prior.support(NEGATIVE)))) if self.scatter else self

    @override
    def with_fits(self, prior: dist.Distribution, values: OfBins, sd: OfBins) -> LawPooling:
        return replace(self, fits=fits_on(self.scale, prior, values, sd)) if self.scatter else self

    @override
    def priors_of_law(self) -> dict[str, dist.Distribution]:
        program = numpyro.handlers.seed(self.law.program, 0)
        trace = numpyro.handlers.trace(program).get_trace(jnp.asarray(self.q), jnp.asarray(self.tau))
        return {name: site["fn"] for name, site in trace.items() if site["type"] == "sample"}

    @override
    def refuse_choices(self, priors: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        for kind, names in (("priors", priors), ("fixed", fixed)):
            self.sites.refuse_derived(kind, names)
        if self.parameter in priors:
            field, remedy = f"priors.{self.parameter}", f"Give {' or '.join(self.sites.sampled)}"
            raise SettingsError(f"{self.parameter!r} follows from its law", field=field, remedy=remedy)


def _law_at(pooling: LawPooling, q: Float[Array, " point"], parameters: Values) -> Float[Array, "sample point"]:
    """The law without scatter, at draws (sample,) of its parameters."""
    program = pooling.law.program
    return jax.vmap(lambda values: Override(program, values, {})(q, pooling.tau))(parameters)

"""The second stage of a law in q, as a NumPyro program: the law's parameters, given the likelihood of each bin.

With x the pooled parameter's logarithm (or the parameter itself where it may be negative) and L_b(x) the marginal
likelihood of x in bin b (`bin_likelihood`), the law's parameters have the likelihood prod_b L_b(f(q_b)) or, where the
bins scatter about the law f, prod_b of the integral of L_b(x) N(x; f(q_b), scatter^2) over x. See Lunn et al., J. R.
Stat. Soc. C 62, 551 (2013), for the two stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bayesfit.compute.errors import BayesfitError, InputError, SettingsError, nearest
from bayesfit.modelling.laws import Law, Sites, sites_of
from bayesfit.modelling.priors import build, one_number, parse_common
from bayesfit.posterior.bin_likelihood import Bins, Likelihood, log_likelihood, log_scattered, reasons
from bayesfit.posterior.coordinates import Override

SCATTER_PRIOR = 0.3  # sd of the scatter's half-normal prior
SHIFT = "q_shift"  # by how many of its standard errors q is off, in all bins together
FARTHEST = 5.0  # of these, at which a law must still be known

Program = Callable[..., None]


class UncertainQ(NamedTuple):
    """q with standard errors [1/angstrom]; all q are off together, as they are by an error of a detector's distance."""

    q: Float[Any, " point"]
    q_err: Float[Any, " point"]


OfQ = Float[Any, " point"] | UncertainQ


def _drawn(q: OfQ) -> Float[Array, " point"]:
    """q as it is, or with its error sampled."""
    return q.q + numpyro.sample(SHIFT, dist.Normal(0.0, 1.0)) * q.q_err if isinstance(q, UncertainQ) else q


@dataclass(frozen=True)
class SecondStage:
    """A law and what a user asks of it: whether bins `scatter` about it, and priors and fixed values by the names of
    the law's parameters, or "scatter"."""

    law: Law
    scatter: bool
    priors: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What error messages call the law."""
        return f"law {self.law.name!r}"

    def program(self, logarithmic: bool) -> Program:
        """The program `(q, tau, likelihood)`, for bins whose x is `logarithmic` or not. The first entries of
        `q`, which may be an `UncertainQ`, belong to the bins of `likelihood`.

        Raises:
            SettingsError: a prior or a value cannot be read.
        """
        given = {name: parse_common(spec, name) for name, spec in self.priors.items()}
        built = {name: build(prior.family, prior.values) for name, prior in given.items()}
        pinned = {name: one_number(value, f"fixed.{name}") for name, value in self.fixed.items()}

        def program(q: OfQ, tau: Float[Array, " tau"], likelihood: Likelihood) -> None:
            values = self._values(_drawn(q), tau)
            numpyro.deterministic("_law", values)
            x = values[: likelihood.centre.shape[0]]
            x = jnp.log(x) if logarithmic else x
            if self.scatter:
                sd = numpyro.sample("scatter", dist.HalfNormal(SCATTER_PRIOR))
                logs = jax.vmap(log_scattered, (0, None, 0))(x, sd, likelihood)
            else:
                logs = jax.vmap(log_likelihood)(x, likelihood)
            numpyro.factor("_bins", jnp.sum(logs))

        return Override(program, pinned, built)

    def _values(self, q: Float[Array, " point"], tau: Float[Array, " tau"]) -> Float[Array, " point"]:
        """The law at each q, its sites sampled."""
        values = self.law.program(q, tau)
        if jnp.shape(values) != jnp.shape(q):
            raise SettingsError(
                f"returns shape {jnp.shape(values)}, expected that of q, {jnp.shape(q)}", field=self.label
            )
        return values

    def sampled(self, bins: Bins, q: OfQ, tau: Float[np.ndarray, " tau"]) -> tuple[str, ...]:
        """The names of the law's sampled parameters, "scatter" and "q_shift" left out, after checking the law, the
        choices and the number of bins; `q` begins with the q of the used bins.

        Raises:
            SettingsError: the program fails or samples what it may not, or a choice names no parameter.
            InputError: the law is not known at the q of some bin, or there are too few bins.
        """
        middle, reach = (q.q, FARTHEST * q.q_err) if isinstance(q, UncertainQ) else (q, 0.0)
        for reached in (middle - reach, middle + reach):
            whole = np.full(bins.q.size, np.nan)
            whole[bins.used] = reached[: bins.used.sum()]
            self.law.check_range(whole, self.label)
        alone, _ = sites_of(self.law, middle, tau, self.label)
        self._check_names(alone)
        trace = self._traced(bins, q, tau)
        sites = [name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]]
        self._check_values(np.asarray(trace["_law"]["value"]), bins.logarithmic)
        if not {*sites} - {SHIFT}:
            raise SettingsError("nothing is left to sample", field="fixed", remedy="Leave a parameter of the law free")
        found = tuple(name for name in sites if name not in ("scatter", SHIFT))
        self._check_count(bins, len(found))
        return found

    def _check_names(self, alone: Sites) -> None:
        """Refuse priors and fixed values of anything that is no parameter; `alone` are the sites of the law's own
        program."""
        for kind, names in (("priors", self.priors), ("fixed", self.fixed)):
            alone.refuse_derived(kind, names)
            known = (*alone.sampled, *(("scatter",) if self.scatter else ()))
            for name in names:
                if name not in known:
                    raise SettingsError(f"unknown parameter {name!r}", field=kind, remedy=nearest(name, known))

    def _traced(self, bins: Bins, q: OfQ, tau: Float[np.ndarray, " tau"]) -> dict[str, Any]:
        """The sites of the whole program at one draw from its prior."""
        seeded = numpyro.handlers.seed(self.program(bins.logarithmic), jax.random.PRNGKey(0))
        try:
            return numpyro.handlers.trace(seeded).get_trace(q, tau, bins.likelihood)
        except BayesfitError:
            raise
        except Exception as error:
            raise SettingsError(f"raises: {type(error).__name__}: {error}", field=self.label) from error

    def _check_values(self, values: Float[np.ndarray, " point"], logarithmic: bool) -> None:
        if not np.all(np.isfinite(values)) or (logarithmic and not np.all(values > 0)):
            need = "positive and finite" if logarithmic else "finite"
            raise SettingsError(f"its values must be {need}, got {values.min():g}", field=self.label)

    def _check_count(self, bins: Bins, parameters: int) -> None:
        count = int(bins.used.sum())
        if count < parameters + 1:
            raise InputError(
                f"{count} usable bins for {parameters} parameters of the law; left out: {reasons(bins.left_out)}",
                field=self.label,
                remedy="Give more bins, or let more verdicts in: verdicts=(...)",
            )

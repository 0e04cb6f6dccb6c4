"""What a law in q is: how a parameter of the curve depends on the scattering vector, and the law's own parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.shown import as_html, one_line, with_unit
from bayesfit.modelling.model import RESERVED, Parameter, rows_of

Program = Callable[[Any, Any], Any]  # q (q,) and tau (tau,) to values (q,)
NOT_PARAMETERS = RESERVED | {"scatter"}
BETTER = {"diffusion": ", as 'diffusion_extrapolated'"}  # a law that often holds where this one does not


@dataclass(frozen=True, eq=False)
class Law:
    """A law in q.

    Args:
        name: how users call it.
        program: NumPyro program `(q, tau) -> value`. It samples the law's parameters, scalars, with
            `numpyro.sample(name, prior)`, may add others by `numpyro.deterministic`, and returns the value at each q,
            shape (q,). `q` (1/angstrom) holds the bins in use and a fine grid over their range, `tau` (s) the delays.
            Priors are proper and may depend on the smallest and largest q and tau, never on measured values.
        parameters: the parameters, sampled and deterministic, described. If left out, only their names are known.
        q_range: smallest and largest q (1/angstrom) at which the law is known; None where it is known everywhere.
        description, formula, reference: the law in words.

    Raises:
        SettingsError: a field breaks the contract; the message names the law.
    """

    name: str
    program: Program
    parameters: tuple[Parameter, ...] = ()
    description: str = ""
    formula: str = ""
    reference: str = ""
    q_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not callable(self.program):
            raise SettingsError("program must be a function of q and tau", field=f"law {self.name!r}")
        for parameter in self.parameters:
            if parameter.name in NOT_PARAMETERS or not parameter.name.isidentifier():
                raise SettingsError(
                    f"parameter name {parameter.name!r} is reserved or no plain word",
                    field=f"law {self.name!r}",
                    remedy="Choose another name",
                )

    def __repr__(self) -> str:
        parameters = ", ".join(with_unit(parameter.name, parameter.unit) for parameter in self.parameters)
        return one_line("Law", self.name, parameters, self.formula or self.description)

    def _repr_html_(self) -> str:
        said = (self.description, self.formula, self.reference)
        return as_html(f"Law {self.name}", said, *rows_of(self.parameters))

    def knows(self, q: Float[np.ndarray, " q_bin"]) -> Bool[np.ndarray, " q_bin"]:
        """At which q, which have unit 1/angstrom, the law is known."""
        low, high = self.q_range or (0.0, np.inf)
        return (q > 0.0) & (q >= low) & (q <= high)

    def check_range(self, q: Float[np.ndarray, " q_bin"], field: str) -> None:
        """Raise InputError where the law is not known at the q of a bin, which has unit 1/angstrom; NaN is ignored."""
        if self.q_range is None:
            return
        low, high = self.q_range
        for bin in np.flatnonzero((q < low) | (q > high))[:1]:
            raise InputError(
                f"q = {q[bin]:.4g} 1/angstrom is outside the law's table, {low:.4g} to {high:.4g}",
                field=field,
                bin=int(bin),
                remedy="Extend the table, or leave the bin out by isel(q_bin=...)",
            )


class Refutation(NamedTuple):
    """What to say if the bins' residuals are too large: in `words`, what does not hold, and the `remedy` to try."""

    words: str
    remedy: str


def law_refuted(parameter: str, law: str, scatter: bool) -> Refutation:
    """The refutation of a parameter's law of this name, with or without scatter about it."""
    described = f"{law} with scatter" if scatter else law
    another = "another law" + BETTER.get(law, "")
    words = f"{parameter} does not follow the law {described!r}"
    return Refutation(words, another if scatter else f"scatter or {another}")

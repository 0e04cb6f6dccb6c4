"""The laws in q that come with the package.

A law is a NumPyro program, as a model is. Its priors may depend on q and on the delays, never on the measured values: D
is log-uniform over all values for which D q^2 is a rate that the delays can see at some q.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.modelling.law import Law
from bayesfit.modelling.model import Parameter
from bayesfit.modelling.scatter import AnyArray
from bayesfit.modelling.tables import read_table

EXPONENTS = (0.5, 4.0)
VALUES = (1e-3, 1e3)

OfQ = Float[AnyArray, " q"]
Points = tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]  # q and values of a table


def rates(tau: Float[AnyArray, " tau"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The slowest and the fastest rate (1/s) that delays tau (s) can see: 0.1/max(tau) and 10/min(tau)."""
    return 0.1 / jnp.max(tau), 10.0 / jnp.min(tau)


def _scale(name: str, profile: OfQ, tau: Float[AnyArray, " tau"]) -> Float[Array, ""]:
    """Sample the factor between a positive profile over q and a rate, log-uniform over all values that give a rate
    which the delays can see at some q."""
    slowest, fastest = rates(tau)
    return numpyro.sample(name, dist.LogUniform(slowest / jnp.max(profile), fastest / jnp.min(profile)))


def diffusion() -> Law:
    """Free diffusion: rate = D q^2."""

    def program(q: OfQ, tau: Float[AnyArray, " tau"]) -> OfQ:
        return _scale("D", q**2, tau) * q**2

    return Law(
        "diffusion",
        program,
        (Parameter("D", "angstrom^2/s", "D", "diffusion coefficient"),),
        description="free diffusion",
        formula="rate = D q^2",
        reference="Berne & Pecora, Dynamic Light Scattering (Wiley, 1976), ch. 5",
    )


def diffusion_extrapolated() -> Law:
    """Diffusion of particles that light resolves, extrapolated to q = 0: rate = D0 q^2 (1 + C q^2).

    If particles have many sizes, or internal motions, the apparent D = rate / q^2 changes with q, to first order with
    q^2. Large particles scatter less at large angles, so that a spread of sizes makes C > 0; C over the squared radius
    of gyration depends on their shape. D0 is the mean diffusion coefficient, weighted with the intensity scattered at
    q = 0. The prior of C is uniform where |C| max(q)^2 < 1, so that the rate stays positive; beyond that an expansion
    to first order is of no use.
    """

    def program(q: OfQ, tau: Float[AnyArray, " tau"]) -> OfQ:
        D0 = _scale("D0", q**2, tau)
        largest = 1.0 / jnp.max(q) ** 2
        C = numpyro.sample("C", dist.Uniform(-largest, largest))
        return D0 * q**2 * (1.0 + C * q**2)

    return Law(
        "diffusion_extrapolated",
        program,
        (
            Parameter("D0", "angstrom^2/s", "D_0", "diffusion coefficient at q = 0"),
            Parameter("C", "angstrom^2", "C", "relative change of rate/q^2 with q^2"),
        ),
        description="diffusion of particles that are large or of many sizes, extrapolated to q = 0",
        formula="rate = D0 q^2 (1 + C q^2)",
        reference="Burchard, Adv. Polym. Sci. 48, 1 (1983); Brown, Pusey & Dietz, J. Chem. Phys. 62, 1136 (1975)",
    )


def power_law(n: float | None = None) -> Law:
    """A power of q: rate = D q^n, with n uniform from 0.5 to 4, or given (1: ballistic motion).

    The rate at the geometric middle of the range of q is sampled, since it hardly correlates with n; D follows.

    Raises:
        SettingsError: n is no number.
    """
    if n is not None:
        n = _number(n, "power_law.n")

    def program(q: OfQ, tau: Float[AnyArray, " tau"]) -> OfQ:
        middle = jnp.sqrt(jnp.min(q) * jnp.max(q))
        exponent = numpyro.sample("n", dist.Uniform(*EXPONENTS)) if n is None else n
        rate = numpyro.sample("rate_middle", dist.LogUniform(*rates(tau)))
        numpyro.deterministic("D", rate * middle**-exponent)
        return rate * jnp.exp(exponent * (jnp.log(q) - jnp.log(middle)))

    unit = "angstrom^n/s" if n is None else f"angstrom^{n:g}/s"
    exponent = () if n is not None else (Parameter("n", "", "n", "exponent of q"),)
    return Law(
        "power_law",
        program,
        (
            Parameter("D", unit, "D", "factor of q^n; its unit depends on n"),
            *exponent,
            Parameter("rate_middle", "1/s", r"\Gamma_m", "rate at the geometric middle of the range of q"),
        ),
        description="a power of q" if n is None else f"the power {n:g} of q",
        formula="rate = D q^n" if n is None else f"rate = D q^{n:g}",
        reference="Cipelletti et al., Faraday Discuss. 123, 237 (2003)",
    )


def diffusion_plus_offset() -> Law:
    """Diffusion and a decay that does not depend on q: rate = D q^2 + rate_0.

    Beside D, the share of rate_0 in the rate at the smallest q is sampled, uniform from 0 to 1.
    """

    def program(q: OfQ, tau: Float[AnyArray, " tau"]) -> OfQ:
        D = _scale("D", q**2, tau)
        share = numpyro.sample("share", dist.Uniform(0.0, 1.0))
        rate_0 = numpyro.deterministic("rate_0", D * jnp.min(q) ** 2 * share / (1.0 - share))
        return D * q**2 + rate_0

    return Law(
        "diffusion_plus_offset",
        program,
        (
            Parameter("D", "angstrom^2/s", "D", "diffusion coefficient"),
            Parameter("rate_0", "1/s", r"\Gamma_0", "rate at q = 0"),
            Parameter("share", "", "", "share of rate_0 in the rate at the smallest q"),
        ),
        description="diffusion and a decay at every q",
        formula="rate = D q^2 + rate_0",
        reference="Berne & Pecora, Dynamic Light Scattering (Wiley, 1976), ch. 7",
    )


def de_gennes(S: Any, H: Any = None) -> Law:
    """De Gennes narrowing: rate = D0 q^2 H(q) / S(q).

    Args:
        S: structure factor as (q, S), two sequences with q in 1/angstrom, or the path of a text file of two columns.
        H: hydrodynamic function likewise; 1 where it is not given.

    Raises:
        SettingsError, InputError: a table cannot be used.
    """
    structure = _table(S, "de_gennes.S")
    hydrodynamic = _table(H, "de_gennes.H") if H is not None else None
    tables = [table for table in (structure, hydrodynamic) if table is not None]

    def program(q: OfQ, tau: Float[AnyArray, " tau"]) -> OfQ:
        narrowed = q**2 / _interpolate(q, structure)
        if hydrodynamic is not None:
            narrowed = narrowed * _interpolate(q, hydrodynamic)
        return _scale("D0", narrowed, tau) * narrowed

    return Law(
        "de_gennes",
        program,
        (Parameter("D0", "angstrom^2/s", "D_0", "diffusion coefficient at infinite dilution"),),
        description="de Gennes narrowing by a tabulated structure factor",
        formula="rate = D0 q^2 H(q) / S(q)",
        reference="de Gennes, Physica 25, 825 (1959); Naegele, Phys. Rep. 272, 215 (1996)",
        q_range=_common(tables),
    )


def from_table(table: Any) -> Law:
    """A tabulated function of q up to a factor: value = scale * table(q).

    Args:
        table: (q, value), two sequences with q in 1/angstrom and positive values, or the path of a text file of two
            columns.

    Raises:
        SettingsError, InputError: the table cannot be used.
    """
    tabulated = _table(table, "from_table.table")

    def program(q: OfQ, tau: Float[AnyArray, " tau"]) -> OfQ:
        profile = _interpolate(q, tabulated)
        return _scale("scale", profile, tau) * profile

    return Law(
        "from_table",
        program,
        (Parameter("scale", "", "", "factor of the tabulated function"),),
        description="a tabulated function of q, up to a factor",
        formula="rate = scale * table(q)",
        q_range=_common([tabulated]),
    )


def constant(low: float = VALUES[0], high: float = VALUES[1]) -> Law:
    """One value at all q, log-uniform from `low` to `high` in the parameter's unit: for numbers of order one, as beta.

    Raises:
        SettingsError: low and high are no positive numbers in this order.
    """
    low, high = _number(low, "constant.low"), _number(high, "constant.high")
    if not 0 < low < high:
        raise SettingsError(f"got low {low:g} and high {high:g}", field="constant", remedy="Give 0 < low < high")

    def program(q: OfQ, tau: Float[AnyArray, " tau"]) -> OfQ:
        return numpyro.sample("value", dist.LogUniform(low, high)) * jnp.ones_like(q)

    return Law(
        "constant",
        program,
        (Parameter("value", "", "", "value at all q"),),
        description="one value at all q",
        formula="value",
    )


def _number(value: Any, field: str) -> float:
    """A finite number; raises SettingsError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise SettingsError(f"got {value!r}, expected a number", field=field)
    return float(value)


def _table(given: Any, field: str) -> Points:
    """q and positive values, in the order of q."""
    table = read_table(given, field, ("q", "value"))
    for place in np.flatnonzero(table.values <= 0)[:1]:
        problem = f"the value at q = {table.x[place]:g} is {table.values[place]:g}, not above 0"
        raise InputError(problem, file=table.file or None, field=field)
    return table.x, table.values


def _interpolate(q: OfQ, table: Points) -> OfQ:
    """The table at q, by a cubic spline in the logarithm of the value, so that it stays positive."""
    import interpax

    return jnp.exp(interpax.interp1d(q, jnp.asarray(table[0]), jnp.log(jnp.asarray(table[1])), method="cubic2"))


def _common(tables: list[Points]) -> tuple[float, float]:
    """The range of q that all tables cover."""
    return max(float(q[0]) for q, _ in tables), min(float(q[-1]) for q, _ in tables)


LAWS: dict[str, Callable[..., Law]] = {
    make.__name__: make
    for make in (diffusion, diffusion_extrapolated, power_law, diffusion_plus_offset, de_gennes, from_table, constant)
}

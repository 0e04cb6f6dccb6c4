"""Laws in q: how a parameter of the curve depends on the scattering vector, and the priors of the law's own parameters.

A law is a NumPyro program, as a model is. Its priors may depend on q and on the delays, never on the measured values:
D is looked for wherever D q^2 is a rate that the delays can see at some q, log-uniformly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import interpax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfit._errors import InputError, SettingsError, nearest
from bayesfit._kinds import in_words
from bayesfit._mistakes import mistake
from bayesfit._model import RESERVED, Parameter
from bayesfit._options import call
from bayesfit._tables import read_table

Program = Callable[[Any, Any], Any]
EXPONENTS = (0.5, 4.0)
VALUES = (1e-3, 1e3)
KEPT = RESERVED | {"scatter"}


@dataclass(frozen=True, eq=False)
class Law:
    """A law in q.

    Args:
        name: how users call it.
        program: NumPyro program `(q, tau) -> value`. It samples the law's parameters, scalars, with
            `numpyro.sample(name, prior)`, may add others by `numpyro.deterministic`, and returns the value at each q,
            shape (q,). `q` (1/angstrom) holds the bins in use and a fine grid over their range, `tau` (s) the delays.
            Priors are proper and may depend on the smallest and largest q and tau, never on measured values.
        parameters: the parameters, sampled and deterministic, described. Left out, they carry their names alone.
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
            if parameter.name in KEPT or not parameter.name.isidentifier():
                raise SettingsError(
                    f"parameter name {parameter.name!r} is reserved or no plain word",
                    field=f"law {self.name!r}",
                    remedy="Choose another name",
                )

    def knows(self, q: np.ndarray) -> np.ndarray:
        """At which q (q_bin,), 1/angstrom, the law is known."""
        low, high = self.q_range or (0.0, np.inf)
        return (q > 0.0) & (q >= low) & (q <= high)

    def check_range(self, q: np.ndarray, field: str) -> None:
        """Raise InputError where the law is not known at some bin's q (q_bin,), 1/angstrom; NaN counts for nothing."""
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


def rates(tau: Any) -> tuple[Any, Any]:
    """The slowest and the fastest rate (1/s) that delays tau (s) can see: 0.1/max(tau) and 10/min(tau)."""
    return 0.1 / jnp.max(tau), 10.0 / jnp.min(tau)


def _scale(name: str, profile: Any, tau: Any) -> Any:
    """The factor between a positive profile over q and a rate, log-uniform over what the delays can see at some q."""
    slowest, fastest = rates(tau)
    return numpyro.sample(name, dist.LogUniform(slowest / jnp.max(profile), fastest / jnp.min(profile)))


def diffusion() -> Law:
    """Free diffusion: rate = D q^2."""

    def program(q: Any, tau: Any) -> Any:
        return _scale("D", q**2, tau) * q**2

    return Law(
        "diffusion",
        program,
        (Parameter("D", "angstrom^2/s", "D", "diffusion coefficient"),),
        description="free diffusion",
        formula="rate = D q^2",
        reference="Berne & Pecora, Dynamic Light Scattering (Wiley, 1976), ch. 5",
    )


def power_law(n: float | None = None) -> Law:
    """A power of q: rate = D q^n, with n uniform from 0.5 to 4, or given (1: ballistic motion).

    What is sampled is the rate at the geometric middle of the range of q, which n hardly correlates with; D follows.

    Raises:
        SettingsError: n is no number.
    """
    if n is not None:
        n = _number(n, "power_law.n")

    def program(q: Any, tau: Any) -> Any:
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

    What is sampled beside D is the offset's share of the rate at the smallest q, uniform from 0 to 1.
    """

    def program(q: Any, tau: Any) -> Any:
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

    def program(q: Any, tau: Any) -> Any:
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
    known = _table(table, "from_table.table")

    def program(q: Any, tau: Any) -> Any:
        profile = _interpolate(q, known)
        return _scale("scale", profile, tau) * profile

    return Law(
        "from_table",
        program,
        (Parameter("scale", "", "", "factor of the tabulated function"),),
        description="a tabulated function of q, up to a factor",
        formula="rate = scale * table(q)",
        q_range=_common([known]),
    )


def constant(low: float = VALUES[0], high: float = VALUES[1]) -> Law:
    """One value at all q, log-uniform from `low` to `high` in the parameter's unit: for numbers of order one, as beta.

    Raises:
        SettingsError: low and high are no positive numbers in this order.
    """
    low, high = _number(low, "constant.low"), _number(high, "constant.high")
    if not 0 < low < high:
        raise SettingsError(f"got low {low:g} and high {high:g}", field="constant", remedy="Give 0 < low < high")

    def program(q: Any, tau: Any) -> Any:
        return numpyro.sample("value", dist.LogUniform(low, high)) * jnp.ones_like(q)

    return Law(
        "constant",
        program,
        (Parameter("value", "", "", "value at all q"),),
        description="one value at all q",
        formula="value",
    )


LAWS: dict[str, Callable[..., Law]] = {
    make.__name__: make for make in (diffusion, power_law, diffusion_plus_offset, de_gennes, from_table, constant)
}


def get_law(spec: Any) -> Law:
    """A law from its name, a table of its name and options, a `Law`, a program `(q, tau) -> value`, or a file of these.

    Args:
        spec: `"diffusion"`, `{"name": "power_law", "n": 1}`, a `Law`, a function as `Law.program` describes it, or the
            path of a Python file, `"my_law.py"`, in which one of the last two is called `law`.

    Raises:
        SettingsError: there is no such law, or it has no such option; InputError: a file cannot be used.

    Example:
        >>> get_law({"name": "power_law", "n": 1}).formula
        'rate = D q^1'
    """
    if isinstance(spec, Law):
        return spec
    if callable(spec):
        return Law(getattr(spec, "__name__", "law"), spec)
    options = dict(spec) if isinstance(spec, Mapping) else {"name": spec}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise SettingsError(f"got {in_words(spec)}, expected a law", field="law", remedy=nearest("", LAWS))
    if name.endswith(".py"):
        if options:
            raise SettingsError(f"a law of your own has no option {min(options)!r}", field="law", file=name)
        return get_law(_of_file(Path(name).expanduser()))
    if name not in LAWS:
        raise SettingsError(f"unknown law {name!r}", field="law", remedy=nearest(name, LAWS))
    law = call(LAWS[name], options, f"law {name!r}", "Give (q, values)")
    if not all(isinstance(value, int | float) for value in options.values()):
        return law
    return _KNOWN.setdefault(f"{name} {sorted(options.items())}", law)


def _of_file(path: Path) -> Any:
    """What a Python file calls `law`."""
    held: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), held)
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path, field="law") from error
    except Exception as error:
        raise SettingsError(f"fails when run: {type(error).__name__}: {error}", file=path, field="law") from error
    if not (isinstance(held.get("law"), Law) or callable(held.get("law"))):
        raise SettingsError("holds no law", file=path, field="law", remedy="Add `law = bayesfit.Law(...)`")
    return held["law"]


_KNOWN: dict[str, Law] = {}  # one law for one choice of numbers, so that programs compiled for it serve again


def identity_of(law: Law) -> str | None:
    """What the law's program is made of, in words; None for one that holds more than a name and numbers."""
    return next((words for words, known in _KNOWN.items() if known is law), None)


class Sites(NamedTuple):
    """What a law's program samples, and what follows from that (`numpyro.deterministic`), by name."""

    sampled: tuple[str, ...]
    derived: tuple[str, ...]

    def refuse_derived(self, kind: str, names: Iterable[str]) -> None:
        """Refuse a choice of this kind ("priors", "fixed") for a parameter that follows from others.

        Raises:
            SettingsError: names the parameter.
        """
        for name in names:
            if name in self.derived:
                raise SettingsError(
                    f"{name!r} follows from what the law samples",
                    field=f"{kind}.{name}",
                    remedy=f"Give {' or '.join(self.sampled)}",
                )


def sites_of(law: Law, q: np.ndarray, tau: np.ndarray, field: str) -> tuple[Sites, np.ndarray]:
    """What a law's program samples at q (q,) and delays tau, and its values (q,) at one draw.

    Raises:
        SettingsError: it raises, or samples what is no continuous scalar.
    """
    try:
        jax.eval_shape(numpyro.handlers.seed(law.program, 0), q, tau)  # as it is run later, without numbers
        seeded = numpyro.handlers.seed(lambda: numpyro.deterministic("_law", law.program(q, tau)), 0)
        trace = numpyro.handlers.trace(seeded).get_trace()
    except Exception as error:
        problem, remedy = mistake(error, law.program)
        raise SettingsError(f"in the law, {problem}", field=field, remedy=remedy) from error
    values = np.asarray(trace.pop("_law")["value"])
    sampled = {n: site["fn"] for n, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}
    for name, fn in sampled.items():
        if fn.batch_shape or fn.event_shape or fn.support.is_discrete:
            raise SettingsError(f"parameter {name!r} is no continuous scalar", field=field)
    derived = tuple(name for name, site in trace.items() if site["type"] == "deterministic")
    return Sites(tuple(sampled), derived), values


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise SettingsError(f"got {value!r}, expected a number", field=field)
    return float(value)


def _table(given: Any, field: str) -> tuple[np.ndarray, np.ndarray]:
    """q and positive values, (point,) each, in the order of q."""
    table = read_table(given, field, ("q", "value"))
    for place in np.flatnonzero(table.values <= 0)[:1]:
        problem = f"the value at q = {table.x[place]:g} is {table.values[place]:g}, not above 0"
        raise InputError(problem, file=table.file or None, field=field)
    return table.x, table.values


def _interpolate(q: Any, table: tuple[np.ndarray, np.ndarray]) -> Any:
    """The table at q, by a cubic spline in the logarithm of the value, so that it stays positive."""
    return jnp.exp(interpax.interp1d(q, jnp.asarray(table[0]), jnp.log(jnp.asarray(table[1])), method="cubic2"))


def _common(tables: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    return max(float(q[0]) for q, _ in tables), min(float(q[-1]) for q, _ in tables)

"""Laws in q as users ask for them: by name, by options, as a program, or in a file; and what their programs sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from jaxtyping import Float

from bayesfit.compute.errors import InputError, SettingsError, nearest
from bayesfit.compute.kinds import in_words
from bayesfit.modelling.file_checks import readable
from bayesfit.modelling.law import Law as Law
from bayesfit.modelling.mistakes import mistake
from bayesfit.modelling.options import call
from bayesfit.modelling.shipped_laws import LAWS as LAWS


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
        return get_law(_of_file(readable(name, "law")))
    if name not in LAWS:
        raise SettingsError(f"unknown law {name!r}", field="law", remedy=nearest(name, LAWS))
    law = call(LAWS[name], options, f"law {name!r}", "Give (q, values)")
    if not all(isinstance(value, int | float) for value in options.values()):
        return law
    return _MADE.setdefault(f"{name} {sorted(options.items())}", law)


def _of_file(path: Path) -> Any:
    """The object that a Python file calls `law`."""
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), names)
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path, field="law") from error
    except (Exception, SystemExit) as error:
        raise SettingsError(f"fails when run: {type(error).__name__}: {error}", file=path, field="law") from error
    if not (isinstance(names.get("law"), Law) or callable(names.get("law"))):
        raise SettingsError("holds no law", file=path, field="law", remedy="Add `law = bayesfit.Law(...)`")
    return names["law"]


_MADE: dict[str, Law] = {}  # equal options give the same law, so that programs compiled for it are found again


def identity_of(law: Law) -> str | None:
    """What the law's program is made of, in words; None if a name and numbers cannot describe it."""
    return next((words for words, made in _MADE.items() if made is law), None)


class Sites(NamedTuple):
    """The names of what a law's program samples, and of what follows from that (`numpyro.deterministic`)."""

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


def sites_of(
    law: Law, q: Float[np.ndarray, " q"], tau: Float[np.ndarray, " tau"], field: str
) -> tuple[Sites, Float[np.ndarray, " q"]]:
    """What a law's program samples, and its values at one draw.

    Raises:
        SettingsError: the program raises, or samples anything but continuous scalars.
    """
    try:
        jax.eval_shape(
            numpyro.handlers.seed(law.program, 0), q, tau
        )  # with tracers instead of numbers, as it is run later
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

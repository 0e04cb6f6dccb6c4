"""What a user's NumPyro program does wrong, in words with a remedy, from the error that it raises while traced."""

from __future__ import annotations

import difflib
import linecache
import re
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpyro.distributions as dist
from jax import errors

SAMPLED = 'numpyro.sample("rate", dist.LogUniform(0.1, 10.0))'
DISTRIBUTIONS = frozenset(name for name in dist.__all__ if name[0].isupper()) - {"Distribution"}
VALUE = "on a parameter or an argument of the program, which has no number while JAX traces it"
TRACED: dict[type[Exception], tuple[str, str]] = {  # the most special class first
    errors.TracerBoolConversionError: (
        f"`if`, `and`, `or`, `min` or `max` is used {VALUE}",
        "Write jnp.where(condition, a, b), jnp.minimum or jnp.maximum",
    ),
    errors.NonConcreteBooleanIndexError: (f"a mask that chooses points is used {VALUE}", "Write jnp.where(mask, a, b)"),
    errors.TracerArrayConversionError: (
        f"NumPy or SciPy is used {VALUE}",
        "Use jax.numpy (jnp.exp for np.exp), and jax.scipy.special for scipy.special",
    ),
    errors.TracerIntegerConversionError: (
        f"range(), or what else needs a whole number, is used {VALUE}",
        "Count by numbers that are known",
    ),
    errors.ConcretizationTypeError: (
        f"float(), int(), .item() or a function of `math` is used {VALUE}",
        "Leave float() and the like out, and use jax.numpy (jnp.exp for math.exp)",
    ),
}
SAID: dict[str, tuple[str, str]] = {  # by a pattern in the text of a TypeError
    r"sample\(\) missing .*'fn'": ("a site has no name, or no prior", f"Write rate = {SAMPLED}"),
    r"sample\(\) missing .*'key'": ("a distribution is sampled by itself", f"Write rate = {SAMPLED}"),
    r"Invalid type for 'fn'": ("the prior of a site is no distribution", f"Write rate = {SAMPLED}"),
    r"immutable": ("elements of an array are assigned to, which JAX does not allow", "Write x = x.at[i].set(y)"),
}


class Mistake(NamedTuple):
    """What is wrong, and what to do about it; `remedy` is None where none can be named."""

    problem: str
    remedy: str | None


def mistake(error: Exception, program: Callable[..., Any]) -> Mistake:
    """What the program did wrong that raised this error, with the line of its file where that happened."""
    frame, line = _place(error, program)
    at = "" if line is None else f" (line {line})"
    for kind, (problem, remedy) in TRACED.items():
        if isinstance(error, kind):
            return Mistake(problem + at, remedy)
    text = str(error)
    for said, (problem, remedy) in SAID.items():
        if isinstance(error, TypeError) and re.search(said, text):
            return Mistake(problem + at, remedy)
    if isinstance(error, TypeError | AttributeError) and (used := _distribution(text, frame, line)):
        return Mistake(f"{used} is a distribution, and is used as a number{at}", f"Write {_sampled(used)}")
    return Mistake(f"the program raises {type(error).__name__}: {text}{at}", _meant(error, frame))


def _place(error: Exception, program: Callable[..., Any]) -> tuple[FrameType | None, int | None]:
    """The last frame in the program's own file, and its line there."""
    file = getattr(getattr(program, "__code__", None), "co_filename", None)
    own = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return own[-1] if own else (None, None)


def _distribution(text: str, frame: FrameType | None, line: int | None) -> str | None:
    """The distribution that is used as a number: the name that it has on that line of the program, or else its class;
    None where the error is of another kind."""
    kinds = [word for word in re.findall(r"\w+", text) if word in DISTRIBUTIONS]
    if not kinds and "'method' object" not in text:  # a distribution as the location of a prior: `shape` is its method
        return None
    source = "" if frame is None or line is None else linecache.getline(frame.f_code.co_filename, line)
    local = {} if frame is None else {name: v for name, v in frame.f_locals.items() if isinstance(v, dist.Distribution)}
    return next((name for name in local if re.search(rf"\b{name}\b", source)), next(iter(kinds), None))


def _meant(error: Exception, frame: FrameType | None) -> str | None:
    """The existing name that is nearest to an unknown one."""
    unknown, existing = getattr(error, "name", None), list[str]()
    if isinstance(error, NameError) and frame is not None:
        existing = [*frame.f_globals, *frame.f_locals]
    elif isinstance(error, AttributeError):
        existing = dir(error.obj)
    close = difflib.get_close_matches(unknown or "", existing, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else None


def _sampled(used: str) -> str:
    """How to write a site of this name, or one with this distribution."""
    if used in DISTRIBUTIONS:
        return f'numpyro.sample("rate", dist.{used}(...))'
    return f'{used} = numpyro.sample("{used}", ...)'

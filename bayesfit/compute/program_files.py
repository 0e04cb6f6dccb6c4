"""The files of compiled programs, signed (`compute/signed_files.py`). What a program returns is described in JSON;
nothing is ever unpickled."""

from __future__ import annotations

import importlib
import json
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from bayesfit.compute.signed_files import keep_newest, read_signed, write_signed

MOST_KEPT = 1000  # files of some 200 KB; those that were not used for longest are deleted first
FAST = 1  # of zlib: a fifth of the size, in 10 ms
KNOWN = "bayesfit.", "numpyro."  # packages whose named tuples a program may return


class Kept(NamedTuple):
    """A compiled program that can be loaded on any device: the structure of what it returns (`made`), the places of the
    arguments that it uses, and its `code`."""

    made: PyTree
    used: tuple[int, ...]
    code: bytes


_CHOSEN: dict[str, Path | None] = {}  # the "place" of programs, once one is chosen


def set_cache(place: str | Path | None) -> None:
    """Keep compiled programs in this folder from now on, or, with None, keep none.

    By default they are in `bayesfit/programs` under XDG_CACHE_HOME (~/.cache). The folder must be the user's alone.

    Example:
        >>> import bayesfit
        >>> bayesfit.set_cache("/scratch/me/programs")  # doctest: +SKIP
    """
    _CHOSEN["place"] = None if place is None else Path(place)


def folder() -> Path | None:
    """The folder in which programs are kept; None if they are not kept."""
    if _CHOSEN:
        return _CHOSEN["place"]
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayesfit" / "programs"


def read(name: str) -> Kept | None:
    """The program kept under this name; None if there is none, or if the file is not what was written for it."""
    where = folder()
    content = None if where is None else read_signed(where / name)
    if content is None:
        return None
    try:
        head, code = content.split(b"\n", 1)
        stated = json.loads(head)
        return Kept(described(stated["made"]), tuple(stated["used"]), zlib.decompress(code))
    except (ValueError, KeyError, TypeError, zlib.error):  # then the program is compiled again
        return None


def write(name: str, program: Kept) -> None:
    """Keep a program under this name. Without permission to write, nothing is kept."""
    where = folder()
    if where is None:
        return
    try:
        head = json.dumps({"made": description(program.made), "used": program.used})
        write_signed(where / name, head.encode() + b"\n" + zlib.compress(program.code, FAST))
        keep_newest(where, MOST_KEPT)
    except (OSError, TypeError):
        return


def description(made: PyTree) -> Any:
    """Shapes and types, in dicts, tuples, lists and named tuples, as JSON has them.

    Raises:
        TypeError: there is something else among them.
    """
    if made is None:
        return None
    if isinstance(made, dict) and all(isinstance(name, str) for name in made):
        return {"dict": {name: description(value) for name, value in made.items()}}
    if isinstance(made, tuple) and hasattr(made, "_fields"):
        kind = type(made)
        if not kind.__module__.startswith(KNOWN):
            raise TypeError(kind)
        return {"named": [kind.__module__, kind.__qualname__], "items": [description(value) for value in made]}
    if isinstance(made, tuple | list):
        return {type(made).__name__: [description(value) for value in made]}
    return {"shape": list(made.shape), "type": str(made.dtype)}


def described(stated: Any) -> PyTree:
    """The shapes and types of a description.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    if stated is None:
        return None
    if "dict" in stated:
        return {name: described(value) for name, value in stated["dict"].items()}
    if "named" in stated:
        return _named_tuple(*stated["named"])(*map(described, stated["items"]))
    for kind in (tuple, list):
        if kind.__name__ in stated:
            return kind(map(described, stated[kind.__name__]))
    return jax.ShapeDtypeStruct(tuple(stated["shape"]), np.dtype(stated["type"]))


def _named_tuple(module: str, name: str) -> type:
    """A class of named tuples, of bayesfit or NumPyro."""
    if not module.startswith(KNOWN):
        raise ValueError(module)
    kind = getattr(importlib.import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(name)
    return kind

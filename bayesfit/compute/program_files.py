"""The files of compiled programs: private to their user, and checked before anything in them is used.

A program is machine code, so a file that somebody else has written would run as the user. Each file therefore begins
with a keyed hash (HMAC) of all that follows, made with a secret that lies beside the files, for their owner alone; what
follows names the program. A file that is damaged, forged or exchanged for another is as good as none. What a program
returns is described in JSON; nothing is ever unpickled.
"""

from __future__ import annotations

import hmac
import importlib
import json
import os
import stat
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from bayesfit.compute.errors import warn
from bayesfit.compute.whole_files import write_whole

HASH, HASHED = "sha256", 32  # bytes
MOST_KEPT = 200  # files; the oldest are deleted first
SECRET = ".secret"
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
    if where is None or not where.is_dir() or (secret := _secret(where)) is None:
        return None
    try:
        content = (where / name).read_bytes()
        if not hmac.compare_digest(hmac.digest(secret, content[HASHED:], HASH), content[:HASHED]):
            return None
        head, code = content[HASHED:].split(b"\n", 1)
        stated = json.loads(head)
        return Kept(described(stated["made"]), tuple(stated["used"]), code) if stated["name"] == name else None
    except (OSError, ValueError, KeyError, TypeError):  # whatever is wrong with the file, the program is compiled again
        return None


def write(name: str, program: Kept) -> None:
    """Keep a program under this name. Without permission to write, nothing is kept."""
    where = folder()
    try:
        if where is None or (secret := _made_secret(where)) is None:
            return
        head = json.dumps({"name": name, "made": description(program.made), "used": program.used})
        content = head.encode() + b"\n" + program.code
        write_whole(where / name, hmac.digest(secret, content, HASH) + content, private=True)
        kept = sorted(where.glob("[!.]*"), key=lambda path: path.stat().st_mtime)
        for old in kept[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
    except (OSError, TypeError):
        return


def _secret(where: Path) -> bytes | None:
    """The secret of this folder; None if there is none, or if it is no secret."""
    if not _is_private(where):
        return None
    try:
        held = (where / SECRET).lstat()
        if not stat.S_ISREG(held.st_mode) or held.st_uid != os.getuid() or held.st_mode & 0o077:
            _refuse(where / SECRET, "others may read it")
            return None
        return (where / SECRET).read_bytes()
    except OSError:
        return None


def _made_secret(where: Path) -> bytes | None:
    """The secret of this folder, both of which are made if they are missing."""
    where.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (where / SECRET).exists() and _is_private(where):
        handle, temporary = tempfile.mkstemp(prefix=".", dir=where)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(HASHED))
        try:
            os.link(temporary, where / SECRET)
        except FileExistsError:  # another process was faster
            pass
        finally:
            os.unlink(temporary)
    return _secret(where)


def _is_private(where: Path) -> bool:
    """Whether a folder is the user's own, and nobody else may write there."""
    held = where.lstat()
    if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.getuid():
        _refuse(where, "it belongs to somebody else, or is a link")
        return False
    if held.st_mode & 0o022:
        _refuse(where, "others may write there")
        return False
    if held.st_mode & 0o055:
        where.chmod(0o700)
    return True


@lru_cache
def _refuse(path: Path, why: str) -> None:
    """Warn, once, that compiled programs are neither read nor kept."""
    warn(f"{path}: {why}, so no compiled programs are taken from or kept there. Make it yours alone (chmod go-rwx)")


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

"""Programs kept on disk as they were traced, beside those that JAX keeps as compiled: a later process need not trace
them again, which takes longer than to sample.

A program is kept under a hash of all that it is made of: what its maker says of it, the shapes of its arguments, every
source file of the package, and the versions of the libraries. One whose maker cannot say so is never kept.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from jax import export

# Routines that may change from one jaxlib to the next; programs are only read by the one that wrote them.
UNSTABLE = [export.DisabledSafetyCheck.custom_call("lapack_dormqr_ffi")]
DIGEST = hashlib.sha256().digest_size
LIBRARIES = ("jax", "jaxlib", "numpyro", "optimistix", "equinox", "lineax", "interpax", "numpy")


def record(kind: type) -> type:
    """Class decorator: a NamedTuple that may be an argument or a result of a kept program."""
    return export.register_namedtuple_serialization(kind, serialized_name=f"bayesfit.{kind.__name__}")


def kept(function: jax.stages.Wrapped, identity: str | None, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """The jitted function as it was traced for arguments of these shapes, from disk where it is there; the function
    itself where nothing is kept: no identity, or no folder for JAX's compiled programs."""
    folder = jax.config.jax_compilation_cache_dir
    if identity is None or not folder:
        return function
    path = Path(folder) / "traced" / f"{_hash(identity, arguments)}.jax"
    try:
        exported = export.deserialize(_read(path))
    except Exception:  # it is not there, or not as it was written: it is made anew, whatever was wrong with it
        exported = export.export(function, disabled_checks=UNSTABLE)(*arguments)
        _write(path, exported.serialize())
    return exported.call


def _hash(identity: str, arguments: tuple[Any, ...]) -> str:
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
    return hashlib.sha256(repr((identity, str(structure), shapes, _makers())).encode()).hexdigest()


@lru_cache(maxsize=1)
def _makers() -> str:
    """The libraries' versions, the platform, and a hash of the package's own sources."""
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    root = Path(__file__).parent
    sources = sorted(path for folder in (root, root / "models") for path in folder.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return repr((versions, platform.machine(), jax.default_backend(), digest))


def _read(path: Path) -> bytearray:
    """What was written there.

    Raises:
        OSError: it cannot be read. ValueError: it is not what was written.
    """
    content = bytearray(path.read_bytes())
    digest, program = content[:DIGEST], content[DIGEST:]
    if hashlib.sha256(program).digest() != digest:
        raise ValueError("content and hash differ")
    return program


def _write(path: Path, program: bytearray) -> None:
    """Put a program in its place whole, behind its hash; a folder that cannot be written to keeps nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(program).digest() + program)
        os.replace(temporary, path)
    except OSError:
        return

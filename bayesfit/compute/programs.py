"""Compiled programs, kept on disk and moved between devices. Compiling takes longer than sampling, so it is done once
for all runs and all devices.

A program is kept under a hash of everything that it depends on: its identity as its maker states it, or else the text
of the traced program; the shapes of its arguments, every source file of the package, the versions of the libraries and
the processor. The files are in `bayesfit/programs` under XDG_CACHE_HOME (~/.cache by default), or in the folder that
BAYESFIT_CACHE names; if BAYESFIT_CACHE is empty, nothing is kept.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jaxtyping import PyTree

DIGEST = hashlib.sha256().digest_size
MOST_KEPT = 200  # files; the oldest are deleted first
LIBRARIES = ("jax", "jaxlib", "numpyro", "optimistix", "equinox", "lineax", "interpax", "numpy")


class Kept(NamedTuple):
    """A compiled program that can be loaded on any device: the structure of what it returns (`made`), and its
    `code`."""

    made: PyTree
    code: bytes


def folder() -> Path | None:
    """The folder in which programs are kept; None if they are not kept."""
    if (named := os.environ.get("BAYESFIT_CACHE")) is not None:
        return Path(named) if named else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayesfit" / "programs"


def key(identity: str, arguments: PyTree, options: Mapping[str, Any] | None) -> str:
    """The hash under which a program of this identity is kept, for arguments of these shapes."""
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
    return hashlib.sha256(repr((identity, str(structure), shapes, options, makers())).encode()).hexdigest()


@lru_cache(maxsize=1)
def makers() -> str:
    """The versions of the libraries, the machine, and a hash of the sources of this package."""
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    root = Path(__file__).parents[1]
    sources = sorted(path for folder in (root, *root.iterdir()) for path in folder.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return repr((versions, platform.machine(), _processor(), jax.default_backend(), digest))


def _processor() -> str:
    """The name of the processor and its instruction sets, as far as the system states them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return repr(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def read(name: str) -> Kept | None:
    """The program kept under this name; None if there is none, or if the file was damaged."""
    where = folder()
    try:
        content = b"" if where is None else (where / name).read_bytes()
        if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
            return None
        return Kept(*pickle.loads(content[DIGEST:]))
    except Exception:  # whatever is wrong with the file, the program is compiled again
        return None


def write(name: str, program: Kept) -> None:
    """Keep a program under this name, behind a hash of its content. It is written to a temporary file and then renamed,
    so that no other process reads half of it. Without permission to write, nothing is kept."""
    where = folder()
    if where is None:
        return
    content = pickle.dumps(tuple(program))
    try:
        where.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=where)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(temporary, where / name)
        for old in sorted(where.iterdir(), key=lambda path: path.stat().st_mtime)[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def pack(compiled: jax.stages.Compiled, made: PyTree) -> Kept | None:
    """A compiled program in a form that can be kept or moved; None if this version of JAX cannot do that."""
    if jax.config.jax_compilation_cache_dir:
        return None  # a program that JAX has read from its own cache cannot be serialised
    try:
        return Kept(made, serialize_executable.serialize(compiled)[0])
    except Exception:  # this part of JAX is experimental; if it fails, the program is compiled wherever it is needed
        return None


@lru_cache(maxsize=1)
def _link_linear_algebra() -> None:
    """Make JAX look up the addresses of LAPACK's routines, which it does when it lowers a call of one of them, but not
    when it loads a program that calls them."""
    jax.jit(jnp.linalg.cholesky).lower(jnp.eye(1))


def load(program: Kept, arguments: tuple[PyTree, ...], device: jax.Device) -> jax.stages.Compiled | None:
    """A kept program, loaded on a device, for arguments of the shapes that it was compiled for; None if this version of
    JAX cannot do that."""
    _link_linear_algebra()
    try:
        executable, shapes, only_positions = _Mover(program.code, device).load()
        inputs = jax.tree.unflatten(jax.tree.structure((arguments, {})), shapes)
        outputs = jax.tree.structure(program.made)
        return jax.stages.Compiled(executable.load(), [], inputs, outputs, no_kwargs=only_positions)
    except Exception:  # experimental, as in `pack`
        return None


class _Mover(pickle.Unpickler):
    """Reads what `serialize_executable.serialize` has written, and replaces the device that it was compiled for."""

    def __init__(self, code: bytes, device: jax.Device) -> None:
        super().__init__(io.BytesIO(code))
        self.device = device

    def persistent_load(self, pid: Any) -> Any:
        """The object that a reference in the pickle stands for: a device, its client, or an executable."""
        from jax._src.compiler import get_compile_options

        if pid[0] != "exec":
            return self.device if pid[0] == "device" else self.device.client
        options = get_compile_options(1, 1, device_assignment=np.array([[self.device.id]]))
        devices = jax.sharding.SingleDeviceSharding(self.device)._internal_device_list
        return self.device.client.deserialize_executable(pid[1], executable_devices=devices, compile_options=options)

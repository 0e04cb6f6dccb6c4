"""Compiled programs, kept on disk and moved between devices: to compile takes longer than to sample, and is done once
for all runs and all devices.

A program is kept under a hash of all that it is made of: what its maker says of it, or, where that is not known, its
text as it was traced; the shapes of its arguments, every source file of the package, the versions of the libraries and
the processor. They lie in `bayesfit/programs` under XDG_CACHE_HOME (~/.cache by default), or in the folder that
BAYESFIT_CACHE names; none is kept where that is empty.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import tempfile
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

DIGEST = hashlib.sha256().digest_size
MOST_KEPT = 200  # files; the oldest go first
LIBRARIES = ("jax", "jaxlib", "numpyro", "optimistix", "equinox", "lineax", "interpax", "numpy")


class Kept(NamedTuple):
    """A compiled program that may be loaded on any device: the shapes of what it returns, and its `code`."""

    made: Any
    code: bytes


def folder() -> Path | None:
    """Where programs are kept; None where they are not."""
    if (named := os.environ.get("BAYESFIT_CACHE")) is not None:
        return Path(named) if named else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayesfit" / "programs"


def key(identity: str, arguments: Any, options: Any) -> str:
    """The hash under which a program is kept, that is made of what `identity` says, for arguments of these shapes."""
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
    return hashlib.sha256(repr((identity, str(structure), shapes, options, _makers())).encode()).hexdigest()


@lru_cache(maxsize=1)
def _makers() -> str:
    """The libraries' versions, the machine, and a hash of the package's own sources."""
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    root = Path(__file__).parents[1]
    sources = sorted(path for folder in (root, *root.iterdir()) for path in folder.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return repr((versions, platform.machine(), _processor(), jax.default_backend(), digest))


def _processor() -> str:
    """The processor's name and abilities, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return repr(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def read(name: str) -> Kept | None:
    """The program kept under this name; None where there is none, or not as it was written."""
    where = folder()
    try:
        content = b"" if where is None else (where / name).read_bytes()
        if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
            return None
        return Kept(*pickle.loads(content[DIGEST:]))
    except Exception:  # whatever is wrong with it, it is made anew
        return None


def write(name: str, program: Kept) -> None:
    """Put a program in its place whole, behind its hash; a folder that cannot be written to keeps nothing."""
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


def pack(compiled: jax.stages.Compiled, made: Any) -> Kept | None:
    """A compiled program, ready to be kept or moved; None where this JAX cannot do that."""
    if jax.config.jax_compilation_cache_dir:
        return None  # what JAX has read from its own cache cannot be written again
    try:
        return Kept(made, serialize_executable.serialize(compiled)[0])
    except Exception:  # what is asked of JAX here is experimental; the program is then compiled wherever it is needed
        return None


@lru_cache(maxsize=1)
def _link_linear_algebra() -> None:
    """JAX looks for the addresses of LAPACK's routines when it lowers a call of one, not when it loads a program."""
    jax.jit(jnp.linalg.cholesky).lower(jnp.eye(1))


def load(program: Kept, arguments: tuple[Any, ...], device: jax.Device) -> jax.stages.Compiled | None:
    """A kept program as it runs on a device, for arguments of the shapes that it was made for; None where this JAX
    cannot do that."""
    _link_linear_algebra()
    try:
        executable, shapes, only_positions = _Mover(program.code, device).load()
        inputs = jax.tree.unflatten(jax.tree.structure((arguments, {})), shapes)
        outputs = jax.tree.structure(program.made)
        return jax.stages.Compiled(executable.load(), [], inputs, outputs, no_kwargs=only_positions)
    except Exception:  # as above
        return None


class _Mover(pickle.Unpickler):
    """Reads what `serialize_executable.serialize` wrote, with one device in the place of the one it was made for."""

    def __init__(self, code: bytes, device: jax.Device) -> None:
        super().__init__(io.BytesIO(code))
        self.device = device

    def persistent_load(self, pid: Any) -> Any:
        """What stands for a device, its client or its executable."""
        from jax._src.compiler import get_compile_options

        if pid[0] != "exec":
            return self.device if pid[0] == "device" else self.device.client
        options = get_compile_options(1, 1, device_assignment=np.array([[self.device.id]]))
        devices = jax.sharding.SingleDeviceSharding(self.device)._internal_device_list
        return self.device.client.deserialize_executable(pid[1], executable_devices=devices, compile_options=options)

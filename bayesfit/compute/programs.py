"""Compiled programs, kept on disk and moved between devices. Compiling takes longer than sampling, so it is done once
for all runs and all devices.

A program is kept under a hash of everything that it depends on: its identity as its maker states it, or else the text
of the traced program; the shapes of its arguments, every source file of the package, the versions of the libraries and
the processor. The files (`compute/program_files.py`) are in `bayesfit/programs` under XDG_CACHE_HOME (~/.cache by
default), or where `set_cache` says.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from bayesfit.compute.program_files import Kept

LIBRARIES = ("jax", "jaxlib", "numpyro", "optimistix", "equinox", "lineax", "interpax", "numpy")


def key(identity: str, arguments: PyTree, options: Mapping[str, Any] | None) -> str:
    """The hash under which a program of this identity is kept, for arguments of these shapes."""
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
    return hashlib.sha256(repr((identity, str(structure), shapes, options, makers())).encode()).hexdigest()


@lru_cache(maxsize=1)
def makers() -> str:
    """The versions of the libraries, the machine, and a hash of the sources of this package."""
    root = Path(__file__).parents[1]
    sources = sorted(path for folder in (root, *root.iterdir()) for path in folder.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return repr((machine(), digest))


@lru_cache(maxsize=1)
def machine() -> str:
    """The versions of the libraries, and the machine."""
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    return repr((versions, platform.machine(), _processor(), jax.default_backend()))


def _processor() -> str:
    """The name of the processor and its instruction sets, as far as the system states them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return repr(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def pack(compiled: jax.stages.Compiled, made: PyTree) -> Kept | None:
    """A compiled program in a form that can be kept or moved; None if this version of JAX cannot do that."""
    if jax.config.jax_compilation_cache_dir:
        return None  # a program that JAX has read from its own cache cannot be serialised
    try:
        loaded: Any = compiled._executable
        unloaded = loaded._unloaded_executable
        if compiled._params.const_args or unloaded.mut or unloaded.host_callbacks or unloaded.ordered_effects:
            return None
        executable = unloaded.xla_executable
        return Kept(made, tuple(sorted(unloaded.kept_var_idx)), executable.client.serialize_executable(executable))
    except (
        Exception
    ):  # this part of JAX is its own affair; if it changes, programs are compiled wherever they are needed
        return None


def load(program: Kept, arguments: tuple[PyTree, ...], device: jax.Device) -> jax.stages.Compiled | None:
    """A kept program, loaded on a device, for arguments of the shapes that it was compiled for; None if this version of
    JAX cannot do that."""
    try:
        return _loaded(program, arguments, device)
    except Exception:  # as in `pack`
        return None


def _loaded(program: Kept, arguments: tuple[PyTree, ...], device: jax.Device) -> jax.stages.Compiled:
    from jax._src.compiler import get_compile_options
    from jax._src.core import ShapedArray
    from jax._src.interpreters.pxla import UnloadedMeshExecutable
    from jax._src.stages import ArgInfo
    from jaxlib.lapack import prepare_lapack_call

    prepare_lapack_call("potrf_ffi", np.float64)  # as lowering does: JAX looks up the addresses of LAPACK's routines
    sharding = jax.sharding.SingleDeviceSharding(device)
    devices = sharding._internal_device_list
    options = get_compile_options(1, 1, device_assignment=np.array([[device.id]]))
    code = device.client.deserialize_executable(program.code, executable_devices=devices, compile_options=options)
    leaves, structure = jax.tree.flatten((arguments, {}))
    given = [ShapedArray(leaf.shape, leaf.dtype) for leaf in leaves]
    made, returned = jax.tree.flatten(program.made)
    inputs, outputs = len(program.used), len(made)
    executable = UnloadedMeshExecutable(
        xla_executable=code,
        device_list=devices,
        backend=device.client,
        input_avals=[given[place] for place in program.used],
        input_shardings=[sharding] * inputs,
        output_avals=[ShapedArray(leaf.shape, leaf.dtype) for leaf in made],
        output_shardings=[sharding] * outputs,
        committed=True,
        name="bayesfit",
        unordered_effects=[],
        ordered_effects=[],
        keepalive=[],
        host_callbacks=[],
        kept_var_idx=set(program.used),
        mut=None,
        xla_in_layouts=[None] * inputs,
        dispatch_in_layouts=[None] * inputs,
        xla_out_layouts=[None] * outputs,
        all_args_info=None,
        pgle_profiler=None,
    )
    info = jax.tree.unflatten(structure, [ArgInfo(aval, False) for aval in given])
    return jax.stages.Compiled(executable.load(), [], info, returned)

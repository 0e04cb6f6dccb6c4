"""Runs a function that is written for one item over many items, with a fixed number of them at a time on each device.

The bits that XLA computes depend on the compiled width, but not on what else is computed. So the width is a constant:
short batches are filled up with copies of their first item, and every device runs the same program. Data that are laid
out over the devices are a list with one part per device.

Tracing happens in the caller's thread and under one lock, since NumPyro keeps its handlers in a global variable.
Compilation runs in the background, once for all devices.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PyTree
from numpyro import validation_enabled  # from its own module, after ArviZ, numpyro.distributions would load twice

from bayesfit.compute.hardware import cores, workers
from bayesfit.compute.memory_maps import PROGRAMS, ROOM
from bayesfit.compute.patience import patiently, small_program
from bayesfit.compute.program_files import Kept, read, write
from bayesfit.compute.programs import key, load, pack
from bayesfit.compute.workers import side_by_side

Parts = list[PyTree]
CPU_OPTIONS = {"xla_backend_optimization_level": 1}  # compiles in two thirds of the time, and runs as fast (measured)
TRACING = threading.RLock()
WHOLE = threading.Lock()  # so that two threads make one program
COMPILING = ThreadPoolExecutor(max(2, cores()))  # not more at a time, so that what is needed first is ready first
LOADING = ThreadPoolExecutor(256)


class Spread:
    """A compiled function that takes and returns parts laid out over the devices. It is applied to each item along the
    leading axis of its arguments if `each`, and else to its arguments as they are.

    `identity` says in words what the function is made of, apart from the files of this package; None if that cannot be
    said.
    """

    def __init__(self, function: Callable[..., Any], identity: str | None = None, each: bool = True) -> None:
        self.jitted: Any = jax.jit(jax.vmap(function)) if each else jax.jit(function, keep_unused=True)
        self.identity = identity
        self.options = CPU_OPTIONS if jax.default_backend() == "cpu" else None
        self.programs: dict[Any, Future[Any]] = {}  # by the shapes of the arguments and the device
        self.made: dict[Any, Any] = {}
        self.used = 0.0  # when it was last called, by the clock that only grows
        PROGRAMS.add(self)

    def start(self, *arguments: Parts) -> Spread:
        """Begin to compile for arguments of these shapes, on the devices that hold them; returns at once."""
        self._started(list(zip(*arguments, strict=True)))
        return self

    def _started(self, shares: list[Any]) -> list[Future[Any]]:
        """The program for each of these shares, compiled or being compiled."""
        programs, self.used = self.programs, time.monotonic()
        wanted = [(_signature(share), _device(share)) for share in shares]
        if any(one not in programs for one in wanted):
            with TRACING:
                if any(one not in programs for one in wanted):
                    self._begin(_signature(shares[0]), shares, programs)
        return [programs[one] for one in wanted]

    def compiled(self, *share: PyTree) -> Callable[..., PyTree]:
        """The program for one device's share of the arguments, on the device that holds it."""
        return self._started([share])[0].result()

    def shapes(self, *arguments: Parts) -> PyTree:
        """Shapes and types of what one device returns for its share of these arguments; only after `start`."""
        return self.made[_signature(next(zip(*arguments, strict=True)))]

    def __call__(self, *arguments: Parts) -> Parts:
        """The value of the function for these arguments, part by part."""
        shares = list(zip(*arguments, strict=True))
        programs = [program.result() for program in self._started(shares)]
        calls = [partial(program, *share) for program, share in zip(programs, shares, strict=True)]
        return [call() for call in calls] if len(set(map(_device, shares))) == len(shares) else side_by_side(calls)

    def _begin(self, signature: Any, shares: list[Any], programs: dict[Any, Future[Any]]) -> None:
        """For the first device, read the program from disk, or else trace it here and compile it; then load it on the
        other devices."""
        if ROOM.is_scarce():
            ROOM.make(self)
        lowered: Any = None
        if self.identity is None:
            lowered, made = self._lower(shares[0])
        name = key(self.identity or lowered.as_text(), shares[0], self.options)
        found = read(name)
        if found is None and lowered is None:
            lowered, made = self._lower(shares[0])
        self.made[signature] = found.made if found is not None else made
        first = COMPILING.submit(self._first, shares[0], self.made[signature], name, found, lowered)
        for share in shares:
            programs[signature, _device(share)] = LOADING.submit(self._on, share, first)

    def give_back(self) -> None:
        """Let go of all programs. Where they are needed again, they are read from disk."""
        self.programs = {}  # who is about to call one of them has the former table
        self.jitted.clear_cache()  # which holds what was compiled here

    def _lower(self, share: Any) -> tuple[Any, Any]:
        """The program lowered for a share, and the shapes of what it returns."""
        with TRACING, validation_enabled(False), jax.default_device(_device(share)):
            traced = self.jitted.trace(*share)
            return traced.lower(), traced.out_info

    def _first(self, share: Any, made: Any, name: str, found: Kept | None, lowered: Any) -> tuple[Any, Kept | None]:
        """The program on the first device, and in the form in which it is kept; `None` if it cannot be kept."""
        loaded = None if found is None else load(found, share, _device(share))
        if loaded is not None:
            return loaded, found
        compiled = self._compiled(share, lowered)
        if (packed := pack(compiled, made)) is not None:
            write(name, packed)
        return compiled, packed

    def _on(self, share: Any, first: Future[Any]) -> Any:
        """The program on the device that holds a share."""
        compiled, packed = patiently(first, _wake)
        if _device(share) in next(iter(jax.tree.leaves(compiled.input_shardings))).device_set:
            return compiled
        moved = None if packed is None else load(packed, share, _device(share))
        return self._compiled(share) if moved is None else moved

    def _compiled(self, share: Any, lowered: Any = None) -> Any:
        if lowered is None:
            with jax.enable_x64(True):
                lowered, _ = self._lower(share)
        return lowered.compile(self.options)


def _wake() -> None:
    """Wake the compiler by a small program."""
    with TRACING:
        lowered = small_program()
    lowered.compile()


def on_one_device(
    function: Callable[..., PyTree], *arguments: PyTree, static: tuple[Any, ...] = (), identity: str | None = None
) -> PyTree:
    """The value of a function of `arguments`, which are pytrees of arrays, and of `static` values after them.

    It is compiled once for each structure of the arguments and each choice of the static values, and kept on disk.
    `identity` says in words what the arguments hold besides arrays; None if that cannot be said.
    """
    whole, parts = _program_and_parts(function, arguments, static, identity)
    return whole.compiled(*parts)(*parts)


def start_on_one_device(
    function: Callable[..., PyTree], *arguments: PyTree, static: tuple[Any, ...] = (), identity: str | None = None
) -> None:
    """Begin to compile what `on_one_device` calls for arguments of these shapes; returns at once."""
    whole, parts = _program_and_parts(function, arguments, static, identity)
    whole.start(*([part] for part in parts))


def program_for(
    function: Callable[..., PyTree], *arguments: PyTree, static: tuple[Any, ...] = (), identity: str | None = None
) -> Callable[..., PyTree]:
    """The compiled program that `on_one_device` calls for arguments of these shapes, as a function of the last one, an
    array; the others stay as they are."""
    whole, parts = _program_and_parts(function, arguments, static, identity)
    program, others = whole.compiled(*parts), jax.device_put(parts[:-1], _device(parts))
    return lambda given: program(*others, given if isinstance(given, jax.Array) else _given(np.array(given)))


def _program_and_parts(
    function: Callable[..., PyTree], arguments: tuple[PyTree, ...], static: tuple[Any, ...], identity: str | None
) -> tuple[Spread, Parts]:
    found, structure = jax.tree_util.tree_flatten_with_path(arguments)
    leaves = [leaf for _, leaf in found]
    if identity is not None:  # programs are kept without their arguments' names
        identity = f"{identity} {[jax.tree_util.keystr(path) for path, _ in found]}"
    with WHOLE:
        return _whole(function, structure, static, identity), _given([np.array(leaf) for leaf in leaves])


@lru_cache(maxsize=64)
def _whole(function: Callable[..., Any], structure: Any, static: tuple[Any, ...], identity: str | None) -> Spread:
    def flat(*leaves: Any) -> Any:
        return function(*jax.tree.unflatten(structure, leaves), *static)

    return Spread(flat, named(f"{function.__module__} {function.__qualname__} {static}", identity), each=False)


def named(role: str, identity: str | None) -> str | None:
    """The identity of a program with this role, made of something with this identity."""
    return None if identity is None else f"{role}: {identity}"


def _device(share: Any) -> jax.Device:
    """The device of a share: the first, if it is where NumPy has it."""
    leaf = jax.tree.leaves(share)[0]
    (device,) = jax.local_devices()[:1] if isinstance(leaf, np.ndarray) else leaf.devices()
    return device


def _signature(share: Any) -> Any:
    """What a compiled program depends on: the structure of its arguments, with shape and type of every array."""
    leaves, structure = jax.tree.flatten(share)
    return structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def place(tree: PyTree, count: int | None = None) -> Parts:
    """Copies of arrays, divided along their leading axis over all workers, or over the first `count` of them.

    Without the copy, a device that shares the host's memory would see what the host writes there later.
    """
    return [jax.device_put(part, device) for part, device in _divided(tree, count)]


def give(tree: PyTree, count: int | None = None) -> Parts:
    """As `place` does, for a program to which they are given once."""
    return [_given(part, device) for part, device in _divided(tree, count)]


def _divided(tree: PyTree, count: int | None) -> list[tuple[PyTree, jax.Device]]:
    """Copies of each worker's part of arrays, and its device."""
    devices = workers()[:count]

    def share(array: Any, part: int) -> Any:
        width = len(array) // len(devices)
        return np.array(array[part * width : (part + 1) * width])

    parts = [jax.tree.map(lambda array, part=part: share(array, part), tree) for part in range(len(devices))]
    return list(zip(parts, devices, strict=True))


def _given(part: PyTree, device: jax.Device | None = None) -> PyTree:
    """NumPy arrays for a program on a device, by default the first, which takes them ten times as fast as they are put
    there (measured)."""
    first = jax.local_devices()[0]
    as_they_are = device in (None, first) and jax.config.jax_enable_x64  # else numbers may become shorter
    return part if as_they_are else jax.device_put(part, device or first)


def gather(parts: Parts) -> PyTree:
    """The parts joined along the leading axis, as NumPy arrays; waits for the devices."""
    return jax.tree.map(lambda *arrays: np.concatenate([np.asarray(array) for array in arrays]), *parts)


def take(tree: PyTree, index: Int[np.ndarray, " chosen"]) -> PyTree:
    """The items at these indices of the leading axis of every array."""
    return jax.tree.map(lambda array: np.asarray(array)[index], tree)

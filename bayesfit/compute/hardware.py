"""What is computed on: processor or GPU and how much memory, which is chosen before JAX starts, and how many programs
run side by side.

A CPU runs the programs that one thread sends to it one after the other, and those of several threads side by side. So
where JAX has left the processor one device, as it does unless told otherwise, each core is a worker, with a thread of
its own (`compute/workers.py`). All workers of a device run the same compiled program, which is loaded once.
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

import jax

from bayesfit.compute.errors import warn

MEMORY = "XLA_CLIENT_MEM_FRACTION"  # read by JAX when it starts
MEMORY_ONCE = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # its former name; JAX refuses to be given both
CPU_LANES, GPU_LANES = 64, 8192  # a lane of 1,024 delays takes some 100 KiB
CPU_LANES_TOGETHER = 8  # as fast for each as 16, and less to do where few are busy; 64 take half as long again
NO_GPU = "device gpu: JAX finds no GPU, so this is computed on the CPU. Is jax installed with CUDA or ROCm?"


class Hardware(NamedTuple):
    """What to compute on: `device` "auto" (a GPU if JAX finds one), "cpu" or "gpu"; the share of a GPU's memory that is
    taken, None leaves it to JAX; and how many programs run side by side on the processor, by default one a core."""

    device: str = "auto"
    memory_fraction: float | None = None
    cpu_devices: int | None = None


def start_jax(wanted: Hardware) -> None:
    """Start JAX on the wanted hardware. Where there is no GPU, or JAX runs already on something else, it warns and
    computes on what there is."""
    running = runs_already()
    if wanted.memory_fraction is not None:
        os.environ.pop(MEMORY_ONCE, None)
        os.environ[MEMORY] = str(wanted.memory_fraction)
        if running:
            warn(f"memory fraction {wanted.memory_fraction}: JAX runs already, and keeps the memory that it has")
    if wanted.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if wanted.device == "gpu" and not has_gpu():
        warn(NO_GPU)
        jax.config.update("jax_platforms", "cpu")
    devices = jax.local_devices()
    if wanted.device == "cpu" and devices[0].platform != "cpu":
        warn(f"device cpu: JAX runs already, on {devices[0].device_kind}")
    if len(devices) > 1 and devices[0].platform == "cpu" and wanted.cpu_devices not in (None, len(devices)):
        warn(f"--cpu-devices {wanted.cpu_devices}: JAX runs already, with {len(devices)}")
    _CHOSEN["workers"] = wanted.cpu_devices


_CHOSEN: dict[str, int | None] = {"workers": None}


def workers() -> list[jax.Device]:
    """The device of each worker: all local ones; or a processor of one device as often as was chosen."""
    devices = jax.local_devices()
    if len(devices) > 1 or devices[0].platform != "cpu":
        return devices
    return devices * (_CHOSEN["workers"] or _cores_at_first())


def lanes_per_device() -> int:
    """How many chains one device is given at a time: a GPU works on thousands in the time of one."""
    return CPU_LANES if _on_cpu() else GPU_LANES


def lanes_together() -> int:
    """How many of them a device moves together. Bits depend on it, so that it depends on the kind of device alone:
    of a few chains a core has all at hand, and it need not work for many places of which few are busy."""
    return CPU_LANES_TOGETHER if _on_cpu() else GPU_LANES


def _on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


@cache
def _cores_at_first() -> int:
    """The number of cores that this process might use when it was first asked; batches are divided by it."""
    return cores()


def runs_already() -> bool:
    """Whether JAX has started."""
    before = jax.config.jax_num_cpu_devices
    try:
        for count in (max(before, 1) + 1, before):  # JAX refuses a change, once it has started
            jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        return True
    return False


def has_gpu() -> bool:
    """Whether JAX finds a GPU. Starts JAX."""
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

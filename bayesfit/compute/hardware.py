"""What JAX computes on, which is chosen before it starts: processor or GPU, how many devices, how much memory."""

from __future__ import annotations

import os
from typing import NamedTuple

import jax

from bayesfit.compute.errors import warn

MEMORY = "XLA_CLIENT_MEM_FRACTION"  # read by JAX when it starts
MEMORY_ONCE = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # its former name; JAX refuses to be given both
NO_GPU = "device gpu: JAX finds no GPU, so this is computed on the CPU. Is jax installed with CUDA or ROCm?"


class Hardware(NamedTuple):
    """What to compute on: `device` "auto" (a GPU if JAX finds one), "cpu" or "gpu"; the share of a GPU's memory that is
    taken, and into how many devices the processor is divided. None leaves the former to JAX, and the latter is then the
    number of cores."""

    device: str = "auto"
    memory_fraction: float | None = None
    cpu_devices: int | None = None


def start_jax(wanted: Hardware) -> None:
    """Start JAX on the wanted hardware. Where there is no GPU, or JAX runs already on something else, it warns and
    computes on what there is."""
    running = runs_already(wanted.cpu_devices or cores())
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
    if devices[0].platform == "cpu" and wanted.cpu_devices not in (None, len(devices)):
        warn(f"--cpu-devices {wanted.cpu_devices}: JAX runs already, with {len(devices)}")


def runs_already(cpu_devices: int) -> bool:
    """Whether JAX has started; if it has not, it will divide the processor into this many devices."""
    try:
        for count in (cpu_devices + 1, cpu_devices):  # JAX refuses a change alone
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

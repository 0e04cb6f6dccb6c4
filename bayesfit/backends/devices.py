"""On which device JAX computes: the one that `set_device` has chosen, else the one that BAYESFIT_DEVICE names, with the
share of a GPU's memory of BAYESFIT_MEMORY_FRACTION; else JAX's own choice. One choice for all threads."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple

from bayesfit.compute.errors import SettingsError, nearest

DEVICE, MEMORY_FRACTION = "BAYESFIT_DEVICE", "BAYESFIT_MEMORY_FRACTION"
AUTO, CPU, GPU = NAMES = "auto", "cpu", "gpu"


class Device(NamedTuple):
    """A device that JAX finds: its name, as "cpu:0", what it is, and the memory that JAX may take of it [bytes], None
    where JAX does not say."""

    name: str
    kind: str
    memory: int | None


class DeviceManager:
    """One choice for all threads; JAX is started accordingly when an array is first made."""

    def __init__(self) -> None:
        self._lock, self._known = threading.RLock(), False
        self._device: Any = None

    def choose(self, device: str, memory_fraction: float | None, cpu_devices: int | None) -> Any:
        """Start JAX on this device, where it does not run yet; what arrays are placed on, None for JAX's own choice."""
        from bayesfit.compute.hardware import Hardware, start_jax

        _check(device, memory_fraction)
        with self._lock:
            start_jax(Hardware(device, memory_fraction, cpu_devices))
            self._device, self._known = _found(device), True
            return self._device

    def current(self) -> Any:
        """What was chosen, or what the environment names."""
        with self._lock:
            device, fraction = os.environ.get(DEVICE) or AUTO, os.environ.get(MEMORY_FRACTION)
            if not self._known and (device != AUTO or fraction):
                self.choose(device, _number(fraction) if fraction else None, None)
            self._known = True
            return self._device

    def reset(self) -> None:
        """Forget what was chosen."""
        with self._lock:
            self._known, self._device = False, None


_MANAGER = DeviceManager()


def set_device(device: str = AUTO, *, memory_fraction: float | None = None, cpu_devices: int | None = None) -> Device:
    """Choose what JAX computes on in this process, for all threads, until `reset_device`; returns the device.

    Before JAX starts, that is, before anything else has computed with it, the choice holds for all of bayesfit.
    Afterwards it holds for the backend "jax" alone, and the memory can no longer be chosen.

    Args:
        device: "cpu", "gpu", or "auto", a GPU if there is one. If there is no GPU, it warns and takes the CPU.
        memory_fraction: the share of a GPU's memory that JAX takes when it starts, above 0, at most 1.
        cpu_devices: how many programs run side by side on the processor; by default one a core.

    Raises:
        SettingsError: there is no such device, or a number is impossible.

    Example:
        >>> import bayesfit
        >>> bayesfit.set_device("cpu", cpu_devices=2).name
        'cpu:0'
        >>> bayesfit.reset_device()
    """
    import jax

    found = _MANAGER.choose(device, memory_fraction, cpu_devices)
    return _described(jax.local_devices()[0] if found is None else found)


def get_device() -> Any:
    """The `jax.Device` on which the backend "jax" places arrays, None where that is left to JAX.

    Raises:
        SettingsError: BAYESFIT_DEVICE or BAYESFIT_MEMORY_FRACTION is none.
    """
    return _MANAGER.current()


def reset_device() -> None:
    """Forget what `set_device` has chosen; what JAX runs on already stays."""
    _MANAGER.reset()


def list_devices() -> tuple[Device, ...]:
    """All devices that JAX finds, those of the processor last. Starts JAX."""
    import jax

    _MANAGER.current()
    accelerators = [each for each in jax.local_devices() if each.platform != CPU]
    return tuple(map(_described, [*accelerators, *jax.local_devices(backend=CPU)]))


def _found(device: str) -> Any:
    """The JAX device of this name, that of the processor where there is no GPU; None for JAX's own choice."""
    import jax

    from bayesfit.compute.hardware import has_gpu

    if device == AUTO:
        return None
    return jax.local_devices(backend=GPU if device == GPU and has_gpu() else CPU)[0]


def _described(device: Any) -> Device:
    limit = (device.memory_stats() or {}).get("bytes_limit") if device.platform != CPU else None
    return Device(f"{device.platform}:{device.id}", device.device_kind, limit)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"got {text!r}, expected a number", field=MEMORY_FRACTION) from None


def _check(device: Any, memory_fraction: float | None) -> None:
    if device not in NAMES:
        raise SettingsError(f"there is no device {device!r}", field="device", remedy=nearest(str(device), NAMES))
    if memory_fraction is not None and not 0 < memory_fraction <= 1:
        problem = f"got {memory_fraction!r}"
        raise SettingsError(problem, field="memory_fraction", remedy="It is above 0, and at most 1")

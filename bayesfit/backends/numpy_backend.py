"""NumPy as a backend: nothing is compiled, and there are no gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import array_api_compat.numpy
import numpy as np

from bayesfit.compute.errors import SettingsError


class NumPyBackend:
    """Runs anywhere; what the others are compared with."""

    name = "numpy"
    xp: ModuleType = array_api_compat.numpy
    supports_grad = False
    supports_jit = False
    supports_gpu = False

    def asarray(self, value: Any) -> Any:
        """A NumPy array, float64 where `value` is of numbers that are no integers."""
        array = np.asarray(value)
        return array.astype(float) if np.issubdtype(array.dtype, np.floating) else array

    def jit[F: Callable[..., Any]](self, function: F, static: tuple[str, ...] = ()) -> F:
        """The function as it is."""
        return function

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Refused.

        Raises:
            SettingsError: always.
        """
        raise SettingsError("NumPy has no gradients", field="backend", remedy="Choose the backend 'jax'")

"""JAX as a backend: compiled, differentiated, on a GPU where there is one, always in double precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from bayesfit.backends.devices import get_device


class JAXBackend:
    """Leaves the caller's configuration of JAX as it is: double precision is on only within its functions."""

    name = "jax"
    xp: ModuleType = jnp  # of the array API itself; asking array_api_compat takes an array, which would start JAX
    supports_grad = True
    supports_jit = True
    supports_gpu = True

    def asarray(self, value: Any) -> Any:
        """A JAX array, float64 where `value` is of numbers that are no integers."""
        array = np.asarray(value)
        with jax.enable_x64(True):
            made = array.astype(float) if np.issubdtype(array.dtype, np.floating) else array
            return jnp.asarray(made, device=get_device())

    def jit[F: Callable[..., Any]](self, function: F, static: tuple[str, ...] = ()) -> F:
        """The function compiled for each shape of its arguments, and each value of those that are static."""
        return cast(F, _in_double(jax.jit(function, static_argnames=static)))

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The gradient with respect to the first argument."""
        return _in_double(jax.grad(function))


def _in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in double precision."""

    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        with jax.enable_x64(True):
            return function(*arguments, **named)

    return run

"""What code that is written once asks of the library that runs it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class BackendProtocol(Protocol):
    """A library of arrays: its `name`, its namespace `xp` of the Python array API, and what it can do.

    Arrays are of double precision, whatever the library's own default.
    """

    name: str
    xp: ModuleType
    supports_grad: bool
    supports_jit: bool
    supports_gpu: bool

    def __hash__(self) -> int:
        """Backends are one object each, so that what is compiled for one can be found again."""

    def asarray(self, value: Any) -> Any:
        """An array of this library, float64 where `value` is of numbers that are no integers."""

    def jit[F: Callable[..., Any]](self, function: F, static: tuple[str, ...] = ()) -> F:
        """The function compiled, where the library can; arguments named `static` are part of the program."""

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The gradient of a scalar function with respect to its first argument.

        Raises:
            SettingsError: this library has no gradients.
        """

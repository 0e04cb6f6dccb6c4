"""Which backend runs: the one an argument names, else that of the innermost `use_backend`, else that of `set_backend`,
else that which BAYESFIT_BACKEND names, else JAX where it is installed and NumPy where it is not."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from bayesfit.backends.protocol import BackendProtocol
from bayesfit.compute.errors import SettingsError, nearest

VARIABLE = "BAYESFIT_BACKEND"
AUTO, NUMPY, JAX = NAMES = "auto", "numpy", "jax"

_LOCK = threading.Lock()
_MADE: dict[str, BackendProtocol] = {}
_SET: list[str] = []  # by `set_backend`; empty or one name, for all threads
_WITHIN: ContextVar[str | None] = ContextVar("backend", default=None)


def get_backend(name: str | None = None, auto: str = AUTO) -> BackendProtocol:
    """The backend of this name, "numpy", "jax" or "auto"; by default the one that was chosen. Where that is "auto", it
    is JAX if that is installed, else NumPy; or the one named by `auto`, for work that another does better.

    Raises:
        SettingsError: there is no such backend. ImportError: JAX is asked for, and is not installed.

    Example:
        >>> import bayesfit
        >>> bayesfit.get_backend("numpy").supports_grad
        False
    """
    chosen = _checked(name or _chosen())
    found = _resolved(auto if chosen == AUTO else chosen)
    with _LOCK:
        if found not in _MADE:
            _MADE[found] = _made(found)
        return _MADE[found]


def set_backend(name: str) -> None:
    """Choose the backend of this process, for all threads, until `reset_backend`.

    Raises:
        SettingsError: there is no such backend. ImportError: JAX is asked for, and is not installed.
    """
    get_backend(name)
    _SET[:] = [name]


def reset_backend() -> None:
    """Forget what `set_backend` has chosen."""
    _SET.clear()


@contextmanager
def use_backend(name: str) -> Iterator[BackendProtocol]:
    """Choose a backend for what is called within, in this thread alone.

    Raises:
        SettingsError: there is no such backend. ImportError: JAX is asked for, and is not installed.

    Example:
        >>> import bayesfit
        >>> with bayesfit.use_backend("numpy") as backend:
        ...     print(bayesfit.get_backend().name)
        numpy
    """
    backend = get_backend(name)
    token = _WITHIN.set(name)
    try:
        yield backend
    finally:
        _WITHIN.reset(token)


def _chosen() -> str:
    return _WITHIN.get() or next(iter(_SET), None) or os.environ.get(VARIABLE) or AUTO


def _checked(name: str) -> str:
    if name not in NAMES:
        raise SettingsError(f"there is no backend {name!r}", field="backend", remedy=nearest(name, NAMES))
    return name


def _resolved(name: str) -> str:
    """A name other than "auto"."""
    has_jax = importlib.util.find_spec("jax") is not None
    if name == JAX and not has_jax:
        raise ImportError("the backend 'jax' needs JAX, which is not installed: pip install jax, or choose 'numpy'")
    return name if name != AUTO else JAX if has_jax else NUMPY


def _made(name: str) -> BackendProtocol:
    if name == NUMPY:
        from bayesfit.backends.numpy_backend import NumPyBackend

        return NumPyBackend()
    from bayesfit.backends.jax_backend import JAXBackend

    return JAXBackend()

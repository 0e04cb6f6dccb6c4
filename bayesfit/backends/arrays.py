"""The border between a backend's arrays and everything that takes NumPy's: files, pictures, xarray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj


def ensure_numpy(value: Any) -> Any:
    """The value with every array of any library as a writable copy in NumPy, also within tables, lists, tuples and
    named tuples; all else as it is.

    Example:
        >>> import bayesfit, jax.numpy as jnp
        >>> bayesfit.ensure_numpy({"q": [jnp.arange(2)]})
        {'q': [array([0, 1], dtype=int32)]}
    """
    if isinstance(value, Mapping):
        return {name: ensure_numpy(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(ensure_numpy, value))
    if isinstance(value, list | tuple):
        return type(value)(map(ensure_numpy, value))
    if isinstance(value, np.generic) or not is_array_api_obj(value):
        return value
    return np.array(value, subok=isinstance(value, np.ma.MaskedArray))  # a mask is kept

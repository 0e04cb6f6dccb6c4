"""Calls a function that makes models or laws with the options that a user gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from bayesfit.compute.errors import SettingsError, nearest


def call(make: Callable[..., Any], options: Mapping[str, Any], field: str, remedy: str) -> Any:
    """What `make(**options)` returns. `remedy` is what to do about a missing option, `{option}` standing for its name.

    Raises:
        SettingsError: `make` has no such option, or needs one that is not given.
    """
    takes = signature(make).parameters
    for option in options:
        if option not in takes:
            raise SettingsError(f"has no option {option!r}", field=field, remedy=nearest(option, takes))
    for option, parameter in takes.items():
        if parameter.default is parameter.empty and option not in options:
            raise SettingsError(f"needs the option {option!r}", field=field, remedy=remedy.format(option=option))
    return make(**options)


def plain(value: Any) -> Any:
    """A value as lists, mappings, numbers and text, which JSON can hold."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value if isinstance(value, str | int | float) or value is None else str(value)


def without_folders(value: Any) -> Any:
    """A plain value in which the name of a file stands instead of each absolute path, for results that others read."""
    if isinstance(value, Mapping):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value

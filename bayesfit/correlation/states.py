"""The state of a series that is being correlated, as arrays by name, so that it can be kept and gone on with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

Arrays = dict[str, np.ndarray]


def within(states: Iterable[Arrays], name: str = "") -> Arrays:
    """The states of several parts as one, by names that begin with `name` and the number of the part."""
    return {f"{name}{number}.{key}": array for number, state in enumerate(states) for key, array in state.items()}


def parts(state: Arrays, name: str = "") -> list[Arrays]:
    """The states of the parts that were put together under this name."""
    found: dict[int, Arrays] = {}
    for key, array in state.items():
        number, _, rest = key.removeprefix(name).partition(".")
        if key.startswith(name) and number.isdigit():
            found.setdefault(int(number), {})[rest] = array
    return [found[number] for number in sorted(found)]

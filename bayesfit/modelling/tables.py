"""Tables of two columns as users give them: arrays, a text file, or what a result says of one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from bayesfit.compute.errors import InputError
from bayesfit.modelling.file_checks import readable


@dataclass(frozen=True, eq=False)
class Table:
    """A function at some points: `x`, in rising order, and its `values`. `file` and the `sha256` of its content say
    where they come from, and are "" where that is no file."""

    x: Float[np.ndarray, " point"]
    values: Float[np.ndarray, " point"]
    file: str = ""
    sha256: str = ""

    @property
    def plain(self) -> dict[str, Any]:
        """The table as lists and text, which JSON can hold and `read_table` takes; of its file the name alone."""
        return {"x": self.x.tolist(), "values": self.values.tolist(), "file": self.name, "sha256": self.sha256}

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return Path(self.file).name


def read_table(given: Any, field: str = "table", columns: tuple[str, str] = ("x", "value"), least: int = 4) -> Table:
    """A table of a function of a positive variable, its rows in the order of that variable.

    Args:
        given: two sequences of numbers; or the path of a text file of two columns, separated by commas or blanks, with
            or without a header, with `#` before comments; or a mapping of `x` and `values`, as `Table.plain` makes it.
        field: what errors call it.
        columns: what they call its columns.
        least: the smallest number of points.

    Raises:
        InputError: it cannot be read, its columns differ in length, its points are too few, x is not positive or holds
            a value twice, or a number is not finite.

    Example:
        >>> read_table(([3, 1, 2, 4], [0.1, 0.5, 0.2, 0.0])).values.tolist()
        [0.5, 0.2, 0.1, 0.0]
    """
    file, sha256, read = _source(given, field)
    x_name, name = columns
    if len(read) != 2 or read[0].ndim != 1 or read[0].shape != read[1].shape:
        raise InputError(f"expected {x_name} and {name} of one length", file=file, field=field)
    x, values = (column[np.argsort(read[0])] for column in read)
    if x.size < least:
        problem = f"{x.size} points are too few to interpolate"
        raise InputError(problem, file=file, field=field, remedy=f"Give {least} or more")
    if not (np.all(np.isfinite(x)) and np.all(x > 0) and np.all(np.diff(x) > 0)):
        raise InputError(f"{x_name} must be positive, each value once", file=file, field=field)
    for place in np.flatnonzero(~np.isfinite(values))[:1]:
        raise InputError(f"{name} at {x_name} = {x[place]:g} is {values[place]:g}", file=file, field=field)
    return Table(x, values, file or "", sha256)


def _source(given: Any, field: str) -> tuple[str | None, str, tuple[np.ndarray, ...]]:
    """File and SHA-256 where there is one, and the columns."""
    file, sha256 = (str(given), "") if isinstance(given, str | Path) else (None, "")
    try:
        if file is not None:
            content = readable(file, field).read_bytes()
            return file, hashlib.sha256(content).hexdigest(), _columns(content.decode())
        if isinstance(given, Table):
            given = given.plain
        if isinstance(given, Mapping):
            file, sha256, given = given.get("file") or None, given.get("sha256", ""), (given["x"], given["values"])
        return file, sha256, tuple(np.asarray(column, float) for column in given)
    except OSError as error:
        raise InputError((error.strerror or str(error)).lower(), file=file, field=field) from error
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{error} is missing", field=field, remedy="Give x and values") from error
    except (TypeError, ValueError) as error:
        raise InputError("cannot be read as numbers", file=file, field=field, remedy="Give two columns") from error


def _columns(text: str) -> tuple[np.ndarray, ...]:
    """The columns of a text, after its header."""
    lines = [line.replace(",", " ").split("#")[0] for line in text.splitlines()]
    rows = [line.split() for line in lines if line.strip()]
    header = bool(rows) and not _numeric(rows[0])
    return tuple(np.array(rows[header:], float).T)


def _numeric(row: list[str]) -> bool:
    try:
        return bool([float(word) for word in row])
    except ValueError:
        return False

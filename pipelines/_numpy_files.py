"""Arrays that NumPy saved (.npy, .npz), named as the columns of tables are; pickles are never loaded."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayesfit import InputError, SettingsError
from bayesfit.compute.errors import nearest
from bayesfit.compute.memory import check_unpacked
from bayesfit.pipelines._grid import Grid
from bayesfit.pipelines._headings import Heading, understand
from bayesfit.pipelines._sheet import WORDS, Reading

NUMBERS = frozenset(WORDS) - {"bin"}  # a bin may have a name
NAMES = "tau (tau,), g2 (q_bin, tau) and, where known, g2_err and q; a unit after an underscore, as in tau_us"


def is_archive(path: Path) -> bool:
    """Whether a file is a zip archive of arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def read_arrays(path: Path, columns: Mapping[str, Any], layout: str) -> Grid | Reading:
    """The arrays of a file. Columns of one length, or one matrix, become a grid; g2 with two axes is read as it is.

    Raises:
        InputError: an array holds objects, or they do not fit together. SettingsError: `columns` names no array.
    """
    arrays = _arrays(path)
    if "" in arrays:
        return _matrix(path, arrays[""])
    named = {str(name): word for word, name in columns.items()}
    for name, word in named.items():
        if word not in WORDS:
            raise SettingsError(f"unknown word {word!r}", field="columns", remedy=nearest(word, WORDS))
        if name not in arrays:
            problem = f"there is no array {name!r}"
            raise SettingsError(problem, file=path, field=f"columns.{word}", remedy=nearest(name, arrays))
    heads = {name: understand(name) for name in arrays}
    words = {named.get(name, heads[name].word): name for name in arrays if name in named or heads[name].plain}
    for name in (name for word, name in words.items() if word in NUMBERS and arrays[name].dtype.kind in "US"):
        raise InputError(f"expected real numbers, got {arrays[name].dtype}", file=path, field=name)
    if "g2" in words and arrays[words["g2"]].ndim == 2:
        return _by_bins(path, arrays, words, heads, layout)
    lengths = {np.shape(array) for array in arrays.values() if np.ndim(array) == 1}
    if len(lengths) == 1 and max(map(np.ndim, arrays.values())) == 1:
        flat = {name: array for name, array in arrays.items() if np.ndim(array) == 1}
        rows = [list(flat), *(list(row) for row in zip(*(array.tolist() for array in flat.values()), strict=True))]
        return Grid(rows, list(range(1, len(rows) + 1)), [], path)
    said = ", ".join(f"{name} {np.shape(array)}" for name, array in arrays.items())
    raise InputError(
        f"found the arrays {said}; expected {NAMES}", file=path, remedy='Name them, --set columns.g2="NAME"'
    )


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name. The array of a .npy file has the name ""; a structured array gives one array per field.

    Raises:
        InputError: one of them holds objects, or anything but numbers.
    """
    try:
        with path.open("rb") as file:
            if is_archive(path):
                check_unpacked(path)
            loaded = np.load(file, allow_pickle=False)
            arrays = {"": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except InputError:
        raise
    except Exception as error:  # a damaged header fails with any type
        if not isinstance(error, ValueError) or ("pickle" not in str(error) and "Object" not in str(error)):
            raise InputError(f"is cut or damaged ({error})", file=path, remedy="Copy it again") from error
        remedy = "Save arrays of numbers: numpy.savez(file, tau=..., q=..., g2=..., g2_err=...)"
        raise InputError("holds objects; pickles are never loaded", file=path, remedy=remedy) from error
    if "" in arrays and arrays[""].dtype.names:
        arrays = {name: arrays[""][name] for name in arrays[""].dtype.names}
    for name, array in arrays.items():
        if array.dtype.kind not in "fiuUS":
            raise InputError(f"expected real numbers, got {array.dtype}", file=path, field=name or None)
    return arrays


def _matrix(path: Path, array: np.ndarray) -> Grid:
    """An array of two axes as a table without headings."""
    if array.ndim != 2 or min(array.shape) < 2:
        remedy = f"Save numpy.savez(file, ...) with {NAMES}"
        raise InputError(f"an array of shape {array.shape} is no table", file=path, remedy=remedy)
    return Grid([list(row) for row in array.tolist()], list(range(1, len(array) + 1)), [], path)


def _by_bins(
    path: Path, arrays: Mapping[str, np.ndarray], words: Mapping[str, str], heads: Mapping[str, Heading], layout: str
) -> Reading:
    """g2 with two axes, and one array for each of the others."""
    used = {word: np.asarray(arrays[name]) for word, name in words.items() if word in WORDS}
    if "tau" not in used or used["tau"].ndim != 1:
        raise InputError(f"found the arrays {', '.join(arrays)}; expected {NAMES}", file=path, field="tau")
    turn = _delays_first(path, used, layout)
    g2 = used["g2"].T if turn else used["g2"]
    g2_err = used["g2_err"].T if turn and "g2_err" in used else used.get("g2_err")
    bins: dict[str, np.ndarray] = {word: np.atleast_1d(used[word]) for word in ("q", "phi", "angle") if word in used}
    shaped: dict[str, np.ndarray | None] = {"g2_err": g2_err, **bins}
    for word, values in shaped.items():
        wanted = g2.shape if word == "g2_err" else g2.shape[:1]
        if values is not None and values.shape != wanted:
            problem = f"has shape {values.shape}, expected {wanted}"
            raise InputError(problem, file=path, field=words[word])
    return Reading(
        f"arrays, g2 ({'tau, q_bin' if turn else 'q_bin, tau'})",
        used["tau"],
        g2,
        g2_err,
        bins,
        units={word: unit for word, name in words.items() if (unit := heads[name].unit) is not None},
        strange={word: heads[name].strange for word, name in words.items() if heads[name].strange},
        minus_one=heads[words["g2"]].minus_one,
        errors_from=f"array {words['g2_err']!r}" if "g2_err" in words else "",
        left_out=[repr(name) for name in arrays if name not in words.values()],
    )


def _delays_first(path: Path, used: Mapping[str, np.ndarray], layout: str) -> bool:
    """Whether the first axis of g2 is that of the delays.

    Raises:
        InputError: neither axis, or either, could be.
    """
    shape, delays = used["g2"].shape, used["tau"].size
    if delays not in shape:
        raise InputError(f"has shape {shape}, none of which is {delays} delays", file=path, field="g2")
    if shape[0] == shape[1] and layout not in ("wide", "transposed"):
        raise InputError(
            f"has shape {shape}, as many bins as delays",
            file=path,
            field="g2",
            remedy="--set layout=wide where the delays come first, --set layout=transposed where the bins do",
        )
    return layout == "wide" if shape[0] == shape[1] else bool(shape[0] == delays)

"""What kind of object was given, in a user's words, and one line for one of the wrong kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import xarray as xr

from bayesfit.compute.errors import InputError, ResultError, SettingsError

Kind = Literal[
    "curves", "fit", "series", "law", "calibration", "comparison", "dataset", "tree", "path", "list", "other"
]
WORDS: dict[Kind, str] = {
    "curves": "curves",
    "fit": "the result of a fit",
    "series": "a series of datasets",
    "law": "the result of a law",
    "calibration": "a calibration of a detector",
    "comparison": "a comparison",
    "dataset": "a Dataset that holds no curves",
    "tree": "a DataTree that is no result",
}
IN_RESULT_PLACE: dict[Kind, str] = {
    "curves": "Fit them first: bayesfit.fit(curves)",
    "series": "Give one of them: bayesfit.one_dataset(result, NAME)",
    "law": "Give the fit that the law was fitted to",
    "dataset": "Give the whole result, as bayesfit.fit returned it",
    "list": "Give one result at a time",
}
IN_CURVES_PLACE: dict[Kind, str] = {
    "fit": "Give the curves that were fitted, as bayesfit.read returned them",
    "series": "Give the curves that were fitted, as bayesfit.read returned them",
    "list": "Give one of them, or all as one: bayesfit.stack, bayesfit.average or bayesfit.series",
}
LONGEST = 40  # characters of a value that is repeated in a message


def kind_of(given: object) -> Kind:
    """The kind of an object: one of bayesfit's own, a path, a list, or "other"."""
    if isinstance(given, xr.DataTree):
        if "posterior" not in given.children:
            return "tree"
        if "steps" in given.children:  # also a law of each dataset
            return "series"
        own: tuple[Kind, ...] = ("law", "calibration")  # named by an attribute
        return next((kind for kind in own if kind in given.attrs), "fit")
    if isinstance(given, xr.Dataset):
        return "curves" if "g2" in given else "comparison" if "elpd" in given else "dataset"
    if isinstance(given, str | Path):
        return "path"
    return "list" if isinstance(given, list | tuple) else "other"


def in_words(given: object) -> str:
    """What an object is, in words: its kind if it is one of bayesfit's own, else its value if that is short, else its
    type."""
    kind = kind_of(given)
    if kind in WORDS:
        return WORDS[kind]
    if isinstance(given, list | tuple):
        return f"a {type(given).__name__} of {len(given)}"
    value = repr(str(given) if kind == "path" else given)
    return value if len(value) <= LONGEST and "\n" not in value else f"a {type(given).__name__}"


def expect_curves(given: object, field: str = "curves") -> None:
    """Refuse anything but a Dataset where curves are needed.

    Raises:
        InputError: says what was given.
    """
    if isinstance(given, xr.Dataset):
        if "age" in given.dims:
            remedy = "Give its slices to bayesfit.series: bayesfit.age_slices(data)"
            raise InputError("got a correlation over age and delay", field=field, remedy=remedy)
        return
    remedies = {**IN_CURVES_PLACE, "path": f"Read it first: bayesfit.read({str(given)!r})"}
    raise InputError(
        f"got {in_words(given)}, expected curves as bayesfit.read or bayesfit.curves returns them",
        field=field,
        remedy=remedies.get(kind_of(given)),
    )


def expect_table(given: object, field: str) -> None:
    """Refuse anything but a mapping of names to values; None stands for an empty one.

    Raises:
        SettingsError: says what was given.
    """
    if given is not None and (not isinstance(given, Mapping) or kind_of(given) != "other"):
        remedy = "Write it as {name: value}"
        raise SettingsError(f"got {in_words(given)}, expected a table by name", field=field, remedy=remedy)


def expect_path(given: object, field: str = "path") -> None:
    """Refuse anything but a path.

    Raises:
        SettingsError: says what was given.
    """
    if not isinstance(given, str | Path):
        remedy = "Give one at a time" if kind_of(given) == "list" else None
        raise SettingsError(f"got {in_words(given)}, expected the path of a file", field=field, remedy=remedy)


def expect_result(given: object, *kinds: Kind, field: str = "result", remedies: dict[Kind, str] | None = None) -> None:
    """Refuse anything but a result of one of these kinds; `remedies` say what to do with results of other kinds.

    Raises:
        ResultError: says what was given.
    """
    kind = kind_of(given)
    if kind in kinds:
        return
    remedies = {**IN_RESULT_PLACE, "path": f"Load it first: bayesfit.load({str(given)!r})", **(remedies or {})}
    expected = " or ".join(WORDS[kind] for kind in kinds)
    raise ResultError(f"got {in_words(given)}, expected {expected}", field=field, remedy=remedies.get(kind))

"""Builds every result: groups, the coordinates of the bins, attributes that netCDF can hold, and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Int

from bayesfit.modelling.model import Parameter

Groups = dict[str, xr.Dataset]

PACKAGES = ("bayesfit", "jax", "jaxlib", "numpyro", "optimistix", "arviz", "xarray", "numpy")
SAMPLED = ("posterior", "sample_stats")  # groups that repeat the attributes of the root, as ArviZ's do
NOT_FITTED = {"f": np.nan, "i": 0, "u": 0, "b": False, "O": "", "U": ""}  # value in other bins, by kind of variable


def build(
    groups: Groups, bins: xr.Dataset, attrs: Mapping[str, Any], of_root: Mapping[str, Any] | None = None
) -> xr.DataTree:
    """The tree of these groups.

    Every group with a dimension q_bin gets the coordinates of the bins; the posterior of a joint fit gets the index
    q_bin alone, since `az.summary` takes no q that only some of its variables have.

    Args:
        bins: a dataset with the coordinates of all bins.
        attrs: attributes of the root, repeated in the groups of draws.
        of_root: further attributes, of the root alone.
    """
    coords = bin_coordinates(bins)
    placed = {name: group.assign_coords(coords) if "q_bin" in group.dims else group for name, group in groups.items()}
    if "across" in placed:
        placed["posterior"] = placed["posterior"].reset_coords(drop=True)
    kept = _attributes(attrs)
    tree = xr.DataTree.from_dict(
        {name: group.assign_attrs(kept) if name in SAMPLED else group for name, group in placed.items()}
    )
    tree.attrs.update(kept | _attributes(of_root or {}))
    return tree


def bin_coordinates(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """The coordinates of the bins (q_bin): the index, q, phi, and what else the data have."""
    return {str(name): coord for name, coord in data.coords.items() if coord.dims == ("q_bin",)}


def in_all_bins(
    group: xr.Dataset, places: Int[np.ndarray, " fitted"], count: int, fill: Mapping[str, Any] | None = None
) -> xr.Dataset:
    """A group of the fitted bins, which stand at these places of `count`, as one of all bins: NaN, 0, False or "" where
    a bin was not fitted, or what `fill` says for a variable. Its coordinates are then the bins' places."""
    if "q_bin" not in group.dims or places.size == count:
        return group
    bare = group.drop_vars(list(bin_coordinates(group))).assign_coords(q_bin=places)
    values = {name: NOT_FITTED[array.dtype.kind] for name, array in bare.data_vars.items()} | dict(fill or {})
    whole = bare.reindex(q_bin=np.arange(count), fill_value=values)
    return whole.assign(
        {name: whole[name].astype(array.dtype) for name, array in bare.data_vars.items() if not places.size}
    )


def provenance() -> dict[str, str]:
    """Versions of the packages that a result depends on."""
    return {f"{name}_version": version(name) for name in PACKAGES}


def described(parameter: Parameter) -> dict[str, str]:
    """Attributes of a variable that holds this parameter."""
    return {"units": parameter.unit or "1", "long_name": parameter.description, "latex": parameter.latex}


def _attributes(attrs: Mapping[str, Any]) -> dict[str, str | int | float]:
    """Strings and numbers as they are; anything else as JSON."""
    return {
        name: value if isinstance(value, str | float) or type(value) is int else json.dumps(value, default=_plain)
        for name, value in attrs.items()
    }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)

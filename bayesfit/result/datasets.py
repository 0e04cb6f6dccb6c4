"""The results of several datasets as one, with a `dataset` dimension, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from bayesfit.compute.errors import ResultError, nearest
from bayesfit.compute.kinds import expect_result
from bayesfit.data.stack import joined_delays, spread

ORDER = ("chain", "draw", "dataset", "q_bin", "tau")
STEPS = "steps"
OWN_DELAYS = "own_delay"


def joined(results: Sequence[xr.DataTree], labels: np.ndarray) -> xr.DataTree:
    """One tree of the results of datasets that have the same bins: every group has a dimension `dataset`.

    q and phi are those of the first. Delays that differ are joined: elsewhere points are not valid, and
    `constant_data.own_delay` (dataset, tau) says which are a dataset's own. Attributes that differ are variables
    (dataset,) of group `steps`.
    """
    data = [_with_bins(result) for result in results]
    delays = [group.tau.values if "tau" in group else np.zeros(0) for group in data]
    tau, places = joined_delays(delays, data)
    groups = {name: _concatenated(results, name, tau, places, labels) for name in results[0].children}
    if any(place.size < tau.size for place in places):
        own = np.array([np.isin(np.arange(tau.size), place) for place in places])
        groups["constant_data"][OWN_DELAYS] = (("dataset", "tau"), own)
    tree = xr.DataTree.from_dict(groups)
    steps = xr.Dataset(coords={"dataset": labels})
    for path in ("/", *results[0].children):
        attrs = [_attrs(result, path) for result in results]
        same = {name: value for name, value in attrs[0].items() if all(other.get(name) == value for other in attrs)}
        tree[path].attrs.update(same)
        for name in dict.fromkeys(name for one in attrs for name in one if name not in same):
            if name not in steps:  # some groups repeat the root's
                steps[name] = ("dataset", _column([one.get(name) for one in attrs]), {"group": path})
    tree[STEPS] = steps
    return tree


def _with_bins(result: xr.DataTree) -> xr.Dataset:
    """The group that knows bins and delays; that of a law knows no delays."""
    return result["constant_data" if "constant_data" in result.children else "bins"].to_dataset()


def _attrs(result: xr.DataTree, path: str) -> dict[str, Any]:
    return {str(name): value for name, value in (result if path == "/" else result[path]).attrs.items()}


def _column(values: list[Any]) -> np.ndarray:
    """One attribute of every dataset: numbers, or words with "" where there is none."""
    if all(isinstance(value, int | float) for value in values):
        return np.array(values)
    return np.array(["" if value is None else str(value) for value in values], dtype=object)


def _concatenated(
    results: Sequence[xr.DataTree], name: str, tau: np.ndarray, places: Sequence[np.ndarray], labels: np.ndarray
) -> xr.Dataset:
    """One group of all results, with the bins' coordinates of the first."""
    first = _with_bins(results[0])
    of_bins = {key: first[key] for key in first.coords if first[key].dims == ("q_bin",)}
    parts = []
    for result, place in zip(results, places, strict=True):
        group = result.children[name].to_dataset(inherit=False) if name in result.children else xr.Dataset()
        own = [key for key, array in group.variables.items() if "repeat" in array.dims]
        other = [key for key in group.coords if group[key].dims == ("q_bin",) and key not in of_bins]
        over_q = [key for key in group.coords if group[key].dims == ("point",)]  # each dataset has its own
        group = spread(group.drop_vars([*own, *other]).reset_coords(over_q), tau, place)
        parts.append(group.assign_coords(of_bins) if "q_bin" in group.dims else group)
    whole = xr.concat(
        parts,
        xr.DataArray(labels, dims="dataset", name="dataset"),
        data_vars="all",
        coords="minimal",
        compat="override",
        join="outer",
        combine_attrs="override",
    )
    whole.attrs = {}
    return whole.transpose(*ORDER, ..., missing_dims="ignore")


def is_series(result: xr.DataTree) -> bool:
    """Whether a result is that of several datasets."""
    return STEPS in result.children


def one_dataset(result: xr.DataTree, dataset: str | float) -> xr.DataTree:
    """The result of one dataset of a series, as `fit` gives it: what `summary`, `plot_fit`, `law` and `compare` take.

    Args:
        result: what `series` or `load` returned.
        dataset: its name or number, one of `result["posterior"]["dataset"]`.

    Raises:
        ResultError: it is no series, or has no such dataset.
    """
    remedy = "Give what series returned"
    expect_result(result, "series", remedies={"fit": f"It is of one dataset already. {remedy}", "law": remedy})
    labels = result.children[STEPS].coords["dataset"].values.tolist()
    if dataset not in labels:
        raise ResultError(
            f"there is no dataset {dataset!r}", field="dataset", remedy=nearest(str(dataset), map(str, labels))
        )
    number = labels.index(dataset)
    steps = result[STEPS].to_dataset().isel(dataset=number, drop=True)
    constant = _with_bins(result).isel(dataset=number, drop=True)
    own = constant[OWN_DELAYS].values.astype(bool) if OWN_DELAYS in constant else slice(None)
    groups = {}
    for name, node in result.children.items():
        if name != STEPS:
            group = node.to_dataset(inherit=False).isel(dataset=number, drop=True, missing_dims="ignore")
            groups[name] = group.drop_vars(OWN_DELAYS, errors="ignore").isel(tau=own, missing_dims="ignore")
            groups[name] = groups[name].set_coords({"q"} & set(groups[name].data_vars))
    tree = xr.DataTree.from_dict(groups)
    tree.attrs.update(result.attrs)
    for key, array in steps.data_vars.items():
        path = array.attrs["group"]
        for place in (path, "posterior", "sample_stats") if path == "/" else (path,):
            tree[place].attrs[str(key)] = array.item()
    tree.attrs.pop("content_sha256", None)
    return tree

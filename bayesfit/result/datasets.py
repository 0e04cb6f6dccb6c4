"""The results of several datasets as one, with a `dataset` dimension, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int, Shaped

from bayesfit.compute.errors import ResultError, nearest
from bayesfit.compute.kinds import expect_result
from bayesfit.data.stack import joined_delays, spread
from bayesfit.result.files import OF_ATTRIBUTES, OF_CONTENT

ORDER = ("chain", "draw", "dataset", "q_bin", "tau")
STEPS = "steps"
OWN_DELAYS = "own_delay"

Labels = Shaped[np.ndarray, " dataset"]


class _Delays(NamedTuple):
    """The joined delays `tau`, in s, and the `places` among them of each dataset's own."""

    tau: Float[np.ndarray, " tau"]
    places: Sequence[Int[np.ndarray, " own"]]


def joined(results: Sequence[xr.DataTree], labels: Labels) -> xr.DataTree:
    """One tree from the results of datasets that have the same bins: every group has a dimension `dataset`.

    q and phi are those of the first dataset. Where delays differ, tau holds the delays of all datasets: points at
    delays that a dataset does not have are not valid, and `constant_data.own_delay` (dataset, tau) says which it has.
    Attributes that differ become variables (dataset,) of group `steps`.
    """
    data = [_with_bins(result) for result in results]
    delays = [group.tau.values if "tau" in group else np.zeros(0) for group in data]
    joint = _Delays(*joined_delays(delays, data))
    groups = {name: _concatenated(results, name, joint, labels) for name in results[0].children}
    if any(place.size < joint.tau.size for place in joint.places):
        own = np.array([np.isin(np.arange(joint.tau.size), place) for place in joint.places])
        groups["constant_data"][OWN_DELAYS] = (("dataset", "tau"), own)
    tree = xr.DataTree.from_dict(groups)
    tree[STEPS] = _shared_out(tree, results, labels)
    return tree


def _shared_out(tree: xr.DataTree, results: Sequence[xr.DataTree], labels: Labels) -> xr.Dataset:
    """Give the tree the attributes that all results agree on; returns the others as variables (dataset,)."""
    steps = xr.Dataset(coords={"dataset": labels})
    for path in ("/", *results[0].children):
        attrs = [_attrs(result, path) for result in results]
        same = {name: value for name, value in attrs[0].items() if all(other.get(name) == value for other in attrs)}
        tree[path].attrs.update(same)
        for name in dict.fromkeys(name for one in attrs for name in one if name not in same):
            if name not in steps:  # some groups repeat the root's
                steps[name] = ("dataset", _column([one.get(name) for one in attrs]), {"group": path})
    return steps


def _with_bins(result: xr.DataTree) -> xr.Dataset:
    """The group with the coordinates of the bins, and of the delays unless the result is of a law."""
    return result["constant_data" if "constant_data" in result.children else "bins"].to_dataset()


def _attrs(result: xr.DataTree, path: str) -> dict[str, Any]:
    return {str(name): value for name, value in (result if path == "/" else result[path]).attrs.items()}


def _column(values: list[Any]) -> np.ndarray:
    """One attribute of every dataset: numbers, or texts, with "" where a dataset lacks it."""
    if all(isinstance(value, int | float) for value in values):
        return np.array(values)
    return np.array(["" if value is None else str(value) for value in values], dtype=object)


def _concatenated(results: Sequence[xr.DataTree], name: str, delays: _Delays, labels: Labels) -> xr.Dataset:
    """One group of all results, with the coordinates of the bins of the first."""
    first = _with_bins(results[0])
    of_bins = {str(key): first[key] for key in first.coords if first[key].dims == ("q_bin",)}
    parts = [
        _part(result, name, delays.tau, place, of_bins) for result, place in zip(results, delays.places, strict=True)
    ]
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


def _part(
    result: xr.DataTree,
    name: str,
    tau: Float[np.ndarray, " tau"],
    place: Int[np.ndarray, " own"],
    of_bins: dict[str, xr.DataArray],
) -> xr.Dataset:
    """One group of one result over the joined delays, without coordinates in which datasets may differ."""
    group = result.children[name].to_dataset(inherit=False) if name in result.children else xr.Dataset()
    own = [key for key, array in group.variables.items() if "repeat" in array.dims]
    other = [key for key in group.coords if group[key].dims == ("q_bin",) and key not in of_bins]
    over_q = [key for key in group.coords if group[key].dims == ("point",)]  # each dataset has its own
    group = spread(group.drop_vars([*own, *other]).reset_coords(over_q), tau, place)
    if group.sizes.get("tau_other", tau.size) < tau.size:  # of covariances
        group = group.assign_coords(tau_other=place).reindex(tau_other=np.arange(tau.size)).drop_vars("tau_other")
    return group.assign_coords(of_bins) if "q_bin" in group.dims else group


def is_series(result: xr.DataTree) -> bool:
    """Whether a result is of several datasets."""
    return STEPS in result.children


def one_dataset(result: xr.DataTree, dataset: str | float) -> xr.DataTree:
    """The result of one dataset of a series, as `fit` returns it, for `summary`, `plot_fit`, `law` and `compare`.

    Args:
        result: what `series` or `load` returned.
        dataset: its name or number, one of `result["posterior"]["dataset"]`.

    Raises:
        ResultError: the result is no series, or has no such dataset.
    """
    remedy = "Give what series returned"
    expect_result(result, "series", remedies={"fit": f"It is of one dataset already. {remedy}", "law": remedy})
    labels = result.children[STEPS].coords["dataset"].values.tolist()
    if dataset not in labels:
        raise ResultError(
            f"there is no dataset {dataset!r}", field="dataset", remedy=nearest(str(dataset), map(str, labels))
        )
    tree = xr.DataTree.from_dict(_groups_of(result, labels.index(dataset)))
    steps = result[STEPS].to_dataset().isel(dataset=labels.index(dataset), drop=True)
    tree.attrs.update(result.attrs)
    for key, array in steps.data_vars.items():
        path = array.attrs["group"]
        for place in (path, "posterior", "sample_stats") if path == "/" else (path,):
            tree[place].attrs[str(key)] = array.item()
    for of_whole in (OF_CONTENT, OF_ATTRIBUTES):
        tree.attrs.pop(of_whole, None)
    return tree


def _groups_of(result: xr.DataTree, number: int) -> dict[str, xr.Dataset]:
    """The groups of one dataset, with its own delays only."""
    constant = _with_bins(result).isel(dataset=number, drop=True)
    own = constant[OWN_DELAYS].values.astype(bool) if OWN_DELAYS in constant else slice(None)
    groups = {}
    for name, node in result.children.items():
        if name != STEPS:
            group = node.to_dataset(inherit=False).isel(dataset=number, drop=True, missing_dims="ignore")
            group = group.drop_vars(OWN_DELAYS, errors="ignore").isel(tau=own, missing_dims="ignore")
            groups[name] = group.set_coords({"q"} & set(group.data_vars))
    return groups

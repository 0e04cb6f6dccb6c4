"""Several datasets: what they must agree in, their delays joined, and one dataset made of them all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int, Shaped

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.kinds import in_words, kind_of
from bayesfit.data.counting import stacked
from bayesfit.data.curves import by_bin

SAME_Q = 1e-3  # relative: instruments read an angle back to about this
SAME_PHI = 0.1  # degree
SAME_DELAY = 1e-6  # relative: delays of one correlator, as files round them
AGREED = ("pipeline", "delays", "contrast_prior", "baseline_prior")
JOINED = ("notes", "left_out", "repeats_left_out")
FILLED = {"b": False, "i": 0, "u": 0, "f": np.nan}

Array = np.ndarray


def stack(datasets: Sequence[xr.Dataset], names: Sequence[str | float] | None = None) -> xr.Dataset:
    """Put the bins of several datasets into one, so that `fit(..., across=...)` can share parameters between them.

    Delays that differ are joined: a dataset has points that are not valid at those of others. Priors that a model
    derives from the delays then span the delays of all.

    Args:
        datasets: what `bayesfit.read`, `bayesfit.curves` or `bayesfit.average` returned.
        names: of the datasets; by default those of their files.

    Returns:
        Dataset (q_bin, tau) with the bins in order. Coordinates on q_bin say where a bin comes from, for `{"kind":
        "shared", "by": "source"}`: `source`, the dataset's name, and `source_bin`, the bin's place in it. Numbers among
        the attributes (a temperature) are the mean over the datasets; words that differ are left out. Photons, pixels
        and frames stay where frames, their time and the delays are those of all datasets.

    Raises:
        InputError: pipelines, kinds of x or amplitude priors differ; names the file. SettingsError: the names do not
        fit.

    Example:
        >>> import bayesfit
        >>> one, two = (bayesfit.simulate(bins=3, seed=seed)[0] for seed in (1, 2))
        >>> bayesfit.stack([one, two], names=["a", "b"]).source.values.tolist()
        ['a', 'a', 'a', 'b', 'b', 'b']
    """
    datasets = oriented(datasets)
    check_agreement(datasets)
    labels = labels_of(datasets, names)
    tau, places = joined_delays([data.tau.values for data in datasets], datasets)
    parts = [
        _part(spread(data, tau, place), labels[number])
        for number, (data, place) in enumerate(zip(datasets, places, strict=True))
    ]
    shared = set.intersection(*(set(part.variables) for part in parts))
    whole = xr.concat(
        [part.drop_vars([name for name in part.variables if name not in shared]) for part in parts],
        "q_bin",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="override",
        combine_attrs="override",
    )
    whole.attrs = common_attrs(datasets)
    whole = stacked(whole, datasets)
    return whole.assign_coords(q_bin=np.arange(whole.sizes["q_bin"]))


def _part(data: xr.Dataset, label: Any) -> xr.Dataset:
    """One dataset's variables of bins and delays, with where its bins come from."""
    count = data.sizes["q_bin"]
    other = [name for name, array in data.variables.items() if not set(array.dims) <= {"q_bin", "tau"}]
    return data.drop_vars(other).assign_coords(
        source=("q_bin", np.full(count, label)), source_bin=("q_bin", np.arange(count))
    )


def oriented(datasets: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """The datasets with dims (q_bin, tau), also after the user's own `isel` of one bin.

    Raises:
        SettingsError: there is none, or they are none of bayesfit's.
    """
    if kind_of(datasets) not in ("list", "other") or not hasattr(datasets, "__len__") or not len(datasets):
        problem = f"got {in_words(datasets)}, expected a list of datasets"
        raise SettingsError(problem, field="datasets", remedy="Give [bayesfit.read(file), ...]")
    for data in datasets:
        if not isinstance(data, xr.Dataset) or not {"g2", "g2_err", "valid"} <= set(data.data_vars):
            raise SettingsError(
                f"got {type(data).__name__} without curves", field="datasets", remedy="Make them with bayesfit.read"
            )
    return [by_bin(data) for data in datasets]


def check_agreement(datasets: Sequence[xr.Dataset]) -> None:
    """Refuse datasets of different kinds of data.

    Raises:
        InputError: pipeline, kind of x or an amplitude prior differs; names the file.
    """
    first = datasets[0]
    for data in datasets:
        for name in AGREED:
            ours, theirs = first.attrs.get(name), data.attrs.get(name)
            if ours != theirs:
                raise InputError(f"is {theirs!r}, but {ours!r} in the first dataset", file=file_of(data), field=name)


def check_same_bins(datasets: Sequence[xr.Dataset]) -> None:
    """Refuse datasets that are not of the same bins: as many, with the q and phi of the first.

    Raises:
        InputError: names the file, the field and the bin.
    """
    first = datasets[0]
    for data in datasets:
        here, there = data.sizes["q_bin"], first.sizes["q_bin"]
        if here != there:
            raise InputError(f"{here} bins, but {there} in the first dataset", file=file_of(data), field="q_bin")
        for name, relative, absolute in (("q", SAME_Q, 0.0), ("phi", 0.0, SAME_PHI)):
            ours, theirs = _per_bin(first, name), _per_bin(data, name)
            differs = ~np.isclose(theirs, ours, rtol=relative, atol=absolute, equal_nan=True)
            if differs.any():
                bin = int(np.argmax(differs))
                raise InputError(
                    f"{theirs[bin]:.6g}, but {ours[bin]:.6g} in the first dataset",
                    file=file_of(data),
                    field=name,
                    bin=bin,
                    remedy="Bins that differ can be put together by bayesfit.stack",
                )


def same_bins(data: xr.Dataset, other: xr.Dataset) -> bool:
    """Whether two datasets are of the same bins."""
    try:
        check_same_bins([data, other])
    except InputError:
        return False
    return True


def _per_bin(data: xr.Dataset, name: str) -> Array:
    return data[name].values.astype(float) if name in data.coords else np.full(data.sizes["q_bin"], np.nan)


def joined_delays(
    delays: Sequence[Float[np.ndarray, " tau"]], datasets: Sequence[xr.Dataset]
) -> tuple[Float[np.ndarray, " joined"], list[Int[np.ndarray, " tau"]]]:
    """All delays that occur (tau,), and the places of each dataset's own among them.

    Raises:
        InputError: delays that must be joined are doubled within a dataset.
    """
    if all(same_delays(tau, delays[0]) for tau in delays):
        return delays[0], [np.arange(delays[0].size)] * len(delays)
    every = np.sort(np.concatenate(delays))
    new = np.diff(every, prepend=-np.inf) > SAME_DELAY * np.abs(every)
    joined = every[new]
    places = [np.searchsorted(joined, tau, side="right") - 1 for tau in delays]
    for place, data in zip(places, datasets, strict=True):
        if np.unique(place).size < place.size:
            raise InputError("a delay is doubled, so that it cannot be joined", file=file_of(data), field="tau")
    return joined, places


def same_delays(tau: Float[np.ndarray, " tau"], other: Float[np.ndarray, " other"]) -> bool:
    """Whether delays are the same as files round them."""
    return tau.shape == other.shape and bool(np.allclose(tau, other, rtol=SAME_DELAY, atol=0.0))


def spread(data: xr.Dataset, tau: Float[np.ndarray, " joined"], place: Int[np.ndarray, " tau"]) -> xr.Dataset:
    """A group of variables with its delays at these places of all delays; elsewhere not valid, NaN or 0."""
    if "tau" not in data.dims or place.size == tau.size:
        return data
    fill = {name: FILLED[v.dtype.kind] for name, v in data.data_vars.items() if "tau" in v.dims}
    placed = data.assign_coords(tau=("tau", tau[place], data.tau.attrs)).reindex(tau=tau, fill_value=fill)
    placed["tau"].attrs.update(data.tau.attrs)
    return placed if "tau" in data.coords else placed.drop_vars("tau")


def labels_of(
    datasets: Sequence[xr.Dataset], names: Any = None, field: str = "names"
) -> Shaped[np.ndarray, " dataset"]:
    """One name or number per dataset: those given, else the names of the files if they differ, else 0, 1, 2, ...

    Raises:
        SettingsError: they do not fit, or are not all different.
    """
    if names is None:
        stems = [Path(data.attrs.get("file", "")).stem for data in datasets]
        return np.array(stems) if all(stems) and len(set(stems)) == len(stems) else np.arange(len(datasets))
    try:
        labels = np.asarray(names)
    except ValueError as error:
        raise SettingsError(f"got {names!r}, expected one name a dataset", field=field) from error
    if labels.shape != (len(datasets),) or labels.dtype.kind not in "fiuU":
        raise SettingsError(f"got {names!r}, expected a name or number for each of {len(datasets)}", field=field)
    if np.unique(labels).size < labels.size:
        raise SettingsError(f"two datasets have one name in {names!r}", field=field)
    return labels


def file_of(data: xr.Dataset) -> str | None:
    """The file that a dataset is of, for messages."""
    return data.attrs.get("file") or None


def common_attrs(datasets: Sequence[xr.Dataset]) -> dict[str, Any]:
    """Attributes of what is made of several datasets: numbers are averaged; of words that differ only lists are kept,
    joined. `file` is the first and says how many more there are (`files` in all), `sha256` the hash of theirs, one
    after the other."""
    if len(datasets) == 1:
        return dict(datasets[0].attrs)
    attrs = {name: _common([data.attrs.get(name) for data in datasets]) for name in datasets[0].attrs}
    for name in JOINED:
        words = [word for data in datasets for word in str(data.attrs.get(name, "")).split("; ")]
        attrs[name] = "; ".join(dict.fromkeys(word for word in words if word))
    hashes = "".join(str(data.attrs.get("sha256", "")) for data in datasets)
    counts = [int(data.attrs.get("files", 1)) for data in datasets]
    file = str(datasets[0].attrs.get("file", "")).removesuffix(_more(counts[0]))
    attrs |= {
        "file": file + _more(sum(counts)) if file else "",
        "files": sum(counts),
        "sha256": hashlib.sha256(hashes.encode()).hexdigest() if hashes else "",
        "errors_stated": int(all(data.attrs.get("errors_stated", 1) for data in datasets)),
    }
    return {name: value for name, value in attrs.items() if value is not None}


def _more(files: int) -> str:
    return f" and {files - 1} more" if files > 1 else ""


def _common(values: list[Any]) -> Any:
    if all(value == values[0] for value in values):
        return values[0]
    return float(np.mean(values)) if all(isinstance(value, int | float) for value in values) else None

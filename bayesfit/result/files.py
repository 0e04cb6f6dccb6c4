"""The only writer and reader of results: an `xarray.DataTree` in ArviZ's schema, kept as netCDF-4."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr

from bayesfit.compute.errors import ResultError, SettingsError
from bayesfit.compute.kinds import Kind, expect_path, expect_result
from bayesfit.compute.memory import memory
from bayesfit.compute.single_precision import as_stored
from bayesfit.compute.whole_files import write_whole
from bayesfit.modelling.model import Model

OF_CONTENT, OF_ATTRIBUTES = "content_sha256", "attributes_sha256"  # hashes that a file states; old ones the first alone
SEAL = b"\nbayesfit sha256 "  # ends the file, with the hash of all before it; to HDF5 it is not there
SEALED = len(SEAL) + hashlib.sha256().digest_size
BLOCK = 2**20  # bytes that are hashed at once
CHANGED = "its content has changed since it was written"
COMPRESSED = {"zlib": True, "complevel": 4}
RENAMED = {  # variables and dimensions of older saved results, and their names today
    "jumped": "independence_accepted",
    "speckle_evidence": "speckle_log_ratio",
    "link": "pooling",
    "linked": "pooled",
    "prior_carried": "prior_is_posterior",
}


def refuse_own_input(output: Path, file: Path, other: str = "file") -> None:
    """Refuse to write over what was read.

    Raises:
        SettingsError: the two are the same file; the remedy is to name another one of `other`, a file or folder.
    """
    if output.exists() and file.exists() and output.samefile(file):
        raise SettingsError("would overwrite its own input", field="-o", file=file, remedy=f"Name another {other}")


def check_ending(path: str | Path, field: str = "-o") -> Path:
    """The path at which to save a result; refused if its ending is that of another format.

    Raises:
        SettingsError: it does not end in .nc.
    """
    expect_path(path, field)
    if Path(path).suffix.lower() != ".nc":
        problem, remedy = "results are saved as netCDF, in .nc alone", f"Name it {Path(path).stem or 'result'}.nc"
        raise SettingsError(problem, file=path, field=field, remedy=remedy)
    return Path(path)


def save(result: xr.DataTree | Model, path: str | Path) -> Path:
    """Write a result as netCDF-4, compressed, in float32, or float64 where a value is beyond that range.

    The file is either written whole or not at all.

    Args:
        result: what `fit` returned, or the model of a `bayesfit.surrogate`.
        path: where to save it, ending in .nc, or in .npz for a model; its folder must exist. A file of that name is
            replaced.

    Returns:
        The path.

    Raises:
        ResultError: it is no result, or it cannot be written; then nothing is left behind, and an older file of that
            name stays as it was. SettingsError: the path has another ending.
    """
    if isinstance(result, Model):
        return _save_model(result, path)
    if not isinstance(result, xr.DataTree):
        datasets: dict[Kind, str] = dict.fromkeys(("curves", "dataset", "comparison"), "Save it by its own to_netcdf")
        expect_result(result, "fit", remedies={**datasets, "path": "Write bayesfit.save(result, path)"})
    path = check_ending(path, "path").expanduser()
    small = xr.DataTree.from_dict({node.path: _single(node.to_dataset(inherit=False)) for node in result.subtree})
    small.attrs[OF_CONTENT] = content_hash(small)
    small.attrs[OF_ATTRIBUTES] = attributes_hash(small)
    try:
        content = _content(small)
        write_whole(path, content, SEAL, hashlib.sha256(content).digest())
    except (OSError, TypeError, ValueError) as error:
        raise ResultError(f"cannot be written: {getattr(error, 'strerror', None) or error}", file=path) from error
    return path


def _save_model(model: Model, path: str | Path) -> Path:
    expect_path(path)
    path = Path(path).expanduser()
    if model.stands_for is None:
        remedy = "Keep the file that defines it"
        raise ResultError(f"model {model.name!r} is a program, which is not saved", file=path, remedy=remedy)
    model.stands_for.save(path)
    return path


def _content(result: xr.DataTree) -> bytes:
    """The bytes of the file. They are made in memory, since HDF5 may crash the program where a disk is full."""
    encoding = {
        node.path: {name: COMPRESSED for name, v in node.data_vars.items() if v.dtype.kind in "fiub" and v.ndim}
        for node in result.subtree
        if node.data_vars
    }
    with _without_cluster(), result.to_netcdf(None, engine="h5netcdf", encoding=encoding) as content:
        return bytes(content)


@contextmanager
def _without_cluster() -> Iterator[None]:
    """Keep xarray from asking a Dask cluster, where the user's program is connected to one, for locks of what lies in
    this process's memory."""
    if "dask" not in sys.modules:
        yield
        return
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


def load(path: str | Path) -> xr.DataTree:
    """Read a saved result into memory, and check that its content is what was written.

    Raises:
        ResultError: there is no such file, it is not a result, or its content has changed since.
    """
    expect_path(path)
    path = Path(path).expanduser()
    if not path.is_file():
        raise ResultError("no such file", file=path)
    try:
        _check_seal(path)
        with xr.open_datatree(path, engine="h5netcdf", phony_dims="sort") as opened:
            if sum(node.nbytes for node in opened.subtree) > memory():
                raise ResultError("would not fit in memory", file=path, remedy="Is it corrupt? Run the fit again")
            result = opened.load()
    except ResultError:
        raise
    except Exception as error:  # h5py, h5netcdf and xarray raise errors of their own on a damaged file
        raise ResultError(f"cannot be read as a result ({error})", file=path, remedy="Run the fit again") from error
    stated = result.attrs.get(OF_CONTENT)
    if stated is None or "posterior" not in result.children:
        raise ResultError("is not a result of bayesfit", file=path)
    if stated != content_hash(result) or result.attrs.get(OF_ATTRIBUTES) not in (None, attributes_hash(result)):
        raise ResultError(CHANGED, file=path, remedy="Run the fit again")
    return _with_current_names(result)


def _check_seal(path: Path) -> None:
    """Refuse a file of other bytes than were written, before HDF5 reads it, which on some may crash or never end.

    Raises:
        ResultError: they have changed. A file without a seal, as of former versions, is none of these.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - SEALED, 0))
        seal = file.read()
        if not seal.startswith(SEAL):
            return
        file.seek(0)
        digest, left = hashlib.sha256(), size - SEALED
        while left and (block := file.read(min(left, BLOCK))):
            digest.update(block)
            left -= len(block)
    if seal.removeprefix(SEAL) != digest.digest():
        raise ResultError(CHANGED, file=path, remedy="Run the fit again")


def _with_current_names(result: xr.DataTree) -> xr.DataTree:
    """A result in which variables and dimensions have their current names (`RENAMED`)."""
    for node in result.subtree:
        group = node.to_dataset(inherit=False)
        if old := {name: new for name, new in RENAMED.items() if name in group.variables or name in group.dims}:
            node.dataset = group.rename(old)
    return result


def one_bin(result: xr.DataTree, q_bin: int) -> xr.DataTree:
    """The result of one bin, with only those delays that are data there, for `az.loo` and `az.psense`.

    Args:
        result: what `fit` or `load` returned.
        q_bin: the bin's index, as in `result.posterior.q_bin`.

    Raises:
        ResultError: there is no such bin.
    """
    expect_result(result, "fit")
    places = np.flatnonzero(result["posterior"].q_bin.values == q_bin)
    if places.size != 1:
        raise ResultError(f"there is no bin {q_bin}", field="q_bin")
    bin = result.isel(q_bin=int(places[0]))
    valid = bin["constant_data"].valid.values.astype(bool)
    groups = {node.path: node.to_dataset(inherit=False) for node in bin.subtree}
    kept = {path: group.isel(tau=valid) if "tau" in group.dims else group for path, group in groups.items()}
    return xr.DataTree.from_dict(kept)


def content_hash(result: xr.DataTree) -> str:
    """The SHA-256 of every variable of every group: its name, dimensions and bytes."""
    digest = hashlib.sha256()
    for node in sorted(result.subtree, key=lambda node: node.path):
        dataset = node.to_dataset(inherit=False)
        for name in sorted(map(str, dataset.variables)):
            values = dataset[name].values
            raw = "\0".join(map(str, values.ravel())).encode() if values.dtype.kind in "OUTS" else values.tobytes()
            digest.update(f"{node.path}/{name}{dataset[name].dims}{values.shape}".encode() + raw)
    return digest.hexdigest()


def attributes_hash(result: xr.DataTree) -> str:
    """The SHA-256 of the attributes of every group and every variable."""
    digest = hashlib.sha256()
    for node in sorted(result.subtree, key=lambda node: node.path):
        dataset = node.to_dataset(inherit=False)
        owners = {"": dataset.attrs, **{str(name): variable.attrs for name, variable in dataset.variables.items()}}
        for owner in sorted(owners):
            own = {str(name): value for name, value in owners[owner].items() if name != OF_ATTRIBUTES}
            listed = [(name, np.asarray(own[name]).tolist()) for name in sorted(own)]
            digest.update(repr((node.path, owner, listed)).encode())
    return digest.hexdigest()


def _single(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with data variables in the precision in which they are saved; coordinates stay in theirs."""
    stored = {name: as_stored(array.values) for name, array in dataset.data_vars.items() if array.dtype == np.float64}
    return dataset.assign({name: dataset[name].copy(data=values) for name, values in stored.items()})

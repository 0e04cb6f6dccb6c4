"""The file of a surrogate: NumPy's .npz, with the runs, the emulator, and a header in JSON that says where they come
from. A hash of all of it is checked when it is read."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bayesfit.compute.errors import InputError, ResultError
from bayesfit.compute.whole_files import write_whole
from bayesfit.modelling.file_checks import readable, refuse_stand_ins
from bayesfit.surrogates.ladder import PREDICT
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.space import Space

FORMAT = 1  # raised where older versions cannot read what is written; older formats are read for ever
ENDING = ".npz"
KIND = "bayesfit surrogate"
OWN = ("tau", "points", "curves", "errors")  # arrays of every surrogate; those of its emulator begin with EMULATOR
EMULATOR = "emulator_"
OF_MEAN = "of_mean"  # array of a random simulator


def written(learnt: Learnt, path: Path) -> None:
    """Write a surrogate.

    Raises:
        ResultError: it cannot be written.
    """
    check_path(path)
    arrays, header = _parts(learnt)
    content = io.BytesIO()
    stated = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez_compressed(content, header=stated, **arrays)  # type: ignore[arg-type]
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        raise ResultError(f"cannot be written: {error.strerror}", file=path) from error


def check_path(path: Path) -> None:
    """Refuse a path of another ending, or in a folder that does not exist.

    Raises:
        ResultError: says which.
    """
    if path.suffix != ENDING:
        raise ResultError("models of simulators are saved in .npz alone", file=path, remedy=f"Name it {path.stem}.npz")
    if not path.parent.is_dir():
        raise ResultError("its folder does not exist", file=path)


def with_hash(learnt: Learnt) -> Learnt:
    """The surrogate with the hash of all that it is made of."""
    arrays, header = _parts(learnt)
    return replace(learnt, about={**learnt.about, "sha256": _hash(arrays, header)})


def read(path: Path) -> Learnt:
    """A surrogate from its file.

    Raises:
        InputError: it is none, was written by a later version, or is damaged.
    """
    path = readable(path, "model")
    refuse_stand_ins(path)
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError, NotImplementedError, zipfile.error) as error:
        raise InputError("is no surrogate, or a damaged one", file=path, field="model") from error
    if not isinstance(header, dict) or header.get("kind") != KIND:
        raise InputError("is no surrogate of bayesfit", file=path, field="model")
    if header["format"] > FORMAT or header["emulator"]["kind"] not in PREDICT:
        remedy = "Update bayesfit"
        raise InputError(f"has format {header['format']}, known is {FORMAT}", file=path, field="model", remedy=remedy)
    if _hash(arrays, header) != header["about"].get("sha256"):
        raise InputError("is damaged: its content is not what was written", file=path, field="model")
    return _learnt(arrays, header)


def _parts(learnt: Learnt) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A surrogate as arrays and a header."""
    arrays = {name: np.asarray(getattr(learnt, name)) for name in OWN}
    arrays |= {} if learnt.of_mean is None else {OF_MEAN: learnt.of_mean}
    arrays |= {EMULATOR + name: np.asarray(array) for name, array in learnt.arrays.items()}
    emulator = {"kind": learnt.kind, "link": learnt.link, "falls": learnt.falls}
    return arrays, {
        "kind": KIND,
        "format": FORMAT,
        "space": learnt.space.plain,
        "emulator": emulator,
        "about": dict(learnt.about),
    }


def _learnt(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> Learnt:
    own: dict[str, Any] = {name: arrays[name] for name in OWN}
    emulator = {name.removeprefix(EMULATOR): array for name, array in arrays.items() if name.startswith(EMULATOR)}
    how = header["emulator"]
    space = Space.of_plain(header["space"])
    return Learnt(space=space, **own, **how, arrays=emulator, about=header["about"], of_mean=arrays.get(OF_MEAN))


def _hash(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> str:
    """A hash of arrays and header, but of the hash itself."""
    about = {name: value for name, value in header["about"].items() if name != "sha256"}
    made = hashlib.sha256(json.dumps({**header, "about": about}, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        made.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return made.hexdigest()

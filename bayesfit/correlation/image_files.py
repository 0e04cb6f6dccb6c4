"""Images, and sums of frames, from files: photons in each pixel."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Float

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import SIGNATURE
from bayesfit.correlation.dense import no_photons
from bayesfit.correlation.frames import Frames, frames_of
from bayesfit.correlation.hdf5_frames import FAULTS, hdf5_frames


def read_image(path: Path, dataset: str | None = None) -> Float[np.ndarray, "row column"]:
    """The image of a file, HDF5 or .npy: as it is there, (row, column), or the sum of frames (frame, row, column); -1
    where a pixel holds no number of photons, in any frame. `dataset` says where in HDF5.

    Raises:
        InputError: it cannot be read, or holds no image.
    """
    if not path.is_file():
        raise InputError("is a folder" if path.is_dir() else "no such file", file=path)
    with path.open("rb") as file:
        hdf5 = file.read(len(SIGNATURE)) == SIGNATURE
    if not hdf5:
        return _in_numpy(path)
    image = None if dataset is None else _single(path, dataset)
    return _summed(hdf5_frames(path, dataset)) if image is None else image


def _in_numpy(path: Path) -> Float[np.ndarray, "row column"]:
    try:
        given = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        remedy = "Known are HDF5 and NumPy's .npy"
        raise InputError("holds no image that is known", file=path, remedy=remedy) from error
    if not isinstance(given, np.ndarray):
        raise InputError("holds several arrays", file=path, remedy="Write one by numpy.save")
    frames = given[None] if given.ndim == 2 else given
    return _summed(frames_of(frames, frames.shape[1:], str(path)))


def _single(path: Path, dataset: str) -> Float[np.ndarray, "row column"] | None:
    """The image in a dataset (row, column); None where it is another."""
    try:
        with h5py.File(path, "r") as file:
            found = file.get(dataset)
            given = found[()] if isinstance(found, h5py.Dataset) and found.ndim == 2 else None
    except FAULTS as error:
        raise InputError(f"cannot be read ({error})", file=path, field=dataset, remedy="Is it damaged?") from error
    return None if given is None else _summed(frames_of(given[None], given.shape, str(path)))


def _summed(frames: Frames) -> Float[np.ndarray, "row column"]:
    """The sum over frames, of which those that were never written hold nothing."""
    total, bad = np.zeros(frames.shape[0] * frames.shape[1]), np.zeros(frames.shape[0] * frames.shape[1], bool)
    for chunk in frames.chunks(0):
        assert isinstance(chunk, np.ndarray)
        wrong = no_photons(chunk)
        bad |= wrong.any(axis=0)
        total += np.where(wrong, 0, chunk).sum(axis=0, dtype=float)
    return np.where(bad, -1.0, total).reshape(frames.shape)

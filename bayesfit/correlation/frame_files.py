"""Files of frames, told apart by their content."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import SIGNATURE
from bayesfit.correlation.frames import Frames, frames_of
from bayesfit.correlation.hdf5_frames import hdf5_frames

NUMPY = b"\x93NUMPY"


def read_frames(path: Path, dataset: str | None = None) -> Frames:
    """The frames of a file; `dataset` says where in HDF5.

    Raises:
        InputError: it cannot be read, or holds no frames.
    """
    if not path.is_file():
        raise InputError("no such file", file=path)
    with path.open("rb") as file:
        start = file.read(max(len(SIGNATURE), len(NUMPY)))
    if start.startswith(SIGNATURE):
        return hdf5_frames(path, dataset)
    if start.startswith(NUMPY):
        try:
            return frames_of(np.load(path, mmap_mode="r", allow_pickle=False), str(path))
        except ValueError as error:
            raise InputError(f"is a NumPy array that cannot be read ({error})", file=path) from error
    raise InputError("holds no frames that are known", file=path, remedy="Known are HDF5 and NumPy's .npy")

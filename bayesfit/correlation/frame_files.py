"""Files of frames, told apart by their content."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import SIGNATURE
from bayesfit.correlation.frames import Frames, frames_of
from bayesfit.correlation.hdf5_frames import hdf5_frames
from bayesfit.correlation.photon_files import HEADER, imm_frames, is_imm, is_rigaku, rigaku_frames

NUMPY = b"\x93NUMPY"


def read_frames(path: Path, shape: tuple[int, int], dataset: str | None = None) -> Frames:
    """The frames of a file, on a detector of this shape; `dataset` says where in HDF5.

    Raises:
        InputError: it cannot be read, or holds no frames.
    """
    if not path.is_file():
        raise InputError("is a folder" if path.is_dir() else "no such file", file=path)
    with path.open("rb") as file:
        start = file.read(HEADER)
    if start.startswith(SIGNATURE):
        return hdf5_frames(path, dataset)
    if start.startswith(NUMPY):
        return _numpy_frames(path, shape)
    if is_imm(start):
        return imm_frames(path)
    if is_rigaku(path):
        return rigaku_frames(path, shape)
    known = "HDF5, NumPy's .npy, IMM, and Rigaku's photons on the detector of the q-map"
    raise InputError("holds no frames that are known", file=path, remedy=f"Known are {known}")


def _numpy_frames(path: Path, shape: tuple[int, int]) -> Frames:
    try:
        return frames_of(np.load(path, mmap_mode="r", allow_pickle=False), shape, str(path))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"is a NumPy array that cannot be read ({error})", file=path) from error

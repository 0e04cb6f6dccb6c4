"""Every bad series of frames, one row each: how it is made, and what it must get.

`LEFT_OUT`: what cannot be used takes no part, is counted and said, and the rest is that of a run which masks it.
`REFUSED`: one line before any result; `REFUSED_FILES`: the same at the command line, naming the file.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from raw_frames import BINS, FRAMES, SHAPE, imm, photons, rigaku

import bayesfit

DARK = photons(0.05)
FULL = 2**16 - 1
MANY = FRAMES * SHAPE[0] * SHAPE[1]


def changed(where: Any, value: Any, dtype: Any = np.uint16) -> np.ndarray:
    """Frames of which some pixels hold another value."""
    frames = DARK.astype(dtype)
    frames[where] = value
    return frames


def listed(frame: Any = (0, 1, 2), pixel: Any = (3, 4, 5), number: Any = (1, 1, 1), frames: int = 10) -> Any:
    return bayesfit.Photons(frames, np.array(frame), np.array(pixel), np.array(number))


class LeftOut(NamedTuple):
    """Frames, a part of the note, and the frames and the pixel that are left out."""

    frames: Any
    note: str
    without: slice = slice(0, 0)
    pixel: tuple[int, int] | None = None


FIRST = "first in frame 7, pixel (10, 10), bin 0"
LEFT_OUT = {
    "saturated": LeftOut(
        changed((7, 10, 10), FULL), "1 of 333 frames were left out: some pixel is saturated", slice(7, 8)
    ),
    "saturated, where": LeftOut(changed((7, 10, 10), FULL), FIRST, slice(7, 8)),
    "a dead pixel": LeftOut(
        changed((slice(None), 10, 10), FULL), "pixels without numbers that were left out: 1", pixel=(10, 10)
    ),
    "a pixel that dies": LeftOut(changed((slice(200, None), 10, 10), FULL), "133 of 333", slice(200, None)),
    "negative counts": LeftOut(changed((7, 10, 10), -1, np.int16), FIRST, slice(7, 8)),
    "negative counts in floats": LeftOut(changed((7, 10, 10), -3.0, float), FIRST, slice(7, 8)),
    "NaN": LeftOut(changed((7, 10, 10), np.nan, float), FIRST, slice(7, 8)),
    "infinite": LeftOut(changed((7, 10, 10), np.inf, np.float32), FIRST, slice(7, 8)),
    "a pixel of NaN": LeftOut(
        changed((slice(None), 10, 10), np.nan, float), "pixels without numbers that were left out: 1", pixel=(10, 10)
    ),
    "masked": LeftOut(np.ma.masked_equal(changed((7, 10, 10), 3000), 3000), FIRST, slice(7, 8)),
    "masked floats": LeftOut(np.ma.masked_equal(changed((7, 10, 10), 3000.0, float), 3000.0), FIRST, slice(7, 8)),
    "masked, one by one": LeftOut(
        list(np.ma.masked_equal(changed((7, 10, 10), 3000), 3000)), "1 of 333 frames", slice(7, 8)
    ),
    "half precision": LeftOut(changed((7, 10, 10), np.nan, np.float16), FIRST, slice(7, 8)),
    "saturated at first": LeftOut(changed(slice(64), FULL), "64 of 333", slice(64)),
    "frames of NaN": LeftOut(changed(slice(7, 11), np.nan, float), "4 of 333", slice(7, 11)),
}


def words(change: Callable[[np.ndarray], Any]) -> bytes:
    """A file of Rigaku's, changed."""
    found = np.frombuffer(rigaku(DARK), "<u8").copy()
    change(found)
    return found.tobytes()


def patched(content: bytes, kind: str, place: int, value: int) -> bytes:
    """Bytes with a number written over them."""
    found = bytearray(content)
    struct.pack_into(kind, found, place, value)
    return bytes(found)


def swap(found: np.ndarray) -> None:
    found[[300, 900]] = found[[900, 300]]


def far(found: np.ndarray) -> None:
    found[5] |= np.uint64(2**20 << 16)


def one(found: np.ndarray) -> None:
    found &= np.uint64(2**40 - 1)


REFUSED = {  # frames, other arguments, and a part of the one line
    "no frames": (DARK[:0], {}, "are empty"),
    "one frame": (DARK[:1], {}, "there are 1, and pairs need 2"),
    "one frame of an iterable": (iter(DARK[:1]), {}, "there are 1, and pairs need 2"),
    "an empty iterable": (iter([]), {}, "there are none"),
    "an iterable of ragged frames": (iter([DARK[0], DARK[1, 1:]]), {}, "frame 1: uint16 of shape (23, 30)"),
    "an iterable of two types": (iter([DARK[0], DARK[1].astype(float)]), {}, "frame 1: float64"),
    "an iterable of objects": (iter([object()]), {}, "axes (frame, row, column)"),
    "a number": (3, {}, "expected an array (frame, row, column)"),
    "a frame": (DARK[0], {}, "axes (frame, row, column)"),
    "complex": (DARK.astype(complex), {}, "expected real numbers"),
    "text": (DARK.astype(str), {}, "expected real numbers"),
    "another detector": (DARK[:, 1:], {}, "(23, 30) pixels, and the bins are of a detector of (24, 30)"),
    "all saturated": (changed(slice(None), FULL), {}, "no pixel of any bin holds a number of photons"),
    "mostly saturated": (changed((slice(None, None, 2), 10, 10), FULL), {}, "only 166 of 333 can be used; 167"),
    "all masked": (DARK, {"frame_mask": np.zeros(FRAMES)}, "only 0 of 333 can be used"),
    "a short frame_mask": (DARK, {"frame_mask": np.ones(7)}, "frame_mask: has shape (7,)"),
    "a frame_mask of an iterable": (iter(DARK), {"frame_mask": np.ones(7)}, "frame_mask: has 7 entries"),
    "a long frame_mask of an iterable": (iter(DARK), {"frame_mask": np.ones(400)}, "frame_mask: has 400 entries"),
    "a mask of NaN": (DARK, {"pixel_mask": np.full(SHAPE, np.nan)}, "mask: expected True or False"),
    "a mask of another detector": (DARK, {"pixel_mask": np.ones((3, 3))}, "pixel_mask: has shape (3, 3)"),
    "a mask without a pixel": (DARK, {"pixel_mask": np.zeros(SHAPE)}, "pixel_mask: it leaves no pixel"),
    "no partition": (DARK, {"partition": 3}, "partition: got 3"),
    "no frame_time": (DARK, {"frame_time": None}, "frame_time"),
    "a frame_time of NaN": (DARK, {"frame_time": np.nan}, "frame_time: got nan"),
    "a frame_time as text": (DARK, {"frame_time": "1 ms"}, "frame_time: got '1 ms'"),
    "an unknown normalise": (DARK, {"normalise": "frames"}, "Did you mean 'frame'"),
    "no delays": (DARK, {"delays_per_level": 0}, "delays_per_level: got 0"),
    "photons of frames out of order": (listed([0, 3, 2]), {}, "photon 2 is of frame 2"),
    "photons beyond the last frame": (listed([0, 1, 20]), {}, "photon 2 is of frame 20"),
    "photons before the first frame": (listed([-1, 1, 2]), {}, "photon 0 is of frame -1"),
    "photons outside": (listed(pixel=[3, 4, 5000]), {}, "frame 2: a photon in pixel 5000"),
    "photons at a fraction of a frame": (listed([0.0, 0.5, 1.0]), {}, "each frame of photons must be a number"),
    "photons without numbers": (listed(number=[1, 1]), {}, "photons have frames (3,), pixels (3,) and numbers (2,)"),
    "photons of no frame": (listed([], [], [], 0), {}, "there are 0"),
}


def hdf5(where: str = "entry/data/data", cut: int | None = None, **contents: Any) -> Callable[[Path], None]:
    """A file of frames and other datasets, of which only the first bytes are kept."""

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, value in {where: DARK, **contents}.items():
                file[name] = value
        path.write_bytes(path.read_bytes()[:cut])

    return write


def without_frames(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["entry/other"] = np.zeros(3)


def overwritten(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=DARK, chunks=(10, *SHAPE), compression="gzip")
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(200) + content[middle + 200 :])


def master(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["entry/data/data_000001"] = h5py.ExternalLink("gone.h5", "entry/data/data")


def virtual(path: Path) -> None:
    layout = h5py.VirtualLayout(DARK.shape, "u2")
    layout[:] = h5py.VirtualSource("gone.h5", "entry/data/data", DARK.shape)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("entry/data/data", layout)


def numpy_file(array: Any, cut: int | None = None) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, array)
        path.write_bytes(path.read_bytes()[:cut])

    return write


SPARSE_IMM, DENSE_IMM = imm(DARK), imm(DARK, 0)
REFUSED_FILES = {  # bytes or what writes them, and a part of the one line
    "empty": (b"", "holds no frames that are known"),
    "prose": (b"Dear all,\nthe frames are on the other disk.\n", "holds no frames that are known"),
    "Rigaku, cut in a photon": (rigaku(DARK)[:-3], "ends in the middle of a photon"),
    "Rigaku, out of order": (words(swap), "photon 301 is of frame"),
    "Rigaku, another detector": (words(far), "a photon in pixel 1048"),
    "Rigaku, one frame": (words(one), "there are 1, and pairs need 2"),
    "IMM, cut in a frame": (SPARSE_IMM[:-3], "ends in the middle of frame 332"),
    "IMM, cut in a header": (SPARSE_IMM[: 1024 + 600], "ends in the middle of frame"),
    "IMM, all but a header cut": (SPARSE_IMM[:1024], "ends in the middle of frame 0"),
    "IMM, zeros at its end": (SPARSE_IMM + bytes(2000), "frame 333 is of another shape"),
    "IMM, a pixel outside": (patched(SPARSE_IMM, "<I", 1024, 10**6), "frame 0: a photon in pixel 1000000"),
    "IMM, too many entries": (patched(SPARSE_IMM, "<I", 152, 2**31), "ends in the middle of frame 0"),
    "IMM, uncompressed and cut": (DENSE_IMM[:-1], "ends in the middle of frame 332"),
    "IMM, frames of two shapes": (imm(DARK[:3]) + imm(DARK[:1, 1:]), "frame 3 is of another shape"),
    "HDF5, cut": (hdf5(cut=3000), "cannot be read"),
    "HDF5, no frames": (without_frames, "holds no dataset with axes"),
    "HDF5, overwritten": (overwritten, "cannot be read"),
    "HDF5, frames of text": (hdf5("other", **{"entry/data/data": DARK.astype("S3")}), "expected real numbers"),
    "HDF5, a frame time of text": (hdf5(**{"entry/instrument/detector/frame_time": "1 ms"}), "frame_time: expected"),
    "HDF5, a master without its data": (master, "its frames are in gone.h5, which is missing"),
    "HDF5, a virtual dataset without its data": (virtual, "its frames are in gone.h5, which is missing"),
    "NumPy, cut": (numpy_file(DARK, -100), "cannot be read"),
    "NumPy, objects": (numpy_file(np.array([1, None, "x"], object)), "cannot be read"),
}
assert BINS.mask.shape == SHAPE

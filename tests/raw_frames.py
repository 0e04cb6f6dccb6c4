"""Small series of frames, their bins, and files of them as detectors write them."""

import struct

import numpy as np

from bayesfit.geometry import Detector, partition, qmap

SHAPE = 24, 30
BINS = partition(qmap(Detector(SHAPE, (75e-6, 75e-6), 5.0, (11.2, 13.7), 1.24), backend="numpy"), (3, 1), (6, 2))
FRAMES, DPL = 333, 4


def photons(mean=0.3, frames=FRAMES, seed=0, dtype=np.uint16):
    return np.random.default_rng(seed).poisson(mean, (frames, *SHAPE)).astype(dtype)


def imm(frames, compression=6):
    """The bytes of an IMM file."""
    content = b""
    for frame in frames:
        (places,) = np.nonzero(frame.ravel())
        entries = frame.size if compression == 0 else places.size
        header = bytearray(1024)
        struct.pack_into("<i", header, 4, compression)
        struct.pack_into("<3i", header, 108, *frame.shape, 2)
        struct.pack_into("<I", header, 152, entries)
        content += bytes(header)
        if compression:
            content += places.astype("<u4").tobytes() + frame.ravel()[places].astype("<u2").tobytes()
        else:
            content += frame.astype("<u2").tobytes()
    return content


def rigaku(frames):
    """The bytes of a file of Rigaku's."""
    frame, pixel = np.nonzero(frames.reshape(len(frames), -1))
    number = frames.reshape(len(frames), -1)[frame, pixel]
    return ((frame.astype("<u8") << 40) | (pixel.astype("<u8") << 16) | number.astype("<u8")).tobytes()

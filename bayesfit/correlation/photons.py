"""Photons one by one, in place of frames of which most pixels are empty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Num

Chunk = Num[np.ndarray, "frame pixel"]


class Photons(NamedTuple):
    """The photons of some `frames` that follow each other: each `frame`, from 0, each `pixel` and the `number` in it,
    arrays (event,)."""

    frames: int
    frame: Int[np.ndarray, " event"]
    pixel: Int[np.ndarray, " event"]
    number: Num[np.ndarray, " event"]

    def __repr__(self) -> str:
        return f"<Photons: {int(np.sum(self.number))} in {self.frames} frames>"


def of_frame(frames: Chunk | Photons, number: int) -> Num[np.ndarray, " pixel"] | Photons:
    """One of the frames."""
    if not isinstance(frames, Photons):
        return frames[number]
    own = frames.frame == number
    return Photons(1, frames.frame[own], frames.pixel[own], frames.number[own])


def photons_of(frames: Chunk | Photons) -> Photons:
    """The photons of whole frames."""
    if isinstance(frames, Photons):
        return Photons(frames.frames, *(_native(each) for each in frames[1:]))
    places = np.flatnonzero(frames)
    return Photons(len(frames), *np.divmod(places, frames.shape[1]), _native(frames.ravel()[places]))


def whole_frames(photons: Chunk | Photons, pixels: int) -> Chunk:
    """Frames of so many pixels with these photons."""
    if not isinstance(photons, Photons):
        return _native(photons)
    frames = np.zeros((photons.frames, pixels), photons.number.dtype)
    np.add.at(frames, (photons.frame, photons.pixel), photons.number)
    return frames


def _native(array: np.ndarray) -> np.ndarray:
    """In the order of bytes of this machine, as compiled code wants it."""
    return np.asarray(array, array.dtype.newbyteorder("="))

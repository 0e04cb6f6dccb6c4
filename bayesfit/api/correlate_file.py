"""Correlates a file of frames into a file of curves, and goes on where it was stopped."""

from __future__ import annotations

import glob
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from bayesfit.api.correlate import frame_time_of
from bayesfit.api.made_of import hash_of_parts
from bayesfit.api.two_time import of_slices, save_two_time
from bayesfit.compute.errors import InputError
from bayesfit.compute.journal import agree, checkpoint
from bayesfit.compute.programs import makers
from bayesfit.compute.whole_files import clear_parts
from bayesfit.compute.work import Report
from bayesfit.correlation.ages import ages_of
from bayesfit.correlation.aps_files import MADE_OF, is_correlated, placement, save_correlated
from bayesfit.correlation.frame_files import read_frames
from bayesfit.correlation.multitau import Correlated, Masks, Settings, multitau
from bayesfit.correlation.two_time import of_delays, two_time, usable_delays
from bayesfit.geometry.qmap_files import read_partition
from bayesfit.result.files import refuse_own_input

SAME_PIXELS = 0.02  # of their width, within which pixels are the same


class Request(NamedTuple):
    """A file of frames, that of the bins, and how they are correlated; see `bayesfit.correlate`."""

    frames: Path
    qmap: Path
    settings: Settings = Settings()
    masks: Masks = Masks()
    frame_time: float | None = None
    dataset: str | None = None
    ages: Any = None

    def parts(self) -> dict[str, str]:
        """What the result is made of, by name. Frames are told by the file's size and time, since they may be many."""
        stat = self.frames.stat()
        masks = [None if mask is None else np.asarray(mask).tobytes() for mask in self.masks]
        return {
            "frames": f"{self.frames.name}, {stat.st_size} bytes of {stat.st_mtime_ns}, {self.dataset}",
            "q-map": hashlib.sha256(self.qmap.read_bytes()).hexdigest(),
            "masks": hashlib.sha256(repr(masks).encode()).hexdigest(),
            "settings": f"{self.settings}, {self.frame_time}, {self.ages}",
            "code": hashlib.sha256(repr(makers()).encode()).hexdigest(),
        }


def correlate_file(request: Request, output: Path, report: Report, fresh: bool = False) -> Correlated | None:
    """Correlate frames and write the result, in the layout of APS 8-ID; None if the same result was there before, and
    no `fresh` one is asked for. Progress is kept beside the result until it is written.

    Raises:
        InputError: a file cannot be used, or the result cannot be written. SettingsError: a setting is impossible, or
            what was begun before was of something else. KeyboardInterrupt: the user asked to stop.
    """
    for written in (output, *(_slices_there(output) if request.ages is not None else [])):
        for given in (request.frames, request.qmap):
            refuse_own_input(written, given)
    partition = read_partition(request.qmap)
    frames, placed = read_frames(request.frames, partition.mask.shape, request.dataset), placement(request.qmap)
    _check_pixels(request, frames.pixel_size, placed.get("pixel_size"))
    seconds, parts = frame_time_of(request.frame_time, frames), request.parts()
    if not output.parent.is_dir():
        raise InputError("there is no such folder", file=output.parent)
    with checkpoint(output.with_name(f".{output.name}.progress"), fresh):
        if not fresh and _made_before(output, hash_of_parts(parts)):
            return None
        clear_parts(output)
        agree(lambda: parts)
        if request.ages is not None:
            settings = replace(request.settings, ages=ages_of(request.ages, frames.count, seconds))
            slices = two_time(frames, partition, settings, request.masks, report)
            _save_slices(slices, output, seconds, placed, hash_of_parts(parts))
            return slices[0]
        found = multitau(frames, partition, request.settings, request.masks, report)
        save_correlated(found, output, seconds, placed, hash_of_parts(parts))
    return found


def _check_pixels(request: Request, own: float | None, of_bins: float | None) -> None:
    """Refuse bins of another detector, which is told by its pixels. Some q-maps have their size in mm or um.

    Raises:
        InputError: names both.
    """
    if not own or not of_bins or not of_bins > 0:
        return
    apart = np.log10(of_bins / own)
    if abs(apart - 3 * round(apart / 3)) > np.log10(1 + SAME_PIXELS):
        problem = f"its pixels are {1e6 * own:.4g} um wide, and {request.qmap} has pixel_size = {of_bins:.4g}"
        raise InputError(problem, file=request.frames, remedy="Give the q-map of this detector")


def slice_path(output: Path, number: int) -> Path:
    """The file of the slice of this number, beside that of all slices."""
    return output.with_name(f"{output.stem}_age_{number}{output.suffix}")


def _slices_there(output: Path) -> list[Path]:
    """The files beside that of all slices that are named as slices are."""
    named = output.parent.glob(f"{glob.escape(output.stem)}_age_*{output.suffix}")
    return [path for path in named if path.stem.rpartition("_")[2].isdigit()]


def _save_slices(
    slices: list[Correlated], output: Path, seconds: float, placed: dict[str, float], made_of: str
) -> None:
    """Each slice at its own delays in the layout of APS 8-ID, and then all of them as one."""
    for old in _slices_there(output):
        if is_correlated(old):  # by an earlier run, which may have made more of them
            old.unlink()
    for number, (found, own) in enumerate(zip(slices, usable_delays(slices), strict=True)):
        save_correlated(of_delays(found, own), slice_path(output, number), seconds, placed)
    save_two_time(of_slices(slices, seconds).assign_attrs(made_of=made_of), output)


def _made_before(output: Path, made_of: str) -> bool:
    """Whether a file is the result of just this."""
    try:
        with h5py.File(output, "r") as file:
            if "made_of" in file.attrs:
                return bool(file.attrs["made_of"] == made_of)
            return MADE_OF in file and file[MADE_OF].asstr()[()] == made_of
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        return False

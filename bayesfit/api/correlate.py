"""Correlates frames: a detector's raw frames and its bins in, curves with their counting and covariance out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit.api.two_time import CONTRAST_PRIOR, of_slices
from bayesfit.backends.arrays import ensure_numpy
from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Report
from bayesfit.correlation.ages import ages_of
from bayesfit.correlation.frame_files import read_frames
from bayesfit.correlation.frames import Frames, frames_of
from bayesfit.correlation.multitau import Correlated, Flatten, Masks, Settings, multitau
from bayesfit.correlation.normalise import Normalise
from bayesfit.correlation.two_time import two_time as by_age
from bayesfit.data.counting import DARK
from bayesfit.data.curves import curves
from bayesfit.geometry.bins import Partition
from bayesfit.geometry.qmap_files import read_partition


def correlate(
    frames: Any,
    partition: Partition | str | Path,
    *,
    frame_time: float | None = None,
    delays_per_level: int = 8,
    normalise: Normalise = "symmetric",
    flatten: Flatten = "static_bins",
    frame_mask: Any = None,
    pixel_mask: Any = None,
    dataset: str | None = None,
    two_time: bool = False,
    ages: int | Sequence[float] = 8,
    backend: str | None = None,
    progress: bool | Report = False,
) -> xr.Dataset:
    """Multi-tau correlation of frames, with the pairs of photons that were counted and their covariance.

    g2 of a bin is the number of pairs of photons that its pixels saw at a delay, over the number that is expected where
    the intensity does not fluctuate. Each pixel is paired with itself alone. All sums are exact for whole numbers.

    Args:
        frames: array (frame, row, column), or an iterable of frames (row, column), photons in every pixel; a list of
            photons, `bayesfit.Photons`; or the path of a file: HDF5, .npy, IMM, or Rigaku's photons.
        partition: the bins, as `bayesfit.geometry.partition` makes them, or the path of a q-map file.
        frame_time: from one frame to the next, has unit s; by default what the file states.
        delays_per_level: level 0 has delays of 1 to twice as many frames, and each further level as many, of sums of
            2, 4, 8, ... frames; up to half the series.
        normalise: by what the expected pairs are computed: "symmetric" (the means of the early and of the late frames
            of each delay; for a steady beam), "frame" (each frame's own mean: fluctuations of the beam go, and with
            them what all pixels of a bin do together), or "baseline" (the mean of all frames).
        flatten: the pixels whose mean that is: those of the same "static_bins", or of the whole "dynamic_bins".
        frame_mask, pixel_mask: (frame,) and (row, column), True where good. Pixels that hold no number of photons
            (negative, not finite, or the largest number of their type) in all first frames are left out, and so is
            later each frame with such a pixel; `notes` in attrs counts them.
        dataset: where the frames are in an HDF5 file, if that is not a usual place.
        two_time: correlate over age and delay. The age of a pair of frames is the middle (t1 + t2) / 2 of their times,
            from the first frame on.
        ages: with `two_time`, how many slices of ages of the same width, or their edges, has unit s. The number of
            frames must be known for the former.
        backend: "numpy" or "jax", which pays on a GPU; by default the one that is chosen for this process, else NumPy.
        progress: True for a progress bar on standard error, or a function that takes a `Progress`.

    Returns:
        Curves as `bayesfit.curves` gives them, with `counts`, `pixels` and `frames`, and `pairs_seen`,
        `pairs_expected` and `g2_scatter` (q_bin, tau), the standard deviation over the pixels of a bin of their own g2;
        and `g2_cov` (q_bin, tau, tau_other), the covariance of g2 between delays by a jackknife over blocks of pixels,
        or, in bins of fewer than 8 pixels, of time, `cov_samples` of them, whose diagonal is `g2_err` squared. With
        `two_time`, the same with a first dimension `age`, and with `usable` (age, tau), the delays that are of the age
        of their slice, but without `g2_scatter`; `bayesfit.age_slices` makes curves of it. The covariance of bins of
        fewer than 8 pixels is NaN there.

    Raises:
        InputError: frames, masks and bins do not fit together, or cannot be used. SettingsError: a setting is
            impossible.

    Example:
        >>> import bayesfit, numpy as np
        >>> from bayesfit.geometry import Detector, partition, qmap
        >>> bins = partition(qmap(Detector((32, 32), (75e-6, 75e-6), 5.0, (15.5, 15.5), wavelength=1.24)), (2, 1))
        >>> frames = np.random.default_rng(1).poisson(0.1, (256, 32, 32))
        >>> data = bayesfit.correlate(frames, bins, frame_time=1e-3)
        >>> dict(data.sizes)
        {'q_bin': 2, 'tau': 40, 'tau_other': 40}
    """
    bins = _bins_in(partition)
    source = _frames_in(frames, bins.mask.shape, dataset)
    seconds = frame_time_of(frame_time, source)
    masks = Masks(_mask(frame_mask), _mask(pixel_mask))
    slices = ages_of(ages, source.count, seconds) if two_time else None
    settings = Settings(delays_per_level, normalise, flatten, backend, slices)
    with ExitStack() as stack:
        report = progress if callable(progress) else stack.enter_context(progress_bar(progress))
        if slices is not None:
            return of_slices(by_age(source, bins, settings, masks, report), seconds, source.file)
        found = multitau(source, bins, settings, masks, report)
    return as_curves(found, seconds, source.file)


def _bins_in(given: Partition | str | Path) -> Partition:
    if isinstance(given, Partition):
        return given
    if not isinstance(given, str | PathLike):
        raise SettingsError(f"got {given!r}", field="partition", remedy="Give a Partition, or the path of a q-map file")
    return read_partition(given)


def _frames_in(given: Any, shape: tuple[int, int], dataset: str | None) -> Frames:
    """The frames of a file, of an array, of an iterable, or of photons."""
    if isinstance(given, str | PathLike):
        return read_frames(Path(given), shape, dataset)
    return frames_of(given, shape)


def as_curves(found: Correlated, frame_time: float, file: str | None = None) -> xr.Dataset:
    """What was correlated, as `bayesfit.curves` gives curves; `frame_time` [s]."""
    q, phi = found.partition.dynamic.centers
    data = curves(
        found.lags * frame_time,
        found.g2,
        np.sqrt(np.diagonal(found.cov, axis1=1, axis2=2)),
        g2_cov=found.cov,
        cov_samples=found.cov_samples,
        q=q,
        phi=phi,
        q_err=found.partition.dynamic.q_err,
        counts=np.maximum(found.counts, DARK),
        pixels=np.maximum(found.pixels, 1),
        frames=found.frames,
        frames_summed=found.summed,
        contrast_prior=CONTRAST_PRIOR,
        file=file,
        attrs={"frame_time": frame_time, "normalise": found.settings.normalise, "flatten": found.settings.flatten},
    )
    described = {
        "pairs_seen": "photon pairs seen",
        "pairs_expected": "photon pairs expected where g2 = 1",
        "g2_scatter": "standard deviation of g2 over the pixels of a bin",
    }
    pairs = {
        name: (("q_bin", "tau"), values, {"units": "1", "long_name": described[name]})
        for name, values in zip(described, (found.seen, found.expected, found.scatter), strict=True)
    }
    notes = "; ".join(filter(None, [data.attrs["notes"], *found.notes]))
    return data.assign(pairs).assign_attrs(notes=notes)


def frame_time_of(given: float | None, source: Frames) -> float:
    """As given, else as the file states it [s].

    Raises:
        SettingsError: it is neither, or no time.
    """
    found = source.frame_time if given is None else given
    if found is None:
        remedy = "Give the time from one frame to the next, in s"
        raise SettingsError("the frames do not state it", file=source.file, field="frame_time", remedy=remedy)
    if isinstance(found, bool) or not isinstance(found, Real) or not 0 < found < np.inf:
        raise SettingsError(f"got {found!r}", file=source.file, field="frame_time", remedy="It is a time in s")
    return float(found)


def _mask(given: Any) -> np.ndarray | None:
    if given is None:
        return None
    mask = np.asarray(ensure_numpy(given))
    if mask.dtype.kind not in "biuf" or not np.all(np.isfinite(mask)):
        raise InputError(f"expected True or False, got {mask.dtype} that is not finite or no number", field="mask")
    return mask.astype(bool)

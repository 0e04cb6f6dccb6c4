"""Correlation over age and delay, of frames and of two-time matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from bayesfit.backends.arrays import ensure_numpy
from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.whole_files import write_whole
from bayesfit.correlation.ages import ages_of
from bayesfit.correlation.delays import delays
from bayesfit.correlation.multitau import Correlated, Settings
from bayesfit.correlation.two_time import usable_delays
from bayesfit.correlation.two_time_files import opened_matrices
from bayesfit.correlation.two_time_matrix import Averaged, Where, averaged, upper_half
from bayesfit.data.counting import DARK
from bayesfit.data.two_time import expect_two_time, two_time_record

CONTRAST_PRIOR = "TruncatedNormal(0.15, 0.2, low=0)"  # X-rays see contrasts of a few percent to a half


def of_slices(found: Sequence[Correlated], frame_time: float, file: str | None = None) -> xr.Dataset:
    """What was correlated slice by slice, as one record; `frame_time` [s]."""
    first = found[0]
    ages = first.settings.ages
    assert ages is not None
    error = np.stack([np.sqrt(np.diagonal(each.cov, axis1=1, axis2=2)) for each in found])
    arrays = {
        "g2": np.stack([each.g2 for each in found]),
        "g2_err": error,
        "usable": usable_delays(list(found)),
        "pairs_seen": np.stack([each.seen for each in found]),
        "pairs_expected": np.stack([each.expected for each in found]),
        "g2_cov": np.stack([each.cov for each in found]),
        "cov_samples": np.stack([each.cov_samples for each in found]),
        "counts": np.stack([np.maximum(each.counts, DARK) for each in found]),
        "pixels": np.stack([np.maximum(each.pixels, 1) for each in found]),
        "frames": np.array([each.frames for each in found], float),
        "frames_summed": first.summed,
        "frame_pairs": np.stack([each.frame_pairs for each in found]),
    }
    attrs = {"normalise": first.settings.normalise, "flatten": first.settings.flatten}
    data = two_time_record(
        first.lags * frame_time, np.array(ages.edges) * frame_time, arrays, *first.partition.dynamic.centers
    )
    if (q_err := first.partition.dynamic.q_err) is not None:
        data = data.assign_coords(q_err=("q_bin", q_err, data.q.attrs))
    return data.assign_attrs(described(frame_time, file), **attrs, notes="; ".join(first.notes))


def described(frame_time: float, file: str | Path | None) -> dict[str, Any]:
    """Attributes of every record of age and delay."""
    return {"frame_time": frame_time, "contrast_prior": CONTRAST_PRIOR, "errors_stated": 1, "file": str(file or "")}


def two_time(
    matrices: Any,
    frame_time: float,
    *,
    ages: int | Sequence[float] = 8,
    delays_per_level: int = 8,
    q: Any = None,
    phi: Any = None,
) -> xr.Dataset:
    """Average two-time correlations C(t1, t2) of another program over age and delay.

    The age of a pair of frames is the middle (t1 + t2) / 2 of their times, from the first frame on. Delays are those of
    a multi-tau correlator, as in `bayesfit.correlate`.

    Args:
        matrices: (frame, frame) or (bin, frame, frame), or a list of matrices, normalised so that g2 = 1 where
            intensities do not fluctuate. Each is symmetric, or one half with zeros or NaN in place of the other, or its
            upper half row by row, (frame (frame + 1) / 2,). The diagonal is not used. A frame without any value is
            missing.
        frame_time: from one frame to the next, has unit s.
        ages: how many slices of ages of the same width, or their edges, has unit s.
        delays_per_level: of the multi-tau correlator.
        q: scattering vectors (bin,), has unit 1/angstrom. phi: azimuths (bin,), has unit degree.

    Returns:
        Dataset (age, q_bin, tau) with `g2`, `g2_err`, `usable` (age, tau), `frame_pairs` and `frames_summed`; curves of
        its slices are made by `bayesfit.age_slices`. `g2_err` is a jackknife over ten blocks of ages in each slice, NaN
        where fewer than four hold pairs; where the decay is longer than a block, it is too small.

    Raises:
        InputError: a matrix is not one of these, or matrices differ in size; names the bin. SettingsError: a setting is
            impossible.

    Example:
        >>> import bayesfit, numpy as np
        >>> time = np.arange(400)
        >>> matrix = 1 + 0.2 * np.exp(-0.1 * abs(time - time[:, None]))
        >>> data = bayesfit.two_time(matrix, frame_time=0.01, ages=2)
        >>> dict(data.sizes), data.age.values.tolist()
        ({'age': 2, 'q_bin': 1, 'tau': 44}, [1.0, 3.0])
    """
    given = _each(matrices)
    bins = None if len(given) == 1 else 0
    where = [Where(bin=None if bins is None else number) for number in range(len(given))]
    halves = (upper_half(array, place) for array, place in zip(given, where, strict=True))
    known = [_of_bins(values, len(given), name) for name, values in (("q", q), ("phi", phi))]
    return _of_matrices(halves, where, (frame_time, ages, delays_per_level), known)


def read_two_time(
    path: str | Path,
    *,
    frame_time: float | None = None,
    ages: int | Sequence[float] | None = None,
    delays_per_level: int = 8,
) -> xr.Dataset:
    """Read a file of two-time correlations, and average them over age and delay as `bayesfit.two_time` does; or read
    what `bayesfit correlate --two-time` has written.

    Args:
        path: results of APS 8-ID (`/xpcs/twotime/correlation_map`) or NXxpcs (`entry/twotime/two_time_corr_func`) in
            HDF5, or a NumPy file .npy of (frame, frame) or (bin, frame, frame).
        frame_time: from one frame to the next, has unit s; by default what the file states.
        ages: how many slices of ages, or their edges, has unit s; 8 by default. A file of `bayesfit correlate` has its
            own.
        delays_per_level: of the multi-tau correlator.

    Returns:
        Dataset (age, q_bin, tau), as `bayesfit.two_time` or `bayesfit.correlate` gives it.

    Raises:
        InputError: the file cannot be read, or a matrix is none; names the dataset and the bin. SettingsError: a
            setting is impossible.
    """
    path = Path(path)
    if (found := _saved(path)) is not None:
        if ages is not None:
            raise SettingsError("the file has slices of its own", file=path, field="ages", remedy="Leave it out")
        return found
    with opened_matrices(path) as file:
        seconds = file.frame_time if frame_time is None else frame_time
        if seconds is None:
            remedy = "Give the time from one frame to the next, in s"
            raise SettingsError("the file does not state it", file=path, field="frame_time", remedy=remedy)
        where = [Where(str(path), field, number) for number, field in enumerate(file.fields)]
        halves = (upper_half(file.get(number), where[number]) for number in range(len(where)))
        chosen = 8 if ages is None else ages
        data = _of_matrices(halves, where, (seconds, chosen, delays_per_level), [file.q, file.phi])
        return data.assign_attrs(file=str(path), layout=file.layout)


def save_two_time(data: xr.Dataset, path: str | Path) -> Path:
    """Write a correlation over age and delay as netCDF, which `read_two_time` reads. The file is written whole or not
    at all.

    Raises:
        InputError: it is no such correlation, or cannot be written.
    """
    expect_two_time(data)
    path = Path(path)
    try:
        write_whole(path, bytes(data.to_netcdf(engine="h5netcdf")))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error
    return path


def _saved(path: Path) -> xr.Dataset | None:
    """What `save_two_time` has written; None if the file is another."""
    with suppress(OSError):
        if not path.is_file() or not h5py.is_hdf5(path):
            return None
        with h5py.File(path, "r") as file:
            if not {"g2", "usable", "age", "frame_pairs"} <= set(file):
                return None
        try:
            return xr.load_dataset(path, engine="h5netcdf")
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise InputError(f"cannot be read ({error})", file=path, remedy="Is it damaged?") from error
    return None


def _each(matrices: Any) -> Sequence[Any]:
    """The matrices one by one."""
    if isinstance(matrices, str | PathLike):
        raise InputError("got a path", field="matrices", remedy="Read it with bayesfit.read_two_time")
    if isinstance(matrices, list | tuple) and matrices and all(isinstance(each, np.ndarray) for each in matrices):
        return matrices
    array = np.asarray(ensure_numpy(matrices))
    return [array] if array.ndim < 3 else list(array)


def _of_bins(given: Any, count: int, field: str) -> np.ndarray:
    values = np.full(count, np.nan) if given is None else np.atleast_1d(np.asarray(ensure_numpy(given), float))
    if values.shape != (count,):
        raise InputError(f"expected one value for each of {count} matrices, got shape {values.shape}", field=field)
    return values


def _of_matrices(
    halves: Iterable[np.ndarray], where: Sequence[Where], how: tuple[float, Any, int], known: Sequence[np.ndarray]
) -> xr.Dataset:
    """The record of upper halves, of which one at a time is in memory."""
    frame_time, given, per_level = how
    if isinstance(frame_time, bool) or not 0 < frame_time < np.inf:
        raise SettingsError(f"got {frame_time!r}", field="frame_time", remedy="It is a time in s")
    Settings(per_level)
    found: list[Averaged] = []
    ages, frames = None, 0
    for half, place in zip(halves, where, strict=True):
        if ages is None:
            frames, ages = len(half), ages_of(given, len(half), frame_time)
        if len(half) != frames:
            raise place.fault(f"is of {len(half)} frames, and the first one of {frames}")
        found.append(averaged(half, ages, per_level))
    if ages is None:
        raise InputError("there are none", field="matrices")
    lags, summed = delays(max(frames // 2, 1), per_level)
    frame_pairs = np.min([each.frame_pairs for each in found], axis=0)
    arrays = {
        "g2": np.stack([each.g2 for each in found], axis=1),
        "g2_err": np.stack([each.g2_err for each in found], axis=1),
        "usable": ages.usable(frame_pairs, lags, summed),
        "frames_summed": summed,
        "frame_pairs": frame_pairs,
    }
    missing = [
        f"bin {number}: {each.missing} of {frames} frames are missing"
        for number, each in enumerate(found)
        if each.missing
    ]
    data = two_time_record(lags * frame_time, np.array(ages.edges) * frame_time, arrays, *known)
    return data.assign_attrs(described(frame_time, where[0].file), notes="; ".join(missing))

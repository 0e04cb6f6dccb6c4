"""Correlation over age and delay: one record for all slices of ages, and each slice as curves that are fitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import InputError
from bayesfit.data.curves import curves

OF_POINTS = {
    "g2": "intensity autocorrelation",
    "g2_err": "stated standard error of g2",
    "usable": "the delay is of the age of its slice",
    "pairs_seen": "photon pairs seen",
    "pairs_expected": "photon pairs expected where g2 = 1",
    "g2_cov": "covariance of g2",
    "cov_samples": "independent samples that the covariance comes from",
    "counts": "mean photons per pixel and frame",
    "pixels": "pixels of the bin",
    "frames": "frames of the slice that were used",
    "frames_summed": "frames summed at this delay",
    "frame_pairs": "pairs of frames at this delay",
}
DIMS = {
    **dict.fromkeys(("g2", "g2_err", "pairs_seen", "pairs_expected"), ("age", "q_bin", "tau")),
    "g2_cov": ("age", "q_bin", "tau", "tau_other"),
    "cov_samples": ("age", "q_bin"),
    "counts": ("age", "q_bin"),
    "pixels": ("age", "q_bin"),
    "frames": ("age",),
    "frames_summed": ("tau",),
    **dict.fromkeys(("usable", "frame_pairs"), ("age", "tau")),
}
NUMBERS = ("q_err", "cov_samples", "counts", "pixels", "frames", "frames_summed", "frame_pairs")
WORDS = ("layout", "tau_unit", "q_unit", "normalise", "flatten", "understood")


def two_time_record(
    tau: Float[np.ndarray, " tau"],
    edges: Float[np.ndarray, " edge"],
    arrays: Mapping[str, Any],
    q: Float[np.ndarray, " q_bin"],
    phi: Float[np.ndarray, " q_bin"],
) -> xr.Dataset:
    """The record of all slices between these `edges` [s], with `tau` [s], of arrays by name with the axes in `DIMS`."""
    times = {"units": "s", "long_name": "age: middle of the times of a pair of frames, from the first frame on"}
    coords = {
        "age": ("age", 0.5 * (edges[1:] + edges[:-1]), times),
        "age_start": ("age", edges[:-1], {**times, "long_name": "lower edge of the slice of ages"}),
        "age_end": ("age", edges[1:], {**times, "long_name": "upper edge of the slice of ages"}),
        "tau": ("tau", tau, {"units": "s", "long_name": "delay"}),
        "q": ("q_bin", q, {"units": "1/angstrom"}),
        "phi": ("q_bin", phi, {"units": "degree"}),
        "q_bin": np.arange(len(q)),
    }
    made = {name: (DIMS[name], values, {"units": "1", "long_name": OF_POINTS[name]}) for name, values in arrays.items()}
    return xr.Dataset(made, coords)


def age_slices(data: xr.Dataset) -> list[xr.Dataset]:
    """The slices of a correlation over age and delay as a series of datasets, youngest first.

    Each slice has the delays that are of its age (`usable`): those at which at least half of its frames are the middle
    of a pair, which are at most four times as long as the slice, and for which no more frames are summed than it has.

    Args:
        data: what `bayesfit.correlate(..., two_time=True)`, `bayesfit.two_time` or `bayesfit.read_two_time` returned.

    Returns:
        For each age, curves as `bayesfit.curves` gives them, with `age`, `age_start` and `age_end` [s] in attrs, for
        `bayesfit.series(slices, names=data.age.values)`. Where photons were counted, so they are in each slice.

    Raises:
        InputError: it is no such correlation, or a slice has no point that can be used.

    Example:
        >>> import bayesfit, numpy as np
        >>> time = np.arange(400)
        >>> matrix = 1 + 0.2 * np.exp(-0.1 * abs(time - time[:, None]))
        >>> slices = bayesfit.age_slices(bayesfit.two_time(matrix, frame_time=0.01, ages=2))
        >>> [(part.attrs["age"], part.sizes["tau"]) for part in slices]
        [(1.0, 44), (3.0, 43)]
    """
    expect_two_time(data)
    return [_slice(data.isel(age=number)) for number in range(data.sizes["age"])]


def expect_two_time(data: object) -> None:
    """Refuse what has no axis of ages.

    Raises:
        InputError: says what it has.
    """
    if (
        not isinstance(data, xr.Dataset)
        or not {"g2", "g2_err", "usable"} <= set(data.data_vars)
        or "age" not in data.dims
    ):
        got = f"a Dataset with dims {tuple(data.dims)}" if isinstance(data, xr.Dataset) else f"a {type(data).__name__}"
        remedy = "Make it with bayesfit.correlate(..., two_time=True), two_time or read_two_time"
        raise InputError(f"expected a correlation over age and delay, got {got}", field="age", remedy=remedy)


def _slice(data: xr.Dataset) -> xr.Dataset:
    """The curves of one slice."""
    whole, place = data, {name: float(data[name]) for name in ("age", "age_start", "age_end")}
    data = data.isel(tau=np.flatnonzero(data.usable.values))
    file, where = whole.attrs.get("file", ""), f"age {place['age']:g} s"
    if not data.sizes["tau"]:
        raise InputError(
            f"{where}: no delay is short enough", file=file or None, field="age", remedy="Give wider slices"
        )
    numbers: dict[str, Any] = {name: data[name].values for name in NUMBERS if name in data}
    if "g2_cov" in data:
        numbers["g2_cov"] = data.g2_cov.isel(tau_other=np.flatnonzero(whole.usable.values)).values
    words = {name: whole.attrs[name] for name in WORDS if name in whole.attrs}
    try:
        made = curves(
            data.tau.values,
            data.g2.values,
            data.g2_err.values if whole.attrs.get("errors_stated", 1) else None,
            q=data.q.values,
            phi=data.phi.values,
            contrast_prior=whole.attrs["contrast_prior"],
            attrs={**words, "frame_time": whole.attrs["frame_time"], **place},
            **numbers,
        )
    except InputError as error:
        raise InputError(f"{where}: {error}", field="age", remedy="Give wider slices") from error
    own = {name: data[name] for name in ("pairs_seen", "pairs_expected") if name in data}
    made = made.assign({name: (array.dims, array.values, array.attrs) for name, array in own.items()})
    notes = "; ".join(filter(None, [made.attrs["notes"], whole.attrs.get("notes", "")]))
    return made.assign_attrs(notes=notes, file=f"{file}, {where}" if file else "")

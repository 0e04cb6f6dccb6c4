"""The input record: g2(q_bin, tau) with its stated errors, and which points are data."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from bayesfit.compute.errors import InputError
from bayesfit.compute.kinds import expect_curves
from bayesfit.data.counting import countable, missing_numbers, with_numbers
from bayesfit.data.covariance import error_of, with_covariance
from bayesfit.data.given import check_left, check_points, real_numbers

CONTRAST_PRIOR = "TruncatedNormal(0, 0.5, low=0)"
BASELINE_PRIOR = "Normal({reference:g}, 0.1)"
SMALLEST_ERROR = float(np.finfo(np.float32).tiny)
SENTINELS = (-999.0, -9999.0, -99999.0, -999999.0)
LARGEST = 1e20  # numpy.ma and netCDF fill with this and more; squares of a few such values no longer fit in a number
MASKED = {
    "masked_zero_pairs": "no photon pair was seen: g2 and g2_err are both 0",
    "masked_error": "g2_err is zero, negative, not finite, denormal or above 1e20",
    "masked_value": "g2 is not finite, or stands for a missing value (-999, -9999, ..., 1e20 and above)",
    "masked_delay": "tau is 0",
    "masked_skipped": "one of the first delays, left out on request",
    "masked_range": "tau is outside tau_min to tau_max",
}

DESCRIBED = {
    "g2": {"units": "1", "long_name": "intensity autocorrelation"},
    "g2_err": {"units": "1", "long_name": "stated standard error of g2"},
    "valid": {"long_name": "the point is data and is used"},
}
UNITS = {"q": {"units": "1/angstrom"}, "phi": {"units": "degree"}, "q_err": {"units": "1/angstrom"}}
Array = np.ndarray


def curves(
    tau: Any,
    g2: Any,
    g2_err: Any = None,
    q: Any = None,
    phi: Any = None,
    *,
    delays: bool = True,
    baseline_reference: float = 1.0,
    contrast_prior: str = CONTRAST_PRIOR,
    baseline_prior: str | None = None,
    skip_first: int = 0,
    tau_min: Any = None,
    tau_max: Any = None,
    counts: Any = None,
    pixels: Any = None,
    frames: Any = None,
    frames_summed: Any = None,
    frame_pairs: Any = None,
    repeats: Any = None,
    detectors: Any = None,
    q_err: Any = None,
    g2_cov: Any = None,
    cov_samples: Any = None,
    pipeline: str = "table",
    file: str | None = None,
    attrs: dict[str, str | float] | None = None,
) -> xr.Dataset:
    """Put plain arrays into the record that `fit` takes.

    Args:
        tau: delays (tau,), has unit s. Sorted here if they are not.
        g2: values (q_bin, tau), or (tau,) for one curve. Masked arrays are understood.
        g2_err: stated standard errors, same shape as `g2`. None where there are none: all are then 1, and the scale
            that noise "scaled" infers is the standard deviation itself.
        q: scattering vectors (q_bin,), has unit 1/angstrom. phi: azimuths (q_bin,), has unit degree.
        delays: False where `tau` is any x coordinate, negative or zero, for a model of the form "curve".
        baseline_reference: 1 where the values are g2, 0 where they are g2 - 1.
        contrast_prior, baseline_prior: priors of the amplitudes for this kind of data.
        skip_first: how many of the first delays to leave out.
        tau_min, tau_max: delays outside this range are left out; a number or one per bin (q_bin,), has unit s.
        counts, pixels, frames: mean photons per pixel and frame (q_bin,), pixels (q_bin,), and frames of the series:
            what the counting of photon pairs needs; one number stands for all bins.
        frames_summed: frames summed at each delay (tau,); by default from the spacing of the delays. frame_pairs: pairs
            of frames at each delay (tau,); by default frames less the delay, as in a whole series.
        repeats: how many series the values are an average of; 1 by default. The time of a frame is the smallest spacing
            of the delays, or `attrs["frame_time"]` in s.
        detectors: 1 by default; else how many share the light of a pixel, evenly, where the values are the mean of the
            cross-correlations of each with each other one; `counts` are those of all of them.
        q_err: standard errors of `q` (q_bin,), all q being off together, for `bayesfit.law(..., q="uncertain")`.
        g2_cov: covariance of g2 between delays (q_bin, tau, tau), for noise "covariance"; NaN for a bin without. By
            default `g2_err` is the root of its diagonal.
        cov_samples: of how many independent samples (blocks of pixels, repeats) it was estimated, a number or (q_bin,).
        pipeline: name of the pipeline whose derived quantities `fit` adds ("" for none).
        file: where the data come from, for messages. attrs: more attributes, strings or numbers.

    Returns:
        Dataset with dims (q_bin, tau): `g2`, `g2_err`, `valid` (True where the point is data and is used), counts of
        the masked points by cause, coords `tau`, `q`, `phi`; units in attrs.

    Raises:
        InputError: shapes do not match, or nothing in the data can be used; names the field and the index.

    Example:
        >>> import numpy as np, bayesfit
        >>> tau = np.geomspace(1e-3, 1.0, 20)
        >>> data = bayesfit.curves(tau, 1 + 0.2 * np.exp(-20 * tau), np.full(20, 0.01), q=[0.01])
        >>> dict(data.sizes)
        {'q_bin': 1, 'tau': 20}
    """
    notes, bins = list[str](), {"q": q, "phi": phi} | ({"q_err": q_err} if q_err is not None else {})
    points = _points(tau, g2, error_of(g2_cov) if g2_err is None and g2_cov is not None else g2_err, file, notes)
    data, order = _sorted(*points, delays, file)
    data = data.assign_coords({n: _per_bin(given, data.sizes["q_bin"], n, file) for n, given in bins.items()})
    priors = contrast_prior, baseline_prior or BASELINE_PRIOR.format(reference=baseline_reference)
    said = _attributes(pipeline, file, delays, not (g2_err is None and g2_cov is None), priors)
    data = data.assign_attrs({**said, "notes": "; ".join(notes), **(attrs or {})})
    own = {"frames_summed": _in_order(frames_summed, order), "frame_pairs": _in_order(frame_pairs, order)}
    own |= {"counts": counts, "pixels": pixels, "frames": frames, "repeats_averaged": repeats, "detectors": detectors}
    data = with_covariance(with_numbers(data, own), g2_cov, cov_samples, order)
    check_left(_any_left(data), *points[1:], file)
    return within(data, skip_first, tau_min, tau_max)


def _attributes(
    pipeline: str, file: str | None, delays: bool, stated: bool, priors: tuple[str, str]
) -> dict[str, str | float]:
    """What the record says of itself; `priors` are those of contrast and baseline."""
    own: dict[str, str | float] = {"pipeline": pipeline if delays else "", "file": str(file or "")}
    own |= {"delays": int(delays), "errors_stated": int(stated)}
    return own | {"contrast_prior": priors[0], "baseline_prior": priors[1]}


def _in_order(given: Any, order: Array) -> Array | None:
    """Numbers given for each delay, in the sorted order of the delays; None if none are given."""
    return None if given is None else np.broadcast_to(given, order.shape)[order]


def _points(tau: Any, g2: Any, g2_err: Any, file: str | None, notes: list[str]) -> tuple[Array, Array, Array]:
    """Delays, values and errors as real numbers; errors of 1 where none are stated, which is noted."""
    x, values = real_numbers(tau, "tau", file, notes), real_numbers(g2, "g2", file, notes)
    if g2_err is not None:
        return x, values, real_numbers(g2_err, "g2_err", file, notes)
    notes.append("no errors are stated: g2_err is 1 everywhere")
    return x, values, np.ones(values.shape)


def _sorted(x: Array, g2: Array, g2_err: Array, delays: bool, file: str | None) -> tuple[xr.Dataset, Array]:
    """The record with its delays in order, and the places at which they stood."""
    check_points(x, g2, g2_err, delays, file)
    order = np.argsort(x, kind="stable")
    x, g2, g2_err = (x[order], *(np.atleast_2d(each)[:, order] for each in (g2, g2_err)))
    return _dataset(x, {"g2": g2, "g2_err": g2_err}, _masks(x, g2, g2_err, delays), delays), order


def _dataset(x: Array, points: dict[str, Array], causes: dict[str, Array], delays: bool) -> xr.Dataset:
    """The record of delays x (tau,) and points (q_bin, tau), with the number of masked points of each bin by cause."""
    dims = ("q_bin", "tau")
    points = {**points, "valid": ~np.any(list(causes.values()), axis=0)}
    masked = {name: ("q_bin", mask.sum(axis=1), {"long_name": MASKED[name]}) for name, mask in causes.items()}
    words = {"units": "s", "long_name": "delay"} if delays else {"units": "", "long_name": "x"}
    return xr.Dataset(
        {name: (dims, array, DESCRIBED[name]) for name, array in points.items()} | masked,
        coords={"q_bin": np.arange(len(points["g2"])), "tau": ("tau", x, words)},
    )


def outside(
    tau: Float[np.ndarray, " tau"], bins: int, tau_min: Any, tau_max: Any, file: str | None = None
) -> Bool[np.ndarray, "bins tau"]:
    """Which delays lie outside the range of each bin (bins, tau); None on either side is no limit.

    Raises:
        InputError: a limit is negative or NaN, or there is neither one nor one per bin.
    """
    low = _limit(0.0 if tau_min is None else tau_min, bins, "tau_min", file)
    high = _limit(np.inf if tau_max is None else tau_max, bins, "tau_max", file)
    return (tau < low) & (tau_min is not None) | (tau > high)


def _limit(given: Any, bins: int, field: str, file: str | None) -> np.ndarray:
    """A limit of the delays [s] as (bins, 1), or (1, 1) where one holds for all bins."""
    limit = np.atleast_1d(real_numbers(given, field, file, []))
    if limit.shape not in ((1,), (bins,)):
        raise InputError(
            f"expected one number, or one for each of {bins} bins, got {limit.shape}", file=file, field=field
        )
    if not np.all(limit >= 0):
        raise InputError(f"got {limit[~(limit >= 0)][0]:g}", file=file, field=field, remedy="It is a delay, in s")
    return limit[:, None]


def within(data: xr.Dataset, skip_first: int = 0, tau_min: Any = None, tau_max: Any = None) -> xr.Dataset:
    """The dataset without its first `skip_first` delays and without those outside `tau_min` to `tau_max` [s], counted
    per bin as `masked_skipped` and `masked_range`.

    Raises:
        InputError: nothing is left, or a limit is impossible.
    """
    file, before = data.attrs.get("file") or None, data
    first = np.broadcast_to(np.arange(data.sizes["tau"]) < skip_first, data.valid.shape)
    data = _masked(data, "masked_skipped", first)
    data = _masked(data, "masked_range", outside(data.tau.values, data.sizes["q_bin"], tau_min, tau_max, file))
    if _any_left(before) and not _any_left(data):
        given = {"skip_first": skip_first, "tau_min": tau_min, "tau_max": tau_max}
        field = ", ".join(name for name, value in given.items() if value is not None and np.any(value))
        raise InputError(f"leaves no point of {data.sizes['tau']} delays", field=field, file=file)
    return data


def _masked(data: xr.Dataset, cause: str, points: np.ndarray) -> xr.Dataset:
    """The dataset with these points (q_bin, tau) masked for this cause. Those without an error lose their value too:
    the counting of pairs would bring them back."""
    lost = data.valid & points
    counted = data[cause] if cause in data else xr.zeros_like(data.q_bin)
    return data.assign(
        {
            "g2": data.g2.where(~points | (data.g2_err > 0)),
            "valid": (data.valid & ~points).assign_attrs(data.valid.attrs),
            cause: (counted + lost.sum("tau")).assign_attrs(long_name=MASKED[cause]),
        }
    )


def _any_left(data: xr.Dataset) -> bool:
    """Whether any point can be used, by its error or as a number of pairs."""
    return bool(data.valid.any() or (not missing_numbers(data) and countable(data).any()))


def by_bin(data: xr.Dataset) -> xr.Dataset:
    """The dataset with dims (q_bin, tau) and delays in order. It may be one bin that a user chose by `isel`, which then
    keeps its coordinates, or come from `where`, which turns true and false into numbers.

    Raises:
        InputError: it is no dataset.
    """
    expect_curves(data)
    if "q_bin" not in data.dims:
        own = [name for name, coord in data.coords.items() if coord.ndim == 0 and name != "q_bin"]
        data = data.reset_coords(own).expand_dims("q_bin").set_coords(own)
    if "valid" in data and data.valid.dtype != bool:
        data = data.assign(valid=data.valid.fillna(0).astype(bool))
    if "tau" in data.dims and data.attrs.get("delays", 1) and np.any(np.diff(data.tau) < 0):
        places = np.argsort(data.tau.values, kind="stable")
        data = data.isel({"tau": places} | ({"tau_other": places} if "g2_cov" in data else {}))
    return data.transpose("q_bin", "tau", ..., missing_dims="ignore")


def _per_bin(given: Any, bins: int, field: str, file: str | None) -> tuple[str, Array, dict[str, str]]:
    """A coordinate of one number per bin, NaN where unknown; q may not be negative."""
    if given is None:
        return "q_bin", np.full(bins, np.nan), UNITS[field]
    array = np.atleast_1d(real_numbers(given, field, file, []))
    if array.shape != (bins,):
        raise InputError(f"expected one value per bin, shape ({bins},), got {array.shape}", file=file, field=field)
    if (bad := np.isinf(array) | ((array < 0) & (field != "phi"))).any():
        index = int(np.argmax(bad))
        remedy = "phi is an angle, in degree" if field == "phi" else "It is in 1/angstrom; NaN where unknown"
        raise InputError(f"got {array[index]:g}", file=file, field=field, bin=index, remedy=remedy)
    return "q_bin", array, UNITS[field]


def _masks(tau: np.ndarray, g2: np.ndarray, g2_err: np.ndarray, delays: bool) -> dict[str, np.ndarray]:
    """Each masked point under one cause, the first that applies."""
    with np.errstate(invalid="ignore"):
        tests = {
            "masked_delay": np.broadcast_to(delays & (tau == 0), g2.shape),
            "masked_zero_pairs": (g2 == 0) & (g2_err == 0),
            "masked_value": ~np.isfinite(g2) | (delays & (np.isin(g2, SENTINELS) | (np.abs(g2) >= LARGEST))),
            "masked_error": ~((g2_err >= SMALLEST_ERROR) & (g2_err < (LARGEST if delays else np.inf))),
        }
    taken = np.zeros(g2.shape, bool)
    causes = {}
    for name, test in tests.items():
        causes[name] = test & ~taken
        taken |= test
    return causes

"""What a dataset was taken for, in words: so that a wrong unit or a lost column is seen before any fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from bayesfit.data.counting import Counting, missing_numbers
from bayesfit.data.curves import MASKED, by_bin

FRAMES = "delays are whole numbers: are they frames? tau has unit s"
SPECIMEN = ("temperature", "viscosity", "refractive_index", "wavelength")
NO_ERRORS = "none stated"


def describe(curves: xr.Dataset) -> list[str]:
    """What `bayesfit.read` understood of a file, or what `bayesfit.curves` was given, in two lines.

    The first names the layout, how many bins and delays there are, and the ranges of q, phi, angle and tau, with the
    units in which the file states them. The second says where the errors come from, which points are masked and why,
    what was left out, what is known of the specimen, and what else was noted. `fit` keeps both as attribute
    `understood` of its result.

    Args:
        curves: what `bayesfit.read`, `curves`, `average` or `stack` returned.

    Example:
        >>> import bayesfit
        >>> for line in bayesfit.describe(bayesfit.read("data/table_sim.csv")):
        ...     print(line)
        wide table (pipeline table): 8 bins of 48 delays; q 0.003 to 0.03 1/angstrom (read in 1/angstrom, assumed: not
        stated), tau 0.001 to 100 s (read in s, assumed: not stated)
        errors: twin file table_sim_err.csv; 384 of 384 points used
    """
    data = by_bin(curves)
    return [f"{_kind(data)}: {_size(data)}; {_axes(data)}", "; ".join(_details(data))]


def _kind(data: xr.Dataset) -> str:
    """The layout and the pipeline that read it."""
    pipeline, layout = data.attrs.get("pipeline", ""), data.attrs.get("layout", "")
    if not data.attrs.get("file"):
        return layout or "arrays"
    return f"{layout} (pipeline {pipeline})" if layout else f"pipeline {pipeline}"


def _size(data: xr.Dataset) -> str:
    bins, delays = data.sizes["q_bin"], data.sizes["tau"]
    points = "delays" if data.attrs.get("delays", 1) else "points"
    return f"{bins} bins of {delays} {points}" if bins > 1 else f"1 bin of {delays} {points}"


def _axes(data: xr.Dataset) -> str:
    """The ranges of all axes, each with the unit that the file states it in."""
    said = [_range("q", data.q.values, "1/angstrom", data.attrs.get("q_unit", ""))]
    if np.isfinite(data.phi.values).any():
        said.append(_range("phi", data.phi.values, "degree"))
    if "angle" in data.coords:
        said.append(_range("angle", data.angle.values, "degree"))
    tau = data.tau.values
    if data.attrs.get("delays", 1):
        said.append(_range("tau", tau[tau > 0] if np.any(tau > 0) else tau, "s", data.attrs.get("tau_unit", "")))
    else:
        said.append(_range("x", tau, ""))
    return ", ".join(said)


def _range(name: str, values: Any, unit: str, read_in: str = "") -> str:
    """The range of some values, NaN left aside; the unit they were read in where it says more than `unit`."""
    finite = np.asarray(values, float)[np.isfinite(np.asarray(values, float))]
    if finite.size == 0:
        return f"{name} unknown" + (f" ({read_in})" if read_in else "")
    low, high = f"{finite.min():.4g}", f"{finite.max():.4g}"
    words = f"{name} {low} to {high} {unit}" if high != low else f"{name} {low} {unit}"
    missing = np.size(values) - finite.size
    unknown = f", unknown for {missing} bins" if missing and name != "tau" else ""
    return words.rstrip() + (f" (read in {read_in})" if read_in not in ("", unit) else "") + unknown


def _details(data: xr.Dataset) -> list[str]:
    """Errors, masked points, what was left out, the specimen, and notes."""
    stated = data.attrs.get("errors_from") or ("stated" if data.attrs.get("errors_stated", 1) else NO_ERRORS)
    said = [f"errors: {stated}", f"{int(data.valid.sum())} of {data.valid.size} points used", *_masked(data)]
    if not missing_numbers(data):
        said.append(_counting(data))
    if left_out := data.attrs.get("left_out", ""):
        said.append(f"left out: {left_out}")
    for name in SPECIMEN:
        if isinstance(value := data.attrs.get(name), int | float):
            unit = data.attrs.get(f"{name}_units", "1")
            said.append(f"{name.replace('_', ' ')} {value:.6g}" + (f" {unit}" if unit != "1" else ""))
    if not data.attrs.get("tau_unit") and _counted_in_frames(data):
        said.append(FRAMES)
    notes = data.attrs.get("notes", "")
    return [*said, notes] if notes else said


def _counted_in_frames(data: xr.Dataset) -> bool:
    """Whether delays may be numbers of frames: three or more, all whole."""
    tau = data.tau.values
    return bool(data.attrs.get("delays", 1)) and tau.size > 2 and bool(np.all(tau == np.round(tau)))


def _counting(data: xr.Dataset) -> str:
    """The numbers by which photon pairs are counted."""
    photons = _range("photons per pixel and frame", data.counts.values, "")
    repeats = Counting.of(data).repeats
    number = " to ".join(dict.fromkeys(f"{end:g}" for end in (repeats.min(), repeats.max())))
    files = f", average of {number} series" if np.any(repeats != 1) else ""
    pixels = _range("pixels", data.pixels.values, "")
    return f"{photons}, {pixels}, {data.attrs['frames']:g} frames{files}: pairs can be counted"


def _masked(data: xr.Dataset) -> list[str]:
    """How many points are masked for each cause, and in how many bins."""
    said = []
    for cause, words in MASKED.items():
        count = data[cause].values if cause in data else np.zeros(1)
        if count.sum():
            said.append(f"{int(count.sum())} masked in {int(np.sum(count > 0))} bins ({words})")
    return said

"""The dataset that a table becomes: its numbers in our units, and what was understood, in words."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, curves
from bayesfit.pipelines._above import Above
from bayesfit.pipelines._optics import optics_of, q_of_angles
from bayesfit.pipelines._sheet import Reading
from bayesfit.pipelines._table_options import Options
from bayesfit.pipelines._unit_names import OURS, Unit, accepted

ASSUMED = ", assumed: not stated"
LONGEST, LAST = 10.0, 1e5  # s; a first delay above `LONGEST` or a last one above `LAST` is unusual
LARGEST = 2.0  # 1/angstrom
RADIANS = 3.15
NEAR_ZERO = 0.5  # the mean of the last values, halfway between the baselines of g2 and g2 - 1


def dataset(path: Path, reading: Reading, above: Above, options: Options, **amplitudes: Any) -> xr.Dataset:
    """The record that `fit` takes, in our units, with what was understood in its attributes."""
    values, units = _in_our_units(path, reading, above, options)
    tau, bins = values["tau"], values
    reference, looks = _reference(reading, options)
    notes = [*reading.notes, *_unusual(tau, bins, units), *looks]
    q, phi, angle = (bins.get(word) for word in ("q", "phi", "angle"))
    data = curves(
        tau, reading.g2, reading.g2_err, q=q, phi=phi, baseline_reference=reference, file=str(path), **amplitudes
    )
    data.attrs["notes"] = "; ".join(filter(None, [data.attrs["notes"], *notes]))
    data.attrs |= {"layout": reading.layout, "tau_unit": units["tau"], "q_unit": units.get("q", "")}
    data.attrs["errors_from"] = reading.errors_from or "none stated"
    if reading.left_out:
        data.attrs["left_out"] = ("columns " if len(reading.left_out) > 1 else "column ") + ", ".join(reading.left_out)
    if above.temperature is not None:
        data.attrs |= {"temperature": above.temperature, "temperature_units": "K"}
    if angle is not None:
        data = data.assign_coords(angle=("q_bin", angle, {"units": "degree"}))
    if reading.labels is not None and len(reading.labels) > 1:
        data = data.assign_coords(label=("q_bin", np.array(reading.labels)))
    return data


def _in_our_units(
    path: Path, reading: Reading, above: Above, options: Options
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """tau [s] and, for each bin, q [1/angstrom], phi and angle [degree], if they are given; and the units in which they
    were read, in words."""
    values = {"tau": reading.tau, **_of_bins(reading, above)}
    words = {}
    for word in list(values):
        unit, words[word] = _unit_of(word, path, reading, above, options)
        values[word] = values[word] * unit.factor
    if "q" not in values:
        optics = optics_of(options.optics, reading, above, path)
        if "angle" not in values and optics.angle is not None:
            values["angle"], words["angle"] = np.full(len(reading.g2), optics.angle), "deg"
        if "angle" in values and (optics.complete or "angle" in reading.bins or "angle" in options.optics):
            named = "angle" in options.columns or optics.angle is not None
            values["q"] = q_of_angles(values["angle"], optics, path, reading.names.get("angle", "angle"), named)
            words["q"] = words["angle"]
    return values, words


def _of_bins(reading: Reading, above: Above) -> dict[str, np.ndarray]:
    """q, phi and angle of each bin, from the table or else from the lines above it."""
    bins = dict(reading.bins)
    for word in ("q", "angle"):
        if word in above.quantities and not bins.keys() & {"q", "angle"}:
            numbers, _ = above.quantities[word]
            if numbers.size == len(reading.g2) and (word == "q" or numbers.size > 1):
                bins[word] = numbers
    return bins


def _unit_of(word: str, path: Path, reading: Reading, above: Above, options: Options) -> tuple[Unit, str]:
    """The unit of a quantity, and in words where it comes from: the settings, the headings, the lines above the table,
    or nowhere.

    Raises:
        InputError: a heading states a unit that was not understood.
    """
    if word in options.units:
        return options.units[word], f"{options.units[word].name}, from the settings"
    if word in reading.units:
        return reading.units[word], f"{reading.units[word].name}, from the heading"
    if word in reading.strange:
        raise InputError(
            f"unknown unit {reading.strange[word]!r}; accepted: {accepted(word)}",
            file=path,
            field=word,
            remedy=f'--set units.{word}=..., also as a number of units, units.tau="0.005 s"',
        )
    said = above.units.get(word)
    if word not in reading.bins and word in above.quantities and word != "tau":
        said = above.quantities[word][1] or said
    if said is not None:
        return said, f"{said.name}, from a line above the table"
    return Unit(OURS[word], 1.0), OURS[word] + ASSUMED


def _unusual(tau: np.ndarray, values: dict[str, np.ndarray], units: dict[str, str]) -> list[str]:
    """Notes on numbers that are unusual in a unit that was assumed."""
    notes = []
    delays = tau[np.isfinite(tau) & (tau > 0)]
    if units["tau"].endswith(ASSUMED) and delays.size and (delays.min() > LONGEST or delays.max() > LAST):
        remedy = "for another unit --set units.tau=us (s, ms, us, ns, min)"
        notes.append(f"delays from {delays.min():.4g} to {delays.max():.4g} s are not usual: {remedy}")
    elif units["tau"].endswith(ASSUMED) and delays.size > 2 and np.all(delays == np.round(delays)):
        notes.append('delays are whole numbers: for frames --set units.tau="0.005 s", the time of one')
    q = values.get("q", np.empty(0))
    if units.get("q", "").endswith(ASSUMED) and np.any(q > LARGEST):
        remedy = "for another unit --set units.q=1/nm (1/angstrom, 1/um, 1/cm, 1/m); for angles --set units.angle=deg"
        notes.append(f"q up to {np.nanmax(q):.4g} 1/angstrom is not usual: {remedy}")
    angle = values.get("angle", np.empty(0))
    if units.get("angle", "").endswith(ASSUMED) and angle.size and np.nanmax(angle) < RADIANS:
        notes.append(f"angles up to {np.nanmax(angle):.4g} degree are not usual: for radians --set units.angle=rad")
    return notes


def _reference(reading: Reading, options: Options) -> tuple[float, list[str]]:
    """The baseline in theory, 1 for g2 and 0 for g2 - 1, as the settings or the headings say; and a note if the values
    look like the other of the two."""
    minus_one = reading.minus_one if options.minus_one is None else options.minus_one
    reference = 0.0 if minus_one else 1.0
    last = reading.g2[:, np.argsort(reading.tau)[-max(1, len(reading.tau) // 5) :]]
    last = last[np.isfinite(last) & (np.abs(last) < 900.0)]  # without numbers that mark missing values, such as -999
    if options.minus_one is not None or last.size == 0:
        return reference, []
    if not minus_one and np.median(last) < NEAR_ZERO:
        return reference, ["values end near 0, not 1: where they are g2 - 1, --set units.g2=g2-1"]
    if minus_one and np.median(last) > NEAR_ZERO:
        return reference, ["values end near 1, not 0: where they are g2, --set units.g2=g2"]
    return reference, []

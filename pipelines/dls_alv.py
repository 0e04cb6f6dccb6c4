"""ALV correlators (.ASC, Windows-1252): dynamic light scattering at one angle or many.

Layout      header lines `Key : value`; block "Correlation": lag in ms, then g2 - 1 for each channel or angle;
            sometimes a block "StandardDeviation" of the same form. Unused channels are zero throughout and are left
            out. Each channel in use is one bin, with its angle's q = 4 pi n / lambda * sin(theta / 2).
            Several runs in one file, "Correlation (Multi, Averaged)", have a line of column titles; only the columns
            "Average" are read, since the runs beside them are the same data again.
            Decimal points or commas; a missing value may read 1.#QNAN, as the C library under Windows writes it.
One light   The header's `Mode` says which detectors are correlated (`_alv_mode.py`). Both orders of a pseudo
            cross-correlation, 0/1 and 1/0, see the same light: they share its fluctuations, and only the shot noise of
            their photon pairs differs. They are averaged into one bin. Its stated error is the root mean square of
            theirs, and is not divided by the root of 2: in measurements at 13 angles with 3 repeats each, the noise of
            the two correlates by 0.994 or more where the curve has decayed. At the first delays, where the noise comes
            from photon pairs, it correlates by 0.35 to 0.87 only, so there the stated error is too large, which is the
            safe side. Autocorrelations are bins of their own.
Range       A detector counts no second photon within its dead time of some 20 to 100 ns. Its afterpulses, false counts
            that follow a true one, decay within about a microsecond. Both distort an autocorrelation at short delays:
            afterpulses add the distribution of their delays, divided by the mean count rate (Zhao et al., Appl. Opt.
            42, 4031 (2003); Hoebel & Ricka, Rev. Sci. Instrum. 65, 2326 (1994)). One afterpulse per hundred counts,
            with a time constant of 0.3 us and at 100 kHz, adds 0.3 at delay 0, 0.01 at 1 us and 4e-4 at 2 us. So
            autocorrelations are read from 2 us on unless `tau_min` says otherwise. A cross-correlation of two
            detectors is not distorted, since the counts of one are independent of the dead time and the afterpulses of
            the other; it is read from its first delay.
Averages    The instrument also writes the average of its runs, NAME_averaged.ASC, without a block "Count Rate". Such a
            file is left out if a run of the same series is given with it.
Amplitudes  The file holds g2 - 1, which is read as g2, since that is a number of photon pairs over the expected one.
            Light scattering on a single mode sees contrasts up to 1.
Photons     Count rates and duration say how many pairs are behind each point (`_alv_counts.py`).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.api.hydrodynamics import hydrodynamic_radius
from bayesfit.pipelines._alv_counts import counting_of
from bayesfit.pipelines._alv_mode import Column, averaged, columns_of
from bayesfit.pipelines._alv_text import BOM, NUMBER, Header, as_number, block_of, header_of, lines_of
from bayesfit.pipelines._quantities import relaxation

QUANTITIES = {  # header key: attribute, factor to its unit, unit
    "Temperature [K]": ("temperature", 1.0, "K"),
    "Viscosity [cp]": ("viscosity", 1e-3, "Pa s"),
    "Refractive Index": ("refractive_index", 1.0, "1"),
    "Wavelength [nm]": ("wavelength", 10.0, "angstrom"),
}
AVERAGED = re.compile(r"[_ -]?(averaged?|avg|mean)$", re.IGNORECASE)
SERIES = re.compile(r"[_ -]*(averaged?|avg|mean|\d+)$", re.IGNORECASE)  # the end of the name of a run or an average
OF_OTHERS = "hold the instrument's average of others, which are fitted instead"
FIRST_DELAY = 2e-6  # s, from which an autocorrelation is read
WORDS = ("samplename", "date", "time", "mode")


def recognise(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(65536)
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    if not head.removeprefix(BOM).lstrip().startswith(b"ALV"):
        return "does not begin with ALV"
    return None if b'"Correlation' in head else 'no block "Correlation"'


def read(path: Path, *, tau_min: Any = None) -> xr.Dataset:
    """The curves of a file, with three more coordinates of each bin: `angle` [degree], `channel` (the first column of
    the bin) and `correlation` (what is correlated). `tau_min` [s], one number or one per bin, is the first delay that
    is read, in place of 2 us for autocorrelations."""
    lines = lines_of(path)
    header = header_of(lines)
    table = block_of(lines, "Correlation", path)
    used = np.flatnonzero(np.any(table[:, 1:] != 0, axis=0))
    if used.size == 0:
        raise InputError("every channel is zero", file=path, field="Correlation")
    angles = _angles(header, used, table.shape[1] - 1, path)
    errors = _errors(lines, table, used, path)
    columns = columns_of(dict(header).get("mode", ""), used, one_light=bool(np.ptp(angles) == 0))
    g2, g2_err = averaged(columns, table[:, 1 + used].T, errors)
    first = [column.places[0] for column in columns]
    attrs = {**_quantities(header, path), "angle_units": "degree"}
    tau, average = table[:, 0] * 1e-3, _is_average(path.read_bytes())
    counting, uncounted = counting_of(dict(header), columns, tau, average)
    understood = _understood(columns, used, table.shape[1] - 1, errors is not None)
    data = curves(
        tau,
        1.0 + g2,
        g2_err,
        q=4 * np.pi * attrs["refractive_index"] / attrs["wavelength"] * np.sin(np.radians(angles[first]) / 2),
        tau_min=[FIRST_DELAY * column.of_one_detector for column in columns] if tau_min is None else tau_min,
        file=str(path),
        contrast_prior="TruncatedNormal(0.5, 0.5, low=0)",
        baseline_prior="Normal(1, 0.05)",
        attrs=attrs | understood | ({"frame_time": float(tau[0])} if counting else {}),
        **counting,
    )
    notes = [data.attrs["notes"], "the instrument's average of its runs" * average, uncounted]
    notes += _notes(columns, dict(header).get("mode", ""), data, tau_min is None)
    return data.assign_attrs(notes="; ".join(filter(None, notes))).assign_coords(
        angle=("q_bin", angles[first], {"units": "degree"}),
        channel=("q_bin", used[first]),
        correlation=("q_bin", np.array([column.words for column in columns])),
    )


def _understood(columns: Sequence[Column], used: np.ndarray, count: int, stated: bool) -> dict[str, str]:
    """The attributes from which `bayesfit.describe` says what the file was taken for."""
    averaged = ", averaged, since they are of the same light" if len(columns) < used.size else ""
    empty = [str(place + 1) for place in range(count) if place not in used]
    return {
        "layout": "ALV, g2 - 1 read as g2, " + ", ".join(dict.fromkeys(column.words for column in columns)) + averaged,
        "tau_unit": "ms",
        "errors_from": "block StandardDeviation" if stated else "",
        "left_out": f"columns {', '.join(empty)}, zero throughout" if empty else "",
    }


def _notes(columns: Sequence[Column], mode: str, data: xr.Dataset, default: bool) -> list[str]:
    """Notes to the user on how the columns were understood."""
    notes = []
    if not columns[0].curves:
        said = f"the mode {mode!r} does not say what the columns are" if mode else "no line says the mode"
        notes.append(f"{said}: each is a bin, taken to be of a single detector")
    if default and data.masked_range.any():
        notes.append(
            f"autocorrelations are read from {FIRST_DELAY * 1e6:g} us on, for dead time and afterpulses (tau_min = 0 "
            "reads them all)"
        )
    return notes


def _is_average(text: bytes) -> bool:
    """Whether a file is the instrument's average of several runs: only files of single runs hold count rates."""
    return b'"Count' not in text


def averages_of_others(files: Sequence[Path]) -> dict[Path, str]:
    """Those files that are the instrument's averages of others among them, by their names or because they hold no count
    rates, each with what it is."""
    ours = [path for path in files if recognise(path) is None]
    average = {path: bool(AVERAGED.search(path.stem)) or _is_average(path.read_bytes()) for path in ours}
    runs = {_series(path) for path in ours if not average[path]}
    return {path: OF_OTHERS for path in ours if average[path] and _series(path) in runs}


def _series(path: Path) -> tuple[Path, str]:
    """The series to which a file belongs: its folder, and the name that all runs of the series begin with."""
    return path.parent, SERIES.sub("", path.stem)


def _quantities(header: Header, path: Path) -> dict[str, Any]:
    """Temperature [K], viscosity [Pa s], refractive index and wavelength [angstrom], with their units."""
    found = dict(header)
    attrs: dict[str, Any] = {}
    for key, (name, factor, unit) in QUANTITIES.items():
        match = NUMBER.search(found.get(key.lower(), ""))
        if match is None or as_number(match[0]) <= 0:
            got = f"got {found[key.lower()]!r}" if key.lower() in found else "got no such line"
            raise InputError(f"expected a number above 0 in the header, {got}", file=path, field=key)
        attrs[name] = as_number(match[0]) * factor
        attrs[f"{name}_units"] = unit
    return attrs | {key: found[key] for key in WORDS if key in found}


def _angles(header: Header, used: np.ndarray, columns: int, path: Path) -> np.ndarray:
    """Scattering angle [degree] of each channel in use. The header states one angle for all, one per column, or one per
    channel in use."""
    angles = np.array([as_number(v) for key, text in header if key.startswith("angle") for v in NUMBER.findall(text)])
    if angles.size == 1:
        angles = np.repeat(angles, used.size)
    elif angles.size == columns:
        angles = angles[used]
    elif angles.size != used.size:
        raise InputError(f"{angles.size} angles for {used.size} channels in use", file=path, field="Angle")
    if np.any((angles <= 0) | (angles > 180)):
        raise InputError(f"expected 0 to 180 degrees, got {angles}", file=path, field="Angle")
    return angles


def _errors(lines: list[str], table: np.ndarray, used: np.ndarray, path: Path) -> np.ndarray | None:
    """Stated errors (channel, tau), from one column per channel or one column for all; None if the file has none."""
    if not any(line.strip().startswith('"StandardDeviation') for line in lines):
        return None
    deviations = block_of(lines, "StandardDeviation", path)
    if len(deviations) != len(table):
        raise InputError(
            f"has {len(deviations)} lags, the correlation {len(table)}",
            file=path,
            field="StandardDeviation",
            remedy="Is it cut?",
        )
    if not np.allclose(deviations[:, 0], table[:, 0], rtol=1e-4, atol=0):
        raise InputError("its lags differ from those of the correlation", file=path, field="StandardDeviation")
    columns = deviations[:, 1:]
    if columns.shape[1] == table.shape[1] - 1:
        return columns[:, used].T
    if columns.shape[1] == used.size:
        return columns.T
    if columns.shape[1] == 1:
        return np.repeat(columns.T, used.size, axis=0)
    raise InputError(
        f"{columns.shape[1]} columns for {used.size} channels in use", file=path, field="StandardDeviation"
    )


def derive(posterior: xr.Dataset, data: xr.Dataset) -> xr.Dataset:
    """Relaxation times, D, and the hydrodynamic radius at the file's temperature and viscosity."""
    derived = relaxation(posterior, data)
    if "D" in derived and {"temperature", "viscosity"} <= set(data.attrs):
        derived["hydrodynamic_radius"] = hydrodynamic_radius(
            derived["D"], data.attrs["temperature"], data.attrs["viscosity"]
        )
    return derived


pipeline = Pipeline(
    name="dls_alv",
    recognise=recognise,
    read=read,
    derive=derive,
    description="ALV correlator .ASC, one or many angles",
    options=("tau_min",),
    of_others=averages_of_others,
)

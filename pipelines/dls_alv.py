"""ALV correlators (.ASC, Windows-1252): dynamic light scattering at one angle or many.

Layout      header lines `Key : value`; block "Correlation": lag in ms, then g2 - 1 for each channel or angle;
            sometimes a block "StandardDeviation" of the same form. Unused channels are zero throughout and are left
            out. Each channel in use is one bin, with its angle's q = 4 pi n / lambda * sin(theta / 2).
            Several runs in one file, "Correlation (Multi, Averaged)", have a line of column titles; only the columns
            "Average" are read, since the runs beside them are the same data again.
            Decimal points or commas; a missing value may read 1.#QNAN, as the C library under Windows writes it.
Amplitudes  Light scattering on a single mode sees contrasts up to 1, on a baseline of 0 since the file holds g2 - 1.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.pipelines._quantities import hydrodynamic_radius, relaxation

BOM = b"\xef\xbb\xbf"
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d*)?(?:[eE][-+]?\d+)?")
NOT_A_NUMBER = re.compile(r"[-+]?(?:nan|inf|\d[.,]#(?:qnan|snan|ind|inf)\S*)", re.IGNORECASE)
QUANTITIES = {  # header key: attribute, factor to its unit, unit
    "Temperature [K]": ("temperature", 1.0, "K"),
    "Viscosity [cp]": ("viscosity", 1e-3, "Pa s"),
    "Refractive Index": ("refractive_index", 1.0, "1"),
    "Wavelength [nm]": ("wavelength", 10.0, "angstrom"),
}
WORDS = ("samplename", "date", "time", "mode")
Header = list[tuple[str, str]]


def recognise(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(65536)
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    if not head.removeprefix(BOM).lstrip().startswith(b"ALV"):
        return "does not begin with ALV"
    return None if b'"Correlation' in head else 'no block "Correlation"'


def read(path: Path) -> xr.Dataset:
    lines = _lines(path)
    header = _header(lines)
    table = _block(lines, "Correlation", path)
    used = np.flatnonzero(np.any(table[:, 1:] != 0, axis=0))
    if used.size == 0:
        raise InputError("every channel is zero", file=path, field="Correlation")
    angles = _angles(header, used, table.shape[1] - 1, path)
    attrs = {**_quantities(header, path), "angle_units": "degree"}
    q = 4 * np.pi * attrs["refractive_index"] / attrs["wavelength"] * np.sin(np.radians(angles) / 2)
    data = curves(
        table[:, 0] * 1e-3,
        table[:, 1 + used].T,
        _errors(lines, table, used, path),
        q=q,
        file=str(path),
        contrast_prior="TruncatedNormal(0.5, 0.5, low=0)",
        baseline_prior="Normal(0, 0.05)",
        attrs=attrs,
    )
    return data.assign_coords(angle=("q_bin", angles, {"units": "degree"}), channel=("q_bin", used))


def _lines(path: Path) -> list[str]:
    """The file's lines.

    Raises:
        InputError: the last line has no ending, and is no full row of numbers: it was cut.
    """
    text = path.read_bytes().removeprefix(BOM).decode("cp1252", errors="replace")
    lines = text.splitlines()
    complete = text.endswith("\n") or (len(lines) > 1 and lines[-1][:1].isspace() and len(lines[-1]) == len(lines[-2]))
    if not complete:
        raise InputError(
            f"line {len(lines)}: the file ends within this line", file=path, remedy="The copy was cut short"
        )
    return lines


def _header(lines: list[str]) -> Header:
    """Key and value of each line before the first block; keys in lower case, with single spaces."""
    pairs = []
    for line in lines:
        if line.lstrip().startswith('"'):
            break
        key, colon, value = line.partition(":")
        if colon:
            pairs.append((" ".join(key.lower().split()), value.strip().strip('"')))
    return pairs


def _quantities(header: Header, path: Path) -> dict[str, Any]:
    """Temperature [K], viscosity [Pa s], refractive index and wavelength [angstrom], with their units."""
    found = dict(header)
    attrs: dict[str, Any] = {}
    for key, (name, factor, unit) in QUANTITIES.items():
        match = NUMBER.search(found.get(key.lower(), ""))
        if match is None or _number(match[0]) <= 0:
            got = f"got {found[key.lower()]!r}" if key.lower() in found else "got no such line"
            raise InputError(f"expected a number above 0 in the header, {got}", file=path, field=key)
        attrs[name] = _number(match[0]) * factor
        attrs[f"{name}_units"] = unit
    return attrs | {key: found[key] for key in WORDS if key in found}


def _angles(header: Header, used: np.ndarray, columns: int, path: Path) -> np.ndarray:
    """Scattering angle [degree] of each used channel: one for all, one for each column, or one for each used one."""
    angles = np.array([_number(v) for key, text in header if key.startswith("angle") for v in NUMBER.findall(text)])
    if angles.size == 1:
        angles = np.repeat(angles, used.size)
    elif angles.size == columns:
        angles = angles[used]
    elif angles.size != used.size:
        raise InputError(f"{angles.size} angles for {used.size} channels in use", file=path, field="Angle")
    if np.any((angles <= 0) | (angles > 180)):
        raise InputError(f"expected 0 to 180 degrees, got {angles}", file=path, field="Angle")
    return angles


def _block(lines: list[str], name: str, path: Path) -> np.ndarray:
    """The numbers of a block (lag, column); of a block with column titles, those of its averages.

    Raises:
        InputError: a row is damaged, or the file ends before the empty line that ends the correlation.
    """
    start = next(number for number, line in enumerate(lines, 1) if line.strip().startswith(f'"{name}'))
    titles = re.findall(r'"([^"]*)"', lines[start]) if lines[start : start + 1] and '"Lag' in lines[start] else []
    first = start + bool(titles)
    rows: list[list[float]] = []
    for number, line in enumerate(lines[first:], first + 1):
        words = line.split()
        if not words or words[0][0].isalpha() or words[0].startswith('"'):
            break
        try:
            rows.append([_number(word) for word in words])
        except ValueError as error:
            raise InputError(f"line {number}: {error}", file=path, field=name) from error
        expected = max(2, len(titles), len(rows[0]))
        if len(words) != expected:
            problem = f"line {number}: expected {expected} columns, got {len(words)}"
            raise InputError(problem, file=path, field=name, remedy="Is it cut?")
    else:
        if name == "Correlation":
            remedy = "If nothing is cut, add an empty line"
            raise InputError("the file ends within this block", file=path, field=name, remedy=remedy)
    if not rows:
        raise InputError("the block is empty", file=path, field=name)
    averages = [column for column, title in enumerate(titles) if title.strip().lower().startswith("average")]
    return np.array(rows)[:, [0, *averages]] if averages else np.array(rows)


def _number(word: str) -> float:
    """A number with a decimal point or comma; NaN where it stands for none.

    Raises:
        ValueError: it is no number.
    """
    if NOT_A_NUMBER.fullmatch(word):
        return np.nan
    if not NUMBER.fullmatch(word):
        raise ValueError(f"{word!r} is not a number")
    return float(word.replace(",", "."))


def _errors(lines: list[str], table: np.ndarray, used: np.ndarray, path: Path) -> np.ndarray | None:
    """Stated errors (bin, tau): a column for each channel, or one column for all; None where there is no such block."""
    if not any(line.strip().startswith('"StandardDeviation') for line in lines):
        return None
    deviations = _block(lines, "StandardDeviation", path)
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
)

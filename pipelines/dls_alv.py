"""ALV correlators (.ASC, Windows-1252): dynamic light scattering at one angle or many.

Layout      header lines `Key : value`; block "Correlation": lag in ms, then g2 - 1 for each channel or angle; sometimes a
            block "StandardDeviation" of the same form. Unused channels are zero throughout and are left out.
            Each channel in use is one bin, with its angle's q = 4 pi n / lambda * sin(theta / 2).
Amplitudes  Light scattering on a single mode sees contrasts up to 1, on a baseline of 0 since the file holds g2 - 1.
"""

import re
from pathlib import Path

import numpy as np
import xarray as xr

from bayesfit import InputError, Pipeline, curves
from bayesfit.pipelines._quantities import hydrodynamic_radius, relaxation

NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
QUANTITIES = {  # header key: attribute, factor to its unit, unit
    "Temperature [K]": ("temperature", 1.0, "K"),
    "Viscosity [cp]": ("viscosity", 1e-3, "Pa s"),
    "Refractive Index": ("refractive_index", 1.0, "1"),
    "Wavelength [nm]": ("wavelength", 10.0, "angstrom"),
}


def recognise(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(65536)
    if not head.lstrip().startswith(b"ALV"):
        return "does not begin with ALV"
    return None if b'"Correlation"' in head else 'no block "Correlation"'


def read(path: Path) -> xr.Dataset:
    lines = path.read_text(encoding="cp1252", errors="replace").splitlines()
    header = _header(lines)
    table = _block(lines, "Correlation", path)
    if table is None:
        raise InputError("the block is empty", file=path, field="Correlation")
    used = np.flatnonzero(np.any(table[:, 1:] != 0, axis=0))
    if used.size == 0:
        raise InputError("every channel is zero", file=path, field="Correlation")
    angles = _angles(header, used, table.shape[1] - 1, path)
    attrs = {**_quantities(header, path), "angle_units": "degree"}
    q = 4 * np.pi * attrs["refractive_index"] / attrs["wavelength"] * np.sin(np.radians(angles) / 2)
    errors = _errors(_block(lines, "StandardDeviation", path), table, used, path)
    data = curves(
        table[:, 0] * 1e-3,
        table[:, 1 + used].T,
        errors,
        q=q,
        file=str(path),
        contrast_prior="TruncatedNormal(0.5, 0.5, low=0)",
        baseline_prior="Normal(0, 0.05)",
        attrs=attrs,
    )
    return data.assign_coords(angle=("q_bin", angles, {"units": "degree"}), channel=("q_bin", used))


def _header(lines: list[str]) -> list[tuple[str, str]]:
    """Key and value of each line before the first block."""
    pairs = []
    for line in lines:
        if line.startswith('"'):
            break
        key, colon, value = line.partition(":")
        if colon:
            pairs.append((" ".join(key.split()), value.strip().strip('"')))
    return pairs


def _quantities(header: list[tuple[str, str]], path: Path) -> dict[str, float | str]:
    """Temperature [K], viscosity [Pa s], refractive index and wavelength [angstrom], with their units."""
    found = dict(header)
    attrs: dict[str, float | str] = {}
    for key, (name, factor, unit) in QUANTITIES.items():
        match = NUMBER.search(found.get(key, ""))
        if match is None or float(match[0]) <= 0:
            raise InputError("expected a number above 0 in the header", file=path, field=key)
        attrs[name] = float(match[0]) * factor
        attrs[f"{name}_units"] = unit
    for key in ("Samplename", "Date", "Time", "Mode"):
        if key in found:
            attrs[key.lower()] = found[key]
    return attrs


def _angles(header: list[tuple[str, str]], used: np.ndarray, columns: int, path: Path) -> np.ndarray:
    """Scattering angle [degree] of each used channel: one for all, one for each used one, or one for each column."""
    values = [float(v) for key, text in header if key.startswith("Angle") for v in NUMBER.findall(text)]
    angles = np.array(values)
    if angles.size == 1:
        return np.repeat(angles, used.size)
    if angles.size == used.size:
        return angles
    if angles.size == columns:
        return angles[used]
    raise InputError(f"{angles.size} angles for {used.size} channels in use", file=path, field="Angle")


def _block(lines: list[str], name: str, path: Path) -> np.ndarray | None:
    """The numbers of a block (lag, column), None where there is no such block."""
    titles = [line.strip() for line in lines]
    if f'"{name}"' not in titles:
        return None
    rows: list[list[float]] = []
    start = titles.index(f'"{name}"') + 1
    for number, line in enumerate(lines[start:], start + 1):
        words = line.split()
        if not words or line.startswith('"'):
            break
        try:
            rows.append([float(word.replace(",", ".")) for word in words])
        except ValueError:
            break
        if len(rows[-1]) != len(rows[0]):
            raise InputError(f"line {number}: expected {len(rows[0])} columns", file=path, field=name, remedy="Is it cut?")
    return np.array(rows) if rows else None


def _errors(deviations: np.ndarray | None, table: np.ndarray, used: np.ndarray, path: Path) -> np.ndarray | None:
    """Stated errors (bin, tau): a column for each channel, or one column for all."""
    if deviations is None:
        return None
    if deviations.shape[0] != table.shape[0] or not np.allclose(deviations[:, 0], table[:, 0], rtol=1e-4):
        raise InputError("its lags differ from those of the correlation", file=path, field="StandardDeviation")
    columns = deviations[:, 1:]
    if columns.shape[1] == table.shape[1] - 1:
        return columns[:, used].T
    if columns.shape[1] == used.size:
        return columns.T
    return np.repeat(columns[:, :1].T, used.size, axis=0)


def derive(posterior: xr.Dataset, data: xr.Dataset) -> xr.Dataset:
    """Relaxation times, D, and the hydrodynamic radius at the file's temperature and viscosity."""
    derived = relaxation(posterior, data)
    if "D" in derived:
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

"""`bayesfit calibrate`: where a detector stands, from an image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesfit.cli.app import NONE_OK, app
from bayesfit.cli.options import Cache, CpuDevices, Device, MemoryFraction, hardware_of, start

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from bayesfit.geometry.detector import Detector

SETTINGS = ("priors", "fixed", "draws", "chains", "seed", "knots", "q_range")
NOMINAL = ("distance", "wavelength", "pixel_size")  # what else a detector needs that no file describes


@app.command()
def calibrate(
    context: typer.Context,
    image: Annotated[Path, typer.Argument(help="Photons of an isotropic pattern: HDF5 or .npy, an image or frames.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The posterior, NAME.nc.")],
    rings: Annotated[str | None, typer.Option(help="q [1/angstrom], as 0.1076,0.2152; or silver_behenate.")] = None,
    symmetry: Annotated[bool, typer.Option("--symmetry", help="Instead: the intensity depends on q alone.")] = False,
    poni: Annotated[Path | None, typer.Option(help="The nominal detector, in a file of pyFAI.")] = None,
    distance: Annotated[float | None, typer.Option(help="Nominal, from the specimen [m].")] = None,
    wavelength: Annotated[float | None, typer.Option(help="[angstrom].")] = None,
    pixel_size: Annotated[float | None, typer.Option(help="Of square pixels [m].")] = None,
    center: Annotated[str | None, typer.Option(help="Nominal ROW,COLUMN of the beam; by default the middle.")] = None,
    mask: Annotated[Path | None, typer.Option(help="Pixels to use: array in a file .npy, not 0 where good.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Where in an HDF5 file the image or the frames are.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="seed=1, draws=1000, fixed.rot1=0; repeat.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw the image with its rings.")] = None,
    device: Device = None,
    memory_fraction: MemoryFraction = None,
    cpu_devices: CpuDevices = None,
    cache: Cache = None,
) -> None:
    """Infer the beam centre, the distance and the tilts of a detector, with their uncertainty.

    Give the nominal detector by --poni, or by --distance, --wavelength and --pixel-size.
    """
    from bayesfit.cli.correlate import read_mask
    from bayesfit.correlation.image_files import read_image
    from bayesfit.modelling.settings import assigned
    from bayesfit.report.pictures import check_picture
    from bayesfit.result.files import check_ending, refuse_own_input

    check_picture(plot, "--plot")
    refuse_own_input(check_ending(output), image)
    given, counts = _known(assigned(set_ or ())), read_image(image, dataset)
    nominal = _nominal(poni, counts.shape, (distance, wavelength, pixel_size), center)
    given |= {"rings": _numbers(rings) if rings else None, "symmetry": symmetry, "mask": read_mask(mask)}
    start(hardware_of(context))
    _infer(counts, nominal, given, output, plot)


def _infer(counts: np.ndarray, nominal: Detector, given: dict[str, Any], output: Path, plot: Path | None) -> None:
    """Infer, save, print and draw; ends with an exit code of its own where the verdict is not ok."""
    from bayesfit.api.calibrate import calibrate as infer
    from bayesfit.report.calibration_picture import plot_calibration
    from bayesfit.result.files import save

    found = infer(counts, nominal, progress=True, **given)
    typer.echo(str(save(found, output)))
    _print(found)
    if plot is not None:
        plot_calibration(found, counts, plot)
        typer.echo(str(plot))
    if found["diagnostics"].verdict != "ok":
        raise typer.Exit(NONE_OK)


def _print(found: xr.DataTree) -> None:
    """Where the detector stands, and whether it may be believed."""
    from bayesfit.geometry.detector import PLACE

    for name, draws in found["posterior"].data_vars.items():
        if name in PLACE:
            low, high = draws.quantile([0.025, 0.975]).values
            typer.echo(f"{name:9} {float(draws.mean()):.6g} {draws.attrs['units']}, 95 % from {low:.6g} to {high:.6g}")
    verdict, reason = (str(found["diagnostics"][name].values) for name in ("verdict", "reason"))
    typer.echo(f"{verdict}: {reason}" if reason else verdict)


def _nominal(
    poni: Path | None, shape: tuple[int, ...], numbers: tuple[float | None, ...], center: str | None
) -> Detector:
    """The nominal detector, from its file or from its numbers.

    Raises:
        SettingsError: one of them is missing, or both are given.
    """
    from bayesfit.compute.errors import SettingsError
    from bayesfit.geometry.detector import Detector, from_poni

    named = dict(zip(NOMINAL, numbers, strict=True))
    options = ["--" + name.replace("_", "-") for name, value in named.items() if (value is None) is (poni is None)]
    if options:
        problem = f"{', '.join(options)} {'missing' if poni is None else 'given beside --poni'}"
        raise SettingsError(problem, field="detector", remedy="Give --poni, or all of the detector's numbers")
    if poni is not None:
        return from_poni(poni)
    distance, wavelength, size = (float(value or 0.0) for value in numbers)
    place = [(shape[0] - 1) / 2, (shape[1] - 1) / 2] if center is None else _numbers(center, "--center")
    if isinstance(place, str) or len(place) != 2:
        raise SettingsError(f"got {center!r}", field="--center", remedy="Expected ROW,COLUMN, as 511.5,300")
    rows_columns, normal = (int(shape[0]), int(shape[1])), (place[0], place[1])
    return Detector(rows_columns, (size, size), distance, normal, wavelength)


def _numbers(given: str, field: str = "--rings") -> list[float] | str:
    """Numbers between commas; a word is left as it is."""
    from bayesfit.compute.errors import SettingsError

    try:
        return [float(each) for each in given.split(",")]
    except ValueError as error:
        if "," not in given:
            return given
        raise SettingsError(f"got {given!r}", field=field, remedy="Expected numbers, as 0.1,0.2") from error


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """Settings, of which no name is unknown."""
    from bayesfit.compute.errors import SettingsError, nearest

    for name in given:
        if name not in SETTINGS:
            raise SettingsError(f"unknown setting {name!r}", field="--set", remedy=nearest(name, SETTINGS))
    return given

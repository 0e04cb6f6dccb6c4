"""`bayesfit correlate`: frames to g2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesfit.cli.app import BY_SIGNAL, ENDING, GRACE, INTERRUPTED, app
from bayesfit.cli.jobs import check_folder, found_files, made_folder
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import stop_on

if TYPE_CHECKING:
    import numpy as np

    from bayesfit.api.correlate_file import Request
    from bayesfit.correlation.multitau import Correlated
    from bayesfit.modelling.settings import CorrelateSettings

MASK_HELP = "array in a file .npy, not 0 where good"


@app.command()
def correlate(
    raw: Annotated[Path, typer.Argument(help="A file of frames: HDF5, .npy, IMM, or Rigaku's photons.")],
    qmap: Annotated[Path, typer.Argument(help="A file with the bins of the pixels, in the layout of APS 8-ID.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write, in the layout of APS 8-ID.")],
    frame_time: Annotated[
        float | None, typer.Option(help="Time from one frame to the next [s]; by default as the file states it.")
    ] = None,
    delays_per_level: Annotated[int, typer.Option(help="Delays of each level of the multi-tau correlator.")] = 8,
    normalise: Annotated[str, typer.Option(help="symmetric, frame or baseline.")] = "symmetric",
    flatten: Annotated[str, typer.Option(help="static_bins or dynamic_bins.")] = "static_bins",
    frame_mask: Annotated[Path | None, typer.Option(help=f"Frames to use: {MASK_HELP}.")] = None,
    pixel_mask: Annotated[Path | None, typer.Option(help=f"Pixels to use: {MASK_HELP}.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Where in an HDF5 file the frames are.")] = None,
    backend: Annotated[str | None, typer.Option(envvar="BAYESFIT_BACKEND", help="auto, numpy or jax.")] = None,
    two_time: Annotated[
        bool, typer.Option("--two-time", help="Over age and delay: OUTPUT holds all ages, OUTPUT_age_N each slice.")
    ] = False,
    ages: Annotated[str, typer.Option(help="Slices of ages: how many, or their edges in s, as 0,10,30,100.")] = "8",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever was begun before.")] = False,
) -> None:
    """Correlate frames, bin by bin, with the photon pairs that were counted and their covariance.

    The same command again goes on where it was stopped.
    """
    from bayesfit.modelling.settings import CorrelateSettings

    chosen = CorrelateSettings(
        frame_time=frame_time,
        delays_per_level=delays_per_level,
        normalise=normalise,
        flatten=flatten,
        frame_mask=None if frame_mask is None else str(frame_mask),
        pixel_mask=None if pixel_mask is None else str(pixel_mask),
        dataset=dataset,
        backend=backend,
    )
    request = _request(raw, qmap, chosen)._replace(ages=_read_ages(ages) if two_time else None)
    _correlate(request, output, fresh)


def _request(raw: Path, qmap: Path, chosen: CorrelateSettings) -> Request:
    """What is to be correlated, and how.

    Raises:
        InputError: a mask cannot be read. SettingsError: a setting is impossible.
    """
    from bayesfit.api.correlate_file import Request
    from bayesfit.correlation.multitau import Masks, Settings

    names = chosen.delays_per_level, chosen.normalise, chosen.flatten, chosen.backend
    settings = Settings(*names)  # type: ignore[arg-type]  # it checks them
    masks = Masks(read_mask(chosen.frame_mask), read_mask(chosen.pixel_mask))
    return Request(raw, qmap, settings, masks, chosen.frame_time, chosen.dataset)


def correlated_files(
    files: list[Path], qmap: Path | None, chosen: CorrelateSettings, folder: Path, fresh: bool
) -> list[Path]:
    """The files of curves, FOLDER/NAME_g2.hdf, that these files of frames are correlated into; the files themselves
    where there is no q-map, since they hold curves then.

    Raises:
        SettingsError: frames are to be correlated in some way, but there is no q-map. BayesfitError: a file cannot be
            used.
    """
    from bayesfit.compute.errors import SettingsError

    if qmap is None:
        if chosen.model_fields_set:
            raise SettingsError("is of raw frames", field="correlate", remedy="Give their bins with --qmap")
        return files
    check_folder(folder)
    made = [made_folder(folder) / f"{file.stem}_g2.hdf" for file in found_files(files)]
    _refuse_same(files, made)
    for file, output in zip(found_files(files), made, strict=True):
        _correlate(_request(file, qmap, chosen), output, fresh)
    return made


def _refuse_same(files: list[Path], made: list[Path]) -> None:
    """Refuse files whose curves would have one name.

    Raises:
        InputError: names two of them.
    """
    from bayesfit.compute.errors import InputError

    first: dict[Path, Path] = {}
    for file, output in zip(found_files(files), made, strict=True):
        if (other := first.setdefault(output, file)) != file:
            problem = f"would be correlated into {output}, as {other} is"
            raise InputError(problem, file=file, remedy="Run them into different folders with -o")


def _correlate(request: Request, output: Path, fresh: bool) -> None:
    """Correlate a file, and say what came of it."""
    from bayesfit.api.correlate_file import correlate_file

    with stop_on(*ENDING, grace=GRACE) as stop, progress_bar(True) as report:
        try:
            found = correlate_file(request, output, report, fresh)
        except KeyboardInterrupt:
            typer.echo(f"interrupted: the same command goes on with {output}", err=True)
            raise typer.Exit(BY_SIGNAL + stop.signal if stop.signal else INTERRUPTED) from None
    typer.echo(f"{request.frames} -> {output}: " + ("finished before" if found is None else _in_words(found)))


def _in_words(found: Correlated) -> str:
    """What was correlated."""
    counts = f"{found.counts.min():.3g} to {found.counts.max():.3g} photons per pixel and frame"
    bins = f"{found.pixels.size} bins of {found.pixels.min():.0f} to {found.pixels.max():.0f} pixels"
    ages = "" if found.settings.ages is None else f"the first of {found.settings.ages.slice_count} slices: "
    return "; ".join([f"{ages}{found.frames} frames, {bins}, {found.lags.size} delays, {counts}", *found.notes])


def _read_ages(given: str) -> int | list[float]:
    """A number of slices, or their edges.

    Raises:
        SettingsError: it is neither.
    """
    from bayesfit.compute.errors import SettingsError

    try:
        return [float(edge) for edge in given.split(",")] if "," in given else int(given)
    except ValueError as error:
        remedy = "Expected a number of slices, or edges in s, as 0,10,30,100"
        raise SettingsError(f"got {given!r}", field="--ages", remedy=remedy) from error


def read_mask(path: str | Path | None) -> np.ndarray | None:
    """A mask from its file.

    Raises:
        InputError: the file holds no array.
    """
    if path is None:
        return None
    import numpy as np

    from bayesfit.compute.errors import InputError

    try:
        return np.asarray(np.load(path, allow_pickle=False)).astype(bool)
    except (OSError, ValueError) as error:
        raise InputError(f"holds no array ({error})", file=str(path), remedy="Write it by numpy.save") from error

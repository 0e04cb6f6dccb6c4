"""The steps of a run: read files, fit them one by one or together, save each result under the name of its file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import xarray as xr

from bayesfit.api.fit import fit
from bayesfit.api.series import series
from bayesfit.api.stokes_einstein import parse_specimen, stokes_einstein
from bayesfit.compute.errors import BayesfitError, InputError, SettingsError
from bayesfit.data.average import average
from bayesfit.data.copies import copies
from bayesfit.data.stack import same_bins, stack
from bayesfit.modelling.reading import read
from bayesfit.modelling.registry import get_pipeline, list_pipelines
from bayesfit.modelling.settings import RunSettings
from bayesfit.result.files import refuse_own_input, save


def read_all(paths: list[Path], settings: RunSettings) -> list[xr.Dataset]:
    """The datasets of the files, read as the settings say.

    Raises:
        BayesfitError: a file cannot be used, or the settings of the specimen are impossible.
    """
    datasets = [read(path, **settings.for_read) for path in paths]
    for path, data in zip(paths, datasets, strict=True):
        if settings.specimen:
            parse_specimen(settings.specimen, data.attrs, file=path)
    return datasets


def distinct(datasets: list[xr.Dataset], settings: RunSettings) -> tuple[list[xr.Dataset], RunSettings, list[str]]:
    """The datasets without copies or averages of others, whatever their format; the settings with the names of the
    datasets that remain; and one line for each dataset that is left out."""
    found = copies(datasets)
    lines = [f"left out: {datasets[place].attrs['file']}, {words}" for place, words in sorted(found.items())]
    kept = [place for place in range(len(datasets)) if place not in found]
    if found and settings.names is not None and len(settings.names) == len(datasets):
        settings = settings.model_copy(update={"names": tuple(settings.names[place] for place in kept)})
    return [datasets[place] for place in kept], settings, lines


def fit_files(datasets: list[xr.Dataset], output: Path, settings: RunSettings, progress: bool) -> xr.DataTree:
    """Fit one dataset, or several as one: as a series, as their average, or with all their bins. The result is saved at
    `output`, with the radius or viscosity that follows from the `specimen` of the settings.

    Raises:
        BayesfitError: the data or the settings cannot be used. The message says whether the fit is saved, without the
        derived quantity, or nothing is.
    """
    first, options = datasets[0], {**settings.for_fit, "progress": progress}
    model = settings.model or get_pipeline(first.attrs["pipeline"]).model
    if settings.together == "series":
        result = series(datasets, model, names=settings.names, sequential_prior=settings.sequential_prior, **options)
    else:
        result = fit(_as_one(datasets, settings) if settings.together else first, model, **options)
    return _saved(result, Path(first.attrs["file"]), output, settings)


def _saved(result: xr.DataTree, path: Path, output: Path, settings: RunSettings) -> xr.DataTree:
    """The result after it was saved at `output`, with the radius or viscosity that follows from the specimen."""
    result.attrs["run_settings"] = settings.model_dump_json()
    save(result, output)
    if not settings.specimen:
        return result
    specimen: dict[str, Any] = settings.specimen
    try:
        result = stokes_einstein(result, seed=settings.seed, **specimen)
    except BayesfitError as error:
        raise InputError(str(error), file=path, remedy=f"The fit alone is in {output}") from error
    save(result, output)
    return result


def _as_one(datasets: list[xr.Dataset], settings: RunSettings) -> xr.Dataset:
    """One dataset from several: their average, all their bins, or all bins of the averages of those with equal bins."""
    if settings.together == "average":
        return average(datasets, names=settings.names, level=settings.level)
    if settings.together == "average_stack":
        datasets = [average(repeats, level=settings.level) for repeats in _repeats(datasets)]
    return stack(datasets, settings.names)


def _repeats(datasets: list[xr.Dataset]) -> list[list[xr.Dataset]]:
    """The datasets grouped by equal bins, in the order in which these bins first occur."""
    found: list[list[xr.Dataset]] = []
    for data in datasets:
        alike = next((repeats for repeats in found if same_bins(repeats[0], data)), None)
        if alike is None:
            found.append([data])
        else:
            alike.append(data)
    return found


def files_of(path: Path) -> list[Path]:
    """The file itself; or all regular files of a folder, sorted by name, but not the hidden ones.

    Raises:
        InputError: the folder is empty, or cannot be listed.
    """
    if not path.is_dir():
        return [path]
    try:
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot be listed: {error.strerror}", file=path) from error
    if not files:
        raise InputError("the folder holds no files", file=path)
    return files


def own_measurements(files: list[Path], pipeline: str | None = None) -> tuple[list[Path], list[str]]:
    """The files without those that only belong to others, such as twin files of errors or an instrument's averages; and
    one line for each kind that is left out. All pipelines are asked which files these are, or only the named one."""
    left_out: dict[Path, str] = {}
    regular = [file for file in files if os.path.isfile(file)]  # a pipe would be waited for
    for name in [pipeline] if pipeline else list_pipelines():
        if (find := get_pipeline(name).of_others) is not None:
            left_out |= find(regular)
    lines = []
    for words in dict.fromkeys(left_out.values()):
        names = [path.name for path in left_out if left_out[path] == words]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"{len(names)} of {len(files)} files {words}: {', '.join(names[:3])}{more}")
    return [file for file in files if file not in left_out], lines


def one_output(files: list[Path], folder: Path, together: str) -> Path:
    """The path of the result of several files as one: FOLDER/STEM_TOGETHER.nc, with the stem of the first file."""
    path = folder / f"{files[0].stem}_{together}.nc"
    _make_folder(folder, dict.fromkeys(files, path))
    return path


def outputs(files: list[Path], folder: Path) -> list[Path]:
    """The path of the result of each file: FOLDER/STEM.nc.

    Raises:
        SettingsError: two results would have one name, a result would replace a file, or the folder cannot be made.
    """
    paths = [folder / f"{file.stem}.nc" for file in files]
    for file, path in zip(files, paths, strict=True):
        if paths.count(path) > 1:
            raise SettingsError(f"two files would be saved as {path}", field="-o", file=file, remedy="Run them apart")
    _make_folder(folder, dict(zip(files, paths, strict=True)))
    return paths


def _make_folder(folder: Path, paths: dict[Path, Path]) -> None:
    """Make the folder of the results; refuse a result that would replace its own file."""
    for file, path in paths.items():
        if os.path.exists(file):  # which, unlike `Path.exists`, is False also for an impossible name
            refuse_own_input(path, file, "folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"the folder cannot be made: {error.strerror}", field="-o", file=folder) from error

"""One file of a run: read it, fit it, save the result beside its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xarray as xr

from bayesfit._errors import BayesfitError, InputError, SettingsError
from bayesfit._fit import fit
from bayesfit._registry import get_pipeline, read
from bayesfit._repeats import average
from bayesfit._result import refuse_own_input, save
from bayesfit._series import series
from bayesfit._settings import RunSettings
from bayesfit._stack import same_bins, stack
from bayesfit.pipelines._stokes_einstein import parse_sample, stokes_einstein
from bayesfit.pipelines.table import table_of


def run_file(path: Path, output: Path, settings: RunSettings, progress: bool) -> xr.DataTree:
    """Fit one file and save the result at `output`, with what follows from the `sample` of the settings.

    Raises:
        BayesfitError: the file or the settings cannot be used; nothing is saved, or the fit alone, as the message says.
    """
    data = without_first(read(path, settings.pipeline), settings.skip_first)
    if settings.sample:
        parse_sample(settings.sample, data.attrs, file=path)
    model = settings.model or get_pipeline(data.attrs["pipeline"]).model
    result = fit(data, model, progress=progress, **settings.for_fit)
    return _saved(result, path, output, settings)


def _saved(result: xr.DataTree, path: Path, output: Path, settings: RunSettings) -> xr.DataTree:
    """The result as it is saved at `output`, with what follows from the sample."""
    result.attrs["run_settings"] = settings.model_dump_json()
    save(result, output)
    if not settings.sample:
        return result
    sample: dict[str, Any] = settings.sample
    try:
        result = stokes_einstein(result, seed=settings.seed, **sample)
    except BayesfitError as error:
        raise InputError(str(error), file=path, remedy=f"The fit alone is in {output}") from error
    save(result, output)
    return result


def run_together(paths: list[Path], output: Path, settings: RunSettings, progress: bool) -> xr.DataTree:
    """Fit several files as one: their average, all bins of all of them, or a series; save the result at `output`.

    Raises:
        BayesfitError: a file or the settings cannot be used; nothing is saved, or the fit alone, as the message says.
    """
    datasets = [without_first(read(path, settings.pipeline), settings.skip_first) for path in paths]
    for path, data in zip(paths, datasets, strict=True):
        if settings.sample:
            parse_sample(settings.sample, data.attrs, file=path)
    model = settings.model or get_pipeline(datasets[0].attrs["pipeline"]).model
    options = {**settings.for_fit, "progress": progress}
    if settings.together == "series":
        result = series(datasets, model, names=settings.names, carry=settings.carry, **options)
    else:
        result = fit(_as_one(datasets, settings), model, **options)
    return _saved(result, paths[0], output, settings)


def _as_one(datasets: list[xr.Dataset], settings: RunSettings) -> xr.Dataset:
    """The average of datasets, all their bins, or all bins of the averages of those that have the same bins."""
    if settings.together == "average":
        return average(datasets, names=settings.names, level=settings.level)
    if settings.together == "average_stack":
        datasets = [average(repeats, level=settings.level) for repeats in _repeats(datasets)]
    return stack(datasets, settings.names)


def _repeats(datasets: list[xr.Dataset]) -> list[list[xr.Dataset]]:
    """Datasets of the same bins together, in the order in which their bins first come."""
    found: list[list[xr.Dataset]] = []
    for data in datasets:
        alike = next((repeats for repeats in found if same_bins(repeats[0], data)), None)
        if alike is None:
            found.append([data])
        else:
            alike.append(data)
    return found


def without_first(data: xr.Dataset, count: int) -> xr.Dataset:
    """The dataset with its first `count` delays left out, counted per bin as `masked_skipped`."""
    if count == 0:
        return data
    first = xr.zeros_like(data.valid) | (xr.DataArray(range(data.sizes["tau"]), dims="tau") < count)
    left = data.valid & ~first
    if not left.any():
        raise InputError(f"leaves no point of {data.sizes['tau']} delays", field="skip_first", file=data.attrs["file"])
    skipped = data["masked_skipped"] + (data.valid & first).sum("tau")
    return data.assign(valid=left.assign_attrs(data.valid.attrs), masked_skipped=skipped)


def without_errors_of_others(files: list[Path]) -> list[Path]:
    """The files less those that hold the errors of another one of them, with which they are read."""
    return [file for file in files if table_of(file) not in files]


def one_output(files: list[Path], folder: Path, together: str) -> Path:
    """The path of the result of several files as one, FOLDER/STEM_TOGETHER.nc with the stem of the first."""
    path = folder / f"{files[0].stem}_{together}.nc"
    _make_folder(folder, dict.fromkeys(files, path))
    return path


def outputs(files: list[Path], folder: Path) -> list[Path]:
    """The result's path for each file, FOLDER/STEM.nc.

    Raises:
        SettingsError: two files would be saved under one name, or over one of them; the folder cannot be made.
    """
    paths = [folder / f"{file.stem}.nc" for file in files]
    for file, path in zip(files, paths, strict=True):
        if paths.count(path) > 1:
            raise SettingsError(f"two files would be saved as {path}", field="-o", file=file, remedy="Run them apart")
    _make_folder(folder, dict(zip(files, paths, strict=True)))
    return paths


def _make_folder(folder: Path, paths: dict[Path, Path]) -> None:
    """Make the folder of the results, none of which may replace its file."""
    for file, path in paths.items():
        refuse_own_input(path, file, "folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"the folder cannot be made: {error.strerror}", field="-o", file=folder) from error

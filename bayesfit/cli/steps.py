"""The steps of a run: read files, fit them one by one or together, save each result under the name of its file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import xarray as xr

from bayesfit.api.fit import fit, point_estimate
from bayesfit.api.made_of import hash_of_parts, parts_of_files
from bayesfit.api.series import series
from bayesfit.api.stokes_einstein import parse_specimen, stokes_einstein
from bayesfit.cli.jobs import Job
from bayesfit.compute.errors import BayesfitError, InputError
from bayesfit.compute.journal import checkpoint
from bayesfit.compute.whole_files import clear_parts, write_whole
from bayesfit.compute.work import Report
from bayesfit.data.average import average
from bayesfit.data.copies import copies
from bayesfit.data.stack import same_bins, stack
from bayesfit.modelling.model_choice import get_model
from bayesfit.modelling.options import without_folders
from bayesfit.modelling.reading import read
from bayesfit.modelling.registry import get_pipeline, list_pipelines
from bayesfit.modelling.settings import RunSettings
from bayesfit.result.files import load, save


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


def fit_files(
    datasets: list[xr.Dataset], output: Path, settings: RunSettings, report: Report, fresh: bool = False
) -> tuple[xr.DataTree, bool]:
    """Fit one dataset, or several as one: as a series, as their average, or with all their bins. The result is saved at
    `output`, with the radius or viscosity that follows from the `specimen` of the settings. What a run that was stopped
    has kept is used, and a result at `output` that was made of the same data with the same settings is the result,
    unless a `fresh` one is asked for. Returns also whether it was there.

    Raises:
        BayesfitError: the data or the settings cannot be used. The message says whether the fit is saved, without the
        derived quantity, or nothing is. KeyboardInterrupt: the user asked to stop.
    """
    model = model_of(datasets[0], settings)
    made = hash_of_parts(parts_of_files(datasets, get_model(model), settings))
    with checkpoint(journal_of(output), fresh):
        if not fresh and (before := made_before(output, made)) is not None:
            return before, True
        clear_parts(output)
        job = Job([Path(datasets[0].attrs["file"])], output)
        return saved(_fitted(datasets, model, settings, report), job, settings, made), False


def estimated(job: Job, settings: RunSettings, path: Path) -> str:
    """Save the least-squares fits of the bins of a job's file as CSV; returns how many there are, in words.

    Raises:
        BayesfitError: the file or the settings cannot be used. OSError: the table cannot be written.
    """
    (curves,) = read_all(job.files, settings)
    asked = {name: getattr(settings, name) for name in ("noise", "priors", "fixed", "seed")}
    found = point_estimate(curves, model_of(curves, settings), **asked)
    write_whole(path, found.to_dataframe().to_csv().encode())
    return f"{int(found.converged.sum())} of {found.sizes['q_bin']} bins"


def model_of(curves: xr.Dataset, settings: RunSettings) -> Any:
    """The model to fit: that of the settings, or else the one that the pipeline names."""
    return settings.model or get_pipeline(curves.attrs["pipeline"]).model


def journal_of(output: Path) -> Path:
    """Where the progress of a result is kept."""
    return output.with_name(f".{output.name}.progress")


def made_before(path: Path, made: str) -> xr.DataTree | None:
    """The result at this path, if it is whole and was made of just this."""
    try:
        found = load(path)
    except BayesfitError:
        return None
    return found if found.attrs.get("run_sha256") == made else None


def _fitted(datasets: list[xr.Dataset], model: Any, settings: RunSettings, report: Report) -> xr.DataTree:
    """One dataset, or several as one, fitted."""
    options = {**settings.for_fit, "progress": report}
    if settings.together == "series":
        return series(datasets, model, names=settings.names, sequential_prior=settings.sequential_prior, **options)
    return fit(_as_one(datasets, settings) if settings.together else datasets[0], model, **options)


def saved(result: xr.DataTree, job: Job, settings: RunSettings, made: str) -> xr.DataTree:
    """The result of a job after it was saved, with what it is made of, and with the radius or viscosity that follows
    from the specimen.

    Raises:
        BayesfitError: it cannot be written, or nothing can be derived; then the fit alone is saved.
    """
    asked = without_folders(settings.model_dump(mode="json"))
    result.attrs["run_settings"], result.attrs["run_sha256"] = json.dumps(asked), made
    if not settings.specimen:
        save(result, job.output)
        return result
    specimen: dict[str, Any] = settings.specimen
    try:
        whole = stokes_einstein(result, seed=settings.seed, **specimen)
    except BayesfitError as error:
        del result.attrs["run_sha256"]
        save(result, job.output)
        raise InputError(str(error), file=job.files[0], remedy=f"The fit alone is in {job.output}") from error
    save(whole, job.output)
    return whole


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

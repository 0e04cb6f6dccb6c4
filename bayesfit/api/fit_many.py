"""Fits many datasets, each for itself: here, with their bins side by side, or wherever an executor runs functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from bayesfit.api.fit import at_work, check_options
from bayesfit.api.side_by_side import Ended, fit_side_by_side
from bayesfit.api.stages import Choices
from bayesfit.compute.elsewhere import Executor, in_order, unpacked, with_files
from bayesfit.compute.errors import BayesfitError, InputError, SettingsError
from bayesfit.compute.operations import computing
from bayesfit.compute.work import Progress, Report, reported_as
from bayesfit.modelling.model import Model
from bayesfit.modelling.settings import FitSettings
from bayesfit.result.on_request import check_groups

LANES = 64  # bins that are fitted side by side, about: with more, nothing is gained

Task = tuple[list[xr.Dataset], Choices, FitSettings]


def fit_many(
    datasets: Sequence[xr.Dataset],
    model: str | Path | Mapping[str, Any] | Model = "stretched_exponential",
    *,
    executor: Executor | None = None,
    on_error: Literal["raise", "return"] = "raise",
    progress: bool | Report = False,
    **options: Any,
) -> list[Any]:
    """The posterior of many datasets, each for itself, as `fit` gives it, to the bit.

    Datasets of few bins are fitted side by side, which takes less time than one after the other.

    Args:
        datasets: what `bayesfit.curves` or `bayesfit.read` returned.
        model: as for `fit`. A file is sent to where the work is done.
        executor: anything with a method `submit` as `concurrent.futures` has it, such as a `ProcessPoolExecutor` whose
            processes are spawned, or `client.get_executor()` of a Dask cluster. None: in this process.
        on_error: "raise" the first error, or "return" it in the place of the result, so that it stops no other dataset.
        progress: True for a progress bar on standard error, or a function that takes a `Progress`.
        options: all other arguments of `fit` but `on_interrupt`.

    Returns:
        The results, in the order of the datasets.

    Raises:
        SettingsError: an unknown option, or an impossible value. ProcessError: a worker was lost for good. With
        `on_error` "raise", what `fit` raises; it names the dataset.

    Example:
        >>> import bayesfit
        >>> datasets = [bayesfit.simulate(bins=1, seed=seed)[0] for seed in (1, 2, 3)]
        >>> results = bayesfit.fit_many(datasets, "single_exponential", draws=200)
        >>> [result.posterior.sizes["q_bin"] for result in results]
        [1, 1, 1]
    """
    if on_error not in ("raise", "return"):
        raise SettingsError(f"got {on_error!r}", field="on_error", remedy="It is 'raise' or 'return'")
    choices, settings = asked_for(model, options)
    for place, curves in enumerate(datasets):
        if not isinstance(curves, xr.Dataset):
            raise InputError("holds no curves", field=f"datasets[{place}]", remedy="Give what bayesfit.read returns")
    tasks: list[Task] = [(group, choices, settings) for group in grouped(datasets, lambda data: data.sizes["q_bin"])]
    ended: list[Ended] = []
    with at_work(progress, "raise") as report:
        made = _here(tasks, report, len(datasets)) if executor is None else in_order(executor, *_elsewhere(tasks))
        for group in made:
            ended += group
            _raise_first(ended, on_error)
            report(Progress("fit", len(datasets), bins_done=len(ended), share=len(ended) / len(datasets)))
    return ended


def asked_for(model: Any, options: Mapping[str, Any]) -> tuple[Choices, FitSettings]:
    """The choices and settings that the arguments of `fit` stand for.

    Raises:
        SettingsError: an unknown option, or an impossible value.
    """
    check_options(options)
    chosen = {name: options.get(name) or {} for name in ("priors", "fixed", "across")}
    settings = FitSettings(**{name: value for name, value in options.items() if name not in chosen})
    check_groups(settings.include)
    return Choices(model, **chosen), settings


def grouped[T](items: Sequence[T], bins: Callable[[T], int]) -> list[list[T]]:
    """Items in groups of neighbours that have at most `LANES` bins together, unless one alone has more."""
    groups: list[list[T]] = []
    room = 0
    for item in items:
        if (size := bins(item)) > room or not groups:
            groups.append([])
            room = LANES
        groups[-1].append(item)
        room -= size
    return groups


def fit_elsewhere(datasets: list[xr.Dataset], sent: Choices, settings: FitSettings) -> list[Ended]:
    """What an executor runs: the fit of datasets side by side, with the files that were sent."""
    with unpacked(tuple(sent)) as values, computing():
        return fit_side_by_side(datasets, Choices(*values), settings, lambda progress: None)


def _elsewhere(tasks: Sequence[Task]) -> tuple[Callable[..., list[Ended]], list[tuple[Any, ...]]]:
    """What is to be run elsewhere, and what is sent for it."""
    return fit_elsewhere, [(group, as_sent(choices), settings) for group, choices, settings in tasks]


def as_sent(choices: Choices) -> Choices:
    """Choices with the files that they name."""
    return Choices(*with_files(tuple(choices)))


def _here(tasks: Sequence[Task], report: Report, count: int) -> Iterator[list[Ended]]:
    """The results of the groups, one after the other."""
    first = 1
    for group, choices, settings in tasks:
        last = first + len(group) - 1
        name = f"{first}/{count}" if first == last else f"{first}-{last}/{count}"
        yield fit_side_by_side(group, choices, settings, reported_as(name, report))
        first = last + 1


def _raise_first(ended: Sequence[Ended], on_error: str) -> None:
    """Raise the first error, if errors are to be raised."""
    errors = [(place, each) for place, each in enumerate(ended) if isinstance(each, BayesfitError)]
    if errors and on_error == "raise":
        place, error = errors[0]
        raise error if error.file else type(error)(str(error), field=f"datasets[{place}]")

"""Files that are fitted side by side: which of them make a group, and the fit of a group with its journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from bayesfit.api.fit_many import LANES, asked_for
from bayesfit.api.made_of import hash_of_parts, parts_of_files
from bayesfit.api.side_by_side import Ended
from bayesfit.api.stages import Choices
from bayesfit.cli.jobs import Job
from bayesfit.cli.steps import journal_of, made_before, model_of, read_all, saved
from bayesfit.compute.errors import BayesfitError, SettingsError
from bayesfit.compute.journal import LOCK, alone, checkpoint, empty
from bayesfit.compute.whole_files import clear_parts, write_whole
from bayesfit.compute.work import Report
from bayesfit.modelling.model_choice import get_model
from bayesfit.modelling.settings import FitSettings, RunSettings

MEMBERS = "members.json"  # of a group's journal: what each result of the group is made of, by its file

Compute = Callable[[list[xr.Dataset], Choices, FitSettings, Report], list[Ended]]


class Ready(NamedTuple):
    """A job of one file that was read: its `curves`, the `model` to fit, the `parts` that its result is made of, and
    the result `before`, if one that was made of just these stands there."""

    job: Job
    curves: xr.Dataset
    model: Any
    parts: dict[str, str]
    before: xr.DataTree | None

    @classmethod
    def of(cls, job: Job, settings: RunSettings, fresh: bool) -> Ready:
        """Read the file of a job.

        Raises:
            BayesfitError: it cannot be used.
        """
        (curves,) = read_all(job.files, settings)
        model = model_of(curves, settings)
        parts = parts_of_files([curves], get_model(model), settings)
        return cls(job, curves, model, parts, None if fresh else made_before(job.output, hash_of_parts(parts)))

    @property
    def is_begun(self) -> bool:
        """Whether this file was begun by itself."""
        journal = journal_of(self.job.output)
        return journal.is_dir() and any(path.name != LOCK for path in journal.iterdir())


class Done(NamedTuple):
    """How a file has ended: with its result, or with an error."""

    ready: Ready
    result: xr.DataTree | Exception


class Fitting(NamedTuple):
    """How files are fitted: the settings, whether all is to be `fresh`, and what makes results of curves."""

    settings: RunSettings
    fresh: bool
    compute: Compute


class Kept:
    """The groups that an earlier run has begun in a folder and not finished, and their members that have arrived."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        self.members: dict[Path, dict[str, dict[str, str]]] = {}  # by journal: parts by name of the result
        self.arrived: dict[Path, dict[str, Ready]] = {}
        for stated in sorted(folder.glob(f".group-*.progress/{MEMBERS}")):
            if fresh:
                with suppress(SettingsError), alone(stated.parent):
                    empty(stated.parent)
            else:
                with suppress(OSError, ValueError):
                    self.members[stated.parent] = json.loads(stated.read_text())

    def journal_for(self, ready: Ready) -> Path | None:
        """The journal of the group that this file is a member of.

        Raises:
            SettingsError: its result is now to be made of something else.
        """
        for journal, members in self.members.items():
            if (parts := members.get(ready.job.output.name)) is None:
                continue
            if parts == ready.parts:
                return journal
            if ready.before is None:
                changed = " and ".join(name for name in ready.parts if parts.get(name) != ready.parts[name])
                words, remedy = f"what is kept here was made with other {changed}", "Go on with what it had, or --fresh"
                raise SettingsError(words, file=journal, remedy=remedy)
        return None

    def take(self, ready: Ready, journal: Path) -> list[Ready]:
        """Take in a member of the group with this journal; returns all of them once they are complete."""
        arrived = self.arrived.setdefault(journal, {})
        arrived[ready.job.output.name] = ready
        if arrived.keys() != self.members[journal].keys():
            return []
        del self.arrived[journal]
        return [arrived[name] for name in self.members[journal]]


def groups(arriving: Iterator[Ready], kept: Kept) -> Iterator[list[Ready]]:
    """Groups of files as they arrive: those of an earlier run, and neighbours with few bins and one model. A file that
    is finished, or was begun by itself, is a group of its own."""
    waiting: list[Ready] = []
    for ready in arriving:
        if (journal := kept.journal_for(ready)) is not None:
            if group := kept.take(ready, journal):
                yield group
        elif ready.before is not None or ready.is_begun:
            yield [ready]
        elif waiting and not _has_room(waiting, ready):
            yield waiting
            waiting = [ready]
        else:
            waiting.append(ready)
    for arrived in kept.arrived.values():  # of groups whose other files are not among those of this run
        yield list(arrived.values())
    if waiting:
        yield waiting


def _has_room(group: list[Ready], ready: Ready) -> bool:
    bins = sum(member.curves.sizes["q_bin"] for member in (*group, ready))
    return bins <= LANES and group[0].model == ready.model


def fit_group(group: list[Ready], fitting: Fitting, report: Report) -> list[Done]:
    """Fit the files of a group side by side and save each result. A file that another run is at work on is left to it,
    and whatever unexpected goes wrong with several files is tried with each.

    Raises:
        KeyboardInterrupt: the user asked to stop.
    """
    try:
        return _fit_group(group, fitting, report)
    except Exception as error:
        if len(group) > 1:
            return [done for ready in group for done in fit_group([ready], fitting, report)]
        return [Done(group[0], error)]


def _fit_group(group: list[Ready], fitting: Fitting, report: Report) -> list[Done]:
    finished = [Done(ready, ready.before) for ready in group if ready.before is not None]
    if len(finished) == len(group):
        _forget(_journal(group))
        return finished
    with ExitStack() as stack:
        ended = _in_use(stack, group) if len(group) > 1 else {}
        own = [ready for ready in group if ready.job.output not in ended]
        if own:
            results = _computed(own, fitting, report)
            ended |= {ready.job.output: result for ready, result in zip(own, results, strict=True)}
    return [Done(ready, ended[ready.job.output]) for ready in group]


def _in_use(stack: ExitStack, group: list[Ready]) -> dict[Path, xr.DataTree | Exception]:
    """Keep all others from the files of a group; those that another run is at work on, with the error that says so."""
    found: dict[Path, xr.DataTree | Exception] = {}
    for ready in group:
        try:
            stack.enter_context(alone(journal_of(ready.job.output)))
        except SettingsError as error:
            found[ready.job.output] = error
    return found


def _computed(group: list[Ready], fitting: Fitting, report: Report) -> list[xr.DataTree | Exception]:
    """The results of a group, saved, with a journal of the group."""
    journal, settings = _journal(group), fitting.settings
    choices, fit = asked_for(group[0].model, settings.for_fit)
    with checkpoint(journal, fitting.fresh):
        if len(group) > 1:
            stated = {ready.job.output.name: ready.parts for ready in group}
            write_whole(journal / MEMBERS, json.dumps(stated).encode())
        results = fitting.compute([ready.curves for ready in group], choices, fit, report)
        return [_saved(ready, result, settings) for ready, result in zip(group, results, strict=True)]


def _saved(ready: Ready, result: Ended, settings: RunSettings) -> xr.DataTree | Exception:
    """A result after it was saved, or why it is none."""
    if ready.before is not None or isinstance(result, BayesfitError):
        return ready.before if ready.before is not None else result
    clear_parts(ready.job.output)
    try:
        return saved(result, ready.job, settings, hash_of_parts(ready.parts))
    except BayesfitError as error:
        return error


def _journal(group: list[Ready]) -> Path:
    """Where the progress of a group is kept."""
    first = group[0].job.output
    if len(group) == 1:
        return journal_of(first)
    words = json.dumps([[ready.job.output.name, ready.parts] for ready in group])
    return first.with_name(f".group-{hashlib.sha256(words.encode()).hexdigest()[:16]}.progress")


def _forget(journal: Path) -> None:
    """Delete a journal that nothing needs any more."""
    if journal.is_dir():
        with suppress(SettingsError), alone(journal):
            empty(journal)

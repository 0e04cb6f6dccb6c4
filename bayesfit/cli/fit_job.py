"""One job of a run: read its files, fit them, save and print the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from bayesfit.cli.app import DONE, FAILED, INTERRUPTED, NONE_OK, WRONG_USE
from bayesfit.cli.show_result import Wanted, draw, in_words, print_paths, print_result, print_understood
from bayesfit.compute.errors import BayesfitError, SettingsError
from bayesfit.compute.work import Progress, Report, heeded

if TYPE_CHECKING:
    import xarray as xr

    from bayesfit.cli.jobs import Job
    from bayesfit.modelling.settings import RunSettings


class Wishes(NamedTuple):
    """What is wanted beside the result of a fit: pictures (`plot`), a page (`report`), a second fit as the first
    advises (`advise`), that nothing from before is used (`fresh`), and no more than a line of each (`brief`)."""

    plot: bool
    report: bool
    advise: bool
    fresh: bool
    brief: bool


class Fitted(NamedTuple):
    """The result of a job, and whether it was finished `before`."""

    result: xr.DataTree
    before: bool


class End(NamedTuple):
    """How a job has ended: its exit code, the number of bins with each verdict, and the error."""

    code: int
    verdicts: dict[str, int]
    error: str = ""

    @property
    def state(self) -> str:
        """The same in a word, for the status of a run."""
        return "finished" if self.code in (DONE, NONE_OK) else "interrupted" if self.code == INTERRUPTED else "failed"


def fit_job(job: Job, settings: RunSettings, wishes: Wishes, report: Report) -> End:
    """Read the files of a job and fit them; save and print the result. Whatever is wrong ends only this job, with one
    line."""
    from bayesfit.cli.steps import distinct, fit_files, read_all

    try:
        datasets = read_all(job.files, settings)
        if not wishes.brief:
            print_understood(datasets)
        datasets, settings, left_out = distinct(datasets, settings)
        for line in left_out:
            typer.echo(line)
        fitted = Fitted(*fit_files(datasets, job.output, settings, report, wishes.fresh))
    except (Exception, KeyboardInterrupt) as error:  # whatever goes wrong in one file must not stop the others
        if isinstance(error, Exception) and not heeded().raised:
            return failed(job, error)
        typer.echo(f"interrupted: the same command goes on with {job.output}", err=True)
        return End(INTERRUPTED, {})
    report(Progress("page", fitted.result["diagnostics"].sizes["q_bin"]))
    end = finish(job, fitted, settings, wishes, report)
    for line in left_out:
        typer.echo(line)
    return end


def failed(job: Job, error: Exception) -> End:
    """The end of a job that an error has ended, which is printed in one line."""
    if isinstance(error, BayesfitError):
        words = str(error) if error.file else f"{job.files[0]}: {error}"
    else:
        words = f"{job.files[0]}: unexpected {type(error).__name__}: {' '.join(str(error).split())}. Please report it"
    typer.echo(f"error: {words}", err=True)
    return End(WRONG_USE if isinstance(error, SettingsError) else FAILED, {}, words)


def finish(job: Job, fitted: Fitted, settings: RunSettings, wishes: Wishes, report: Report) -> End:
    """Print the result of a job, draw it, and fit it again as it advises, if that is wanted."""
    from bayesfit.result.summary import tally

    _print(job, fitted, wishes.brief)
    drawn = not wishes.plot or _drawn_beside(fitted.result, job.output.with_suffix(".png"))
    drawn = (not wishes.report or _reported_beside(fitted, job.output.with_suffix(".html"), wishes.brief)) and drawn
    verdicts = tally(fitted.result)
    end = End(FAILED if not drawn else DONE if "ok" in verdicts else NONE_OK, verdicts)
    if not wishes.advise or end.code == FAILED:
        return end
    advised = _fit_as_advised(job, settings, wishes._replace(advise=False), fitted.result, report)
    if advised is None or advised.state == "finished":
        return end if advised is None else end._replace(code=min(end.code, advised.code))
    return advised


def _print(job: Job, fitted: Fitted, brief: bool) -> None:
    """Print the result, or what came of it in one line."""
    from bayesfit.result.summary import tally

    finished = " (finished before)" if fitted.before else ""
    if not brief:
        print_result(fitted.result, Wanted(path=str(job.output)), f"{job.name} -> {job.output}{finished}")
        return
    verdicts = ", ".join(f"{count} {name}" for name, count in tally(fitted.result).items())
    typer.echo(f"{job.name} -> {job.output}{finished}: {verdicts}")


def _fit_as_advised(job: Job, settings: RunSettings, wishes: Wishes, result: xr.DataTree, report: Report) -> End | None:
    """Fit again with the settings that a result names, beside it; print how many bins are ok in both. Returns how this
    has ended, None if there is nothing else to try."""
    from bayesfit.result.summary import settings_to_try, tally

    if not (to_try := settings_to_try(result)):
        typer.echo("--advise: the result advises nothing else")
        return None
    beside = job._replace(output=job.output.with_stem(f"{job.output.stem}_advised"))
    typer.echo(f"as advised: {in_words(to_try)}")
    settings = settings.advised(to_try)
    end = fit_job(beside, settings, wishes, report)
    if end.state == "finished":
        counts = tally(result).get("ok", 0), end.verdicts.get("ok", 0)
        typer.echo(f"ok: {counts[0]} bins in {job.output}, {counts[1]} in {beside.output}")
    return end


def _drawn_beside(result: xr.DataTree, path: Path) -> bool:
    """Draw a result beside its file, and print the path or the error; returns whether it was drawn."""
    try:
        drawn = draw(result, None, path)
    except (OSError, ValueError) as error:
        words = str(error) if isinstance(error, BayesfitError) else f"{path}: cannot be drawn: {error}"
        typer.echo(f"error: {words}", err=True)
        return False
    print_paths(drawn)
    return True


def _reported_beside(fitted: Fitted, path: Path, brief: bool) -> bool:
    """Write the page of a result beside its file, and print the path or the error; returns whether it was written."""
    from bayesfit.report.html import write_report

    if fitted.before and path.exists():
        return True
    try:
        write_report(fitted.result, path)
    except BayesfitError as error:
        typer.echo(f"error: {error}", err=True)
        return False
    if not brief:
        print_paths([path])
    return True

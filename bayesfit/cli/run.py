"""`bayesfit run`: fit files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesfit.cli.app import BY_SIGNAL, DONE, ENDING, FAILED, GRACE, INTERRUPTED, WRONG_USE, app
from bayesfit.cli.cluster import on_cluster
from bayesfit.cli.correlate import correlated_files
from bayesfit.cli.fit_job import Wishes, fit_job
from bayesfit.cli.jobs import Job, Shard, check_folder, found_files, jobs_of
from bayesfit.cli.options import (
    Advise,
    Assignments,
    Cache,
    Config,
    CpuDevices,
    Dask,
    Device,
    MemoryFraction,
    ModelName,
    Noise,
    Output,
    Page,
    Pipeline,
    Plot,
    QMap,
    Together,
    started,
)
from bayesfit.cli.status import Status
from bayesfit.compute.errors import BayesfitError
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Stop, stop_on

if TYPE_CHECKING:
    from bayesfit.cli.fit_all import Where
    from bayesfit.modelling.settings import RunSettings

FEW = 3  # files of which all tables are printed


@app.command()
def run(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|FOLDER|PATTERN...", help="Files of correlation data; each is recognised by its content."
        ),
    ],
    output: Output,
    model: ModelName = None,
    noise: Noise = None,
    pipeline: Pipeline = None,
    config: Config = None,
    set_: Assignments = None,
    together: Together = None,
    plot: Plot = False,
    report: Page = True,
    qmap: QMap = None,
    advise: Advise = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Fit anew, whatever is finished or was begun in the folder.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(help="The share of one of several machines: i/N, with i from 1 to N.")
    ] = None,
    dask: Dask = None,
    device: Device = None,
    memory_fraction: MemoryFraction = None,
    cpu_devices: CpuDevices = None,
    cache: Cache = None,
) -> None:
    """Fit files and save a posterior with a verdict on every bin.

    The same command again goes on where it was stopped, and fits no finished file again.

    Exit code: 0 all files done; 1 a file failed; 2 wrong use or settings; 3 done, but some file has no bin that is ok;
    130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by a hang-up (what was done is kept).
    """
    settings = started(context)
    curves = correlated_files(files, qmap, settings.for_correlate, output, fresh)
    (jobs, left_out), share = _jobs(curves, output, settings), Shard.parse(shard)
    wishes = Wishes(plot, report, advise, fresh, brief=len(jobs) > FEW)
    status = Status(share.of(jobs), output, share.ending) if len(jobs) > 1 or dask else None
    with on_cluster(dask, settings.together) as where, stop_on(*ENDING, grace=GRACE) as stop:
        ends = _fit_all(share.of(jobs), settings, wishes, status, where)
    _print_lines(left_out)
    raise typer.Exit(_exit_code(ends, stop))


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)


def _jobs(files: list[Path], output: Path, settings: RunSettings) -> tuple[list[Job], list[str]]:
    """What is to be done, and one line for each kind of files that is left out, which is printed."""
    check_folder(output)
    from bayesfit.cli.steps import own_measurements

    found, left_out = own_measurements(found_files(files), settings.pipeline)
    _print_lines(left_out)
    return jobs_of(found, output, settings.together), left_out


def _exit_code(ends: list[int], stop: Stop) -> int:
    """The exit code of a run, from those of its jobs."""
    if INTERRUPTED in ends:
        return BY_SIGNAL + stop.signal if stop.signal else INTERRUPTED
    if ends and all(end == WRONG_USE for end in ends):
        return WRONG_USE
    return FAILED if {WRONG_USE, FAILED} & set(ends) else max(ends, default=DONE)


def _fit_all(
    jobs: list[Job], settings: RunSettings, wishes: Wishes, status: Status | None, where: Where | None
) -> list[int]:
    """Fit all jobs; returns their exit codes, up to that of an interruption."""
    if status is None:
        with progress_bar(True) as report:
            return [fit_job(job, settings, wishes, report).code for job in jobs]
    from bayesfit.cli.fit_all import fit_all

    ends = fit_all(jobs, settings, wishes, status, where)
    if INTERRUPTED not in ends:
        status.print()
        if wishes.report:
            _report_on(status.path.parent)
    return ends


def _report_on(folder: Path) -> None:
    """Write the page that links all results of a folder, and print its path or the error."""
    from bayesfit.report.folder_page import write_folder_report

    try:
        typer.echo(str(write_folder_report(folder)))
    except BayesfitError as error:
        typer.echo(f"error: {error}", err=True)

"""`bayesfit watch`: fit files as they arrive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesfit.cli.app import BY_SIGNAL, ENDING, GRACE, INTERRUPTED, app
from bayesfit.cli.arrivals import Arrivals
from bayesfit.cli.fit_job import Wishes
from bayesfit.cli.jobs import Job, check_folder, check_job, made_folder
from bayesfit.cli.options import (
    Assignments,
    Cache,
    Config,
    CpuDevices,
    Device,
    MemoryFraction,
    ModelName,
    Noise,
    Output,
    Page,
    Pipeline,
    Plot,
    started,
)
from bayesfit.cli.status import Status
from bayesfit.compute.errors import BayesfitError, InputError, SettingsError
from bayesfit.compute.work import heeded, stop_on

if TYPE_CHECKING:
    from bayesfit.modelling.settings import RunSettings

LOOK = 0.2  # seconds between two times of asking whether to stop


@app.command()
def watch(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder in which files arrive.")],
    output: Output,
    model: ModelName = None,
    noise: Noise = None,
    pipeline: Pipeline = None,
    config: Config = None,
    set_: Assignments = None,
    plot: Plot = False,
    report: Page = True,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds without a change that make a file complete.")] = 5,
    idle: Annotated[float | None, typer.Option(min=0, help="End after so many seconds without a new file.")] = None,
    device: Device = None,
    memory_fraction: MemoryFraction = None,
    cpu_devices: CpuDevices = None,
    cache: Cache = None,
) -> None:
    """Fit files as they arrive in a folder: a point estimate of each at once (NAME_estimate.csv), then its posterior.

    It goes on until it is interrupted. The same command again fits no finished file again.

    Exit code: 0 nothing has arrived for --idle seconds; 130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by a hang-up.
    """
    settings = started(context)
    if settings.together is not None:
        raise SettingsError("files that arrive are fitted each by itself", field="together", remedy="Leave it out")
    check_folder(output)
    if not folder.is_dir():
        raise InputError("is no folder", file=folder)
    watched = Watched(
        folder, made_folder(output), settings, Wishes(plot, report, advise=False, fresh=False, brief=True)
    )
    with stop_on(*ENDING, grace=GRACE) as stop:
        try:
            watched.go_on(Arrivals(folder, every), every, idle)
        except KeyboardInterrupt:
            typer.echo(f"interrupted: the same command goes on with {output}", err=True)
            raise typer.Exit(BY_SIGNAL + stop.signal if stop.signal else INTERRUPTED) from None


class Watched:
    """A folder that is watched, and the state of all files that have arrived."""

    def __init__(self, folder: Path, output: Path, settings: RunSettings, wishes: Wishes) -> None:
        self.folder, self.output, self.settings, self.wishes = folder, output, settings, wishes
        self.status = Status([], output)
        self.owners: dict[Path, Path] = {}  # of each result the file

    def go_on(self, arrivals: Arrivals, every: float, idle: float | None) -> None:
        """Fit what arrives until nothing has for so many seconds.

        Raises:
            KeyboardInterrupt: the user asked to stop. InputError: the folder cannot be listed any more.
        """
        last = time.monotonic()
        while idle is None or time.monotonic() - last < idle + every:
            try:
                files = arrivals.look()
            except OSError as error:
                raise InputError(f"cannot be listed: {error.strerror}", file=self.folder) from error
            if files:
                self.fit(files)
                last = time.monotonic()
            _wait(every)

    def fit(self, files: list[Path]) -> None:
        """Estimate each of these files, then fit them.

        Raises:
            KeyboardInterrupt: the user asked to stop.
        """
        from bayesfit.cli.fit_all import fit_all
        from bayesfit.cli.steps import own_measurements

        own, left_out = own_measurements(files, self.settings.pipeline)
        for line in left_out:
            typer.echo(line)
        jobs = [job for file in own if (job := self._job(file)) is not None]
        self.status.add(jobs)
        for job in jobs:
            self._estimate(job)
        if INTERRUPTED in fit_all(jobs, self.settings, self.wishes, self.status):
            raise KeyboardInterrupt

    def _job(self, file: Path) -> Job | None:
        """The job of a file; None, after one line, if it would replace the result of another file."""
        job = Job([file], self.output / f"{file.stem}.nc")
        try:
            if self.owners.setdefault(job.output, file) != file:
                words = f"{self.owners[job.output].name} is saved as {job.output}, too"
                raise SettingsError(words, file=file, remedy="Give the files different names")
            check_job(job)
        except BayesfitError as error:
            typer.echo(f"error: {error}", err=True)
            return None
        return job

    def _estimate(self, job: Job) -> None:
        """Save and say the point estimate of a file that has no result yet. What is wrong with it is said when it is
        fitted."""
        from bayesfit.cli.steps import estimated

        if heeded().asked:
            raise KeyboardInterrupt
        path = job.output.with_name(f"{job.output.stem}_estimate.csv")
        if job.output.exists():
            return
        try:
            typer.echo(f"{job.name}: estimated, {estimated(job, self.settings, path)} -> {path}")
        except Exception:
            return


def _wait(seconds: float) -> None:
    """Wait, unless the user asks to stop.

    Raises:
        KeyboardInterrupt: the user does.
    """
    end = time.monotonic() + seconds
    while True:
        if heeded().asked:
            raise KeyboardInterrupt
        if (left := end - time.monotonic()) <= 0:
            return
        time.sleep(min(LOOK, left))

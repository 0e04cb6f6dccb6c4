"""What a run has to do: which files there are, which of them become one result, and which are this machine's."""

from __future__ import annotations

import glob
import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from bayesfit.compute.errors import InputError, SettingsError

NEVER_DATA = {".nc", ".png", ".pdf", ".svg", ".json", ".toml", ".md", ".py", ".sh", ".log"}  # left out of folders


class Job(NamedTuple):
    """Files that become one result, and its path."""

    files: list[Path]
    output: Path

    @property
    def name(self) -> str:
        """The first file, and how many more there are."""
        return f"{self.files[0]}{f' and {len(self.files) - 1} more' if len(self.files) > 1 else ''}"


def found_files(given: list[Path]) -> list[Path]:
    """The files that are given, those that a pattern such as `scans/*.hdf` matches, and those of the folders.

    Raises:
        InputError: a folder or a pattern has no files.
    """
    files: list[Path] = []
    for path in given:
        if os.path.isdir(path):  # which, unlike `Path.is_dir`, is False also for an impossible name
            found = [file for file in files_of(path) if file.suffix.lower() not in NEVER_DATA]
        elif not os.path.exists(path) and glob.has_magic(str(path)):
            found = _matching(path)
        else:
            files.append(path)
            continue
        files += [file for file in found if file not in files]
    return files


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


def _matching(pattern: Path) -> list[Path]:
    files = [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True)) if Path(name).is_file()]
    if not files:
        raise InputError("no file matches", file=pattern)
    return files


def jobs_of(files: list[Path], folder: Path, together: str | None) -> list[Job]:
    """One job for each file, FOLDER/STEM.nc; or one for all of them `together`, FOLDER/STEM_TOGETHER.nc with the stem
    of the first file. The folder is made.

    Raises:
        SettingsError: two results would have one name, a result would replace a file, or the folder cannot be made.
    """
    if together is not None:
        jobs = [Job(files, folder / f"{files[0].stem}_{together}.nc")]
    else:
        jobs = [Job([file], folder / f"{file.stem}.nc") for file in files]
    often = Counter(job.output for job in jobs)
    for job in jobs:
        if often[job.output] > 1:
            words = f"two files would be saved as {job.output}"
            raise SettingsError(words, field="-o", file=job.files[0], remedy="Run them apart")
        check_job(job)
    made_folder(folder)
    return jobs


def check_job(job: Job) -> None:
    """Refuse a job whose result would replace one of its files.

    Raises:
        SettingsError: it is so.
    """
    from bayesfit.result.files import refuse_own_input

    for file in filter(os.path.exists, job.files):
        refuse_own_input(job.output, file, "folder")


def check_folder(output: Path) -> None:
    """Refuse the name of a result where a folder for results is needed.

    Raises:
        SettingsError: it is one.
    """
    if output.suffix == ".nc" and not output.is_dir():
        remedy = f"Write -o {output.with_suffix('')}"
        raise SettingsError("is the folder in which each file has its NAME.nc", file=output, field="-o", remedy=remedy)


def made_folder(folder: Path) -> Path:
    """The folder for results, which is made if there is none.

    Raises:
        SettingsError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"the folder cannot be made: {error.strerror}", field="-o", file=folder) from error
    return folder


class Shard(NamedTuple):
    """The share of one machine of several: every job whose number leaves the same rest when divided by
    `machines` as this machine's `number`, both counted from 1."""

    number: int
    machines: int

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """From `2/8`; the whole from None.

        Raises:
            SettingsError: it is no such text.
        """
        number, _, machines = (text or "1/1").partition("/")
        if not (number.isdecimal() and machines.isdecimal() and 1 <= int(number) <= int(machines)):
            raise SettingsError(f"got {text!r}", field="--shard", remedy="Write --shard 1/8, up to 8/8")
        return cls(int(number), int(machines))

    def of(self, jobs: list[Job]) -> list[Job]:
        """This share of the jobs."""
        return jobs[self.number - 1 :: self.machines]

    @property
    def ending(self) -> str:
        """What tells files that this machine writes from those of the others."""
        return f"_{self.number}_of_{self.machines}" if self.machines > 1 else ""

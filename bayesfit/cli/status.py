"""How far a run over several files is: a file `status.json` beside the results, and in the end a table, also as CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

from bayesfit.cli.jobs import Job
from bayesfit.cli.numbers import console_width
from bayesfit.compute.errors import warn
from bayesfit.compute.whole_files import clear_parts, write_whole

WAITING, FITTING, FINISHED, FAILED, INTERRUPTED = "waiting", "fitting", "finished", "failed", "interrupted"


class Status:
    """The state of every job, in a JSON file that is replaced whenever one changes."""

    def __init__(self, jobs: list[Job], folder: Path, ending: str = "") -> None:
        self.path, self.table = folder / f"status{ending}.json", folder / f"summary{ending}.csv"
        self.jobs: dict[str, dict[str, Any]] = {}
        self.started: dict[str, float] = {}
        self.writable = True
        clear_parts(self.path)
        self.add(jobs)

    def add(self, jobs: list[Job]) -> None:
        """These jobs wait, too."""
        for job in jobs:
            waiting: dict[str, Any] = {
                "state": WAITING,
                "result": job.output.name,
                "bins": None,
                "verdicts": {},
                "seconds": None,
            }
            self.jobs[job.name] = waiting
        self._write()

    def begin(self, job: Job) -> None:
        """The job is being fitted."""
        self.started[job.name] = time.monotonic()
        self.jobs[job.name]["state"] = FITTING
        self._write()

    def end(self, job: Job, state: str, verdicts: dict[str, int] | None = None, error: str = "") -> None:
        """The job has ended in this state, with so many bins of each verdict, or with an error."""
        now = time.monotonic()
        seconds = round(now - self.started.get(job.name, now), 1)
        self.jobs[job.name].update({"state": state, "verdicts": verdicts or {}, "seconds": seconds})
        self.jobs[job.name]["bins"] = sum(verdicts.values()) if verdicts else None
        if error:
            self.jobs[job.name]["error"] = error
        self._write()

    def interrupt(self) -> None:
        """Whatever was being fitted is interrupted."""
        for row in self.jobs.values():
            if row["state"] == FITTING:
                row["state"] = INTERRUPTED
        self._write()

    def _write(self) -> None:
        states = [row["state"] for row in self.jobs.values()]
        counts = {state: states.count(state) for state in (WAITING, FITTING, FINISHED, FAILED, INTERRUPTED)}
        self._replace(self.path, json.dumps({"files": len(states), **counts, "jobs": self.jobs}, indent=1) + "\n")

    def _replace(self, path: Path, text: str) -> None:
        """Write one of the two files; where that is not possible, say so once, and go on without them."""
        try:
            if self.writable:
                write_whole(path, text.encode())
        except OSError as error:
            self.writable = False
            warn(f"{path}: the state of this run cannot be written: {error.strerror}")

    def print(self) -> None:
        """Print the table of all jobs, and write it as CSV."""
        from rich.console import Console
        from rich.table import Table

        verdicts = sorted({name for row in self.jobs.values() for name in row["verdicts"]}, key=_ok_first)
        heads = ["file", "state", "bins", *verdicts, "seconds", "error"]
        rows = []
        for name, row in self.jobs.items():
            numbers = map(_text, (row["bins"], *_counts(row, verdicts), row["seconds"]))
            rows.append([name, row["state"], *numbers, row.get("error", "")])
        table = Table(*heads)
        for cells in rows:
            table.add_row(*cells)
        Console(width=console_width()).print(table)
        text = io.StringIO()
        csv.writer(text).writerows([heads, *rows])
        self._replace(self.table, text.getvalue())


def _ok_first(verdict: str) -> tuple[bool, str]:
    return verdict != "ok", verdict


def _counts(row: dict[str, Any], verdicts: list[str]) -> list[int | None]:
    return [row["verdicts"].get(name, 0) if row["verdicts"] else None for name in verdicts]


def _text(value: Any) -> str:
    return "" if value is None else str(value)

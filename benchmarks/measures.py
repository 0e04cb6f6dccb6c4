"""What benchmarks measure, and on what: wall and processor time, memory, R-hat and effective sample sizes by ArviZ."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).parent / "bayesfit"
NO_BIN_IS_OK = 3  # an exit code


class Used(NamedTuple):
    """Wall and processor time in s, the latter of all cores together, and peak memory in MiB where it is known."""

    wall: float
    processor: float
    peak: float = float("nan")

    def per(self, bins: int) -> Used:
        """The times of one bin."""
        return self._replace(wall=self.wall / bins, processor=self.processor / bins)


def timed(work: Callable[[], Any]) -> tuple[Used, Any]:
    """What a call has used in this process, all threads together, and what it returned."""
    wall, processor = time.perf_counter(), time.process_time()
    made = work()
    return Used(time.perf_counter() - wall, time.process_time() - processor), made


def least(rounds: Iterable[Used]) -> Used:
    """The shortest times of several rounds."""
    walls, processors, peaks = zip(*rounds, strict=True)
    return Used(min(walls), min(processors), max(peaks))


def command(*arguments: object, **environment: object) -> Used:
    """What `bayesfit` with these arguments has used, as a process of its own, which as by default keeps the bytecode of
    what it imports."""
    variables = os.environ | {name: str(value) for name, value in environment.items()}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)], env=variables, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, NO_BIN_IS_OK):
            said.seek(0)
            raise SystemExit(f"bayesfit {' '.join(map(str, arguments))}: exit code {process.returncode}\n{said.read()}")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return Used(time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / unit)


class Mixing(NamedTuple):
    """Of each bin (bin,): R-hat and effective sample size of the worst parameter, the smaller of bulk and tail."""

    r_hat: np.ndarray
    ess: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        """Whether R-hat is at most 1.01 and the effective sample sizes are at least 400."""
        return (self.r_hat <= 1.01) & (self.ess >= 400)

    def said(self) -> str:
        """In a few words."""
        return f"{int(self.converged.sum())} of {self.ess.size}"


def mixing(draws: Mapping[str, xr.DataArray]) -> Mixing:
    """By ArviZ, of draws of each parameter with dims chain, draw and q_bin."""
    import arviz as az  # after NumPyro, of which it would leave a lazy module that loads numpyro.distributions twice

    posterior = xr.Dataset(dict(draws))
    sizes = az.ess(posterior, method="bulk"), az.ess(posterior, method="tail", prob=(0.05, 0.95))
    worst = max_over(az.rhat(posterior)), -max_over(*(-size for size in sizes))
    return Mixing(*worst)


def max_over(*of: xr.Dataset) -> np.ndarray:
    """The largest value over the variables of all datasets (bin,); NaN where one of them is."""
    return np.max([array.values for one in of for array in one.values()], axis=0)


def stacked(draws: Sequence[np.ndarray], names: Sequence[str]) -> dict[str, xr.DataArray]:
    """Draws (parameter, chain, draw) of one bin after another, as `mixing` takes them."""
    arrays = np.stack(draws, axis=-1)
    return {
        name: xr.DataArray(array, dims=("chain", "draw", "q_bin")) for name, array in zip(names, arrays, strict=True)
    }


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """The processor's name, and the number of cores that this process may use."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {cores()} cores"


def commit() -> str:
    """The commit, and whether what is measured has been changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--", "bayesfit", "models", "pipelines", "benchmarks", "uv.lock")
    return git("rev-parse", "--short", "HEAD") + (" with changes that are not committed" if changed else "")


def versions(*packages: str) -> str:
    """Of Python and of these packages."""
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)])


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a table in Markdown, numbers to the right; the first column is text."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]

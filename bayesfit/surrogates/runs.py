"""All runs of a simulator: each is kept on disk as soon as it is made, and never made again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from bayesfit.compute.errors import InputError, SettingsError, warn
from bayesfit.compute.whole_files import write_whole
from bayesfit.surrogates.simulator import RunFailed, Simulator, outside
from bayesfit.surrogates.workers import WORKER, Effort, run_all

STATED = "simulator.json"
FAILED_SHARE = 0.1  # of the runs that may fail
FIRST = 5  # runs; if all of them fail, so would the others

Points = Float[np.ndarray, "run param"]
Curves = Float[np.ndarray, "run tau"]


def default_folder() -> Path:
    """Where runs are kept unless a user says where."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayesfit" / "simulations"


@dataclass(frozen=True)
class Runs:
    """The runs of a `simulator` with parameters of these `names`, at `length` delays, kept in a `folder`. `report` is
    told how many of how many runs are done."""

    simulator: Simulator
    names: tuple[str, ...]
    length: int
    folder: Path
    effort: Effort
    report: Callable[[int, int], None] = lambda done, count: None

    @classmethod
    def begin(cls, simulator: Simulator, names: tuple[str, ...], tau: np.ndarray, place: Any, effort: Effort) -> Runs:
        """Open the folder of the runs, which is named by the simulator where the user names none.

        Raises:
            SettingsError: it cannot be used, or holds the runs of another simulator, or of another version of it.
        """
        if os.environ.get(WORKER):
            remedy = 'Put the call under: if __name__ == "__main__":'
            raise SettingsError("is called by a worker process of itself", field="surrogate", remedy=remedy)
        stated = {"simulator": simulator.name, "sha256": simulator.sha256, "tau": tau.tolist()}
        key = hashlib.sha256(json.dumps(stated).encode()).hexdigest()
        folder = default_folder() / key[:24] if place is None else Path(place).expanduser()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / STATED).exists():
                write_whole(folder / STATED, json.dumps(stated).encode())
            before = json.loads((folder / STATED).read_bytes())
        except (OSError, ValueError) as error:
            raise SettingsError(f"runs cannot be kept: {error}", file=folder, field="cache") from error
        for name, words in (("sha256", "another simulator, or another version of it"), ("tau", "other delays")):
            if before.get(name) != stated[name]:
                problem = f"holds {len(list(folder.glob('*.run')))} runs of {words}, which are left as they are"
                raise SettingsError(problem, file=folder, field="cache", remedy="Give another folder")
        return cls(simulator, names, tau.size, folder, effort)

    def curves(self, points: Points, repeat: int = 0, beside: Curves | None = None) -> tuple[Curves, dict[int, str]]:
        """The curve at each point, NaN where the run fails, and why by index. With another `repeat`, the simulator is
        run anew at the same points. Curves `beside` them help to tell how noisy they are.

        Raises:
            InputError: too many runs fail. What was made is kept.
        """
        curves, failed = self._made(points, repeat)
        for index, why in outside(curves, beside).items():
            curves[index], failed[index] = np.nan, why
        if failed:
            self._refuse(failed, points[list(failed)[-1]], len(points), len(points))
        return curves, failed

    def _made(self, points: Points, repeat: int) -> tuple[Curves, dict[int, str]]:
        """The curves as they are."""
        curves, failed = np.full((len(points), self.length), np.nan), dict[int, str]()
        given = [dict(zip(self.names, row.tolist(), strict=True)) for row in points]
        paths = [self._path(each, repeat) for each in given]
        for index, path in enumerate(paths):
            if (kept := _read(path, self.length)) is not None:
                curves[index] = kept
        missing = np.flatnonzero(np.isnan(curves).all(axis=1))
        self.report(len(points) - missing.size, len(points))
        made = run_all(self.simulator, [given[index] for index in missing], self.length, self.effort)
        with closing(made):
            for done, (place, outcome) in enumerate(made, start=1):
                index = int(missing[place])
                if isinstance(outcome, RunFailed):
                    failed[index] = str(outcome)
                    self._refuse(failed, points[index], done, len(points))
                else:
                    curves[index] = outcome
                    _write(paths[index], given[index], outcome)
                self.report(len(points) - missing.size + done, len(points))
        return curves, failed

    def _path(self, parameters: Mapping[str, float], repeat: int) -> Path:
        text = json.dumps([self.simulator.sha256, sorted(parameters.items()), repeat])
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.run"

    def _refuse(self, failed: Mapping[int, str], last: Float[np.ndarray, " param"], done: int, count: int) -> None:
        """Stop where all of the first runs fail, or too many of all."""
        if len(failed) > max(FAILED_SHARE * count, FIRST - 1) or (done == len(failed) and done >= min(FIRST, count)):
            at = ", ".join(f"{name}={value:.6g}" for name, value in zip(self.names, last, strict=True))
            problem = f"{len(failed)} of {done} runs fail, the last at {at}: {list(failed.values())[-1]}"
            remedy = f"The others are kept in {self.folder}; the same call goes on from there"
            raise InputError(problem, field="simulator", remedy=remedy)


def warn_of(failed: Mapping[int, str], count: int) -> None:
    """Warn of failed runs, which are left out."""
    if failed:
        warn(f"{len(failed)} of {count} runs of the simulator failed and are left out: {next(iter(failed.values()))}")


def _read(path: Path, length: int) -> np.ndarray | None:
    """The curve of a run; None if there is none, or the file is damaged."""
    try:
        stated = json.loads(path.read_bytes())
        curve = np.array(stated["curve"], float)
        whole = stated["sha256"] == hashlib.sha256(curve.tobytes()).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return curve if whole and curve.shape == (length,) else None


def _write(path: Path, parameters: Mapping[str, float], curve: np.ndarray) -> None:
    stated = {"parameters": dict(parameters), "curve": curve.tolist()}
    content = json.dumps({**stated, "sha256": hashlib.sha256(curve.tobytes()).hexdigest()})
    try:
        write_whole(path, content.encode())
    except OSError as error:
        raise SettingsError(f"runs cannot be kept: {error.strerror}", file=path.parent, field="cache") from error

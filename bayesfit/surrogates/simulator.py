"""A simulator as users give it: a Python function, or a command; and what is asked of its curves."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import pickle
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.kinds import in_words
from bayesfit.modelling.file_checks import readable

INPUT, OUTPUT = "{input}", "{output}"
GIVE = "Give a function, 'FILE.py:FUNCTION', or a command as a list of words"
OUTSIDE = 0.01  # how far |g1|^2 may be outside 0 to 1
OUTSIDE_NOISY, MOST_OUTSIDE = 5.0, 0.2  # the same in units of its noise, where it has some; and then at most

Function = Callable[[dict[str, float]], Any]


class RunFailed(Exception):
    """A run gave no curve; its text says why. It is `final` where another try would end the same way."""

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(" ".join(why.split())[:300])
        self.final = final


class TookLonger(RunFailed):
    """A run that was stopped at its time limit."""

    def __init__(self, limit: float) -> None:
        super().__init__(f"took longer than {limit:g} s")


@dataclass(frozen=True)
class InFile:
    """A function in a Python file, found when it is first called, in whatever process that is."""

    path: str
    name: str

    def __call__(self, parameters: dict[str, float]) -> Any:
        """The curve (tau,) at these parameters."""
        module = sys.modules.get(self._module) or self._loaded()
        function: Any = module
        for part in self.name.split("."):
            function = getattr(function, part)
        return function(parameters)

    @property
    def _module(self) -> str:
        return f"bayesfit_simulator_{hashlib.sha256(self.path.encode()).hexdigest()[:12]}"

    def _loaded(self) -> Any:
        spec = importlib.util.spec_from_file_location(self._module, self.path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self._module] = module
        sys.path.insert(0, str(Path(self.path).parent))
        spec.loader.exec_module(module)
        return module


@dataclass(frozen=True)
class Simulator:
    """A simulator: a `function`, or the `words` of a command. `name` is for people; `sha256` is a hash of its source,
    by which runs of different versions are kept apart."""

    name: str
    sha256: str
    function: Function | None = None
    words: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Any) -> Simulator:
        """Read a simulator as a user gives it.

        Raises:
            SettingsError: it is none, or it cannot be sent to other processes. InputError: there is no such file.
        """
        if isinstance(given, Simulator):
            return given
        if isinstance(given, str) and ".py:" in given:
            path, _, name = given.rpartition(":")
            return _of_file(readable(path, "simulator").resolve(), name, given)
        if isinstance(given, Sequence) and not isinstance(given, str) and given:
            return _of_command(tuple(str(word) for word in given))
        if callable(given):
            return _of_function(given)
        raise SettingsError(f"got {in_words(given)}, expected a simulator", field="simulator", remedy=GIVE)


def _of_file(path: Path, name: str, stated: str) -> Simulator:
    if not name.isidentifier():
        raise SettingsError(f"got {stated!r}", field="simulator", remedy="Write it as FILE.py:FUNCTION")
    return Simulator(f"{path.name}:{name}", _hash(name, path.read_bytes()), InFile(str(path), name))


def _of_command(words: tuple[str, ...]) -> Simulator:
    """A command; the program, and the files that it names, belong to its hash."""
    program = shutil.which(words[0]) or words[0]
    files = [Path(word).read_bytes() for word in (program, *words[1:]) if Path(word).is_file()]
    text = " ".join(words)
    if INPUT not in text or OUTPUT not in text:
        words = (*words, *(place for place in (INPUT, OUTPUT) if place not in text))
    return Simulator(text, _hash(*words, *files), words=words)


def _of_function(function: Function) -> Simulator:
    """A function, or another thing that can be called, if other processes can have it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    label = name or type(function).__name__
    if module == "__main__" and name.isidentifier() and (file := getattr(sys.modules[module], "__file__", None)):
        return _of_file(Path(file).resolve(), name, f"{file}:{name}")
    try:
        sent = pickle.dumps(function)
        if module == "__main__" or b"__main__" in sent:
            raise SettingsError("is of an interactive session", field="simulator")
    except Exception as error:
        remedy = "Define it at the top of a file, and give 'FILE.py:FUNCTION'"
        raise SettingsError("cannot be sent to worker processes", field="simulator", remedy=remedy) from error
    return Simulator(label, _hash(sent, _source(function)), function)


def _source(function: Any) -> bytes:
    """The file in which a function is defined, or that of its class, or of what it is a part of."""
    for each in (function, getattr(function, "func", None), type(function)):
        try:
            return Path(inspect.getsourcefile(each) or "").read_bytes()  # type: ignore[arg-type]
        except (TypeError, OSError):
            continue
    return b""


def _hash(*parts: str | bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        made.update(f"{len(content)} ".encode() + content)
    return made.hexdigest()


def checked(curve: Any, length: int) -> np.ndarray:
    """A simulator's curve, if it has this length and may be a decay |g1|^2 with noise; see `outside`.

    Raises:
        InputError: another length, which no other run would change. RunFailed: not finite, or far outside 0 to 1.
    """
    try:
        array = np.asarray(curve, float)
    except (TypeError, ValueError) as error:
        raise RunFailed(f"returned a {type(curve).__name__}, no curve", final=True) from error
    if array.shape != (length,):
        problem = f"returned shape {array.shape}, expected that of tau, ({length},)"
        raise InputError(problem, field="simulator", remedy="Return |g1|^2 at every delay of tau")
    if not np.all(np.isfinite(array)):
        raise RunFailed(f"returned NaN or infinity at {np.sum(~np.isfinite(array))} of {length} delays", final=True)
    worst, far = _farthest(array)
    if far > MOST_OUTSIDE:
        raise RunFailed(_outside(float(worst)), final=True)
    return array


def outside(curves: np.ndarray, beside: np.ndarray | None = None) -> dict[int, str]:
    """Which curves (run, tau) leave 0 to 1 by more than their noise explains, and the words for it, by index. The noise
    is one for all, since a single curve tells it badly; curves `beside` these tell of it too."""
    known = curves if beside is None else np.concatenate([curves, beside])
    worst, far = _farthest(curves)
    limit = np.clip(OUTSIDE_NOISY * _noise(known[np.isfinite(known).all(axis=1)]), OUTSIDE, MOST_OUTSIDE)
    return {int(index): _outside(float(worst[index])) for index in np.flatnonzero(far > limit)}


def _farthest(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The value farthest from the middle of 0 to 1 along the last axis, and by how much it is outside."""
    far = np.abs(curves - 0.5)
    worst = np.take_along_axis(curves, np.argmax(far, axis=-1)[..., None], axis=-1)[..., 0]
    return worst, np.abs(worst - 0.5) - 0.5


def _outside(value: float) -> str:
    return f"returned {value:.4g}, but |g1|^2 is from 0 to 1"


def _noise(curves: np.ndarray) -> float:
    """The standard deviation of noise that is independent between delays, from the median of second differences; that
    of smooth curves is small, since they are straight at most delays."""
    bends = np.abs(np.diff(curves, 2, axis=1))
    return float(np.median(bends)) / (0.6745 * np.sqrt(6.0)) if bends.size else 0.0

"""The journal of a fit: what its stages have made so far, kept in a folder, so that the same fit goes on there after
whatever has stopped it.

A fit is deterministic, and so is the order of its stages. Each of them is numbered as it begins, and takes from the
journal what a stage of its number has kept before it makes the rest; a fit that was stopped and goes on therefore has
the bits of one that was not. What is kept are arrays by name: parts, one after the other, and the state of the stage at
work, of which only the last is kept. Both are written some seconds after the last time, in files that carry a hash of
their content and appear whole or not at all; what cannot be read ends the journal there.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PyTree

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.whole_files import write_whole
from bayesfit.compute.work import Stop

EVERY = 2.0  # seconds, about, between two times of writing
DIGEST = hashlib.sha256().digest_size
STATE, LOCK = "state.npz", "lock"  # files of a journal, beside its numbered parts

Arrays = dict[str, np.ndarray]


class Journal:
    """The journal in a folder of its own. `stage` counts the stages that have begun."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stage = folder, 0
        self.kept: dict[int, dict[int, Arrays]] = {}  # by stage and part
        self.written, self.last = 0, time.monotonic()
        while (arrays := _read(self._part(self.written))) is not None:
            self._recall(arrays)
            self.written += 1
        self.state = _read(folder / STATE) or {}
        self.waiting: Arrays = {}

    def _part(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"

    def _recall(self, arrays: Arrays) -> None:
        """Sort arrays that were read by stage and part; a part that was made again replaces what it was before."""
        found: dict[tuple[int, int], Arrays] = {}
        for path, array in arrays.items():
            of_stage, of_part, name = path.split("/", 2)
            found.setdefault((int(of_stage), int(of_part)), {})[name] = array
        for (stage, part), part_arrays in found.items():
            self.kept.setdefault(stage, {})[part] = part_arrays

    def begin(self) -> Record:
        """The record of the stage that begins now."""
        self.stage += 1
        return Record(self, self.stage, list(self.kept.pop(self.stage, {}).values()))

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self.last >= EVERY

    def write(self, state: Mapping[str, np.ndarray] | None = None) -> None:
        """Write the parts that wait, and the state of the stage at work.

        Raises:
            InputError: the folder cannot be written.
        """
        try:
            if self.waiting:
                _write(self._part(self.written), self.waiting)
                self.written, self.waiting = self.written + 1, {}
            if state is not None:
                _write(self.folder / STATE, state)
        except OSError as error:
            raise InputError(f"progress cannot be kept: {error.strerror}", file=self.folder) from error
        self.last = time.monotonic()


class Record:
    """What one stage of a fit has kept: the `parts` from before, and more."""

    def __init__(self, journal: Journal, stage: int, parts: list[Arrays]) -> None:
        self.journal, self.stage, self.parts = journal, stage, parts
        self.count = len(parts)

    def forget(self, after: int = 0) -> None:
        """Forget the parts from this number on."""
        del self.parts[after:]
        self.count = len(self.parts)

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep a part; it is written when it is time."""
        for name, array in arrays.items():
            self.journal.waiting[f"{self.stage}/{self.count}/{name}"] = np.asarray(array)
        self.count += 1

    def state(self) -> Arrays:
        """The last state of this stage, as it was written; empty if there is none."""
        of_stage = self.journal.state.get("stage")
        if of_stage is None or int(of_stage) != self.stage:
            return {}
        return {name.removeprefix("state/"): array for name, array in self.journal.state.items() if "/" in name}

    def write(self, state: Mapping[str, np.ndarray] | None = None) -> None:
        """Write all that waits, and this state of the stage."""
        if state is not None:
            state = {"stage": np.array(self.stage), **{f"state/{name}": array for name, array in state.items()}}
        self.journal.write(state)


def leave(stop: Stop) -> None:
    """End the fit if the user asks to stop and a journal is kept, so that nothing is lost by it.

    Raises:
        KeyboardInterrupt: it is so.
    """
    if stop.asked and is_kept():
        raise KeyboardInterrupt


_AT_WORK: ContextVar[Journal | None] = ContextVar("journal", default=None)


def is_kept() -> bool:
    """Whether a journal is kept of what is at work."""
    return _AT_WORK.get() is not None


def begin_stage() -> Record | None:
    """The record of the stage that begins now; None where no journal is kept."""
    journal = _AT_WORK.get()
    return None if journal is None else journal.begin()


def resumable(
    make: Callable[[int], Iterator[PyTree]], structure: Callable[[], jax.tree_util.PyTreeDef]
) -> Iterator[PyTree]:
    """The parts that a stage makes one after the other, each a pytree of arrays of the same `structure`. `make` makes
    them from the given number on: those before it come from the journal."""
    record = begin_stage()
    if record is None:
        yield from make(0)
        return
    for part in record.parts:
        yield jax.tree.unflatten(structure(), [part[str(place)] for place in range(len(part))])
    for made in make(len(record.parts)):
        record.add({str(place): np.asarray(leaf) for place, leaf in enumerate(jax.tree.leaves(made))})
        if record.journal.due:
            record.write()
        yield made


def agree(state: Callable[[], Mapping[str, str]]) -> None:
    """Where a journal is kept, state in it what a fit is made of, by name, which must be what it was before.

    Raises:
        SettingsError: it is something else.
    """
    record = begin_stage()
    if record is None:
        return
    stated = state()
    before = {name: str(array) for name, array in record.parts[0].items()} if record.parts else {}
    if changed := [name for name in stated if record.parts and before.get(name) != stated[name]]:
        words = f"what is kept here was made with other {' and '.join(changed)}"
        raise SettingsError(words, file=record.journal.folder, remedy="Go on with what it had, or start over: --fresh")
    if not record.parts:
        record.add({name: np.array(words) for name, words in stated.items()})


@contextmanager
def checkpoint(folder: str | Path, fresh: bool = False) -> Iterator[None]:
    """Keep the progress of all fits that run within, and go on where they were stopped.

    The same program, run again after whatever has stopped it, makes no bin again that was ready some seconds before,
    and its results have the bits of a run that was not stopped.

    Args:
        folder: one that belongs to these fits alone. It is deleted when they have ended, and stays if an error, a
            signal or a crash ends them before.
        fresh: begin anew, whatever stands there.

    Raises:
        SettingsError: the folder cannot be made; or, from a fit, its data, settings, seed or code are not those of
            before.

    Example:
        >>> import bayesfit, tempfile
        >>> data, truth = bayesfit.simulate(bins=2, seed=1)
        >>> with bayesfit.checkpoint(tempfile.mkdtemp()):
        ...     result = bayesfit.fit(data, "single_exponential", draws=200)
    """
    folder = Path(folder)
    with alone(folder):
        if fresh:
            empty(folder)
        journal = Journal(folder)
        token = _AT_WORK.set(journal)
        try:
            yield
        except BaseException:
            if journal.stage > 1:  # more than what the fit is made of
                journal.write()
            raise
        finally:
            _AT_WORK.reset(token)
        empty(folder)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep all others out of a folder, which is made, and deleted in the end if it is empty.

    Raises:
        SettingsError: it cannot be made, or another run is at work there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise SettingsError(f"progress cannot be kept: {error.strerror}", file=folder) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingsError("another run is at work here", file=folder, remedy="Wait for its end") from error
        try:
            yield
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                shutil.rmtree(folder, ignore_errors=True)


def empty(folder: Path) -> None:
    """Delete all that a journal has written."""
    for path in folder.iterdir():
        if path.name != LOCK:
            path.unlink()


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by name, behind a hash of their bytes."""
    content = io.BytesIO()
    np.savez(content, **dict(arrays))  # type: ignore[arg-type]
    raw = content.getvalue()
    write_whole(path, hashlib.sha256(raw).digest() + raw)


def _read(path: Path) -> Arrays | None:
    """Arrays by name; None if there is no such file, or not what was written."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
            return None
        with np.load(io.BytesIO(content[DIGEST:]), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError):
        return None

"""A simulator that is a command: it reads a file of parameters, and writes a file of the curve."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bayesfit.compute.errors import SettingsError
from bayesfit.surrogates.simulator import INPUT, OUTPUT, RunFailed, TookLonger


class Command:
    """A command, given by its words. {input} in them stands for a JSON file of the parameters, {output} for the file
    that it is to write: a list in JSON, an array of NumPy, or text, of which the last column counts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.closed = tuple(words), False
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, parameters: Mapping[str, float], limit: float) -> np.ndarray:
        """The curve that it writes.

        Raises:
            RunFailed: there is no curve. SettingsError: there is no such command.
        """
        with tempfile.TemporaryDirectory() as folder:
            given, output = Path(folder) / "parameters.json", Path(folder) / "curve"
            given.write_text(json.dumps(dict(parameters)))
            words = [word.replace(INPUT, str(given)).replace(OUTPUT, str(output)) for word in self.words]
            said = self._run(words, limit)
            written = [path for path in (output, Path(f"{output}.npy")) if path.is_file()]
            if not written:
                raise RunFailed(f"wrote no curve to {OUTPUT} {said}")
            return read_curve(written[0].read_bytes())

    def _run(self, words: Sequence[str], limit: float) -> str:
        """Run it to its end; the last line that it says on standard error."""
        self._start(words)
        assert self.process is not None
        try:
            _, errors = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise TookLonger(limit) from error
        finally:
            self._kill()
        lines = errors.decode(errors="replace").strip().splitlines()
        if self.process.returncode:
            raise RunFailed(f"{ending(self.process.returncode)}: {lines[-1] if lines else 'it says nothing'}")
        return f"({lines[-1]})" if lines else ""

    def _start(self, words: Sequence[str]) -> None:
        if self.closed:
            raise RunFailed("stopped", final=True)
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise SettingsError(f"cannot be run: {error.strerror}: {words[0]}", field="simulator") from error

    def _kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            end(self.process)
            self.process.communicate()

    def close(self) -> None:
        """End what runs, and run nothing more."""
        self.closed = True
        end(self.process)

    def stop(self) -> None:
        """Wait until nothing runs; that is so after every run."""


def end(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process and all that it has started, unless it has ended."""
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):  # it ends just now
            os.killpg(process.pid, signal.SIGKILL)


def ending(code: int) -> str:
    """In words, how a process ended."""
    return f"crashed, exit code {code}" if code >= 0 else f"crashed by {signal.Signals(-code).name}"


def read_curve(content: bytes) -> np.ndarray:
    """The numbers in a file of JSON, NumPy or text.

    Raises:
        RunFailed: it holds none.
    """
    try:
        if content.startswith(b"\x93NUMPY"):
            return np.load(io.BytesIO(content), allow_pickle=False)
        if content.lstrip().startswith(b"["):
            return np.asarray(json.loads(content), float)
        table = np.loadtxt(io.StringIO(content.decode()), delimiter="," if b"," in content else None, ndmin=2)
        return table[:, -1] if table.shape[0] > 1 else table[0]
    except (ValueError, UnicodeDecodeError) as error:
        raise RunFailed(f"what it wrote is no curve: {error}", final=True) from error

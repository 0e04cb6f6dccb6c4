"""Runs of a simulator side by side, each with a time limit and some tries; a crash or a hang costs one worker."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any

import numpy as np

from bayesfit.compute.processes import ProcessError
from bayesfit.surrogates.command import Command, end, ending
from bayesfit.surrogates.simulator import RunFailed, Simulator, TookLonger, checked

START_LIMIT = 120.0  # s for a worker to import what it needs
WORKER = "BAYESFIT_WORKER"  # set in the environment of workers


@dataclass(frozen=True)
class Effort:
    """How runs are made: `workers` side by side, each at most `time_limit` s, begun again up to `retries` times."""

    workers: int = 2
    time_limit: float = 600.0
    retries: int = 2


class Process:
    """A worker process that holds a simulator's function; it is started when first needed, and again after a crash."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.sent, self.closed = pickle.dumps(function), False
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Any = None

    def run(self, parameters: Mapping[str, float], limit: float) -> np.ndarray:
        """What the function returns.

        Raises:
            RunFailed: it raises, crashes, or takes too long. ProcessError: no worker can be started.
        """
        if self.process is None:
            self._start()
        try:
            self.connection.send(dict(parameters))
            if not self.connection.poll(limit):
                self.stop()
                raise TookLonger(limit)
            made, answer = self.connection.recv()
        except (EOFError, OSError) as error:
            raise RunFailed(self._ended()) from error
        if not made:
            raise RunFailed(answer)
        return answer

    def _start(self) -> None:
        if self.closed:
            raise RunFailed("stopped", final=True)
        self.connection, theirs = Pipe()
        words = [sys.executable, "-m", "bayesfit.surrogates.worker", str(theirs.fileno())]
        own = {**os.environ, WORKER: "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=own,
            start_new_session=True,
        )
        theirs.close()
        try:
            self.connection.send(sys.path)
            self.connection.send_bytes(self.sent)  # it is pickled already
            ready = self.connection.poll(START_LIMIT) and self.connection.recv() == "ready"
        except (EOFError, OSError):
            ready = False
        if not ready:
            why = self._ended()
            remedy = "Can the simulator's module be imported elsewhere? Else give 'FILE.py:FUNCTION'"
            raise ProcessError(f"a worker process does not start: {why}", field="simulator", remedy=remedy)

    def _ended(self) -> str:
        """In words, how the process ended, if it has; it is stopped if not."""
        assert self.process is not None
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        self.stop()
        return ending(code)

    def stop(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            end(self.process)
            self.process.wait()
            self.connection.close()
        self.process = None

    def close(self) -> None:
        """End what runs, and run nothing more."""
        self.closed = True
        end(self.process)


Outcome = np.ndarray | RunFailed


def run_all(
    simulator: Simulator, points: Sequence[Mapping[str, float]], length: int, effort: Effort
) -> Generator[tuple[int, Outcome]]:
    """The index of each point, and its curve or why there is none, as they come. What is at work when it is left is
    ended.

    Raises:
        InputError: curves have another length. ProcessError, SettingsError: the simulator cannot be run.
    """
    count = max(1, min(effort.workers, len(points)))
    runners = [_runner(simulator) for _ in range(count)]
    free: queue.SimpleQueue[Process | Command] = queue.SimpleQueue()
    for runner in runners:
        free.put(runner)

    def one(point: Mapping[str, float]) -> Outcome:
        runner = free.get()
        try:
            return _tried(runner, point, length, effort)
        finally:
            free.put(runner)

    pool = ThreadPoolExecutor(count)
    pending = {pool.submit(one, point): index for index, point in enumerate(points)}
    try:
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for each in done:
                yield pending.pop(each), each.result()
    finally:
        for runner in runners:
            runner.close()
        pool.shutdown(cancel_futures=True)
        for runner in runners:
            runner.stop()


def _runner(simulator: Simulator) -> Process | Command:
    return Command(simulator.words) if simulator.function is None else Process(simulator.function)


def _tried(runner: Process | Command, point: Mapping[str, float], length: int, effort: Effort) -> Outcome:
    """The curve at a point, or why there is none after all tries; a second one that takes too long is the last."""
    failed = RunFailed("was not run")
    for _ in range(effort.retries + 1):
        try:
            return checked(runner.run(point, effort.time_limit), length)
        except RunFailed as why:
            last = why.final or (isinstance(why, TookLonger) and isinstance(failed, TookLonger))
            failed = why
            if last:
                break
    return failed

"""Work in other processes, on this machine or others: what is sent with it, and how it is waited for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bayesfit.compute.errors import BayesfitError
from bayesfit.compute.processes import ProcessError


class Pending(Protocol):
    """A result that is to come, such as a `concurrent.futures.Future`."""

    def result(self) -> Any:
        """Wait for it."""

    def cancel(self) -> Any:
        """Do not make it, if that has not begun."""


class Executor(Protocol):
    """Whatever runs functions elsewhere, such as a `concurrent.futures.ProcessPoolExecutor` or the executor of a Dask
    client."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Pending:
        """Begin to run a function."""


class Sent(NamedTuple):
    """The place of a file in what is sent: its name and its content."""

    name: str
    content: bytes


def with_files(value: Any) -> Any:
    """A value in which the paths of this machine's files, in tables and lists too, are replaced by the files."""
    if isinstance(value, Mapping):
        return {name: with_files(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(with_files(each) for each in value)
    if isinstance(value, Path) or (isinstance(value, str) and Path(value).suffix):
        path = Path(value)
        return Sent(path.name, path.read_bytes()) if path.is_file() else value
    return value


@contextmanager
def unpacked(value: Any) -> Iterator[Any]:
    """What `with_files` was given, with paths at which the files lie for now."""
    with tempfile.TemporaryDirectory() as folder:
        yield _placed(value, Path(folder))


def _placed(value: Any, folder: Path) -> Any:
    if isinstance(value, Sent):
        path = Path(tempfile.mkdtemp(dir=folder)) / value.name
        path.write_bytes(value.content)
        return str(path)
    if isinstance(value, Mapping):
        return {name: _placed(each, folder) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_placed(each, folder) for each in value)
    return value


def in_order(executor: Executor, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """What a function returns elsewhere for each of these arguments. Those that have not begun when it is left are
    taken back.

    Raises:
        ProcessError: a worker was lost, or the work could not be sent.
    """
    pending = [executor.submit(function, *task) for task in tasks]
    try:
        for each in pending:
            yield outcome(each)
    finally:
        for each in pending:
            each.cancel()


def outcome(pending: Pending) -> Any:
    """The result of work elsewhere.

    Raises:
        ProcessError: there is none, since a worker was lost, or the work could not be sent.
    """
    try:
        return pending.result()
    except (BayesfitError, KeyboardInterrupt):
        raise
    except Exception as error:
        words = f"work elsewhere was lost: {type(error).__name__}: {error}"
        remedy = "Do workers end for lack of memory? A model must be a name or a file, so that it can be sent"
        raise ProcessError(words, remedy=remedy) from error

"""What JAX compiles on the way, single operations mostly, kept on disk beside the programs (`compute/programs.py`).

A fit's own programs are kept by name. Around them, code that is not compiled as a whole makes JAX compile each of its
operations: some hundreds in a law, which take longer than its chains. JAX can keep what it compiles, but in files that
it trusts, and for the whole process. Here the files are signed, and only what bayesfit does passes through them; a
cache of JAX that the user has asked for is left alone. That part of JAX is its own affair: if it changes, nothing is
kept.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax

from bayesfit.compute.program_files import folder
from bayesfit.compute.programs import machine
from bayesfit.compute.signed_files import is_private, keep_newest, read_signed, write_signed

FOLDER = ".operations"  # in the folder of the programs
MOST_KEPT = 5000  # files; those that were not used for longest are deleted first


@contextmanager
def computing(double: bool = True) -> Iterator[None]:
    """Let JAX compute in double precision, or not, in this thread, and keep what it compiles for this on disk."""
    with jax.enable_x64(double), ExitStack() as stack:
        try:
            _enter(stack)
        except Exception:  # JAX's own affair has changed
            stack.close()
        yield


def _enter(stack: ExitStack) -> None:
    """Have JAX keep what is compiled in this thread."""
    from jax._src import config

    where = folder()
    if where is None or (where.is_dir() and not is_private(where)) or config.compilation_cache_dir.value is not None:
        return
    stack.enter_context(config.compilation_cache_dir(str(where / FOLDER)))
    stack.enter_context(config.persistent_cache_min_compile_time_secs(0.0))
    stack.enter_context(STORE.in_use())


class Store:
    """Where JAX finds and keeps what it compiles, as long as somebody uses it. It is JAX's in all threads then, but
    serves only those that are using it: the compiler's own threads make programs, which can be kept only if JAX has not
    read them from its files."""

    def __init__(self) -> None:
        self.users, self.lock = 0, threading.Lock()
        self.thread = threading.local()
        self.written: set[Path] = set()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Take the place of JAX's own files, which it has not begun to use."""
        from jax._src import compilation_cache

        module: Any = compilation_cache
        with self.lock:
            self.users += 1
            module._cache = self
        self.thread.uses = True
        try:
            yield
        finally:
            self.thread.uses = False
            with self.lock:
                self.users -= 1
                if self.users == 0:
                    module._cache = None
                    self._tidy()

    def get(self, key: str) -> bytes | None:
        """What JAX has put here under this key, in this process or an earlier one."""
        path = self._path(key)
        return None if path is None else read_signed(path)

    def put(self, key: str, value: bytes) -> None:
        """Keep what JAX has compiled. Without permission to write, nothing is kept."""
        path = self._path(key)
        if path is None:
            return
        try:
            write_signed(path, value)
            self.written.add(path.parent)
        except OSError:
            return

    def _path(self, key: str) -> Path | None:
        """The file of a key of JAX, which does not tell machines apart; None where nothing is kept."""
        where = folder() if getattr(self.thread, "uses", False) else None
        name = hashlib.sha256(f"{key} {machine()}".encode()).hexdigest()
        return None if where is None else where / FOLDER / name

    def _tidy(self) -> None:
        for where in self.written:
            try:
                keep_newest(where, MOST_KEPT)
            except OSError:
                continue
        self.written = set()


STORE = Store()

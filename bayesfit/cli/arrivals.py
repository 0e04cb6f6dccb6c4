"""The files that arrive in a folder, each once it is complete: when its size and time have not changed for a while."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from bayesfit.cli.jobs import NEVER_DATA


class Stamp(NamedTuple):
    """What tells whether a file has changed: its size in bytes and its time in ns."""

    size: int
    time: int


class Arrivals:
    """What is known of the files of a folder: when each was first seen as it is, and which were given out so."""

    def __init__(self, folder: Path, settle: float) -> None:
        self.folder, self.settle = folder, settle  # seconds for which a complete file does not change
        self.seen: dict[Path, tuple[Stamp, float]] = {}
        self.given: dict[Path, Stamp] = {}

    def look(self) -> list[Path]:
        """The files that are complete and were not given out before as they are now, sorted by name.

        Raises:
            OSError: the folder cannot be listed.
        """
        now = time.monotonic()
        found = {path: stamp for path in sorted(self.folder.iterdir()) if (stamp := _stamp(path)) is not None}
        self.seen = {
            path: self.seen[path] if path in self.seen and self.seen[path][0] == stamp else (stamp, now)
            for path, stamp in found.items()
        }
        ready = [
            path
            for path, (stamp, since) in self.seen.items()
            if now - since >= self.settle and self.given.get(path) != stamp
        ]
        self.given |= {path: self.seen[path][0] for path in ready}
        return ready


def _stamp(path: Path) -> Stamp | None:
    """The stamp of a file that may hold data; None for anything else, and for an empty file."""
    if path.name.startswith(".") or path.suffix.lower() in NEVER_DATA:
        return None
    try:
        if not path.is_file():
            return None
        stated = path.stat()
    except OSError:  # it has just been deleted
        return None
    return Stamp(stated.st_size, stated.st_mtime_ns) if stated.st_size else None

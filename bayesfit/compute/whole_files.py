"""The one writer of files: a file appears whole or not at all, and an older one of its name stays until then."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PART = ".part"  # ending of a file that is being written


def write_whole(path: Path, *content: bytes, private: bool = False) -> None:
    """Write a file beside the path, wait until the disk has it, and only then give it its name. Others may read it, as
    far as the user lets them, unless it is `private`.

    Raises:
        OSError: it cannot be written; then nothing is left behind, and what stood there stays.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        if not private:
            os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def clear_parts(path: Path) -> None:
    """Delete what a writer of this file has left behind that was killed."""
    for left_behind in path.parent.glob(f".{path.name}.*{PART}"):
        left_behind.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Wait until the disk has the names of a folder's files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""How much memory there is, so that what a file declares is refused before it is allocated."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from bayesfit.compute.errors import InputError

COPIES = 16  # of what is read that checking and sorting hold at once, with room to spare
WITHOUT_WORD = 8.0 * 2**30  # bytes, where the system does not tell


def memory() -> float:
    """Memory of the machine in bytes."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return WITHOUT_WORD


def check_unpacked(path: Path) -> None:
    """Refuse an archive that unpacks to more than the memory holds: a few kilobytes may.

    Raises:
        InputError: it does.
    """
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size * COPIES > memory():
        words = f"unpacks to {size / 1e9:.3g} GB, which would not fit in memory"
        raise InputError(words, file=path, remedy="Is it corrupt?")

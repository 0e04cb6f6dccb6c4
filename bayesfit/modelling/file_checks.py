"""Can a file be read at all, and is it data?"""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from bayesfit.compute.errors import InputError
from bayesfit.compute.kinds import expect_path


def readable(path: str | Path, field: str | None = None) -> Path:
    """The path of a regular file with something in it; never waits on a pipe. Messages name the `field`.

    Raises:
        InputError: it is missing, no regular file, or empty.
    """
    expect_path(path)
    try:
        path = Path(path).expanduser()
        status = path.stat()
    except FileNotFoundError as error:
        why = "the link points nowhere" if Path(path).is_symlink() else "no such file"
        remedy = "No file matches this pattern" if set("*?[") & set(str(path)) else None
        raise InputError(why, file=path, field=field, remedy=remedy) from error
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path, field=field) from error
    except (ValueError, RuntimeError) as error:  # a null byte, an unknown home
        raise InputError(str(error).lower(), file=repr(str(path)), field=field) from error
    if not stat.S_ISREG(status.st_mode):
        if path.is_dir():
            raise InputError("is a folder", file=path, field=field, remedy=f"Give the files in it: {path / '*'}")
        raise InputError("is not a regular file", file=path, field=field)
    if status.st_size == 0:
        raise InputError("is empty", file=path, field=field)
    return path


def refuse_stand_ins(path: Path) -> None:
    """Refuse files that stand where data should: zeros, a web page, a pointer to large-file storage, a pickle.

    Raises:
        InputError: says what the file is.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path) from error
    if not head.strip(b"\0"):
        raise InputError("is filled with zeros", file=path, remedy="The copy failed; fetch it again")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!", b"<html", b"<head", b"<?xml")):
        raise InputError("is a web page, not data", file=path, remedy="Download the file itself")
    if start.startswith(b"version https://git-lfs"):
        raise InputError("is a Git-LFS pointer, not data", file=path, remedy="Run git lfs pull")
    if start.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        raise InputError("is a pickle; pickles are never loaded", file=path, remedy="Save it as CSV or HDF5")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

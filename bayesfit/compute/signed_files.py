"""Files that are private to their user, and checked before anything in them is used.

What is kept in them is machine code, so a file that somebody else has written would run as the user. Each file
therefore begins with a keyed hash (HMAC) of its name and of all that follows, made with a secret that lies beside the
files, for their owner alone. A file that is damaged, forged or exchanged for another is as good as none.
"""

from __future__ import annotations

import hmac
import os
import stat
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from bayesfit.compute.errors import warn
from bayesfit.compute.whole_files import write_whole

HASH, HASHED = "sha256", 32  # bytes
SECRET = ".secret"


def read_signed(path: Path) -> bytes | None:
    """What was written to this file, which is the newest then; None if there is none, or if it is not what was
    written."""
    where = path.parent
    if not where.is_dir() or (secret := _secret(where)) is None:
        return None
    try:
        held = path.read_bytes()
    except OSError:
        return None
    content = held[HASHED:]
    if not hmac.compare_digest(_signature(secret, path.name, content), held[:HASHED]):
        return None
    with suppress(OSError):  # where nothing can be written, all files are kept
        os.utime(path)
    return content


def write_signed(path: Path, content: bytes) -> None:
    """Keep content in this file, of which `read_signed` is sure. Nothing is kept in a folder that is not the user's
    alone.

    Raises:
        OSError: it cannot be written.
    """
    if (secret := _made_secret(path.parent)) is not None:
        write_whole(path, _signature(secret, path.name, content) + content, private=True)


def keep_newest(where: Path, count: int) -> None:
    """Delete all but the newest files of a folder, if there are more than `count`.

    Raises:
        OSError: they cannot be deleted.
    """
    with os.scandir(where) as entries:
        kept = [entry for entry in entries if not entry.name.startswith(".") and entry.is_file()]
    if len(kept) > count:
        for old in sorted(kept, key=lambda entry: entry.stat().st_mtime)[:-count]:
            Path(old).unlink(missing_ok=True)


def _signature(secret: bytes, name: str, content: bytes) -> bytes:
    made = hmac.new(secret, name.encode() + b"\0", HASH)
    made.update(content)
    return made.digest()


def _secret(where: Path) -> bytes | None:
    """The secret of this folder; None if there is none, or if it is no secret."""
    if not is_private(where):
        return None
    try:
        held = (where / SECRET).lstat()
        if not stat.S_ISREG(held.st_mode) or held.st_uid != os.getuid() or held.st_mode & 0o077:
            _refuse(where / SECRET, "others may read it")
            return None
        return (where / SECRET).read_bytes()
    except OSError:
        return None


def _made_secret(where: Path) -> bytes | None:
    """The secret of this folder, both of which are made if they are missing."""
    where.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (where / SECRET).exists() and is_private(where):
        handle, temporary = tempfile.mkstemp(prefix=".", dir=where)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(HASHED))
        try:
            os.link(temporary, where / SECRET)
        except FileExistsError:  # another process was faster
            pass
        finally:
            os.unlink(temporary)
    return _secret(where)


def is_private(where: Path) -> bool:
    """Whether a folder is the user's own, and nobody else may write there."""
    held = where.lstat()
    if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.getuid():
        _refuse(where, "it belongs to somebody else, or is a link")
        return False
    if held.st_mode & 0o022:
        _refuse(where, "others may write there")
        return False
    if held.st_mode & 0o055:
        where.chmod(0o700)
    return True


@lru_cache
def _refuse(path: Path, why: str) -> None:
    """Warn, once, that compiled programs are neither read nor kept."""
    warn(f"{path}: {why}, so no compiled programs are taken from or kept there. Make it yours alone (chmod go-rwx)")

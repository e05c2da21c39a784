"""One writer at a time: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["HAVE_FLOCK", "is_locked", "lock"]

#: Not on Windows.
HAVE_FLOCK = importlib.util.find_spec("fcntl") is not None

# Open lock files of this process; a forked child closes its copies, or it would hold the lock on after its parent.
_held: dict[object, int] = {}


def lock(path: Path, *, flock: bool = HAVE_FLOCK) -> Callable[[], None]:
    """Lock by means of the file ``path``, made for that and removed by the function that is returned.

    The lock has a file of its own: SQLite locks the run file itself, and POSIX drops all of a process's locks on
    a file as soon as it closes any of its descriptors. Raises ``BlockingIOError`` where somebody has it, in this
    process or another, and ``OSError`` where it can't be made.
    """
    return _by_flock(path) if flock else _by_sqlite(path)


def is_locked(path: Path) -> bool:
    """Whether somebody has the lock now. False where that can't be told."""
    if not HAVE_FLOCK:
        return False
    import fcntl  # not on Windows

    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # Shared, and given back at once: so two that look don't meet, and who locks hardly meets one.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
    return False


def _by_flock(path: Path) -> Callable[[], None]:
    import fcntl  # not on Windows

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(file)
            raise
        # Who had it may have removed the file meanwhile: then this is the lock of nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.lstat(path)):
                break
        os.close(file)
    holder = object()
    _held[holder] = file

    def release() -> None:
        if _held.pop(holder, None) is not None:
            # Removed while it is still held: the next one makes its own.
            with suppress(OSError):
                os.unlink(path)
            os.close(file)

    return release


def _by_sqlite(path: Path) -> Callable[[], None]:
    """SQLite knows how to lock on every system. Windows refuses to remove a file that somebody has open."""
    db = None
    try:
        db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        db.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
            raise BlockingIOError("locked") from None
        raise OSError(str(error)) from None

    def release() -> None:
        db.close()
        with suppress(OSError):
            os.unlink(path)

    return release


def _forked() -> None:
    while _held:
        os.close(_held.popitem()[1])


if hasattr(os, "register_at_fork"):  # pragma: no branch - not on Windows
    os.register_at_fork(after_in_child=_forked)

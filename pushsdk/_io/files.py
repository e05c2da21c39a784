"""Files that say what was sent, or where to send: private to their owner, and locked by one writer at a time.

A file is believed only if no other user can write to it. A look at a stat result decides that; Windows, whose rights
are not in there, is not checked. A lock ends with the process that holds it, however that ends.
"""

import errno
import importlib.util
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pushsdk._io.forks import in_child

#: Not on Windows.
HAVE_FLOCK = importlib.util.find_spec("fcntl") is not None


def objection(found: os.stat_result, *, harmless: int = 0) -> str | None:
    """Return the rule that a file or folder breaks, what was found, and the fix; None if only its owner can write.

    ``harmless`` are the mode bits that may be set all the same.
    """
    if os.name != "posix":  # pragma: no cover - Windows
        return None
    me = os.geteuid()
    if found.st_uid not in (me, 0):
        return f"it must belong to the user who runs this (uid {me}) or to root; it belongs to uid {found.st_uid}"
    if found.st_mode & ~harmless & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        return f"only its owner may write to it; its mode is {mode:04o}: run chmod {mode & ~0o022 & 0o777:o} on it"
    return None


def folder_objection(folder: Path) -> str | None:
    """Return the same for a folder in which others could exchange files. Raises OSError.

    In a sticky folder, such as /tmp, only their owners can exchange files. A group with the name of its user has only
    that member, as pam_umask assumes for every user but root.
    """
    found, harmless = os.stat(folder), 0
    if found.st_mode & stat.S_ISVTX:
        harmless = stat.S_IWGRP | stat.S_IWOTH
    elif found.st_mode & stat.S_IWGRP and _is_private(found.st_gid):
        harmless = stat.S_IWGRP
    return objection(found, harmless=harmless)


def _is_private(group: int) -> bool:
    with suppress(ImportError, KeyError):  # Windows; a user or group without a name, as in containers
        import grp
        import pwd

        user, named = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        return bool(user.pw_uid) and named.gr_name == user.pw_name and set(named.gr_mem) <= {user.pw_name}
    return False


def database_objection(path: Path, opened: os.stat_result) -> str | None:
    """Return the same for a database that SQLite has opened by its path, and has not read, and of its logs.

    ``opened`` is the file that was meant: a file that took its place since is refused.
    """
    is_same = False
    for suffix in ("", "-journal", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            found = os.lstat(f"{path}{suffix}")
            is_same = is_same if suffix else os.path.samestat(found, opened)
            if why := objection(found):
                return f"{path.name}{suffix}: {why}" if suffix else why
    return None if is_same else "it was replaced while it was opened"


_DISK_FAILURES = {errno.EIO, errno.ENOSPC, errno.EDQUOT}


def sync_folder(folder: str | Path) -> None:
    """Sync the names in a folder to the disk, if the system can sync a folder. Raises OSError if the disk fails."""
    try:
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in _DISK_FAILURES:
            raise


def write_new(path: str | Path, data: bytes, *, durable: bool = True) -> None:
    """Write a private file that does not exist. Raises OSError."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def lock(path: Path, *, flock: bool = HAVE_FLOCK) -> Callable[[], None]:
    """Lock by the file ``path``, made for that and removed by the function that is returned.

    The lock has a separate file: SQLite locks the run file itself, and POSIX drops all the locks that a process has on
    a file as soon as it closes any descriptor of it. Raises ``BlockingIOError`` if the lock is held, by this process
    or another, and ``OSError`` if it can't be created.
    """
    if not flock:
        return _by_sqlite(path)
    import fcntl  # not on Windows

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(file)
            raise
        # The previous holder may have unlinked the file, which leaves our lock on a deleted inode. Retry.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.lstat(path)):
                return _FileLock(path, file).release
        os.close(file)


def is_locked(path: Path) -> bool:
    """Return True if the lock is held. False if that is unknown."""
    if not HAVE_FLOCK:
        return False
    import fcntl  # not on Windows

    with suppress(OSError, ValueError):  # ValueError: a NUL in the path
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # Shared and released immediately: two checks never conflict, and a check rarely conflicts with a lock.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
    return False


class _FileLock:
    """A held lock. A forked child closes its copy, which would otherwise hold the lock after the parent has ended."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        # None once it is closed.
        self._file: int | None = file
        in_child(self, _FileLock._close)

    def release(self) -> None:
        """Remove the file while it is still locked, so that the next one makes another."""
        if self._file is not None:
            with suppress(OSError):
                os.unlink(self._path)
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _by_sqlite(path: Path) -> Callable[[], None]:
    """Lock by SQLite, which can lock on every system. Windows refuses to remove a file that is open."""
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

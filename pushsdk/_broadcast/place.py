"""Where a run file is or is to be: what may lie there, and who may write there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pushsdk._broadcast.locking import is_locked, lock
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._io.ownership import objection

__all__ = ["Place", "refusal"]


def refusal(path: Path | None, why: str, *, outcome: Outcome | None = None) -> RunFileError:
    """The error for a run file, in the words that all of them have in common."""
    error = RunFileError(f"{path or 'the temporary run file'}: {why}", outcome=outcome)
    error.path = str(path or "")
    return error


class Place:
    """Where a run file is or is to be, and whether this process may write there."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Raises RunFileError where another process, or another journal of this one, writes to it."""
        self.path = path
        # Gives the lock back; set while it is held.
        self._release: Callable[[], None] | None = None
        try:
            # The same place has the same lock, whatever way led there.
            self.path = path = path.parent.resolve(strict=True) / path.name
            if write:
                self._release = lock(self._lock)
        except BlockingIOError:
            raise refusal(path, "it is in use by another process: wait for that, or end it") from None
        except (OSError, ValueError) as error:
            raise refusal(path, f"the folder can't be used: {_words(error)}") from None

    @property
    def _lock(self) -> Path:
        return self.path.with_name(self.path.name + "-lock")

    @property
    def in_use(self) -> bool:
        """Whether it is being written to now, by another process or by another journal of this one."""
        return is_locked(self._lock)

    def release(self) -> None:
        """Let others write. Once is enough."""
        if self._release is not None:
            release, self._release = self._release, None
            release()

    def look(self) -> int:
        """The bytes of the file. Raises RunFileError where there is none, or something else than a file."""
        try:
            found = os.lstat(self.path)
        except (OSError, ValueError) as error:
            raise refusal(self.path, f"it can't be opened: {_words(error)}") from None
        if stat.S_ISLNK(found.st_mode):
            raise refusal(self.path, "it is a symbolic link: give the path of the file itself")
        if not stat.S_ISREG(found.st_mode):
            raise refusal(self.path, "it is not a file: give the path of a run file")
        if why := objection(found):
            raise refusal(self.path, why)
        if os.path.lexists(f"{self.path}-wal"):
            # SQLite would work it into the file.
            raise refusal(self.path, "there is a -wal file beside it, which is none of a run's: move that away")
        return found.st_size

    def make(self) -> bool:
        """Create the file, empty and for its owner only; False where there is something already."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except FileExistsError:
            return False
        except OSError as error:
            raise refusal(self.path, f"it can't be created: {_words(error)}") from None
        with suppress(OSError, AttributeError):  # a mask may have taken bits away; not on Windows
            os.fchmod(file, 0o600)
        os.close(file)
        return True

    def clear(self) -> None:
        """Remove the file, and what a killed writer left beside it."""
        try:
            self.path.unlink()
            self.path.with_name(self.path.name + "-journal").unlink(missing_ok=True)
        except OSError as error:
            raise refusal(self.path, f"it can't be planned anew: {_words(error)}") from None


def _words(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)

"""Files that say what was sent, or where to send: believed only if no other user can write to them.

A look at a stat result is all there is; Windows, whose rights are not in there, is not checked.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["database_objection", "objection"]


def objection(found: os.stat_result) -> str | None:
    """Return the rule that a file or folder breaks, what was found, and the fix; None if only its owner can write."""
    if os.name != "posix":  # pragma: no cover - Windows
        return None
    me = os.geteuid()
    if found.st_uid not in (me, 0):
        return f"it must belong to the user who runs this (uid {me}) or to root; it belongs to uid {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        return f"only its owner may write to it; its mode is {mode:04o}: run chmod {mode & ~0o022 & 0o777:o} on it"
    return None


def database_objection(path: Path, opened: os.stat_result) -> str | None:
    """Return the same of a database that SQLite has opened by its path, and has not read, and of its logs.

    ``opened`` is the file that was meant: a file that took its place since is refused.
    """
    for suffix in ("", "-journal", "-wal", "-shm"):
        try:
            found = os.lstat(f"{path}{suffix}")
        except FileNotFoundError:
            found = None
        if not suffix and (found is None or not os.path.samestat(found, opened)):
            return "it was replaced while it was opened"
        if found is not None and (why := objection(found)):
            return f"{path.name}{suffix}: {why}" if suffix else why
    return None

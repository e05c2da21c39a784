"""The files that a path or a pattern names, and whether they are still the same."""

from __future__ import annotations

import glob
import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pushsdk._broadcast._source import plain
from pushsdk._core.errors import ValidationError

__all__ = ["Listing", "list_files"]


class Listing(msgspec.Struct, frozen=True):
    """Files as they were at one moment: equal listings mean unchanged files, as far as size and time can tell."""

    pattern: str
    """As an absolute path."""
    paths: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]
    """Of each: bytes, and nanoseconds since the epoch when it was last modified."""

    def words(self) -> str:
        """The path, and what changes when a file does."""
        size = sum(size for size, _ in self.stamps)
        if len(self.paths) == 1 and str(self.paths[0]) == self.pattern:
            seconds, rest = divmod(self.stamps[0][1], 10**9)
            when = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            return f"{plain(self.pattern, 1000)} ({size} bytes, modified {when}.{rest:09}Z)"
        digest = hashlib.sha256(repr((self.paths, self.stamps)).encode(errors="replace")).hexdigest()[:16]
        return f"{plain(self.pattern, 1000)} ({len(self.paths)} files, {size} bytes, state {digest})"

    def check_unchanged(self) -> None:
        """Raises ValidationError where a file has changed, or there are others now."""
        if list_files(self.pattern) != self:
            raise ValidationError(f"{plain(self.pattern)} changed while it was read: start again when it is complete")


def list_files(path: str) -> Listing:
    """The file of that name, or else those of that pattern (``*``, ``**``, ``?``, ``[...]``), in the order of names.

    Raises ValidationError where there is none.
    """
    pattern = os.path.abspath(path)
    if os.path.lexists(pattern):
        found = [pattern]
    else:
        found = sorted(each for each in glob.glob(pattern, recursive=True) if os.path.isfile(each))
    try:
        stats = [os.stat(each) for each in found]
    except OSError as error:
        raise ValidationError(f"{plain(pattern)} can't be read: {error.strerror}") from None
    if not found:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise ValidationError(f"{what} {plain(pattern)}")
    if os.path.isdir(found[0]):
        raise ValidationError(f"{plain(pattern)} is a folder: name the files in it, as {plain(pattern)}/*.parquet")
    return Listing(pattern, tuple(map(Path, found)), tuple((each.st_size, each.st_mtime_ns) for each in stats))

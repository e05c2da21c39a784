"""The common parts of all audiences: counts, the files that are read, and the words of errors.

Column names may be shown, values never.
"""

from __future__ import annotations

import difflib
import glob
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._audience.distinct import Distinct
from pushsdk._core.errors import ValidationError

__all__ = ["FileListing", "ReadCounts", "deduplicated", "list_files", "missing_column", "printable", "sendable"]

BATCH = 10_000
# Rows are objects by the thousand: as many of them as live together, the garbage collector walks through, and with
# more than these it takes more time than all the rest (measured).
ROWS = 500
MAX_DEPTH = 90  # a little less than wire has for the whole request

_SHOWN = 20
# A first line that is no header holds values: what looks like an id is not shown.
_NAME = re.compile(r"[^\W\d](?:[^\W\d]|[ .-]|\d{1,2}(?!\d)){0,40}")


class ReadCounts(msgspec.Struct):
    """What one reading has seen so far."""

    read: int = 0
    """Rows, or lines that are not blank."""
    users: int = 0
    duplicates: int = 0
    blank: int = 0
    padded: int = 0


def printable(text: str, limit: int = 200) -> str:
    """The text with every control character replaced, and cut: fit for a terminal and a log."""
    shown = "".join(each if each.isprintable() else "?" for each in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def missing_column(name: str, key: str, columns: Sequence[str], *, option: str = "primary_key=") -> ValidationError:
    """There is no such column: which there are, and which may be meant. ``option`` is what one is named with."""
    shown = [each if _NAME.fullmatch(each) else "..." for each in columns[:_SHOWN]]
    if len(columns) > _SHOWN:
        shown.append(f"and {len(columns) - _SHOWN} more")
    folded = {_fold(each): each for each in columns if _NAME.fullmatch(each)}
    near = difflib.get_close_matches(_fold(key)[:40], folded, n=1, cutoff=0.7)
    meant = f"; did you mean {option}{folded[near[0]]!r}?" if near else f"; name one with {option.rstrip()}"
    return ValidationError(
        f"{printable(name)}: no column {printable(key, 60)!r}, only {', '.join(shown) or 'none'}{meant}"
    )


def _fold(word: str) -> str:
    return re.sub(r"[\W_]", "", word).lower()


def sendable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A value of JSON, with the integers that don't fit 64 bits as their decimal text, which is what can be sent.

    Raises RecursionError where it is nested deeper than can be sent.
    """
    if type(value) is int:
        return value if -(2**63) <= value < 2**64 else str(value)
    if type(value) not in (list, dict):
        return value
    if not depth:
        raise RecursionError
    if type(value) is list:
        return [sendable(each, depth - 1) for each in value]
    return {name: sendable(each, depth - 1) for name, each in value.items()}


def deduplicated(distinct: Distinct, batches: Iterator[list[Any]], counts: ReadCounts) -> Iterator[list[Any]]:
    """The batches without the repetitions, which are counted."""
    with distinct:
        for batch in batches:
            yield from distinct.add(batch)
        yield from distinct.finish()
        counts.duplicates = distinct.duplicates


# -- files -----------------------------------------------------------------------------------------------------------


class FileListing(msgspec.Struct, frozen=True):
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
            return f"{printable(self.pattern, 1000)} ({size} bytes, modified {when}.{rest:09}Z)"
        digest = hashlib.sha256(repr((self.paths, self.stamps)).encode(errors="replace")).hexdigest()[:16]
        return f"{printable(self.pattern, 1000)} ({len(self.paths)} files, {size} bytes, state {digest})"

    def check_unchanged(self) -> None:
        """Raises ValidationError where a file has changed, or there are others now."""
        if list_files(self.pattern) != self:
            raise ValidationError(
                f"{printable(self.pattern)} changed while it was read: start again when it is complete"
            )


def list_files(path: str) -> FileListing:
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
        raise ValidationError(f"{printable(pattern)} can't be read: {error.strerror}") from None
    if not found:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise ValidationError(f"{what} {printable(pattern)}")
    if os.path.isdir(found[0]):
        raise ValidationError(
            f"{printable(pattern)} is a folder: name the files in it, as {printable(pattern)}/*.parquet"
        )
    return FileListing(pattern, tuple(map(Path, found)), tuple((each.st_size, each.st_mtime_ns) for each in stats))

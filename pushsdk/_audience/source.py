"""The common parts of all audience readers: counts, the files to read, and error texts.

Errors may show column names, never values.
"""

import glob
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from pushsdk._audience.distinct import Distinct, Row
from pushsdk._core.errors import Advice, ValidationError
from pushsdk._core.words import near_word

MAX_DEPTH = 90  # a little less than wire has for the whole request

_SHOWN = 20
# In a file without a header, the first line holds values: a name that looks like an id is not shown.
_NAME = re.compile(r"[^\W\d](?:[^\W\d]|[ .-]){0,40}")


class ReadCounts(msgspec.Struct):
    """The counts during a reading."""

    read: int = 0
    """Rows, or lines that are not blank."""
    users: int = 0
    """Users that were returned."""
    duplicates: int = 0
    """Rows whose id was in an earlier row."""
    blank: int = 0
    """Blank lines, which are skipped."""
    excluded: int = 0
    """Users that were left out because they are excluded."""
    padded: int = 0
    """Text file lines with space around the id, which is removed."""


def printable(text: str, limit: int = 200) -> str:
    """Return the text for a terminal or a log: control characters replaced, at most ``limit`` characters."""
    shown = "".join(char if char.isprintable() else "?" for char in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def missing_column(
    name: str, key: str, columns: Sequence[str], *, option: str = "{primary_key}", row: str = ""
) -> ValidationError:
    """Return the error for a missing column: the columns that exist, and the one that may be meant.

    ``option`` names the argument for the column; ``row`` is advice if a name may be a value in a row.
    """
    if len(columns) == 1 and not re.search("id|key|user", columns[0], re.IGNORECASE):
        columns = ["..."]  # perhaps the first id of a file without a header
    near, shown = near_word(key, filter(_NAME.fullmatch, columns)), listed(columns)
    rest = row if "..." in shown else ""
    fix = f"; did you mean {option}{near!r}?" if near else f"; name one with {option}...{rest}"
    return ValidationError(Advice(f"{printable(name)}: no column {printable(key, 60)!r}, only {shown}", fix))


def listed(columns: Sequence[str]) -> str:
    """Return the column names for an error, without names that may be ids."""
    shown = [column if _NAME.fullmatch(column) else "..." for column in columns[:_SHOWN]]
    more = [f"and {len(columns) - _SHOWN} more"] if len(columns) > _SHOWN else []
    return ", ".join([*shown, *more]) or "none"


def sendable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value with integers beyond 64 bits as decimal text, the only form that can be sent.

    Raises RecursionError if the value is nested deeper than can be sent.
    """
    if type(value) is int:
        return value if -(2**63) <= value < 2**64 else str(value)
    if type(value) not in (list, dict):
        return value
    if not depth:
        raise RecursionError
    if type(value) is list:
        return [sendable(item, depth - 1) for item in value]
    return {name: sendable(item, depth - 1) for name, item in value.items()}


def deduplicated(
    batches: Iterator[list[Any]], counts: ReadCounts, distinct: Distinct, excluded: Iterable[list[str]] = ()
) -> Iterator[list[Any]]:
    """Yield the batches without repeated and ``excluded`` ids, which are counted."""
    with distinct:
        for ids in excluded:
            distinct.exclude(ids)
        for batch in batches:
            yield from distinct.add(batch)
        yield from distinct.finish()
        counts.duplicates, counts.excluded = distinct.duplicates, distinct.excluded


def unreadable(name: str, error: OSError, fix: str = "") -> ValidationError:
    return ValidationError(f"{printable(name)} can't be read: {error.strerror or type(error).__name__}{fix}")


class PlainIds(msgspec.Struct):
    """A source of ids without other columns. ``read`` begins a new reading."""

    name: str
    read: Callable[[], Iterator[list[str]]]
    is_file: bool = False
    columns: Sequence[str] = ()

    def description(self) -> str:
        return self.name

    def ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        for batch in self.read():
            counts.read += len(batch)
            yield batch

    def rows(self, counts: ReadCounts, columns: object) -> Iterator[list[Row]]:
        return ([(user, {}) for user in users] for users in self.ids(counts))

    def place_of(self, is_wanted: object) -> str:
        return self.name


class FileListing(msgspec.Struct, frozen=True):
    """Files at one moment. Equal listings mean unchanged files, as far as size and time show."""

    pattern: str
    """The absolute path or pattern."""
    paths: tuple[str, ...]
    stamps: tuple[tuple[int, int], ...]
    """Bytes and modification time of each file, in nanoseconds since the epoch; none if one is a pipe or a device."""

    def description(self, key: str) -> str:
        """Return the path, the id column unless it has the default name, and a part that changes when a file does."""
        size = sum(size for size, _ in self.stamps)
        name = printable(self.pattern, 1000) + ("" if key == "user_id" else f", {printable(key)}")
        if self.paths[0] == self.pattern:
            seconds, rest = divmod(self.stamps[0][1], 10**9)
            modified = datetime.fromtimestamp(seconds, UTC)
            return f"{name} ({size} bytes, modified {modified:%Y-%m-%dT%H:%M:%S}.{rest:09}Z)"
        digest = hashlib.sha256(repr((self.paths, self.stamps)).encode(errors="replace")).hexdigest()[:16]
        return f"{name} ({len(self.paths)} files, {size} bytes, state {digest})"

    def check_regular(self) -> None:
        """Raise ValidationError if a file is a pipe or a device, which can be read only once."""
        if not self.stamps:
            raise ValidationError(
                f"{printable(self.pattern)} is or matches a pipe or a device: save its content to a file"
            )

    def check_unchanged(self) -> None:
        """Raise ValidationError if a file changed, or if the pattern matches other files now."""
        if found_files(self.pattern) != self:
            raise ValidationError(
                f"{printable(self.pattern)} changed while it was read: start again when it is complete"
            )


# Paths that are not files, each with the fix.
_NO_FILE = (
    ("://", ": only local files are read, download it first"),
    (r"(?i)^(select|from|with)\s", ": it looks like SQL, which {query} takes"),
    ("^[^./]*$", ": a broadcast reads its users from a file; send takes ids, and exclude a list of ids"),
)


def _matches(pattern: str) -> list[str]:
    """Return the paths that match. Raises OSError for a folder that can't be listed: glob leaves it out."""
    if glob.has_magic(pattern):
        for folder in filter(os.path.isdir, _matches(os.path.dirname(pattern))):
            os.listdir(folder)
    return sorted(glob.glob(pattern, recursive=True))


def found_files(path: str) -> FileListing:
    """Return the file with that name, else the files that match it as a pattern (``*``, ``**``, ``?``, ``[...]``).

    The files are sorted by name. Raises ValidationError if one or its folder can't be read.
    """
    pattern = os.path.abspath(path)
    try:
        matches = [pattern] if os.path.lexists(pattern) else _matches(pattern)
        paths = [*itertools.filterfalse(os.path.isdir, matches)]
        stats = list(map(os.stat, paths))
    except OSError as error:
        fix = "; to leave it out, write a pattern such as [!l]*/*.csv" if glob.has_magic(pattern) else ""
        raise unreadable(error.filename, error, fix) from None
    is_regular = all(stat.S_ISREG(found.st_mode) for found in stats)
    stamps = tuple((found.st_size, found.st_mtime_ns) for found in stats if is_regular)
    return FileListing(pattern, tuple(paths), stamps)


def list_files(path: str) -> FileListing:
    """Return the files as ``found_files`` does. Raises ValidationError also if there is none."""
    listing = found_files(path)
    if os.path.isdir(listing.pattern):
        raise ValidationError(
            f"{printable(listing.pattern)} is a folder: name the files in it, as {printable(listing.pattern)}/*.parquet"
        )
    if not listing.paths:
        fix = next((fix for sign, fix in _NO_FILE if re.search(sign, path)), "")
        raise ValidationError(Advice(f"there is no file {printable(listing.pattern)}", fix))
    return listing

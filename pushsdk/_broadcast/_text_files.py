"""Text, CSV and JSON lines, read by us: every id as it was written, and every refusal with its line."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import IO, Any

import msgspec

from pushsdk._broadcast._files import list_files
from pushsdk._broadcast._source import BATCH, ROWS, Counts, fitting, missing_column, once, plain
from pushsdk._broadcast.distinct import Distinct, Row
from pushsdk._core.errors import ValidationError
from pushsdk._core.words import count

__all__ = ["FORMATS", "TextFiles", "delimiter_of", "read_text"]

BLOCK = 1 << 18
LONGEST = 64 * 1024

Lines = tuple[int, list[str]]
"""The number of the first line, from 1, and the lines without their ends (a carriage return may be left)."""


# A line of a table may be longer than an id: it holds other columns.
LONGEST_ROW = 16 * LONGEST


def bad_line(name: str, number: int, text: str) -> ValidationError:
    """What is wrong with a line, in the words that all formats share."""
    return ValidationError(f"{plain(name)}, line {number}: {text}")


def unreadable(name: str, error: OSError) -> ValidationError:
    """What the system says against a file."""
    return ValidationError(f"{plain(name)} can't be read: {error.strerror or type(error).__name__}")


def lines_of(file: IO[bytes], name: str, *, longest: int = LONGEST) -> Iterator[Lines]:
    """The lines of a stream of bytes, some thousands at a time. A byte order mark at its start is dropped.

    Raises ValidationError with the number of a line that is no UTF-8, holds a NUL, or is over ``longest`` bytes.
    """
    number, rest = 1, b""
    for block in _blocks(file, name):
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            lines = _decoded(rest + whole, name, number, longest)
            yield number, lines
            number += len(lines)
            rest = tail
        else:
            rest += block
        if len(rest) > longest:
            raise _too_long(name, number, longest)
    if rest:
        yield number, _decoded(rest, name, number, longest)


def _blocks(file: IO[bytes], name: str) -> Iterator[bytes]:
    while True:
        try:
            block: Any = file.read(BLOCK)
        except OSError as error:
            raise unreadable(name, error) from None
        if not block:
            return
        if not isinstance(block, bytes):
            raise ValidationError(f"{plain(name)} gives {type(block).__name__}: open it in binary mode")
        yield block


def _decoded(data: bytes, name: str, number: int, longest: int) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise bad_line(name, number + data.count(b"\n", 0, error.start), "not UTF-8") from None
    if number == 1:
        text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise bad_line(
            name, number + text.count("\n", 0, text.index("\0")), "holds a NUL character: is the file UTF-8 text?"
        )
    lines = text.split("\n")
    if 4 * max(map(len, lines)) > longest:  # a character is at most four bytes
        for at, line in enumerate(lines, number):
            if len(line.encode()) > longest:
                raise _too_long(name, at, longest)
    return lines


def _too_long(name: str, number: int, longest: int) -> ValidationError:
    return bad_line(name, number, f"longer than {longest // 1024} KiB: is this the right file?")


class Wanted(msgspec.Struct, frozen=True):
    """What is to be read, and where it is counted."""

    name: str
    """Of the file, in errors."""
    key: str
    counts: Counts
    rows: bool
    """Whole rows; else only ids."""
    columns: Collection[str] | None = None
    """Of the rows; None is all."""

    @property
    def size(self) -> int:
        """Of a batch."""
        return ROWS if self.rows else BATCH

    def takes(self, column: str) -> bool:
        return column != self.key and (self.columns is None or column in self.columns)


# Batches of ids, or of rows where these are wanted.
Form = Callable[[IO[bytes], Wanted], Iterator[list[Any]]]


class TextFiles:
    """Files of one format, or a stream that can be read once."""

    def __init__(self, path: str | IO[bytes], *, name: str = "", key: str, form: Form) -> None:
        self._path = path
        self._name = name
        self._key = key
        self._form = form
        # Set when a stream is read.
        self._spent = False
        self.words()

    def words(self) -> str:
        return list_files(self._path).words() if isinstance(self._path, str) else plain(self._name)

    def count(self) -> None:
        return None

    def ids(self, counts: Counts) -> Iterator[list[str]]:
        return self._read(counts, rows=False)

    def distinct_ids(self, counts: Counts) -> Iterator[list[str]]:
        return once(Distinct(), self.ids(counts), counts)

    def rows(self, counts: Counts, columns: Collection[str] | None) -> Iterator[list[Row]]:
        return self._read(counts, rows=True, columns=columns)

    def _read(self, counts: Counts, *, rows: bool, columns: Collection[str] | None = None) -> Iterator[list[Any]]:
        for name, file in self._files():
            yield from self._form(file, Wanted(name, self._key, counts, rows, columns))

    def _files(self) -> Iterator[tuple[str, IO[bytes]]]:
        if not isinstance(self._path, str):
            if self._spent:
                raise ValidationError(f"{plain(self._name)} can be read only once: save it to a file")
            self._spent = True
            yield self._name, self._path
            return
        listing = list_files(self._path)
        for path in listing.paths:
            try:
                file = path.open("rb")
            except OSError as error:
                raise unreadable(str(path), error) from None
            with file:
                yield str(path), file
        listing.check_unchanged()


# -- one id a line ---------------------------------------------------------------------------------------------------


def read_text(file: IO[bytes], wanted: Wanted) -> Iterator[list[Any]]:
    """Each line an id, without the space around it; blank lines are passed over."""
    counts = wanted.counts
    for number, lines in lines_of(file, wanted.name):
        ids = [user for user in map(str.strip, lines) if user]
        if "\r" in "".join(ids):
            at = next(at for at, line in enumerate(lines, number) if "\r" in line.strip())
            raise bad_line(wanted.name, at, "holds a carriage return: end the lines with LF or CRLF")
        counts.blank += len(lines) - len(ids)
        counts.read += len(ids)
        if sum(map(len, ids)) < sum(map(len, lines)):
            counts.padded += sum(1 for line in lines if line.removesuffix("\r") != line.strip() != "")
        yield [(user, {}) for user in ids] if wanted.rows else ids


# -- CSV ------------------------------------------------------------------------------------------------------------


def read_csv(file: IO[bytes], wanted: Wanted, delimiter: str | None = None) -> Iterator[list[Any]]:
    """A table with a header, cut at whichever of comma, semicolon, tab and bar the header holds most of."""
    lines = (f"{line}\n" for _, some in lines_of(file, wanted.name, longest=LONGEST_ROW) for line in some)
    head: list[str] = []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    cut = delimiter or delimiter_of("".join(head))
    reader = csv.reader(itertools.chain(head, lines), delimiter=cut, strict=True)
    try:
        header = [name.strip() for name in next(filter(None, reader), [])]
        if header:
            yield from _csv_batches(reader, header, wanted)
    except csv.Error as error:
        # Its texts name delimiters and bounds, nothing of the file.
        raise bad_line(wanted.name, reader.line_num, f"not CSV: {error}") from None


def delimiter_of(header: str) -> str:
    """Whichever of comma, semicolon, tab and bar there is most of outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=bare.count)


def _csv_batches(reader: Any, header: list[str], wanted: Wanted) -> Iterator[list[Any]]:
    key, counts = wanted.key, wanted.counts
    if key not in header:
        raise missing_column(wanted.name, key, header)
    taken = [(name, at) for at, name in enumerate(header) if name and wanted.takes(name)]
    if header.count(key) > 1 or len(dict(taken)) < len(taken):
        raise bad_line(wanted.name, reader.line_num, "the header names a column twice")
    width, place, size = len(header), header.index(key), wanted.size
    batch: list[Any] = []
    for record in reader:
        if len(record) != width:
            if not record:
                counts.blank += 1
                continue
            raise bad_line(wanted.name, reader.line_num, f"{count(len(record), 'field')}, and the header has {width}")
        user = record[place]
        if not user:
            raise bad_line(wanted.name, reader.line_num, f"{plain(key)} is empty")
        batch.append((user, {name: value for name, at in taken if (value := record[at])}) if wanted.rows else user)
        if len(batch) == size:
            counts.read += size
            yield batch
            batch = []
    counts.read += len(batch)
    yield batch


# -- JSON lines -----------------------------------------------------------------------------------------------------

_UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read_json(file: IO[bytes], wanted: Wanted) -> Iterator[list[Any]]:
    """Each line an object; blank lines are passed over. An id is a text, or an integer of any size."""
    key, counts, size = wanted.key, wanted.counts, wanted.size
    for number, lines in lines_of(file, wanted.name, longest=LONGEST_ROW):
        batch: list[Any] = []
        for at, line in enumerate(lines, number):
            try:
                row = _decode(line)
                fields = _json_fields(row, wanted) if wanted.rows else {}
            except _UNREADABLE:
                if line.strip():
                    raise bad_line(wanted.name, at, _why(line, at)) from None
                counts.blank += 1
                continue
            user = row.get(key)
            if type(user) is int:
                user = str(user)
            elif type(user) is not str or not user:
                raise _bad_id(row, wanted, at)
            batch.append((user, fields) if wanted.rows else user)
            if len(batch) == size:
                counts.read += size
                yield batch
                batch = []
        counts.read += len(batch)
        yield batch


def _json_fields(row: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    return {name: fitting(value) for name, value in row.items() if value is not None and wanted.takes(name)}


def _why(line: str, number: int) -> str:
    if number == 1 and line.lstrip().startswith("["):
        return "an array: write one object a line instead (jq -c '.[]' does)"
    return "not a JSON object, or nested too deeply"


def _bad_id(row: dict[str, Any], wanted: Wanted, number: int) -> ValidationError:
    if wanted.key not in row:
        return missing_column(f"{wanted.name}, line {number}", wanted.key, list(row))
    kind = "an empty text" if row[wanted.key] == "" else type(row[wanted.key]).__name__
    return bad_line(wanted.name, number, f"{plain(wanted.key)} must be a text or an integer; got {kind}")


FORMATS: Mapping[str, Form] = {
    ".txt": read_text,
    ".csv": read_csv,
    ".tsv": partial(read_csv, delimiter="\t"),
    ".json": read_json,
    ".jsonl": read_json,
    ".ndjson": read_json,
}

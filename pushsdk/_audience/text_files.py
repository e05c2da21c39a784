"""Text, CSV and JSON lines, read by us: every id as it was written, and every refusal with its line.

DuckDB reads CSV and JSON too, but not strictly enough for ids: of two columns with the key's name it takes one, a line
of JSON that is a bare text passes for an id, and a header of several lines can cost the first row.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import IO, Any

import msgspec

from pushsdk._audience.distinct import Distinct, Row
from pushsdk._audience.source import (
    BATCH,
    ROWS,
    ReadCounts,
    deduplicated,
    list_files,
    missing_column,
    printable,
    sendable,
)
from pushsdk._core.errors import ValidationError
from pushsdk._core.words import count

__all__ = ["FORMATS", "TextFiles", "delimiter_of", "read_text"]

# Bytes of a line.
LONGEST = 64 * 1024
# A line of a table may be longer than an id: it holds other columns.
LONGEST_ROW = 16 * LONGEST


class ReadContext(msgspec.Struct, frozen=True):
    """What is to be read, and where it is counted."""

    name: str
    """Of the file, in errors."""
    key: str
    counts: ReadCounts
    rows: bool
    """Whole rows; else only ids."""
    columns: Collection[str] | None = None
    """Of the rows; None is all."""

    def takes(self, column: str) -> bool:
        return column != self.key and (self.columns is None or column in self.columns)

    def bad_line(self, number: int, text: str) -> ValidationError:
        """What is wrong with a line, in the words that all formats share."""
        return ValidationError(f"{printable(self.name)}, line {number}: {text}")


# The ids of a file, or the rows if these are wanted.
Form = Callable[[IO[bytes], ReadContext], Iterator[Any]]


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
        return list_files(self._path).words() if isinstance(self._path, str) else printable(self._name)

    def count(self) -> None:
        return None

    def ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        return self._read(BATCH, counts=counts, rows=False)

    def distinct_ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        return deduplicated(Distinct(), self.ids(counts), counts)

    def rows(self, counts: ReadCounts, columns: Collection[str] | None) -> Iterator[list[Row]]:
        return self._read(ROWS, counts=counts, rows=True, columns=columns)

    def _read(self, size: int, *, counts: ReadCounts, **wanted: Any) -> Iterator[list[Any]]:
        for name, file in self._files():
            items = self._form(file, ReadContext(name=name, key=self._key, counts=counts, **wanted))
            while batch := list(itertools.islice(items, size)):
                counts.read += len(batch)
                yield batch

    def _files(self) -> Iterator[tuple[str, IO[bytes]]]:
        if not isinstance(self._path, str):
            if self._spent:
                raise ValidationError(f"{printable(self._name)} can be read only once: save it to a file")
            self._spent = True
            yield self._name, self._path
            return
        listing = list_files(self._path)
        for path in listing.paths:
            try:
                file = path.open("rb")
            except OSError as error:
                raise _unreadable(str(path), error) from None
            with file:
                yield str(path), file
        listing.check_unchanged()


def lines_of(file: IO[bytes], wanted: ReadContext, longest: int = LONGEST_ROW) -> Iterator[str]:
    """The lines of a stream of bytes, without their ends (a carriage return may be left), nor a byte order mark.

    Raises ValidationError with the number of a line that is no UTF-8, holds a NUL, or is over ``longest`` bytes.
    """
    number = 0
    while True:
        number += 1
        try:
            line: Any = file.readline(longest + 1)
        except OSError as error:
            raise _unreadable(wanted.name, error) from None
        if not isinstance(line, bytes):
            raise ValidationError(f"{printable(wanted.name)} gives {type(line).__name__}: open it in binary mode")
        if not line:
            return
        line = line.removesuffix(b"\n")
        if len(line) > longest:
            raise wanted.bad_line(number, f"longer than {longest // 1024} KiB: is this the right file?")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise wanted.bad_line(number, "not UTF-8") from None
        if "\0" in text:
            raise wanted.bad_line(number, "holds a NUL character: is the file UTF-8 text?")
        yield text.removeprefix("\ufeff") if number == 1 else text


def _unreadable(name: str, error: OSError) -> ValidationError:
    return ValidationError(f"{printable(name)} can't be read: {error.strerror or type(error).__name__}")


def read_text(file: IO[bytes], wanted: ReadContext) -> Iterator[Any]:
    """Each line an id, without the space around it; blank lines are passed over."""
    counts = wanted.counts
    for number, line in enumerate(lines_of(file, wanted, LONGEST), 1):
        user = line.strip()
        if not user:
            counts.blank += 1
            continue
        if "\r" in user:
            raise wanted.bad_line(number, "holds a carriage return: end the lines with LF or CRLF")
        counts.padded += line.removesuffix("\r") != user
        yield (user, {}) if wanted.rows else user


# -- CSV ------------------------------------------------------------------------------------------------------------


def read_csv(file: IO[bytes], wanted: ReadContext, delimiter: str | None = None) -> Iterator[Any]:
    """A table with a header, cut at whichever of comma, semicolon, tab and bar the header holds most of."""
    lines = (f"{line}\n" for line in lines_of(file, wanted))
    # Up to the first that is not blank.
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
            yield from _csv_rows(reader, header, wanted)
    except csv.Error as error:
        # Its texts name delimiters and bounds, nothing of the file.
        raise wanted.bad_line(reader.line_num, f"not CSV: {error}") from None


def delimiter_of(header: str) -> str:
    """Whichever of comma, semicolon, tab and bar there is most of outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=bare.count)


def _csv_rows(reader: Any, header: list[str], wanted: ReadContext) -> Iterator[Any]:
    key = wanted.key
    if key not in header:
        raise missing_column(wanted.name, key, header)
    taken = [(name, at) for at, name in enumerate(header) if name and wanted.takes(name)]
    if header.count(key) > 1 or len(dict(taken)) < len(taken):
        raise wanted.bad_line(reader.line_num, "the header names a column twice")
    width, place = len(header), header.index(key)
    for record in reader:
        if not record:
            wanted.counts.blank += 1
            continue
        if len(record) != width:
            raise wanted.bad_line(reader.line_num, f"{count(len(record), 'field')}, and the header has {width}")
        user = record[place]
        if not user:
            raise wanted.bad_line(reader.line_num, f"{printable(key)} is empty")
        yield (user, {name: value for name, at in taken if (value := record[at])}) if wanted.rows else user


# -- JSON lines -----------------------------------------------------------------------------------------------------

_UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read_json(file: IO[bytes], wanted: ReadContext) -> Iterator[Any]:
    """Each line an object; blank lines are passed over. An id is a text, or an integer of any size."""
    for number, line in enumerate(lines_of(file, wanted), 1):
        try:
            row = _decode(line)
            fields = _json_fields(row, wanted) if wanted.rows else {}
        except _UNREADABLE:
            if line.strip():
                raise wanted.bad_line(number, _why(line, number)) from None
            wanted.counts.blank += 1
            continue
        user = row.get(wanted.key)
        if type(user) is int:
            user = str(user)
        elif type(user) is not str or not user:
            raise _bad_id(row, wanted, number)
        yield (user, fields) if wanted.rows else user


def _json_fields(row: dict[str, Any], wanted: ReadContext) -> dict[str, Any]:
    return {name: sendable(value) for name, value in row.items() if value is not None and wanted.takes(name)}


def _why(line: str, number: int) -> str:
    if number == 1 and line.lstrip().startswith("["):
        return "an array: write one object a line instead (jq -c '.[]' does)"
    return "not a JSON object, or nested too deeply"


def _bad_id(row: dict[str, Any], wanted: ReadContext, number: int) -> ValidationError:
    if wanted.key not in row:
        return missing_column(f"{wanted.name}, line {number}", wanted.key, list(row))
    kind = "an empty text" if row[wanted.key] == "" else type(row[wanted.key]).__name__
    return wanted.bad_line(number, f"{printable(wanted.key)} must be a text or an integer; got {kind}")


FORMATS: Mapping[str, Form] = {
    ".txt": read_text,
    ".csv": read_csv,
    ".tsv": partial(read_csv, delimiter="\t"),
    ".json": read_json,
    ".jsonl": read_json,
    ".ndjson": read_json,
}

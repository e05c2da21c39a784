"""Readers of text, CSV and JSON lines: every id as it is written, every error with its line.

DuckDB is not strict enough for ids: if two columns have the key's name it takes one of them, a JSON line that is a
bare text passes for an id, and a header that spans lines can cost the first row.
"""

import codecs
import importlib.util
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any

import msgspec

from pushsdk._audience.distinct import BATCH, ROWS, Row
from pushsdk._audience.source import ReadCounts, list_files, missing_column, printable, sendable, unreadable
from pushsdk._core.errors import ValidationError
from pushsdk._core.words import count

# Bytes per line.
LONGEST = 64 * 1024
# A row holds other columns, too.
LONGEST_ROW = 16 * LONGEST


def _csv_module() -> Any:
    """Return another ``_csv``: all code in the process shares the field size limit in the usual one."""
    spec: Any = importlib.util.find_spec("_csv")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.field_size_limit(LONGEST_ROW)
    return module


_csv = _csv_module()


class ReadContext(msgspec.Struct):
    """One reading from one file: the columns to return, the counts to update, and the place."""

    name: str
    """The file's name, for errors."""
    key: str
    counts: ReadCounts
    rows: bool
    """True for whole rows, False for ids."""
    columns: Collection[str] | None = None
    """The other columns to return; None is all."""
    header: list[str] | None = None
    """Gets the other column names: from a header, or from the first object."""
    line: int = 0
    """The number of lines read so far."""

    def takes(self, column: str) -> bool:
        return column != self.key and (self.columns is None or column in self.columns)

    def fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the wanted columns of a JSON row that are not null, in a form that can be sent."""
        columns = row.items() if self.rows else ()
        return {name: sendable(value) for name, value in columns if value is not None and self.takes(name)}

    def note(self, columns: Iterable[str]) -> None:
        """Add the names of the other columns to ``header``, if wanted."""
        if self.header is not None:
            self.header.extend(name for name in columns if name not in ("", self.key))

    def error(self, text: str, line: int | None = None) -> ValidationError:
        """Return an error about a line, by default the last one read."""
        return ValidationError(f"{printable(self.name)}, line {line or self.line}: {text}")


# Yields the ids in a file, or its rows if the context says so.
Form = Callable[[IO[bytes], ReadContext], Iterator[Any]]


class TextFiles:
    """Files in one format, or a stream that can be read once. ``name`` is the files' absolute path or pattern."""

    def __init__(self, name: str, *, key: str, form: Form, stream: IO[bytes] | None = None) -> None:
        self._name = name
        self._key = key
        self._form = form
        self._stream = stream
        stamps = list_files(name).stamps if stream is None else ()
        self.is_file: bool = bool(stamps)
        """False for a stream, and if a file is a pipe: these can be read only once."""
        # Set when such a one is read.
        self._is_spent = False
        self.columns: list[str] = []
        if any(size for size, _ in stamps):
            # Raises if the first row has no id.
            next(self._read(1, counts=ReadCounts(), rows=False, columns=(), header=self.columns), [])

    def description(self) -> str:
        return list_files(self._name).description(self._key) if self.is_file else printable(self._name)

    def check_filled(self) -> None:
        """Raise ValidationError for files without a byte, the usual result of an export that failed.

        Some empty files among others are fine: programs that write in parts leave such.
        """
        if self.is_file and all(file.read(4) in (b"", codecs.BOM_UTF8) for _, file in self._files()):
            raise ValidationError(
                f"{printable(self._name)} is empty and excludes nobody: did its export fail? Export it again, or if "
                "nobody is to be excluded, write a header or a blank line"
            )

    def ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        return self._read(BATCH, counts=counts, rows=False)

    def rows(self, counts: ReadCounts, columns: Collection[str] | None) -> Iterator[list[Row]]:
        return self._read(ROWS, counts=counts, rows=True, columns=columns)

    def place_of(self, is_wanted: Callable[[str], object]) -> str:
        """Return the file and the line with the first wanted id; for a stream its name."""
        for name, file in self._files() if self.is_file else ():
            context = ReadContext(name=name, key=self._key, counts=ReadCounts(), rows=False)
            if any(map(is_wanted, self._form(file, context))):
                column = "" if self._form is read_text else f", {printable(self._key, 60)}"
                return f"{printable(name)}, line {context.line}{column}"
        return self.description()

    def _read(self, size: int, *, counts: ReadCounts, **options: Any) -> Iterator[list[Any]]:
        for name, file in self._files():
            items = self._form(file, ReadContext(name=name, key=self._key, counts=counts, **options))
            while batch := list(itertools.islice(items, size)):
                counts.read += len(batch)
                yield batch

    def _files(self) -> Iterator[tuple[str, IO[bytes]]]:
        if self._is_spent:
            raise ValidationError(f"{printable(self._name)} can be read only once: save it to a file")
        self._is_spent = not self.is_file
        if self._stream is not None:
            yield self._name, self._stream
            return
        listing = list_files(self._name)
        for path in listing.paths:
            try:
                file = open(path, "rb")  # noqa: SIM115 # closed below
            except OSError as error:
                raise unreadable(path, error) from None
            with file:
                yield path, file
        listing.check_unchanged()


def _lines(file: IO[bytes], context: ReadContext, longest: int = LONGEST_ROW) -> Iterator[str]:
    """Yield the lines in a stream without newline and byte order mark; a carriage return may be left.

    Raises ValidationError for a line that is not UTF-8, holds a NUL, or is longer than ``longest`` bytes.
    """
    while True:
        try:
            line = file.readline(longest + 1)
        except OSError as error:
            raise unreadable(context.name, error) from None
        if not line:
            return
        context.line += 1
        line = line.removesuffix(b"\n")
        if len(line) > longest:
            raise context.error(f"longer than {longest // 1024} KiB: is this the right file?")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise context.error("not UTF-8: save the file as UTF-8 text") from None
        _check_text(text, context)
        yield text.removeprefix("\ufeff") if context.line == 1 else text


def _check_text(line: str, context: ReadContext) -> None:
    if "\0" in line:
        raise context.error("holds a NUL character: is the file UTF-8 text?")
    if context.line <= 2 and "---" in line and not line.strip("+- \r"):
        raise context.error("the rule below a table's header: print ids alone (psql -At), or a CSV (psql --csv)")


def read_text(file: IO[bytes], context: ReadContext) -> Iterator[Any]:
    """Read one id a line, without the space around the id. Blank lines are skipped."""
    counts, is_first = context.counts, True
    for line in _lines(file, context, LONGEST):
        user = line.strip()
        if not user:
            counts.blank += 1
            continue
        # A bar may be in ids, such as auth0|5f7c8, and id|ann below the first.
        if is_first and re.match(
            r'\{\s*"|(?i:<(!(doctype|--)|(html|head|error)\b|\?xml)|(user|\w+[_ -])?id\|[a-z_ |-]+$)', user
        ):
            raise context.error(
                "a table, JSON or a web page, and each line is read as one id: save a table as .csv, JSON as .jsonl"
            )
        is_first = False
        if "\r" in user:
            raise context.error("holds a carriage return: end the lines with LF or CRLF")
        counts.padded += line.removesuffix("\r") != user
        yield (user, {}) if context.rows else user


def read_csv(file: IO[bytes], context: ReadContext, delimiter: str | None = None) -> Iterator[Any]:
    """Read a table with a header. ``delimiter`` defaults to the most frequent one outside quotes."""
    lines = (f"{line}\n" for line in _lines(file, context))
    head, mark = _head_of(lines)
    delimiter = mark or delimiter or max(",;\t|", key=re.sub(r'"[^"]*"', "", "".join(head)).count)
    reader = _csv.reader(itertools.chain(head, lines), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(filter(None, reader), [])]
    except _csv.Error as error:
        raise _not_csv(error, reader, context, 1) from None
    if header:
        yield from _csv_rows(reader, header, context)


def _head_of(lines: Iterable[str]) -> tuple[list[str], str]:
    """Return the lines up to the first that is not blank, and the delimiter that Excel's ``sep=`` states before it."""
    head: list[str] = []
    delimiter = ""
    for line in lines:
        mark = re.fullmatch(r'"?sep=([^"\w])"?\s*', line)
        # A blank line instead keeps the later line numbers.
        head.append("\n" if mark else line)
        if mark:
            delimiter = mark[1]
        elif line.strip():
            break
    return head, delimiter


def _not_csv(error: Exception, reader: Any, context: ReadContext, line: int) -> ValidationError:
    """Return the error for the record that begins in a line."""
    # The text names delimiters and bounds, no file content.
    fix = "; is a quotation mark there not closed?" if reader.line_num > line else ""
    return context.error(f"not CSV: {error}{fix}", line)


def _csv_rows(reader: Any, header: list[str], context: ReadContext) -> Iterator[Any]:
    columns = _columns_of(header, context)
    width, position = len(header), header.index(context.key)
    rows, last = context.rows, reader.line_num
    try:
        for record in reader:
            if len(record) == width and (user := record[position]):
                yield (user, _fields(record, columns)) if rows else user
            elif record:
                fields = f"{count(len(record), 'field')}, and the header has {width}"
                raise context.error(f"{printable(context.key)} is empty" if len(record) == width else fields, last + 1)
            else:
                context.counts.blank += 1
            last = reader.line_num
    except _csv.Error as error:
        raise _not_csv(error, reader, context, last + 1) from None


def _fields(record: Sequence[str], columns: Sequence[tuple[str, int]]) -> dict[str, str]:
    return {name: record[index] for name, index in columns if record[index]}


def _columns_of(header: list[str], context: ReadContext) -> list[tuple[str, int]]:
    """Return the names and positions of the other columns to return. Raises ValidationError for a wrong header."""
    if context.key not in header:
        row = "; if line 1 is a row, write the names of the columns before it (a list of ids is a .txt)"
        raise missing_column(context.name, context.key, header, row=row)
    columns = [(name, index) for index, name in enumerate(header) if name and context.takes(name)]
    context.note(header)
    if header.count(context.key) > 1 or len(dict(columns)) < len(columns):
        raise context.error("the header names a column twice")
    return columns


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read_json(file: IO[bytes], context: ReadContext) -> Iterator[Any]:
    """Read one object a line. Blank lines are skipped. An id is a text, or an integer of any size."""
    for line in _lines(file, context):
        try:
            row = _decode(line)
            fields = context.fields(row)
            # A decoder takes the last of two ids.
            if line.count(f'"{context.key}"') > 1 and len(json.loads(line, object_pairs_hook=list)) > len(row):
                raise ValueError
        except (msgspec.MsgspecError, RecursionError, ValueError):
            if line.strip():
                raise context.error(
                    "not a JSON object on one line (jq -c . writes it so, and an array with jq -c '.[]'), nested too "
                    "deeply, with NaN or with a key twice"
                ) from None
            context.counts.blank += 1
            continue
        user = _id_in(row, context)
        context.note(row)
        yield (user, fields) if context.rows else user


def _id_in(row: Mapping[str, Any], context: ReadContext) -> str:
    user = row.get(context.key)
    if type(user) is int:
        return str(user)
    if type(user) is str and user:
        return user
    if context.key not in row:
        raise missing_column(f"{context.name}, line {context.line}", context.key, list(row))
    kind = "an empty text" if user == "" else type(user).__name__
    raise context.error(f"{printable(context.key)} must be a text or an integer; got {kind}")


FORMATS: Mapping[str, Form] = {
    ".txt": read_text,
    ".csv": read_csv,
    ".tsv": partial(read_csv, delimiter="\t"),
    ".json": read_json,
    ".jsonl": read_json,
    ".ndjson": read_json,
}

"""Audiences: users from a file, a query or a stream, for a run or for ``send_each``.

Everything here is sync, for a separate thread. Before it is iterated, only the columns and the first row are checked.
"""

import copy
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from io import TextIOBase
from pathlib import PurePath
from typing import IO, Annotated, Any, Literal

import msgspec

from pushsdk._audience.distinct import Distinct, Row
from pushsdk._audience.duckdb_reader import ArrowTable, DuckdbSource, ParquetFiles
from pushsdk._audience.source import PlainIds, ReadCounts, deduplicated, list_files, listed, printable
from pushsdk._audience.sql_query import SqlQuery
from pushsdk._audience.text_files import FORMATS, TextFiles, read_text
from pushsdk._core import wire
from pushsdk._core.arguments import iterable
from pushsdk._core.body import decode_user_ids, encode_texts, encode_user_ids
from pushsdk._core.damage import damage_in, damage_of, damage_text
from pushsdk._core.errors import Advice, ValidationError, warn_caller
from pushsdk._core.kinds import Count, Rule, check, check_arguments
from pushsdk._core.models import UNSET, AnyMessage, PushRequest
from pushsdk._core.placeholders import fill, placeholder_names
from pushsdk._core.words import count
from pushsdk._io.file_names import AnyPath, check_path

EXCLUDING = " without "  # in an audience's ``source``, before each audience that it leaves out

Source = TextFiles | ParquetFiles | SqlQuery | ArrowTable | PlainIds
"""A reader. Each method starts a new reading, in batches; the counts are complete after the last batch."""


class AudienceSummary(ReadCounts, frozen=True, kw_only=True):  # type: ignore[misc] # allowed by msgspec
    """Counts from one complete reading. ``str`` gives them in words."""

    def __str__(self) -> str:
        parts = (
            (True, count(self.users)),
            (self.duplicates, count(self.duplicates, "duplicate")),
            (self.excluded, f"{self.excluded:,} excluded"),
            (self.blank, count(self.blank, "blank line")),
            (self.padded, f"{self.padded:,} with space around them"),
        )
        return ", ".join(text for number, text in parts if number)


_Made = Annotated[
    Any,
    Rule(
        'made by Audience.read("ids.txt"), .query(sql), .table(df) or .lines(file): write other ids to a file',
        lambda source: hasattr(source, "place_of"),
    ),
]
ArrowStream = Annotated[
    Any,
    Rule(
        "a table with an Arrow stream, for example a polars or pandas DataFrame (not a LazyFrame) or a pyarrow Table",
        lambda table: hasattr(table, "__arrow_c_stream__"),
    ),
]
_BinaryStream = Annotated[
    Any,
    Rule(
        "a binary stream, for example open('ids.txt', 'rb') or sys.stdin.buffer",
        lambda file: hasattr(file, "readline") and not isinstance(file, TextIOBase),
    ),
]


class Audience:
    """Users from a file, a query or a stream, for ``broadcast``. A file or query can be read any number of times.

    Ids keep their text: integers become decimal text, a UUID its text; only text file lines lose the space around
    them. A value that is not an id ends the reading with a ValidationError that names the file and the row or line,
    never the value. So does a file that changes while it is read.
    """

    def __init__(self, source: Source) -> None:
        check("source", source, _Made, ValidationError)
        self._source = source
        # Set by exclude.
        self._excluded: tuple[Audience, ...] = ()
        # Set by part: the users are part number ``index`` among ``of``.
        self._index, self._of = 0, 1
        # The damage in the ids, if another audience excludes them. Set when these are read.
        self._damages = Counter[str]()
        # Set when a reading is complete.
        self._summary = AudienceSummary()

    @classmethod
    def read(cls, path: AnyPath, *, primary_key: str = "user_id") -> "Audience":
        """Return the users in a file, or in all files that match a pattern (``*``, ``**``, ``?``, ``[...]``).

        The name's suffix tells the format: ``.parquet`` (needs duckdb), ``.csv`` and ``.tsv`` with a
        header, ``.jsonl``, ``.ndjson`` and ``.json`` with one object a line, ``.txt`` with one id a line.
        ``primary_key`` names the id column. Raises ValidationError at once if there is no such file, format or
        column, ConfigurationError without DuckDB.
        """
        name = check_path("path", path, "users.csv")
        check("primary_key", primary_key, str, ValidationError)
        pattern, suffix = list_files(name).pattern, PurePath(name).suffix.lower()
        if suffix == ".parquet":
            return cls(ParquetFiles(pattern, key=primary_key))
        if suffix not in FORMATS:
            kind = f"that ends in {printable(suffix, 20)!r}" if suffix else "without an ending"
            text = f"a file {kind} can't be read: use {', '.join(['.parquet', *FORMATS])}, or a query"
            raise ValidationError(Advice(text, "{earlier_run}" if suffix == ".run" else ""))
        return cls(TextFiles(pattern, key=primary_key, form=FORMATS[suffix]))

    @classmethod
    def query(cls, sql: str, *, primary_key: str = "user_id") -> "Audience":
        """Return the users that one DuckDB SELECT finds. The query may name files: ``FROM 'users/*.parquet'``.

        Only local files are read, and no extension is loaded. Raises ValidationError at once if the SQL is wrong,
        is not a SELECT or has no such column, ConfigurationError without DuckDB.
        """
        check_arguments(Audience.query, locals(), ValidationError)
        return cls(SqlQuery(sql, key=primary_key))

    @classmethod
    def table(cls, table: ArrowStream, *, primary_key: str = "user_id") -> "Audience":
        """Return the users in a table in memory: anything with an Arrow stream (``__arrow_c_stream__``).

        Examples are DataFrames from polars and pandas, a pyarrow Table, a DuckDB relation and Spark's
        ``df.toArrow()``. Ids and columns are checked like those in a file. Raises ValidationError at once for
        anything else, and if there is no such column, ConfigurationError without DuckDB.
        """
        check_arguments(Audience.table, locals(), ValidationError)
        return cls(ArrowTable(table, key=primary_key))

    @classmethod
    def lines(cls, file: IO[bytes], *, name: str = "standard input") -> "Audience":
        """Return the users in a binary stream, one id a line. The stream can be read once, and is not closed."""
        check("file", file, _BinaryStream, ValidationError)
        return cls(TextFiles(name, key="user_id", form=read_text, stream=file))

    @property
    def source(self) -> str:
        """Description that identifies the audience in its present state.

        A file: its absolute path, id column, size and mtime. Several files: a digest of those. A query: its SQL, not
        the files it reads. A stream or table: its name.
        """
        whole = EXCLUDING.join([self._source.description(), *(users.source for users in self._excluded)])
        return whole if self._of == 1 else f"{whole}, part {self._index} of {self._of}"

    @property
    def is_file(self) -> bool:
        """True if ``source`` changes with the users: for files. Others have to be read to tell."""
        return self._source.is_file and all(users.is_file for users in self._excluded)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns beside the ids: in JSON lines the first line's, empty for a plain id list."""
        return tuple(self._source.columns)

    @property
    def summary(self) -> AudienceSummary:
        """Counts from the last complete reading; all zero before."""
        return self._summary

    def exclude(self, *users: "AnyPath | Audience | Iterable[str]", primary_key: str = "user_id") -> "Audience":
        """Return these users without others: those in files, in audiences or in lists. Ids are compared as texts.

        ``primary_key`` names the id column in the files. To leave out an earlier run's users, pass
        ``read_report("spring.run").pushed()``. Raises as ``read`` does, and when read if all files have 0 bytes.
        """
        audience = copy.copy(self)
        others = [_audience_of(each, primary_key) for each in users]
        audience._excluded = (*self._excluded, *others)
        return audience

    def part(self, index: int, *, of: int) -> "Audience":
        """Return one part of these users, ``index`` counted from 0, for processes that each push to another part.

        The id alone decides: ``int.from_bytes(blake2b(id.encode(), digest_size=8).digest()) % of``. So each user is in
        one part, whatever the source and the order. A part can be divided again. Each part reads the whole source.
        Raises ValidationError if there is no such part.
        """
        check("of", of, Count, ValidationError)
        below = Annotated[int, Rule(f"a whole number from 0 to {of - 1}", range(of).__contains__)]
        check("index", index, below, ValidationError)
        audience = copy.copy(self)
        audience._index, audience._of = self._index + self._of * index, self._of * of
        return audience

    def ids(self, *, distinct: bool = True) -> Iterator[list[str]]:
        """Yield the ids in batches: each once in no particular order, or all in file order."""
        source, is_whole = self._source, self._of == 1 and not self._excluded
        if distinct and is_whole and isinstance(source, DuckdbSource):
            return self._read(source.distinct_ids)
        return self._read(source.ids, Distinct() if distinct else None)

    def rows(self, *, distinct: bool = True) -> Iterator[list[Row]]:
        """Yield the ids, each with the other columns in its row, in batches.

        If ``distinct``, the first row of each id counts. The values are plain JSON: an empty CSV cell, NULL
        and NaN are left out; decimals and integers beyond 64 bits are text with all digits; dates, times and UUIDs
        are text (ISO 8601, with a zone in UTC); lists, structs and maps become arrays and objects. Raises
        ValidationError for another column type, such as BLOB.
        """
        return self._rows(distinct, None)

    def personalize(
        self,
        message: AnyMessage,
        *,
        into: Literal["custom_fields", "text", "both"] = "custom_fields",
        custom_fields: Mapping[str, Any] | None = None,
        distinct: bool = True,
    ) -> "Personalized":
        """Return one request for each user, for ``send_each``.

        ``into="custom_fields"``: the row's columns are added to ``custom_fields``, and the service fills the
        placeholders. ``"text"``: pushsdk fills the placeholders in title, subtitle and body; a column that is missing
        or NULL takes the fallback. ``"both"`` does both. Raises ValidationError for a message that can't be sent.
        """
        check("into", into, Literal["custom_fields", "text", "both"], ValidationError)
        wire.encode_content(message, custom_fields)
        columns = [*self._source.columns, *(custom_fields or ())]
        # The service may have another value for a name that only the service fills.
        others = "" if into == "custom_fields" else f", only {listed(columns)}" if columns else ", as it has no columns"
        names = placeholder_names(message)
        wire.warn_of_placeholders(names, columns, "the audience has", others)
        if into == "text" and not names:
            warn_caller("the message has no placeholder for the columns: all users get the same text")
        return Personalized(self, message, into, custom_fields, distinct)

    def _rows(self, distinct: bool, columns: Collection[str] | None) -> Iterator[list[Row]]:
        return self._read(lambda counts: self._source.rows(counts, columns), Distinct(rows=True) if distinct else None)

    def _read(
        self, read: Callable[[ReadCounts], Iterator[list[Any]]], distinct: Distinct | None = None
    ) -> Iterator[list[Any]]:
        counts = ReadCounts()
        batches = read(counts)
        if self._of > 1:
            batches = _part(batches, self._index, self._of)
        if distinct is not None:
            batches = deduplicated(batches, counts, distinct, self._ids_to_exclude())
        elif self._excluded:
            raise ValidationError(Advice("users can be excluded only if each is pushed to once: ", "{dedupe}"))
        for batch in batches:
            counts.users += len(batch)
            yield batch
        self._summary = msgspec.convert(counts, AudienceSummary, from_attributes=True)

    def _ids_to_exclude(self) -> Iterator[list[str]]:
        for users in self._excluded:
            users._damages = Counter()
            if isinstance(users._source, TextFiles):
                users._source.check_filled()
            for ids in users.ids():
                users._damages.update(damage_of(ids, encode_texts(ids)))
                yield ids


def _audience_of(users: "AnyPath | Audience | Iterable[str]", key: str) -> Audience:
    if isinstance(users, Audience):
        return users
    if isinstance(users, (str, os.PathLike)):
        return Audience.read(users, primary_key=key)
    given = list(iterable("users", users, "a file name, an Audience or a list of ids"))
    ids = decode_user_ids(encode_user_ids(given, "users"))
    return Audience(PlainIds(f"{count(len(ids), 'id')} in memory", lambda: iter([ids])))


def _part(batches: Iterator[list[Any]], index: int, of: int) -> Iterator[list[Any]]:
    def number(item: Any) -> int:
        user = (item if isinstance(item, str) else item[0]).encode()
        return int.from_bytes(blake2b(user, digest_size=8).digest()) % of

    for batch in batches:
        yield [item for item in batch if number(item) == index]


@dataclass(frozen=True, eq=False, repr=False)
class Personalized:
    """Requests made from audience rows. Each iteration is a new reading."""

    _audience: Audience
    _message: AnyMessage
    _into: str
    _custom_fields: Mapping[str, Any] | None
    _distinct: bool

    @property
    def source(self) -> str:
        """Description of the audience; see ``Audience.source``."""
        return self._audience.source

    @property
    def summary(self) -> AudienceSummary:
        """Counts from the last complete reading; all zero before."""
        return self._audience.summary

    def __iter__(self) -> Iterator[PushRequest]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[PushRequest]]:
        """Yield the requests in batches."""
        columns = placeholder_names(self._message) if self._into == "text" else None
        for rows in self._audience._rows(self._distinct, columns):
            yield [self._request(user, row) for user, row in rows]

    def _request(self, user: str, row: dict[str, Any]) -> PushRequest:
        # PushRequest accepts a mapping, too, and sends it unchanged.
        message: Any = self._message if self._into == "custom_fields" else fill(self._message, row)
        fields = self._custom_fields if self._into == "text" else {**(self._custom_fields or {}), **row}
        return PushRequest(user_ids=(user,), message=message, custom_fields=UNSET if fields is None else fields)


def damage_texts(users: object, damages: Counter[str]) -> Iterator[Advice]:
    """Yield a text for damaged ids, and one for those in each audience that is excluded."""
    audience = users._audience if isinstance(users, Personalized) else users
    place = ""
    if isinstance(audience, Audience):
        for others in audience._excluded:
            yield from damage_texts(others, others._damages)
        if damages:
            place = audience._source.place_of(lambda user: damage_in(user) == next(iter(damages)))
    if damages:
        yield damage_text(damages, place)

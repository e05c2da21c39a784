"""Where a broadcast's users come from, when it is not a list: a file, a query or a stream of lines.

Everything here is sync and meant for a thread of its own; nothing is read before it is iterated.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import IO, Any, Literal, TypeVar

import msgspec

from pushsdk._audience.chunks import Chunk, chunks_of
from pushsdk._audience.distinct import Distinct, Row
from pushsdk._audience.duckdb_reader import ParquetFiles, SqlQuery
from pushsdk._audience.source import ReadCounts, deduplicated, printable
from pushsdk._audience.text_files import FORMATS, TextFiles, read_text
from pushsdk._core import wire
from pushsdk._core.errors import ValidationError
from pushsdk._core.models import UNSET, MobilePush, PushRequest
from pushsdk._core.placeholders import fill, placeholder_names
from pushsdk._core.words import count
from pushsdk._public import set_public_module

__all__ = ["Audience", "AudienceSummary", "Personalized"]

# Ids that are cut into chunks together: about this many.
_TOGETHER = 10_000

T = TypeVar("T")

Source = TextFiles | ParquetFiles | SqlQuery
"""Each method reads anew, in batches; the counts that it is given are right when the last batch has been taken."""


class AudienceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one reading of an audience found. Its ``str`` says it in words."""

    read: int = 0
    """Rows, or lines that are not blank."""
    users: int = 0
    """Those handed out."""
    duplicates: int = 0
    """Rows whose id had been there before."""
    blank: int = 0
    """Lines without anything on them, passed over."""
    padded: int = 0
    """Lines of a text file that had space around the id, which was taken off."""

    def __str__(self) -> str:
        parts = (
            (True, count(self.users)),
            (self.duplicates, count(self.duplicates, "duplicate")),
            (self.blank, count(self.blank, "blank line")),
            (self.padded, f"{self.padded:,} with space around them"),
        )
        return ", ".join(words for number, words in parts if number)


class Audience:
    """Users from a file, a query or a stream, ready for ``broadcast``; can be read any number of times.

    An id arrives as it is written: integers as decimal text, a UUID as its text, texts untouched (but for lines of
    a text file, which lose the space around them). What is no id ends the reading with a ValidationError that names
    the file and the row or line, never the value. No file may change while it is read: that is an error too.
    """

    def __init__(self, source: Source) -> None:
        if not isinstance(source, Source):
            raise ValidationError(
                'an Audience is made by Audience.read("ids.txt"), Audience.query(sql) or Audience.lines(file); '
                f"got {type(source).__name__}"
            )
        self._source = source
        # Set when a reading comes to its end.
        self._summary = AudienceSummary()

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, primary_key: str = "user_id") -> "Audience":
        """The users of a file, or of all files that a pattern (``*``, ``**``, ``?``, ``[...]``) names.

        By the end of its name: ``.parquet`` (needs ``pushsdk[audience]``), ``.csv`` and ``.tsv`` with a header,
        ``.jsonl``, ``.ndjson`` and ``.json`` with one object a line, ``.txt`` with one id a line. ``primary_key`` names
        the column of the ids. Raises ValidationError where there is no such file, or it is of no such kind;
        ConfigurationError without DuckDB.
        """
        given = os.fspath(path)
        suffix = PurePath(given).suffix.lower()
        if suffix == ".parquet":
            return cls(ParquetFiles(given, key=primary_key))
        if suffix not in FORMATS:
            kind = f"that ends in {printable(suffix, 20)!r}" if suffix else "without an ending"
            raise ValidationError(
                f"a file {kind} can't be read: {', '.join(['.parquet', *FORMATS])} can, and a query reads "
                "whatever DuckDB does"
            )
        return cls(TextFiles(given, key=primary_key, form=FORMATS[suffix]))

    @classmethod
    def query(cls, sql: str, *, primary_key: str = "user_id") -> "Audience":
        """The users that one SELECT of DuckDB's SQL finds; it may name files, as ``FROM 'users/*.parquet'``.

        Only local files are read, and no extension is loaded. Raises ValidationError, here already, for SQL that
        is wrong or is no SELECT; ConfigurationError without DuckDB.
        """
        return cls(SqlQuery(sql, key=primary_key))

    @classmethod
    def lines(cls, file: IO[bytes], *, name: str = "standard input") -> "Audience":
        """The users of a binary stream, one id a line. It can be read once, and is not closed."""
        return cls(TextFiles(file, name=name, key="user_id", form=read_text))

    @property
    def source(self) -> str:
        """Words that identify it, as it is now.

        For a file its absolute path, size and time of modification, for several a digest of these: another text
        means another file or another state of it. Of a query only the SQL, not the files that it names; of a
        stream only its name.
        """
        return self._source.words()

    @property
    def summary(self) -> AudienceSummary:
        """Of the last reading that came to its end; all zero before."""
        return self._summary

    @property
    def duplicates(self) -> int:
        """The summary's."""
        return self._summary.duplicates

    def count(self) -> int | None:
        """How many rows there are, where the file says so itself (Parquet); None where they had to be read."""
        return self._source.count()

    def ids(self, *, distinct: bool = True) -> Iterator[list[str]]:
        """The ids in batches: each once, in no particular order, or all, in the order of the file."""
        counts = ReadCounts()
        return self._counted(self._source.distinct_ids(counts) if distinct else self._source.ids(counts), counts)

    def chunks(self, *, fixed: int, max_users: int, max_bytes: int, distinct: bool = True) -> Iterator[list[Chunk]]:
        """The ids as the chunks of a plan, all but the last full; see ``plan.chunks_of``."""
        bounds = {"fixed": fixed, "max_users": max_users, "max_bytes": max_bytes}
        together = max_users * max(1, _TOGETHER // max_users)
        waiting: list[str] = []
        for ids in self.ids(distinct=distinct):
            waiting += ids
            if len(waiting) >= together:
                whole = len(waiting) // max_users * max_users
                yield list(chunks_of(waiting[:whole], **bounds))
                del waiting[:whole]
        if waiting:
            yield list(chunks_of(waiting, **bounds))

    def rows(self, *, distinct: bool = True) -> Iterator[list[Row]]:
        """The ids, each with the other columns of its row, in batches.

        Of rows with the same id the first one counts. The values are plain JSON: an empty cell of a CSV file, NULL
        and NaN are left out; decimals are text with all their digits, as are integers over 64 bits; dates, times
        and UUIDs are text (ISO 8601, with a zone in UTC); lists, structs and maps become arrays and objects. A
        column of another type, as BLOB, is a ValidationError.
        """
        return self._rows(distinct, None)

    def personalize(
        self,
        message: MobilePush | Mapping[str, Any],
        *,
        into: Literal["custom_fields", "text", "both"] = "custom_fields",
        custom_fields: Mapping[str, Any] | None = None,
        distinct: bool = True,
    ) -> "Personalized":
        """One request for each user, for ``send_each``.

        ``into="custom_fields"``: the row's columns are the request's custom fields, over those of ``custom_fields``,
        and the service fills the placeholders. ``"text"``: they are filled here, in title, subtitle and body; a
        column that is missing or NULL takes the fallback. Raises ValidationError for a message that can't be sent.
        """
        if into not in ("custom_fields", "text", "both"):
            raise ValidationError('into is "custom_fields", "text" or "both"')
        wire.encode_message(message)
        wire.encode_custom_fields(custom_fields)
        return Personalized(self, message, into, custom_fields, distinct)

    def _rows(self, distinct: bool, columns: Collection[str] | None) -> Iterator[list[Row]]:
        counts = ReadCounts()
        rows = self._source.rows(counts, columns)
        return self._counted(deduplicated(Distinct(rows=True), rows, counts) if distinct else rows, counts)

    def _counted(self, batches: Iterator[list[T]], counts: ReadCounts) -> Iterator[list[T]]:
        for batch in batches:
            counts.users += len(batch)
            yield batch
        self._summary = msgspec.convert(counts, AudienceSummary, from_attributes=True)


class Personalized:
    """Requests made from the rows of an audience. Each iteration reads it anew."""

    def __init__(
        self,
        audience: Audience,
        message: MobilePush | Mapping[str, Any],
        into: str,
        custom_fields: Mapping[str, Any] | None,
        distinct: bool,
    ) -> None:
        self._audience = audience
        self._message = message
        self._into = into
        self._custom_fields = custom_fields
        self._distinct = distinct

    @property
    def source(self) -> str:
        """The audience's."""
        return self._audience.source

    @property
    def summary(self) -> AudienceSummary:
        """The audience's."""
        return self._audience.summary

    @property
    def duplicates(self) -> int:
        """The audience's."""
        return self._audience.duplicates

    def __iter__(self) -> Iterator[PushRequest]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[PushRequest]]:
        """Yield the requests in batches, for a thread."""
        columns = placeholder_names(self._message) if self._into == "text" else None
        for rows in self._audience._rows(self._distinct, columns):
            yield [self._request(user, row) for user, row in rows]

    def _request(self, user: str, row: dict[str, Any]) -> PushRequest:
        # PushRequest takes what encode_message takes: a mapping is sent as it is.
        message: Any = self._message if self._into == "custom_fields" else fill(self._message, row)
        fields = self._custom_fields if self._into == "text" else {**(self._custom_fields or {}), **row}
        return PushRequest(user_ids=(user,), message=message, custom_fields=UNSET if fields is None else fields)


set_public_module(__name__)

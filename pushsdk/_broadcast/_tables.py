"""Parquet files and SQL, read by DuckDB: which columns can be read, and as what.

An id comes as the text of what is stored. A type that has no one text (a float, a date, a boolean) is refused whole,
by the column; an empty or NULL id by its row, which only then is looked for.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._broadcast._duck import (
    Connection,
    NoRoomError,
    UnfitError,
    check_select,
    connection,
    duckdb_module,
    explained,
)
from pushsdk._broadcast._files import list_files
from pushsdk._broadcast._source import BATCH, ROWS, Counts, fitting, missing_column, once, plain
from pushsdk._broadcast.distinct import Distinct, Row
from pushsdk._core.errors import ValidationError

__all__ = ["Parquet", "Query"]

# Rows of which DuckDB finds the distinct ids in its memory: it managed 40 million of these, and not 50.
MOST = 20_000_000
_UNFIT = "damaged, or no Parquet file"

# By the type of a column, the first that matches: the text of an id.
_INTEGER = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?"
_ID_SQL: Mapping[str, str] = {
    r"VARCHAR": "{0}",
    rf'{_INTEGER}|BIGNUM|VARINT|UUID|ENUM\(.*\)|DECIMAL\(\d+,0\)|"NULL"': "CAST({0} AS VARCHAR)",
    # A JSON value may be of any type: texts and integers are ids.
    r"JSON": "CASE WHEN json_type({0}) = 'VARCHAR' OR regexp_full_match(CAST({0} AS VARCHAR), '-?[0-9]+') "
    "THEN {0}->>'$' END",
}
# The same for a value that is sent along. Dates and times in ISO 8601, decimals with all their digits; NaN is what
# some tools write for NULL.
_NESTED = r".*\[\d*\]|STRUCT\(.*|MAP\(.*|UNION\(.*|JSON|VARIANT"
_VALUE_SQL: Mapping[str, str] = {
    _NESTED: "CAST(to_json({0}) AS VARCHAR)",
    rf"VARCHAR|BOOLEAN|{_INTEGER}": "{0}",
    r"FLOAT|DOUBLE": "CASE WHEN isnan({0}) THEN NULL ELSE {0} END",
    r"TIMESTAMP WITH TIME ZONE": "replace(CAST(make_timestamp(epoch_us({0})) AS VARCHAR), ' ', 'T') || 'Z'",
    r"TIMESTAMP(_S|_MS|_NS)?": "replace(CAST({0} AS VARCHAR), ' ', 'T')",
    r"DECIMAL\(.*|DATE|TIME.*|INTERVAL|UUID|ENUM\(.*|BIT|BIGNUM|VARINT|\"NULL\"": "CAST({0} AS VARCHAR)",
}


class _Place(msgspec.Struct, frozen=True):
    """Something to select from: its name in errors, its SQL, and the parameters of that."""

    name: str
    sql: str
    parameters: tuple[Any, ...] = ()


class _Table(ABC):
    """What both have: columns, of which one holds the ids."""

    def __init__(self, name: str, key: str) -> None:
        duckdb_module()
        self._name = name
        self._key = key

    def ids(self, counts: Counts) -> Iterator[list[str]]:
        with self._opened() as (made, place):
            id_sql = self._id_sql(_types(made, place))
            for rows in self._select(made, place, id_sql, f"SELECT {id_sql} FROM {place.sql}"):
                counts.read += len(rows)
                yield list(itertools.chain.from_iterable(rows))

    def distinct_ids(self, counts: Counts) -> Iterator[list[str]]:
        begun = False
        try:
            for ids in self._distinct(counts):
                begun = True
                yield ids
            return
        except NoRoomError:
            if begun:
                raise
        # DuckDB spills, but not without end: slower, this needs no more memory for more ids.
        yield from once(Distinct(), self.ids(counts), counts)

    def rows(self, counts: Counts, columns: Collection[str] | None) -> Iterator[list[Row]]:
        with self._opened() as (made, place):
            types = _types(made, place)
            names = [name for name in types if name != self._key and (columns is None or name in columns)]
            id_sql = self._id_sql(types)
            wanted = ", ".join([id_sql, *(_value_sql(place.name, name, types[name]) for name in names)])
            nested = [name for name in names if _matches(_NESTED, types[name])]
            large = [name for name in names if types[name] in ("HUGEINT", "UHUGEINT")]
            for rows in self._select(made, place, id_sql, f"SELECT {wanted} FROM {place.sql}", ROWS):
                batch: list[Row] = [(row[0], _fields(names, row)) for row in rows]
                for number, (_, fields) in enumerate(batch if nested else (), counts.read + 1):
                    for name in fields.keys() & nested:
                        fields[name] = self._decoded(fields[name], name, number)
                for _, fields in batch if large else ():
                    for name in fields.keys() & large:
                        fields[name] = fitting(fields[name])
                counts.read += len(rows)
                yield batch

    def _distinct(self, counts: Counts) -> Iterator[list[str]]:
        with self._opened() as (made, place):
            id_sql = self._id_sql(_types(made, place))
            sql = f"SELECT id, count(*) FROM (SELECT {id_sql} AS id FROM {place.sql}) GROUP BY id"
            for rows in self._select(made, place, id_sql, sql):
                read = sum(map(operator.itemgetter(1), rows))
                counts.read += read
                counts.repeated += read - len(rows)
                yield [row[0] for row in rows]

    # -- the parts --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _opened(self) -> AbstractContextManager[tuple[Connection, _Place]]: ...

    def _parts(self, place: _Place) -> list[_Place]:
        """Where to look for a row: places whose rows are counted each for itself."""
        return [place]

    def _id_sql(self, types: Mapping[str, str]) -> str:
        kind = types.get(self._key)
        if kind is None:
            raise missing_column(self._name, self._key, list(types))
        for pattern, sql in _ID_SQL.items():
            if _matches(pattern, kind):
                return sql.format(_quoted(self._key))
        raise ValidationError(
            f"{plain(self._name)}: {plain(self._key, 60)} is of type {plain(kind, 60)}; user ids are texts or whole "
            "numbers: turn them into those in a query, as CAST(... AS VARCHAR)"
        )

    def _select(self, made: Connection, place: _Place, id_sql: str, sql: str, size: int = BATCH) -> Iterator[list[Any]]:
        """The rows, the id first, in batches; an id that is none ends it."""
        result = made.execute(sql, place.parameters)
        while rows := result.fetchmany(size):
            if not all(map(operator.itemgetter(0), rows)):
                raise self._bad_id(made, place, id_sql)
            yield rows

    def _bad_id(self, made: Connection, place: _Place, id_sql: str) -> ValidationError:
        kind = f"json_type({_quoted(self._key)})" if "json_type" in id_sql else "NULL"
        for part in self._parts(place):
            found = made.execute(
                f"SELECT number, id IS NULL, kind FROM (SELECT row_number() OVER () AS number, {id_sql} AS id, "
                f"{kind} AS kind FROM {part.sql}) WHERE id IS NULL OR id = '' LIMIT 1",
                part.parameters,
            ).fetchone()
            if found:
                number, missing, kind = found
                what = "empty"
                if missing:
                    what = "NULL" if kind in (None, "NULL") else f"JSON of type {kind}: a text or an integer is needed"
                return ValidationError(f"{plain(part.name)}, row {number}: {plain(self._key, 60)} is {what}")
        # A query whose result is another one each time.
        return ValidationError(f"{plain(self._name)}: {plain(self._key, 60)} is NULL or empty in a row")

    def _decoded(self, text: str, name: str, number: int) -> Any:
        try:
            return fitting(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            raise ValidationError(
                f"{plain(self._name)}, row {number}: {plain(name, 60)} can't be written as JSON (a NaN in it?)"
            ) from None


class Parquet(_Table):
    """The Parquet files that a path names. Columns go by their names, and may be missing in some of the files."""

    def __init__(self, path: str, *, key: str) -> None:
        super().__init__(list_files(path).pattern, key)
        self._path = path

    def words(self) -> str:
        return list_files(self._path).words()

    def count(self) -> int:
        with self._opened() as (made, place):
            return _rows_of(made, place)

    def _distinct(self, counts: Counts) -> Iterator[list[str]]:
        # Parquet knows how many rows it has: counting them along would take a third more time.
        distinct = 0
        with self._opened() as (made, place):
            read = _rows_of(made, place)
            if read > MOST:
                raise NoRoomError
            id_sql = self._id_sql(_types(made, place))
            for rows in self._select(made, place, id_sql, f"SELECT DISTINCT {id_sql} FROM {place.sql}"):
                distinct += len(rows)
                yield list(itertools.chain.from_iterable(rows))
        counts.read = read
        counts.repeated = read - distinct

    @contextmanager
    def _opened(self) -> Iterator[tuple[Connection, _Place]]:
        listing = list_files(self._path)
        with connection() as made:
            try:
                with explained(self._name, unfit=_UNFIT):
                    yield made, _parquet(self._name, listing.paths)
            except UnfitError:
                # Of many it is one.
                for path in listing.paths:
                    with explained(str(path), unfit=_UNFIT):
                        _rows_of(made, _parquet(str(path), [path]))
                raise
        listing.check_unchanged()

    def _parts(self, place: _Place) -> list[_Place]:
        return [_parquet(str(path), [path]) for path in list_files(self._path).paths]


class Query(_Table):
    """The result of one SELECT, which may name files."""

    def __init__(self, sql: str, *, key: str) -> None:
        super().__init__("the query", key)
        self._sql = sql
        with self._opened():
            pass

    def words(self) -> str:
        digest = hashlib.sha256(self._sql.encode(errors="replace")).hexdigest()[:16]
        return f"query {digest}: {plain(' '.join(self._sql.split()))}"

    def count(self) -> None:
        return None

    @contextmanager
    def _opened(self) -> Iterator[tuple[Connection, _Place]]:
        with connection() as made, explained(self._name):
            check_select(made, self._sql)
            made.execute(f"CREATE TEMP VIEW pushsdk_audience AS {self._sql}")
            yield made, _Place(self._name, "pushsdk_audience")


def _parquet(name: str, paths: Sequence[Path]) -> _Place:
    # Names are no patterns any more. With parameters, a name is never a part of the SQL.
    names = [re.sub(r"([*?\[])", r"[\1]", str(path)) for path in paths]
    return _Place(name, "read_parquet(?, union_by_name = true, hive_partitioning = false)", (names,))


def _fields(names: Sequence[str], row: tuple[Any, ...]) -> dict[str, Any]:
    """The columns that are not NULL."""
    fields = dict(zip(names, row[1:], strict=True))
    return {name: value for name, value in fields.items() if value is not None} if None in row else fields


def _rows_of(made: Connection, place: _Place) -> int:
    [(number,)] = made.execute(f"SELECT count(*) FROM {place.sql}", place.parameters).fetchall()
    return int(number)


def _types(made: Connection, place: _Place) -> dict[str, str]:
    """The columns, by name: their types as DuckDB writes them."""
    described = made.execute(f"DESCRIBE SELECT * FROM {place.sql}", place.parameters).fetchall()
    return {name: kind for name, kind, *_ in described}


def _value_sql(table: str, name: str, kind: str) -> str:
    for pattern, sql in _VALUE_SQL.items():
        if _matches(pattern, kind):
            return sql.format(_quoted(name))
    raise ValidationError(
        f"{plain(table)}: column {plain(name, 60)} is of type {plain(kind, 60)}, which JSON has no form for: leave it "
        "out, or turn it into a text, in a query"
    )


def _matches(pattern: str, kind: str) -> bool:
    return re.fullmatch(pattern, kind, re.DOTALL) is not None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

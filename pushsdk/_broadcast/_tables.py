"""Parquet files and SQL, read by DuckDB. An empty or NULL id is refused by its row, which only then is looked for."""

from __future__ import annotations

import hashlib
import itertools
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._broadcast._duck import Connection, cause_of, check_select, connection, duckdb_module, explained
from pushsdk._broadcast._source import BATCH, ROWS, Counts, list_files, once, plain
from pushsdk._broadcast._values import Fields, no_id, sql_of_id, sql_of_kind, types_of
from pushsdk._broadcast.distinct import Distinct, Row
from pushsdk._core.errors import ValidationError

__all__ = ["Parquet", "Query"]

_UNFIT = "damaged, or no Parquet file"


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
            id_sql = self._id_sql(made, place)
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
        except ValidationError as error:
            if begun or cause_of(error) != "OutOfMemoryException":
                raise
        # DuckDB spills, but not without end: slower, this needs no more memory for more ids.
        yield from once(Distinct(), self.ids(counts), counts)

    def rows(self, counts: Counts, columns: Collection[str] | None) -> Iterator[list[Row]]:
        with self._opened() as (made, place):
            types = types_of(made, place.sql, place.parameters)
            id_sql = sql_of_id(self._name, self._key, types)
            names = [name for name in types if name != self._key and (columns is None or name in columns)]
            fields = Fields(place.name, types, names)
            wanted = ", ".join([id_sql, *fields.sql])
            for rows in self._select(made, place, id_sql, f"SELECT {wanted} FROM {place.sql}", ROWS):
                batch = fields.of(rows, counts.read + 1)
                counts.read += len(rows)
                yield batch

    def _distinct(self, counts: Counts) -> Iterator[list[str]]:
        with self._opened() as (made, place):
            id_sql = self._id_sql(made, place)
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

    def _id_sql(self, made: Connection, place: _Place) -> str:
        return sql_of_id(self._name, self._key, types_of(made, place.sql, place.parameters))

    def _select(self, made: Connection, place: _Place, id_sql: str, sql: str, size: int = BATCH) -> Iterator[list[Any]]:
        """The rows, the id first, in batches; an id that is none ends it."""
        result = made.execute(sql, place.parameters)
        while rows := result.fetchmany(size):
            if not all(map(operator.itemgetter(0), rows)):
                raise self._bad_id(made, place, id_sql)
            yield rows

    def _bad_id(self, made: Connection, place: _Place, id_sql: str) -> ValidationError:
        kind = sql_of_kind(id_sql, self._key)
        for part in self._parts(place):
            found = made.execute(
                f"SELECT number, id IS NULL, kind FROM (SELECT row_number() OVER () AS number, {id_sql} AS id, "
                f"{kind} AS kind FROM {part.sql}) WHERE id IS NULL OR id = '' LIMIT 1",
                part.parameters,
            ).fetchone()
            if found:
                number, missing, kind = found
                return ValidationError(
                    f"{plain(part.name)}, row {number}: {plain(self._key, 60)} is {no_id(missing, kind)}"
                )
        # A query whose result is another one each time.
        return ValidationError(f"{plain(self._name)}: {plain(self._key, 60)} is NULL or empty in a row")


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
            id_sql = self._id_sql(made, place)
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
            except ValidationError as error:
                # Of many it is one.
                for path in listing.paths if cause_of(error) else ():
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


def _rows_of(made: Connection, place: _Place) -> int:
    [(number,)] = made.execute(f"SELECT count(*) FROM {place.sql}", place.parameters).fetchall()
    return int(number)

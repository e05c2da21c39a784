"""Parquet files and SQL, read by DuckDB: the connection, its types in JSON and as user ids, its errors in our words.

DuckDB is imported only when used. An id is the text of the stored value; a type without one canonical text (a float, a
date, a boolean) is refused for the whole column. An empty or NULL id is refused by its row.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

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
from pushsdk._core.errors import ConfigurationError, ValidationError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "Connection",
    "ParquetFiles",
    "SqlQuery",
    "ValueColumns",
    "bad_id_reason",
    "check_select",
    "column_types",
    "duckdb_cause",
    "duckdb_errors",
    "duckdb_module",
    "id_expression",
    "json_type_expression",
    "quoted",
]

Connection: TypeAlias = "DuckDBPyConnection"

MEMORY = "150MB"
# More than two don't help: Python takes the results, and does that alone.
THREADS = 2

# What is asked for is what is installed, reachable and written down: no extension comes from elsewhere, none is loaded
# because a path looks like one for it, no secret of the user's home is read, and no variable of ours is a table.
_SETTINGS: dict[str, Any] = {
    "memory_limit": MEMORY,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}

# Errors about the query and the files, not about a value in them: those that may be told in DuckDB's own words.
_TELLING = frozenset(
    {
        "BinderException",
        "CatalogException",
        "IOException",
        "ParserException",
        "PermissionException",
        "SyntaxException",
    }
)


def duckdb_module() -> ModuleType:
    """The module. Raises ConfigurationError where it is not installed."""
    try:
        import duckdb
    except ImportError:
        raise ConfigurationError(
            "Parquet files and queries are read by DuckDB, which is not installed: pip install 'pushsdk[audience]'"
        ) from None
    return duckdb


@contextmanager
def connection() -> Iterator[Connection]:
    """A database of its own, in memory; what does not fit goes to a private folder that is removed at the end."""
    duckdb = duckdb_module()
    with tempfile.TemporaryDirectory(prefix="pushsdk-") as folder:
        threads = max(1, min(THREADS, os.cpu_count() or 1))
        made = duckdb.connect(":memory:", config={**_SETTINGS, "threads": threads, "temp_directory": folder})
        try:
            made.execute("SET enable_progress_bar = false; SET lock_configuration = true")
            yield made
        finally:
            made.close()


@contextmanager
def duckdb_errors(name: str, *, unfit: str = "") -> Iterator[None]:
    """What DuckDB says becomes a ValidationError; of an error that may quote a value only the kind, or ``unfit``."""
    duckdb = duckdb_module()
    try:
        yield
    except duckdb.Error as error:
        kind = type(error).__name__
        if kind == "OutOfMemoryException":
            raise ValidationError(f"{printable(name)}: DuckDB needs more than the {MEMORY} it may use") from None
        if kind in _TELLING:
            words = str(error).partition("\n")[0]
            raise ValidationError(f"{printable(name)}: {printable(words)}") from None
        words = unfit or f"DuckDB stopped with {kind}; its words are left out, as they may quote the data"
        raise ValidationError(f"{printable(name)}: {words}") from None


def duckdb_cause(error: Exception) -> str:
    """Return the name of DuckDB's own error if ``duckdb_errors`` raised this one, else an empty text."""
    return type(error.__context__).__name__ if isinstance(error.__context__, duckdb_module().Error) else ""


def check_select(made: Connection, sql: str) -> None:
    """Raises ValidationError for what is not one SELECT: a query reads, and nothing else."""
    try:
        kinds = [each.type.name for each in made.extract_statements(sql)]
    except ValueError:  # a kind that DuckDB has, and its Python package has no name for
        kinds = []
    if kinds != ["SELECT"]:
        raise ValidationError("the query is not one SELECT statement")


# -- types ------------------------------------------------------------------------------------------------------------

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


def column_types(made: Connection, sql: str, parameters: Sequence[Any] = ()) -> dict[str, str]:
    """The columns of a table or of what stands for one, by name: their types as DuckDB writes them."""
    described = made.execute(f"DESCRIBE SELECT * FROM {sql}", parameters).fetchall()
    return {name: kind for name, kind, *_ in described}


def id_expression(name: str, key: str, types: Mapping[str, str], *, option: str = "primary_key=") -> str:
    """Return the SQL that turns the column ``key`` of the source ``name`` into text.

    ``option`` is the argument that names the column, for an error. Raises ValidationError if there is no such column,
    or if its type can't hold ids.
    """
    kind = types.get(key)
    if kind is None:
        raise missing_column(name, key, list(types), option=option)
    for pattern, sql in _ID_SQL.items():
        if _matches(pattern, kind):
            return sql.format(quoted(key))
    raise ValidationError(
        f"{printable(name)}: {printable(key, 60)} is of type {printable(kind, 60)}; user ids are texts or whole "
        "numbers: turn them into those in a query, as CAST(... AS VARCHAR)"
    )


def json_type_expression(id_sql: str, key: str) -> str:
    """Return the SQL for the kind of value in a row whose id is NULL; NULL if the column holds no other kinds."""
    return f"json_type({quoted(key)})" if "json_type" in id_sql else "NULL"


def bad_id_reason(missing: bool, kind: str | None) -> str:
    """Return why a value is not an id: NULL if ``missing``, else empty. ``kind`` is of ``json_type_expression``."""
    if not missing:
        return "empty"
    return "NULL" if kind in (None, "NULL") else f"JSON of type {kind}: a text or an integer is needed"


class ValueColumns:
    """The columns that are sent along with an id: the SQL to select, and what is made of the result."""

    def __init__(self, name: str, types: Mapping[str, str], names: Sequence[str]) -> None:
        self._name = name
        self._names = names
        self.sql = [_value_sql(name, each, types[each]) for each in names]
        """In the order of ``names``. Raises ValidationError for a column that JSON has no form for."""
        self._nested = [each for each in names if _matches(_NESTED, types[each])]
        self._large = [each for each in names if types[each] in ("HUGEINT", "UHUGEINT")]

    def of(self, rows: Iterable[tuple[Any, ...]], first: int | None = None) -> list[Row]:
        """Each row, the id and then these columns, as the id with those that are not NULL.

        ``first`` is the number of the first, for an error. Raises ValidationError for what is no JSON.
        """
        batch: list[Row] = [(row[0], _fields(self._names, row)) for row in rows]
        for number, (_, fields) in enumerate(batch if self._nested else (), first or 0):
            for name in fields.keys() & self._nested:
                fields[name] = self._decoded(fields[name], name, f", row {number}" if first else "")
        for _, fields in batch if self._large else ():
            for name in fields.keys() & self._large:
                fields[name] = sendable(fields[name])
        return batch

    def _decoded(self, text: str, name: str, where: str) -> Any:
        try:
            return sendable(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            raise ValidationError(
                f"{printable(self._name)}{where}: {printable(name, 60)} can't be written as JSON (a NaN in it?)"
            ) from None


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _fields(names: Sequence[str], row: tuple[Any, ...]) -> dict[str, Any]:
    """The columns that are not NULL."""
    fields = dict(zip(names, row[1:], strict=True))
    return {name: value for name, value in fields.items() if value is not None} if None in row else fields


def _value_sql(table: str, name: str, kind: str) -> str:
    for pattern, sql in _VALUE_SQL.items():
        if _matches(pattern, kind):
            return sql.format(quoted(name))
    raise ValidationError(
        f"{printable(table)}: column {printable(name, 60)} is of type {printable(kind, 60)}, which JSON has no "
        "form for: leave it out, or turn it into a text, in a query"
    )


def _matches(pattern: str, kind: str) -> bool:
    return re.fullmatch(pattern, kind, re.DOTALL) is not None


# -- tables -----------------------------------------------------------------------------------------------------------

_UNFIT = "damaged, or no Parquet file"


class Relation(msgspec.Struct, frozen=True):
    """Something to select from: its name in errors, its SQL, and the parameters of that."""

    name: str
    sql: str
    parameters: tuple[Any, ...] = ()


class _DuckdbSource(ABC):
    """The columns of an audience, one of which holds the ids: the base of ``Parquet`` and ``Query``."""

    def __init__(self, name: str, key: str) -> None:
        duckdb_module()
        self._name = name
        self._key = key

    def ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        with self._opened() as (made, place):
            id_sql = self._id_sql(made, place)
            for rows in self._select(made, place, id_sql, f"SELECT {id_sql} FROM {place.sql}"):
                counts.read += len(rows)
                yield list(itertools.chain.from_iterable(rows))

    def distinct_ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        begun = False
        try:
            for ids in self._distinct(counts):
                begun = True
                yield ids
            return
        except ValidationError as error:
            if begun or duckdb_cause(error) != "OutOfMemoryException":
                raise
        # DuckDB spills, but not without end: slower, this needs no more memory for more ids.
        yield from deduplicated(Distinct(), self.ids(counts), counts)

    def rows(self, counts: ReadCounts, columns: Collection[str] | None) -> Iterator[list[Row]]:
        with self._opened() as (made, place):
            types = column_types(made, place.sql, place.parameters)
            id_sql = id_expression(self._name, self._key, types)
            names = [name for name in types if name != self._key and (columns is None or name in columns)]
            fields = ValueColumns(place.name, types, names)
            wanted = ", ".join([id_sql, *fields.sql])
            for rows in self._select(made, place, id_sql, f"SELECT {wanted} FROM {place.sql}", ROWS):
                batch = fields.of(rows, counts.read + 1)
                counts.read += len(rows)
                yield batch

    def _distinct(self, counts: ReadCounts) -> Iterator[list[str]]:
        with self._opened() as (made, place):
            id_sql = self._id_sql(made, place)
            sql = f"SELECT id, count(*) FROM (SELECT {id_sql} AS id FROM {place.sql}) GROUP BY id"
            for rows in self._select(made, place, id_sql, sql):
                read = sum(map(operator.itemgetter(1), rows))
                counts.read += read
                counts.duplicates += read - len(rows)
                yield [row[0] for row in rows]

    # -- the parts --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _opened(self) -> AbstractContextManager[tuple[Connection, Relation]]: ...

    def _parts(self, place: Relation) -> list[Relation]:
        """Return the places of the rows, for an error; each place counts its rows from 1."""
        return [place]

    def _id_sql(self, made: Connection, place: Relation) -> str:
        return id_expression(self._name, self._key, column_types(made, place.sql, place.parameters))

    def _select(
        self, made: Connection, place: Relation, id_sql: str, sql: str, size: int = BATCH
    ) -> Iterator[list[Any]]:
        """The rows, the id first, in batches; an id that is none ends it."""
        result = made.execute(sql, place.parameters)
        while rows := result.fetchmany(size):
            if not all(map(operator.itemgetter(0), rows)):
                raise self._bad_id(made, place, id_sql)
            yield rows

    def _bad_id(self, made: Connection, place: Relation, id_sql: str) -> ValidationError:
        kind = json_type_expression(id_sql, self._key)
        for part in self._parts(place):
            found = made.execute(
                f"SELECT number, id IS NULL, kind FROM (SELECT row_number() OVER () AS number, {id_sql} AS id, "
                f"{kind} AS kind FROM {part.sql}) WHERE id IS NULL OR id = '' LIMIT 1",
                part.parameters,
            ).fetchone()
            if found:
                number, missing, kind = found
                reason = bad_id_reason(missing, kind)
                return ValidationError(f"{printable(part.name)}, row {number}: {printable(self._key, 60)} is {reason}")
        # A query whose result is another one each time.
        return ValidationError(f"{printable(self._name)}: {printable(self._key, 60)} is NULL or empty in a row")


class ParquetFiles(_DuckdbSource):
    """The Parquet files that a path names. Columns go by their names, and may be missing in some of the files."""

    def __init__(self, path: str, *, key: str) -> None:
        super().__init__(list_files(path).pattern, key)
        self._path = path

    def words(self) -> str:
        return list_files(self._path).words()

    def count(self) -> int:
        with self._opened() as (made, place):
            return _rows_of(made, place)

    def _distinct(self, counts: ReadCounts) -> Iterator[list[str]]:
        # Parquet knows how many rows it has: counting them along would take a third more time.
        distinct = 0
        with self._opened() as (made, place):
            read = _rows_of(made, place)
            id_sql = self._id_sql(made, place)
            for rows in self._select(made, place, id_sql, f"SELECT DISTINCT {id_sql} FROM {place.sql}"):
                distinct += len(rows)
                yield list(itertools.chain.from_iterable(rows))
        counts.read = read
        counts.duplicates = read - distinct

    @contextmanager
    def _opened(self) -> Iterator[tuple[Connection, Relation]]:
        listing = list_files(self._path)
        with connection() as made:
            try:
                with duckdb_errors(self._name, unfit=_UNFIT):
                    yield made, _parquet(self._name, listing.paths)
            except ValidationError as error:
                # Of many it is one.
                for path in listing.paths if duckdb_cause(error) else ():
                    with duckdb_errors(str(path), unfit=_UNFIT):
                        _rows_of(made, _parquet(str(path), [path]))
                raise
        listing.check_unchanged()

    def _parts(self, place: Relation) -> list[Relation]:
        return [_parquet(str(path), [path]) for path in list_files(self._path).paths]


class SqlQuery(_DuckdbSource):
    """The result of one SELECT, which may name files."""

    def __init__(self, sql: str, *, key: str) -> None:
        super().__init__("the query", key)
        self._sql = sql
        with self._opened():
            pass

    def words(self) -> str:
        digest = hashlib.sha256(self._sql.encode(errors="replace")).hexdigest()[:16]
        return f"query {digest}: {printable(' '.join(self._sql.split()))}"

    def count(self) -> None:
        return None

    @contextmanager
    def _opened(self) -> Iterator[tuple[Connection, Relation]]:
        with connection() as made, duckdb_errors(self._name):
            check_select(made, self._sql)
            made.execute(f"CREATE TEMP VIEW pushsdk_audience AS {self._sql}")
            yield made, Relation(self._name, "pushsdk_audience")


def _parquet(name: str, paths: Sequence[Path]) -> Relation:
    # Names are no patterns any more. With parameters, a name is never a part of the SQL.
    names = [re.sub(r"([*?\[])", r"[\1]", str(path)) for path in paths]
    return Relation(name, "read_parquet(?, union_by_name = true, hive_partitioning = false)", (names,))


def _rows_of(made: Connection, place: Relation) -> int:
    [(number,)] = made.execute(f"SELECT count(*) FROM {place.sql}", place.parameters).fetchall()
    return int(number)

"""Parquet files, tables in memory and SQL, read by DuckDB: its connection, types and errors.

DuckDB is imported only when used. An id is the text of the stored value. A type without one canonical text (a float, a
date, a boolean) is a column error, an empty or NULL id a row error.
"""

import itertools
import json
import operator
import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from pushsdk._audience.distinct import BATCH, ROWS, Distinct, Row
from pushsdk._audience.source import ReadCounts, deduplicated, list_files, missing_column, printable, sendable
from pushsdk._core.errors import ConfigurationError, PushError, ValidationError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Connection: TypeAlias = "DuckDBPyConnection"

# The rows to read, a view in each open database.
VIEW = "pushsdk_audience"

MEMORY = "150MB"

# A query reads local data only: no extension is downloaded, or loaded because of a path, no secret is read from the
# user's home, and no Python variable is a table.
SETTINGS: dict[str, Any] = {
    "memory_limit": MEMORY,
    # More do not help: Python fetches the results in one thread.
    "threads": 2,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}

# DuckDB's error for a JSON value that would change if it became a text.
NO_TEXT = "an id is made from, or compared with, a JSON value that is neither a text nor an integer"
# Errors about the query and the files, whose text may be shown: it quotes no value.
_SHOWABLE = {
    "BinderException",
    "CatalogException",
    "IOException",
    "ParserException",
    "PermissionException",
    "SyntaxException",
}
_HIDDEN = "its words are left out, as they may quote the data; duckdb.sql shows them"
_FIXES = {
    "ConversionException": "a text is cast to, or compared with, another type: state types = {'column': 'VARCHAR'} in "
    f"read_csv, or write TRY_CAST; {_HIDDEN}",
    "InvalidInputException": "a file is not UTF-8 or malformed, or files have other columns or types: state encoding, "
    f"or union_by_name = true, in read_csv; {_HIDDEN}",
}
_TEXTS = {
    "OutOfMemoryException": f"DuckDB needs more than the {MEMORY} it may use",
    # The limits of Python's JSON and of DuckDB's.
    **dict.fromkeys(
        ("RecursionError", "SerializationException"),
        "it has too many nested terms: compare with a list, as in IN (1, 2), or with a table",
    ),
}


def duckdb_module() -> ModuleType:
    """Return the module ``duckdb``. Raises ConfigurationError if it is not installed."""
    try:
        import duckdb
    except ImportError:
        raise ConfigurationError("Parquet and queries need duckdb (the extra 'audience'): pip install duckdb") from None
    return duckdb


@contextmanager
def connection() -> Iterator[Connection]:
    """Open an empty database in memory. It spills to a private folder, which is removed at the end.

    Raises ConfigurationError if the folder can't be made.
    """
    duckdb = duckdb_module()
    try:
        folder = tempfile.TemporaryDirectory(prefix="pushsdk-")
    except OSError as error:
        raise ConfigurationError(f"DuckDB needs a folder for temporary files ({error.strerror}): set TMPDIR") from None
    with folder as path, duckdb.connect(":memory:", config={**SETTINGS, "temp_directory": path}) as db:
        db.execute("SET enable_progress_bar = false; SET lock_configuration = true")
        yield db


@contextmanager
def duckdb_errors(name: str, *, unfit: str = "") -> Iterator[None]:
    """Turn DuckDB's errors into ValidationErrors.

    A text that may quote a value is replaced by ``unfit``, which defaults to the name of DuckDB's error.
    """
    duckdb = duckdb_module()
    try:
        yield
    except (duckdb.Error, RecursionError) as error:
        kind = type(error).__name__
        if kind in _TEXTS:
            text = _TEXTS[kind]
        elif "extension httpfs" in str(error):
            text = "only local files are read, download it first"
        elif NO_TEXT in str(error):
            text = NO_TEXT
        elif kind in _SHOWABLE:
            text = printable(str(error).partition("\n")[0])
        else:
            lines = re.findall(r"CSV Error on Line: \d+", str(error))
            text = unfit or f"DuckDB stopped with {', '.join([kind, *lines])}; {_FIXES.get(kind, _HIDDEN)}"
        raise ValidationError(f"{printable(name)}: {text}") from None


# The SQL for an id's text, by column type. The first pattern that matches counts.
_INTEGER = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?"
_ID_SQL = {
    r"VARCHAR": "{0}",
    rf'{_INTEGER}|BIGNUM|VARINT|UUID|ENUM\(.*\)|DECIMAL\(\d+,0\)|"NULL"': "CAST({0} AS VARCHAR)",
    # A JSON value may have any type: texts and integers are ids.
    r"JSON": "CASE WHEN json_type({0}) = 'VARCHAR' OR regexp_full_match(CAST({0} AS VARCHAR), '-?[0-9]+') "
    "THEN {0}->>'$' END",
}
# The problem with an id; ``value`` is the column as JSON.
_PROBLEM = """
CASE WHEN id = '' THEN 'empty' WHEN json_type(value) <> 'NULL'
THEN 'JSON of type ' || json_type(value) || ': a text or an integer is needed' ELSE 'NULL' END
"""
# Advice for other column types.
_ID_FIXES = {
    "DOUBLE": "CAST({0} AS BIGINT) in a query, Int64 in pandas, if all are whole and have at most 15 digits",
    "FLOAT": "CAST({0} AS BIGINT) in a query, Int64 in pandas, if all are whole and have at most 7 digits",
    r"DECIMAL\(.*": "CAST({0} AS HUGEINT) in a query, if all are whole",
    r".*\[\d*\]": "unnest({0}) in a query",
    r"STRUCT\(.*": "write {0}.field in a query, for the field that holds the id",
    "BLOB": "decode({0}) in a query, if all are UTF-8",
}
# The same for the value of another column, as JSON takes it. Dates and times are ISO 8601; some tools write NaN for
# NULL.
_VALUE_SQL = {
    rf"VARCHAR|BOOLEAN|{_INTEGER}|.*\[\d*\]|STRUCT\(.*|MAP\(.*|UNION\(.*|JSON|VARIANT": "{0}",
    # Not widened to a DOUBLE, which has more digits.
    r"FLOAT": "CASE WHEN NOT isnan({0}) THEN CAST(CAST({0} AS VARCHAR) AS DOUBLE) END",
    r"DOUBLE": "CASE WHEN NOT isnan({0}) THEN {0} END",
    r"TIMESTAMP WITH TIME ZONE": "replace(CAST(make_timestamp(epoch_us({0})) AS VARCHAR), ' ', 'T') || 'Z'",
    r"TIMESTAMP(_S|_MS|_NS)?": "replace(CAST({0} AS VARCHAR), ' ', 'T')",
    r"DECIMAL\(.*|DATE|TIME.*|INTERVAL|UUID|ENUM\(.*|BIT|BIGNUM|VARINT|\"NULL\"": "CAST({0} AS VARCHAR)",
}


def column_types(db: Connection, sql: str) -> dict[str, str]:
    """Return the column types in a table or table expression, as DuckDB writes types."""
    return {name: kind for name, kind, *_ in db.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()}


def shown_types(db: Connection, view: str = VIEW) -> dict[str, str]:
    """Return the column types in a view. Unlike ``column_types``, this doesn't look at a file again."""
    columns = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    return dict(db.execute(columns, [view]).fetchall())


def id_expression(name: str, key: str, types: Mapping[str, str]) -> str:
    """Return the SQL that turns the column ``key`` of the source ``name`` into text.

    Raises ValidationError if there is no such column, or if its type can't hold ids.
    """
    kind = types.get(key)
    if kind is None:
        raise missing_column(name, key, list(types))
    # DuckDB ignores case, and numbers a second column with a name.
    if f"{key}_1".lower() in map(str.lower, types):
        raise ValidationError(
            f"{printable(name)}: {printable(key, 60)}_1 may be a second {printable(key, 60)}, as DuckDB ignores case "
            "and numbers equal names: leave it out, or rename it; in a query, name the columns, and join with USING"
        )
    if sql := _sql_by_type(_ID_SQL, kind, key):
        return sql
    fix = _sql_by_type(_ID_FIXES, kind, key) or "is this the right column?"
    raise ValidationError(
        f"{printable(name)}: {printable(key, 60)} is of type {printable(kind, 60)}; user ids are texts or whole "
        f"numbers: {printable(fix)}"
    )


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sql_by_type(table: Mapping[str, str], kind: str, column: str) -> str | None:
    return next(
        (sql.format(quoted(column)) for pattern, sql in table.items() if re.fullmatch(pattern, kind, re.DOTALL)), None
    )


_decode_row = msgspec.json.Decoder(dict[str, Any]).decode


def _unsendable(row: str) -> str:
    """Return the first column in a row that can't be sent."""
    name = "a column"
    with suppress(ValueError, RecursionError):
        # Unlike msgspec, json reads NaN and infinity, in most forms that DuckDB's JSON has.
        for name, value in json.loads(row).items():  # noqa: B007 # the name at which it stops is returned
            json.dumps(sendable(value), allow_nan=False)
    return printable(name, 60)


class DuckdbSource(ABC):
    """The base class for Parquet files, tables and queries: a table in which the column ``key`` holds the ids."""

    is_file = False

    def __init__(self, name: str, *, key: str) -> None:
        self._name = name
        self._key = key
        with self._opened() as db:
            types = shown_types(db)
        id_expression(name, key, types)  # raises
        self.columns: list[str] = [name for name in types if name != key]

    def ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        with self._opened() as db:
            for rows in self._select(db):
                counts.read += len(rows)
                yield [user for (user,) in rows]

    def distinct_ids(self, counts: ReadCounts) -> Iterator[list[str]]:
        try:
            with self._opened() as db:
                for rows in self._select(db, "count(*)", tail=" GROUP BY 1"):
                    read = sum(map(operator.itemgetter(1), rows))
                    counts.read += read
                    counts.duplicates += read - len(rows)
                    yield [row[0] for row in rows]
            return
        except ValidationError as error:
            if counts.read or type(error.__context__).__name__ != "OutOfMemoryException":
                raise
        # Slower than DuckDB, but needs no more memory for more ids: DuckDB can spill only so much.
        yield from deduplicated(self.ids(counts), counts, Distinct())

    def rows(self, counts: ReadCounts, columns: Collection[str] | None) -> Iterator[list[Row]]:
        with self._opened() as db:
            fields = ", ".join(
                f"{literal(name)}, {self._value_sql(name, kind)}"
                for name, kind in shown_types(db).items()
                if name != self._key and (columns is None or name in columns)
            )
            for rows in self._select(db, f"CAST(json_object({fields}) AS VARCHAR)", size=ROWS):
                batch = [(user, self._fields(text, row)) for row, (user, text) in enumerate(rows, counts.read + 1)]
                counts.read += len(rows)
                yield batch

    def place_of(self, is_wanted: Callable[[str], object]) -> str:
        """Return the row that has the first wanted id, counted from 1."""
        ids = itertools.chain.from_iterable(self.ids(ReadCounts()))
        number = next((number for number, user in enumerate(ids, 1) if is_wanted(user)), 0)
        return f"{printable(self._name)}, row {number}, {printable(self._key, 60)}"

    def _value_sql(self, column: str, kind: str) -> str:
        if sql := _sql_by_type(_VALUE_SQL, kind, column):
            return sql
        raise ValidationError(
            f"{printable(self._name)}: column {printable(column, 60)} is of type {printable(kind, 60)}, which JSON has "
            "no form for: leave it out, or turn it into a text, in a query"
        )

    def _fields(self, text: str, row: int) -> dict[str, Any]:
        """Return the columns that are not NULL. Raises ValidationError if their text is not valid JSON."""
        try:
            return {name: sendable(value) for name, value in _decode_row(text).items() if value is not None}
        except (msgspec.DecodeError, RecursionError):
            problem = f"{_unsendable(text)} holds a number that JSON lacks, such as NaN, or is nested too deeply"
            raise ValidationError(f"{printable(self._name)}, row {row}: {problem}") from None

    @abstractmethod
    def _opened(self) -> AbstractContextManager[Connection]:
        """Open a database with the view."""

    def _parts(self, db: Connection) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the name and column types of each part while the view shows its rows; each counts its rows from 1."""
        yield self._name, shown_types(db)

    def _select(self, db: Connection, *others: str, tail: str = "", size: int = BATCH) -> Iterator[list[Any]]:
        """Yield the rows in batches: the id, and the other columns. Raises ValidationError for a bad id."""
        id_sql = id_expression(self._name, self._key, shown_types(db))
        result = db.execute(f"SELECT {', '.join([id_sql, *others])} FROM {VIEW}{tail}")
        while rows := result.fetchmany(size):
            if not all(map(operator.itemgetter(0), rows)):
                raise self._bad_id(db)
            yield rows

    def _bad_id(self, db: Connection) -> ValidationError:
        key = printable(self._key, 60)
        for part, types in self._parts(db):
            columns = f"{id_expression(part, self._key, types)} AS id, to_json({quoted(self._key)}) AS value"
            rows = f"(SELECT row_number() OVER () AS number, {columns} FROM {VIEW})"
            first = f"SELECT number, {_PROBLEM} FROM {rows} WHERE coalesce(id, '') = '' ORDER BY number LIMIT 1"
            for number, problem in db.execute(first).fetchall():
                return ValidationError(f"{printable(part)}, row {number}: {key} is {problem}")
        # The query's result was another one this time.
        return ValidationError(f"{printable(self._name)}: {key} is NULL or empty in a row")


class ParquetFiles(DuckdbSource):
    """The Parquet files with an absolute path, or that match a pattern.

    Columns are matched by name, and may be missing in some files.
    """

    is_file = True
    _UNFIT = "damaged, or no Parquet file"

    def description(self) -> str:
        return list_files(self._name).description(self._key)

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        listing = list_files(self._name)
        listing.check_regular()
        key, kinds = self._key, set[str]()
        with connection() as db:
            # Each alone: DuckDB would unite a float and a text to a text.
            for part, types in self._parts(db, _one_of_each_schema(db, listing.paths)):
                id_expression(part, key, types)  # raises
                kinds.add(types[key])
            # As a UUID or JSON, a text would change.
            if len(kinds - {'"NULL"'}) > 1 and kinds & {"UUID", "JSON"}:
                raise ValidationError(
                    f"{printable(self._name)}: {printable(key, 60)} has types in these files that don't fit together: "
                    "write texts into all"
                )
            with duckdb_errors(self._name, unfit=self._UNFIT):
                _show(db, listing.paths)
                yield db
        listing.check_unchanged()

    def _parts(self, db: Connection, paths: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str]]]:
        key = self._key
        for path in paths or list_files(self._name).paths:
            with duckdb_errors(path, unfit=self._UNFIT):
                _show(db, [path])
            # DuckDB ignores case.
            types = shown_types(db).items()
            yield path, {key if name.lower() == key.lower() else name: kind for name, kind in types}


def _listed(paths: Sequence[str]) -> str:
    """Return the SQL list of files. DuckDB would read a name with special characters as a pattern."""
    files = [literal(re.sub(r"([*?\[])", r"[\1]", path)) for path in paths]
    return f"[{', '.join(files)}]"


def _one_of_each_schema(db: Connection, paths: Sequence[str]) -> Sequence[str]:
    """Return the first file of each schema, or all files if one can't be read."""
    schemas = (
        f"SELECT file_name, list((name, duckdb_type, num_children)) AS schema FROM parquet_schema({_listed(paths)})"
    )
    with suppress(duckdb_module().Error):
        first = f"SELECT min(file_name) FROM ({schemas} GROUP BY file_name) GROUP BY schema ORDER BY 1"
        return [path for (path,) in db.execute(first).fetchall()]
    return paths


def _show(db: Connection, paths: Sequence[str]) -> None:
    """Have the view show these Parquet files."""
    db.execute(
        f"CREATE OR REPLACE TEMP VIEW {VIEW} AS SELECT * FROM read_parquet({_listed(paths)}, "
        "union_by_name = true, hive_partitioning = false)"
    )


class ArrowTable(DuckdbSource):
    """The rows in a table that has ``__arrow_c_stream__``.

    It has nothing but this method, too: DuckDB would read a known table with pyarrow.
    """

    # Held while a stream is read: two threads can't read a DuckDB relation at once, for one. Of the class, as a lock
    # can't be pickled; a stream may read another one.
    _turn = threading.RLock()

    def __init__(self, table: Any, *, key: str) -> None:
        name = f"the {type(table).__name__}"
        if isinstance(table, duckdb_module().DuckDBPyRelation):
            # Its Arrow stream has other types: half of UHUGEINT's values would be negative, a JSON text be quoted.
            with duckdb_errors(name):
                id_sql = id_expression(name, key, dict(zip(table.columns, map(str, table.types), strict=True)))
                table = table.project(f"* REPLACE ({id_sql} AS {quoted(key)})")
        self._table = table
        # The rows at the first reading. Set by _opened.
        self._rows: int | None = None
        super().__init__(name, key=key)

    def description(self) -> str:
        return f"a {type(self._table).__name__} in memory"

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        with connection() as db, duckdb_errors(self._name):
            with self._turn:
                # Set by __arrow_c_stream__. It quotes no value.
                self._error: PushError | None = None
                try:
                    db.register("pushsdk_stream", self)
                    # Some DuckDB versions can read a stream only once.
                    db.execute(f"CREATE TEMP TABLE {VIEW} AS FROM pushsdk_stream")
                finally:
                    if self._error is not None:
                        raise self._error from None
            [(rows,)] = db.execute(f"SELECT count(*) FROM {VIEW}").fetchall()
            if self._rows not in (None, rows):
                raise ValidationError(
                    f"{self._name} had {self._rows} rows, and now has {rows}: pass a table that stays as it is, not a "
                    "reader that can be read only once"
                )
            self._rows = rows
            yield db

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        try:
            return self._table.__arrow_c_stream__(requested_schema)
        except ImportError:
            self._error = ConfigurationError(f"{self._name} needs pyarrow for its Arrow stream: pip install pyarrow")
            raise
        except Exception as error:
            kind = type(error).__name__
            fix = "is it read only once, or are a column's values of several types?"
            self._error = ValidationError(f"{self._name}: its Arrow stream fails with {kind}: {fix}")
            raise

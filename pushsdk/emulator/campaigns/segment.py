"""The users of a campaign's segment, found by a SQL query over local tables. Blocking: run in a thread.

Each query runs in a child process, because only a kill stops DuckDB's parser: short texts keep the parser busy for
minutes, fill the memory, or overflow the stack. The child reads the tables that the query names into memory, closes
DuckDB off from all files, and runs the query, which can read nothing else and write nothing. The child finds its job in
a folder, and leaves answer and rows there. Only the child imports duckdb.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from pushsdk._audience.distinct import ROWS, Row
from pushsdk._audience.duckdb_reader import (
    Connection,
    ValueColumns,
    bad_id_reason,
    check_select,
    column_types,
    duckdb_cause,
    duckdb_errors,
    duckdb_module,
    id_expression,
    json_type_expression,
    quoted,
)
from pushsdk._audience.source import printable
from pushsdk._audience.text_files import delimiter_of
from pushsdk._core.errors import ValidationError

# Other files are no tables.
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_MAX_QUERY = 100_000  # characters
_POLL = 0.05  # seconds between two calls of ``stopping``
_READ_BYTES = 256 * 1024  # of rows at a time
# -P: no module is imported from the current directory.
_COMMAND = (sys.executable, "-P", "-c", "from pushsdk.emulator.campaigns.segment import main; main()")
# In the child
_MEMORY = "512MB"
_DISK = "4GB"
_ADDRESS_SPACE = 2 * 1024**3  # bytes; DuckDB's memory limit excludes its parser and many functions
_MAX_DEPTH = 250
_GRACE = 5  # seconds for the start of the process
_MAX_ROW = 1024 * 1024  # bytes
_BATCH_BYTES = 8 * 1024 * 1024  # of rows in memory
_HEADER_BYTES = 64 * 1024
_MAX_NAMES = 20
_NAME = "the query"
_RESULT = "temp.pushsdk_result"
_BAD_FILE = "can't be read: damaged, or not of the type that its name says"
_TOO_LARGE = f"the query needs more than {_MEMORY} of memory and {_DISK} of disk: select fewer rows or columns"
_BAD_VALUE = "it fails on a value of a row: use TRY_CAST or TRY, or exclude such rows"


class SegmentError(ValueError):
    """The users of a segment can't be found; the text is one line with the fix, without values of rows."""


class Table(Struct, frozen=True):
    """A file that a query may name by ``name``, its stem; ``path`` is absolute and resolved."""

    name: str
    path: str
    form: str


class SegmentJob(Struct, frozen=True):
    """A query over tables, keyed by lower-case name; ``primary_key`` is the result's column of user ids."""

    tables: dict[str, Table]
    query: str
    primary_key: str
    max_rows: int = 10_000_000
    seconds: float = 60.0


class SegmentResult(Struct, frozen=True, tag="found"):
    """The counts of a query's result: different ``users``, and all ``rows``.

    ``refused`` rows have no valid id; ``first_refused`` is the number of the first one, from 1, and the reason.
    """

    users: int
    rows: int
    duplicates: int
    refused: int
    first_refused: str | None


class SegmentFailure(Struct, frozen=True, tag="failed"):
    """The error of a query."""

    error: str


_encoder = msgspec.json.Encoder()
_answer = msgspec.json.Decoder(SegmentResult | SegmentFailure)
_rows = msgspec.json.Decoder(Row)


def segment_available() -> bool:
    """Return True if DuckDB is installed."""
    return importlib.util.find_spec("duckdb") is not None


class SegmentRun:
    """The result of a query. Iteration yields batches of ``(user_id, fields)``, each user once.

    The fields are the other columns of the user's first row that are not NULL, as plain JSON.
    """

    def __init__(self, result: SegmentResult, rows: Path) -> None:
        self.result = result
        self._rows = rows

    def __iter__(self) -> Iterator[list[Row]]:
        with self._rows.open("rb") as file:
            while lines := file.readlines(_READ_BYTES):
                yield [_rows.decode(line) for line in lines]


class Tables:
    """The CSV, TSV, Parquet and JSON lines files of a folder; a table's name is the file's stem.

    Each query reads the folder again. Raises `SegmentError` if the folder can't be read or two files share a name.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self.find()

    def find(self) -> dict[str, Table]:
        """Return the tables by lower-case name, as DuckDB compares names. Opens no file.

        Files in subfolders, hidden files and symbolic links out of the folder are no tables.
        """
        tables: dict[str, Table] = {}
        try:
            root = self._directory.resolve(strict=True)
            paths = sorted(path for path in root.iterdir() if path.suffix.lower() in _SUFFIXES)
        except OSError as error:
            folder = printable(str(self._directory))
            raise SegmentError(f"{folder} can't be read as a folder of tables: {error.strerror}") from None
        for path in paths:
            real = path.resolve()
            if path.name.startswith(".") or not real.is_relative_to(root) or not real.is_file():
                continue
            if not _is_unicode(f"{path}{real}"):
                raise SegmentError(f"the name of {printable(ascii(path.name))} is not UTF-8: rename the file")
            table = Table(path.stem, str(real), _SUFFIXES[path.suffix.lower()])
            if other := tables.get(table.name.lower()):
                names = f"{printable(Path(other.path).name)} and {printable(path.name)}"
                raise SegmentError(f"{names} would both be the table {printable(table.name)}: rename one of them")
            tables[table.name.lower()] = table
        return tables

    @contextmanager
    def run(
        self,
        query: str,
        primary_key: str,
        *,
        timeout: float = 60.0,
        max_rows: int = 10_000_000,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Iterator[SegmentRun]:
        """Run a query over the tables; yields a `SegmentRun`, valid within the ``with``. Raises `SegmentError`.

        ``query`` may be hostile; ``primary_key`` names the column of user ids. The child is killed after ``timeout``
        seconds, or as soon as ``stopping`` returns True.
        """
        _check(query, primary_key)
        job = SegmentJob(self.find(), query, primary_key, max_rows, timeout)
        with tempfile.TemporaryDirectory(prefix="pushsdk-") as name:
            folder = Path(name)
            (folder / "job").write_bytes(msgspec.json.encode(job))
            status = _run_child(folder, timeout, stopping)
            try:
                answer = _answer.decode((folder / "answer").read_bytes())
            except (OSError, msgspec.DecodeError):
                cause = f"by signal {-status}" if status < 0 else f"with status {status}"
                raise SegmentError(f"the query crashed its process ({cause}): make it simpler") from None
            if isinstance(answer, SegmentFailure):
                raise SegmentError(answer.error)
            yield SegmentRun(answer, folder / "rows")


def _check(query: str, primary_key: str) -> None:
    """Raise `SegmentError` for a query that no parser should see."""
    if not segment_available():
        raise SegmentError("segments need DuckDB, which is not installed: pip install 'pushsdk[audience]'")
    if not query.strip():
        raise SegmentError("the segment's query is empty: write a SELECT over the tables")
    if len(query) > _MAX_QUERY:
        raise SegmentError(f"the query is over {_MAX_QUERY:,} characters long: put its lists into a table")
    if "\0" in query:
        raise SegmentError("the query contains a NUL character: remove it")
    if not _is_unicode(query):
        raise SegmentError("the query contains a lone surrogate, which is not Unicode: remove it")
    if not primary_key:
        raise SegmentError("the segment's primaryKey is empty: name the column that holds the user ids")


def _run_child(folder: Path, timeout: float, stopping: Callable[[], bool]) -> int:
    """Run the job in the folder, and return the exit status."""
    # Without the settings of this package, which include the Api-Key.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUSHSDK_")}
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            (*_COMMAND, str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Ctrl-C reaches this process only, which ends the child
        )
    except OSError as error:
        raise SegmentError(f"no process can be started for the query: {error.strerror}") from None
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                return process.wait(_POLL)
            except subprocess.TimeoutExpired:
                if stopping():
                    raise SegmentError("the query was stopped") from None
                if time.monotonic() > deadline:
                    raise SegmentError(
                        f"the query took over {timeout:g} s: make it cheaper, or give it more time"
                    ) from None
    finally:
        process.kill()
        process.wait()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- the child --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the job in the folder of the command line. The entry point of the child."""
    os.chdir(sys.argv[1])  # relative, so that no setting of DuckDB reveals the folder
    folder = Path()
    job = msgspec.json.decode((folder / "job").read_bytes(), type=SegmentJob)
    _bound(job.seconds)
    (folder / "answer").write_bytes(_encoder.encode(run(job, folder)))


def _bound(seconds: float) -> None:
    """Limit the memory of this process, and its time in case the parent was killed."""
    sys.setrecursionlimit(100 * _MAX_DEPTH)  # the syntax tree
    with suppress(ImportError, OSError, ValueError, AttributeError):  # not supported everywhere
        import resource

        signal.alarm(int(seconds) + _GRACE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))


def run(job: SegmentJob, folder: Path) -> SegmentResult | SegmentFailure:
    """Write the rows into the folder, and return their counts or the error."""
    try:
        with _connection(folder) as db:
            for table in _named_tables(db, job):
                _load(db, table, job.primary_key)
            for setting in ("SET enable_external_access = false", "SET lock_configuration = true"):
                db.execute(setting)
            with duckdb_errors(_NAME, unfit=_BAD_VALUE):
                return _run_query(db, job, folder / "rows")
    except (MemoryError, RecursionError):
        return SegmentFailure("the query is too large or too deep: make it simpler")
    except (SegmentError, ValidationError) as error:  # our own texts: DuckDB's may quote a row
        return SegmentFailure(_TOO_LARGE if duckdb_cause(error) == "OutOfMemoryException" else str(error))


@contextmanager
def _connection(folder: Path) -> Iterator[Connection]:
    db = duckdb_module().connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": _MEMORY,
            "temp_directory": str(folder / "spill"),
            "max_temp_directory_size": _DISK,
            "max_expression_depth": _MAX_DEPTH,
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    try:
        yield db
    finally:
        db.close()


# -- the tables ------------------------------------------------------------------------------------------------------


def _named_tables(db: Connection, job: SegmentJob) -> list[Table]:
    """Return the tables that the query names, each once. Raises `SegmentError` for an unknown name."""
    # Some versions of DuckDB read files while they parse.
    with duckdb_errors(_NAME), duckdb_module().connect(config={"enable_external_access": False}) as parser:
        check_select(parser, job.query)
        [(tree,)] = parser.execute("SELECT json_serialize_sql(?)", [job.query]).fetchall()
    named: dict[str, str] = {}
    expressions: set[str] = set()
    for part in _parts(msgspec.json.decode(tree)):
        if part.get("type") == "BASE_TABLE":
            named[part["table_name"].lower()] = part["table_name"]
        elif part.get("error") or str(part.get("type")).endswith("_QUERY_NODE"):  # such as an INSERT in a WITH
            raise SegmentError("the query must be one SELECT statement that only reads tables")
        expressions.update(entry["key"].lower() for entry in part.get("cte_map", {}).get("map", ()))
    for key, name in named.items():
        if key not in job.tables and key not in expressions:
            raise _no_such_table(name, job.tables)
    return [job.tables[key] for key in named if key in job.tables]


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a syntax tree, without recursion."""
    pending = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield part
            pending.extend(reversed(part.values()))
        elif isinstance(part, list):
            pending.extend(reversed(part))


def _no_such_table(name: str, tables: Mapping[str, Table]) -> SegmentError:
    names = sorted(table.name for table in tables.values())
    more = f" and {len(names) - _MAX_NAMES} more" if names[_MAX_NAMES:] else ""
    shown = ", ".join(map(printable, names[:_MAX_NAMES])) + more
    near = difflib.get_close_matches(name.lower()[:100], tables, n=1)
    meant = f"; did you mean {printable(tables[near[0]].name)}?" if near else ""
    return SegmentError(f"there is no table {printable(name, 60)!r}, only {shown or 'an empty folder'}{meant}")


def _load(db: Connection, table: Table, key: str) -> None:
    with duckdb_errors(table.name, unfit=_BAD_FILE):
        source = _scan_sql(table)
        if table.form == "json":
            # Texts stay texts, and a column of ids with a fraction in one row is checked row by row.
            types = {name: _column_type(kind, name == key) for name, kind in column_types(db, source).items()}
            source = _scan_sql(table, types)
        db.execute(f"CREATE TABLE {quoted(table.name)} AS SELECT * FROM {source}")


def _column_type(kind: str, is_key: bool) -> str:
    if kind in ("UUID", "TIME"):
        return "VARCHAR"
    return "JSON" if is_key and kind == "DOUBLE" else kind


def _scan_sql(table: Table, columns: Mapping[str, str] | None = None) -> str:
    """Return the table function for a FROM. Without ``columns`` DuckDB guesses the types of a JSON file.

    Raises `SegmentError` if a CSV file can't be opened.
    """
    # DuckDB reads a path as a glob pattern; escaped, the pattern matches this file only.
    path = _literal(re.sub(r"([*?\[])", r"[\1]", table.path))
    if table.form == "parquet":
        return f"read_parquet({path}, hive_partitioning = false)"
    if table.form == "json":
        # Impossible formats, so that a text that looks like a date stays a text.
        guess = "sample_size = -1, dateformat = '~', timestampformat = '~'"
        if columns is not None:
            guess = "columns = {" + ", ".join(f"{_literal(name)}: {_literal(columns[name])}" for name in columns) + "}"
        return f"read_json({path}, format = 'newline_delimited', hive_partitioning = false, {guess})"
    delimiter = _literal("\t" if table.form == "tsv" else delimiter_of(_header(table)))
    return (
        f"read_csv({path}, all_varchar = true, header = true, delim = {delimiter}, quote = '\"', escape = '\"', "
        "comment = '', skip = 0, hive_partitioning = false)"
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _header(table: Table) -> str:
    try:
        with open(table.path, "rb") as file:
            head = file.read(_HEADER_BYTES)
    except OSError as error:
        raise SegmentError(f"the table {printable(table.name)} can't be read: {error.strerror}") from None
    return head.decode(errors="replace").lstrip("\ufeff\r\n").partition("\n")[0]


# -- the query -------------------------------------------------------------------------------------------------------


def _run_query(db: Connection, job: SegmentJob, path: Path) -> SegmentResult:
    """Run the query, and write each user with the other columns of the user's first row."""
    view = "segment"
    while view in job.tables:
        view += "_"
    db.execute(f"CREATE TEMP VIEW {view} AS {job.query}")
    types = column_types(db, view)
    names = [name for name in types if name != job.primary_key]
    id_sql = id_expression(_NAME, job.primary_key, types, option="primaryKey ")
    fields = ValueColumns(_NAME, types, names)
    values = [_finite(sql, types[name]) for name, sql in zip(names, fields.sql, strict=True)]
    kind = json_type_expression(id_sql, job.primary_key)
    columns = [f"{sql} AS c{at}" for at, sql in enumerate(values)]
    wanted = ", ".join(["row_number() OVER () AS number", f"{kind} AS kind", f"{id_sql} AS id", *columns])
    limited = f"SELECT * FROM {view} LIMIT {job.max_rows + 1}"
    db.execute(f"CREATE TEMP TABLE {_RESULT} AS SELECT {wanted} FROM ({limited})")
    rows, refused, first_refused = _count(db, job)
    size, users = _batch_rows(db), 0
    wanted = ", ".join(["id", *(f"c{at}" for at in range(len(names)))])
    first = f"SELECT min(number) FROM {_RESULT} WHERE id <> '' GROUP BY id"
    db.execute(f"SELECT {wanted} FROM {_RESULT} WHERE number IN ({first}) ORDER BY id")
    with path.open("wb") as file:
        while batch := db.fetchmany(size):
            users += len(batch)
            file.write(_encoder.encode_lines(fields.of(batch)))
    return SegmentResult(users, rows, rows - refused - users, refused, first_refused)


def _finite(sql: str, kind: str) -> str:
    # JSON has no infinity.
    return f"CASE WHEN isfinite({sql}) THEN {sql} END" if kind in ("DOUBLE", "FLOAT") else sql


def _count(db: Connection, job: SegmentJob) -> tuple[int, int, str | None]:
    """Return the number of rows, the number without a valid id, and the reason of the first of these."""
    [(rows, refused)] = db.execute(f"SELECT count(*), count(*) - count(nullif(id, '')) FROM {_RESULT}").fetchall()
    if rows > job.max_rows:
        raise SegmentError(f"the query returns over {job.max_rows:,} rows: add a WHERE or a LIMIT")
    if not refused:
        return rows, 0, None
    [(number, missing, kind)] = db.execute(
        f"SELECT number, id IS NULL, kind FROM {_RESULT} WHERE id IS NULL OR id = '' ORDER BY number LIMIT 1"
    ).fetchall()
    return rows, refused, f"row {number}: {printable(job.primary_key, 60)} is {bad_id_reason(missing, kind)}"


def _batch_rows(db: Connection) -> int:
    """Return the number of rows to hold in memory at a time."""
    texts = [name for name, kind in column_types(db, _RESULT).items() if kind == "VARCHAR"]
    sizes = " + ".join(f"coalesce(strlen({name}), 0)" for name in texts)
    [(longest,)] = db.execute(f"SELECT coalesce(max({sizes}), 0) FROM {_RESULT}").fetchall()
    if longest > _MAX_ROW:
        raise SegmentError(f"a row of the query is over {_MAX_ROW // 1024} KiB long: select fewer columns")
    return max(1, min(ROWS, _BATCH_BYTES // max(1, int(longest))))

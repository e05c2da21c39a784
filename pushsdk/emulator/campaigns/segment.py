"""The users of a campaign's segment (section 2.2), found in local tables. Sync, for a thread.

Each query runs in a child process, because nothing stops DuckDB's parser but a kill: short texts keep it busy for
minutes, fill the memory, or overflow its stack. The child copies the tables that the query names into memory, closes
DuckDB off from every file for good, and runs the query: it can read nothing else, and write nothing at all. Its job is
in a folder; it leaves the answer and the rows there. Only the child imports duckdb.
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

__all__ = [
    "Answer",
    "SegmentError",
    "SegmentFailure",
    "SegmentJob",
    "SegmentResult",
    "SegmentRun",
    "Table",
    "Tables",
    "main",
    "run",
    "segment_available",
]

# By the end of a file's name: what is in it. A file without one of these is no table.
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_LONGEST = 100_000  # characters of a query
_LOOK = 0.05  # seconds between two looks at the time and at ``stopping``
_READ = 256 * 1024  # bytes of rows that the parent reads at a time
# The package is imported by its name, wherever it lies: the current directory is not looked into (-P).
_COMMAND = (sys.executable, "-P", "-c", "from pushsdk.emulator.campaigns.segment import main; main()")
# In the child
_MEMORY = "512MB"
_DISK = "4GB"
_ADDRESSES = 2 * 1024**3  # bytes: DuckDB's own bound leaves out its parser, and much that its functions take
_DEPTH = 250
_GRACE = 5  # seconds, for the start of the process
_LONGEST_ROW = 1024 * 1024  # bytes
_TOGETHER = 8 * 1024 * 1024  # bytes of rows that are in memory together
_HEAD = 64 * 1024  # bytes of a file that are read for its header
_SHOWN = 20
_NAME = "the query"
_RESULT = "temp.pushsdk_result"
_BAD_FILE = "can't be read: damaged, or not what the end of its name says"
_NO_ROOM = f"the query needs more than {_MEMORY} of memory and {_DISK} of disk: select fewer rows or columns"
_BAD_VALUE = "it fails on a value in some row: guard that with TRY_CAST or TRY, or leave such rows out"


class SegmentError(ValueError):
    """A segment can't be found; the text says in one line what to do, and holds no value of a row."""


class Table(Struct, frozen=True):
    """A file that a query may name: ``name`` is its stem, ``path`` is absolute, without symbolic links."""

    name: str
    path: str
    form: str


class SegmentJob(Struct, frozen=True):
    """A query over tables, keyed by their names in lower case, and the column of its result that holds the user ids."""

    tables: dict[str, Table]
    query: str
    primary_key: str
    max_rows: int = 10_000_000
    seconds: float = 60.0


class SegmentResult(Struct, frozen=True, tag="found"):
    """The size of a query's result: ``users`` are different ones, ``rows`` include duplicates and refused ones.

    ``refused`` rows have no id; of the first of them ``first_refused`` says its number, from 1, and the reason.
    """

    users: int
    rows: int
    duplicates: int
    refused: int
    first_refused: str | None


class SegmentFailure(Struct, frozen=True, tag="failed"):
    """The reason for no result."""

    error: str


Answer = SegmentResult | SegmentFailure
_encoder = msgspec.json.Encoder()
_answer = msgspec.json.Decoder(Answer)
_rows = msgspec.json.Decoder(Row)


def segment_available() -> bool:
    """Return True if DuckDB is installed, which runs the queries."""
    return importlib.util.find_spec("duckdb") is not None


class SegmentRun:
    """The result of a query. Iteration gives the users, each once, in batches.

    ``for batch in run``, ``for user_id, fields in batch``: the fields are the other columns of the user's first row,
    as plain JSON, without those that are NULL.
    """

    def __init__(self, found: SegmentResult, rows: Path) -> None:
        self.found = found
        self._rows = rows

    def __iter__(self) -> Iterator[list[Row]]:
        with self._rows.open("rb") as file:
            while lines := file.readlines(_READ):
                yield [_rows.decode(line) for line in lines]


class Tables:
    """The tables of a folder: its CSV, TSV, Parquet and JSON lines files, each named as its file without the ending.

    Looked for anew each time. Raises `SegmentError` if the folder can't be read or two files would be one table.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self.find()

    def find(self) -> dict[str, Table]:
        """Return the tables by their names in lower case, as DuckDB compares them. Opens no file.

        Files in folders below, hidden files and symbolic links to somewhere else are no tables.
        """
        found: dict[str, Table] = {}
        try:
            root = self._directory.resolve(strict=True)
            paths = sorted(each for each in root.iterdir() if each.suffix.lower() in _SUFFIXES)
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
            if other := found.get(table.name.lower()):
                names = f"{printable(Path(other.path).name)} and {printable(path.name)}"
                raise SegmentError(f"{names} would both be the table {printable(table.name)}: rename one of them")
            found[table.name.lower()] = table
        return found

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
        """Find the users that a query selects from the tables; the result is gone after the ``with``.

        ``query`` is whatever came over the wire; ``primary_key`` names the column of the ids. The child is killed after
        ``timeout`` seconds, and if ``stopping``, asked some times a second, returns True. Raises `SegmentError`.
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
                raise SegmentError(
                    f"the query brought down the process that ran it ({cause}): make it simpler"
                ) from None
            if isinstance(answer, SegmentFailure):
                raise SegmentError(answer.error)
            yield SegmentRun(answer, folder / "rows")


def _check(query: str, primary_key: str) -> None:
    """Refuse what is not even shown to the parser."""
    if not segment_available():
        raise SegmentError("segments are found by DuckDB, which is not installed: pip install 'pushsdk[audience]'")
    if not query.strip():
        raise SegmentError("the segment's query is empty: write a SELECT over the tables")
    if len(query) > _LONGEST:
        raise SegmentError(f"the query is over {_LONGEST:,} characters long: put its lists into a table")
    if "\0" in query:
        raise SegmentError("the query holds a NUL character: take it out")
    if not _is_unicode(query):
        raise SegmentError("the query holds a lone surrogate, which is not Unicode: take it out")
    if not primary_key:
        raise SegmentError("the segment's primaryKey is empty: name the column that holds the user ids")


def _run_child(folder: Path, timeout: float, stopping: Callable[[], bool]) -> int:
    """Run the job in the folder to its end; return the exit status."""
    # Without this package's own settings, among which is the key.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUSHSDK_")}
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            (*_COMMAND, str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # an interrupt of the terminal is for us, who end the child
        )
    except OSError as error:
        raise SegmentError(f"no process can be started for the query: {error.strerror}") from None
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                return process.wait(_LOOK)
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
    """Do the job in the folder that the command line names, in the child."""
    os.chdir(sys.argv[1])  # no setting of DuckDB's can tell where that is
    folder = Path()
    job = msgspec.json.decode((folder / "job").read_bytes(), type=SegmentJob)
    _bound(job.seconds)
    (folder / "answer").write_bytes(_encoder.encode(run(job, folder)))


def _bound(seconds: float) -> None:
    """Bound the time of this process, for when its parent was killed, and its memory."""
    sys.setrecursionlimit(100 * _DEPTH)  # the syntax tree
    with suppress(ImportError, OSError, ValueError, AttributeError):  # a system without such bounds
        import resource

        signal.alarm(int(seconds) + _GRACE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))


def run(job: SegmentJob, folder: Path) -> Answer:
    """Write the rows into the folder and return their counts, or the reason for no result."""
    try:
        with _connection(folder) as db:
            for table in _named_tables(db, job):
                _load(db, table, job.primary_key)
            for lock in ("SET enable_external_access = false", "SET lock_configuration = true"):
                db.execute(lock)
            with duckdb_errors(_NAME, unfit=_BAD_VALUE):
                return _found(db, job, folder / "rows")
    except (MemoryError, RecursionError):
        return SegmentFailure("the query is too large or too deep: make it simpler")
    except (SegmentError, ValidationError) as error:  # ours: DuckDB's own text may quote a row
        return SegmentFailure(_NO_ROOM if duckdb_cause(error) == "OutOfMemoryException" else str(error))


@contextmanager
def _connection(folder: Path) -> Iterator[Connection]:
    db = duckdb_module().connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": _MEMORY,
            "temp_directory": str(folder / "spill"),
            "max_temp_directory_size": _DISK,
            "max_expression_depth": _DEPTH,
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
    """Return the tables that the query names, each once. Raises `SegmentError` for a name that is none."""
    # Some versions read files while they parse.
    with duckdb_errors(_NAME), duckdb_module().connect(config={"enable_external_access": False}) as parser:
        check_select(parser, job.query)
        [(tree,)] = parser.execute("SELECT json_serialize_sql(?)", [job.query]).fetchall()
    named: dict[str, str] = {}
    expressions: set[str] = set()
    for part in _parts(msgspec.json.decode(tree)):
        if part.get("type") == "BASE_TABLE":
            named[part["table_name"].lower()] = part["table_name"]
        elif part.get("error") or str(part.get("type")).endswith("_QUERY_NODE"):  # INSERT, COPY and the like in a WITH
            raise SegmentError("the query is not one SELECT statement: a segment's query only reads tables")
        expressions.update(entry["key"].lower() for entry in part.get("cte_map", {}).get("map", ()))
    for key, name in named.items():
        if key not in job.tables and key not in expressions:
            raise _no_such_table(name, job.tables)
    return [job.tables[key] for key in named if key in job.tables]


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a syntax tree, however deep."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(reversed(part.values()))
        elif isinstance(part, list):
            waiting.extend(reversed(part))


def _no_such_table(name: str, tables: Mapping[str, Table]) -> SegmentError:
    names = sorted(table.name for table in tables.values())
    shown = ", ".join(map(printable, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
    near = difflib.get_close_matches(name.lower()[:100], tables, n=1)
    meant = f"; did you mean {printable(tables[near[0]].name)}?" if near else ""
    return SegmentError(f"there is no table {printable(name, 60)!r}, only {shown or 'an empty folder'}{meant}")


def _load(db: Connection, table: Table, key: str) -> None:
    with duckdb_errors(table.name, unfit=_BAD_FILE):
        source = _scan_sql(table)
        if table.form == "json":
            # What is a text in the file stays one, and a column of ids with a fraction in it is judged row by row.
            guessed = column_types(db, source)
            written = {name: _as_written(kind, name == key) for name, kind in guessed.items()}
            source = _scan_sql(table, written)
        db.execute(f"CREATE TABLE {quoted(table.name)} AS SELECT * FROM {source}")


def _as_written(kind: str, is_key: bool) -> str:
    if kind in ("UUID", "TIME"):
        return "VARCHAR"
    return "JSON" if is_key and kind == "DOUBLE" else kind


def _scan_sql(table: Table, columns: Mapping[str, str] | None = None) -> str:
    """Return what reads the table, to stand after FROM. DuckDB guesses the types of a JSON file without ``columns``.

    Raises `SegmentError` if a CSV file can't be opened.
    """
    # DuckDB takes every name for a pattern: this one only matches the file.
    path = _literal(re.sub(r"([*?\[])", r"[\1]", table.path))
    if table.form == "parquet":
        return f"read_parquet({path}, hive_partitioning = false)"
    if table.form == "json":
        # Formats that nothing has: a text that looks like a date stays a text.
        guess = "sample_size = -1, dateformat = '~', timestampformat = '~'"
        if columns is not None:
            guess = "columns = {" + ", ".join(f"{_literal(name)}: {_literal(columns[name])}" for name in columns) + "}"
        return f"read_json({path}, format = 'newline_delimited', hive_partitioning = false, {guess})"
    cut = "\t" if table.form == "tsv" else delimiter_of(_header(table))
    return (
        f"read_csv({path}, all_varchar = true, header = true, delim = {_literal(cut)}, quote = '\"', escape = '\"', "
        "comment = '', skip = 0, hive_partitioning = false)"
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _header(table: Table) -> str:
    try:
        with open(table.path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise SegmentError(f"the table {printable(table.name)} can't be read: {error.strerror}") from None
    return head.decode(errors="replace").lstrip("\ufeff\r\n").partition("\n")[0]


# -- the query -------------------------------------------------------------------------------------------------------


def _found(db: Connection, job: SegmentJob, path: Path) -> SegmentResult:
    """Run the query, and write each user with the other columns of the first row."""
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
    rows, refused, first_refused = _counted(db, job)
    size, users = _batch(db), 0
    wanted = ", ".join(["id", *(f"c{at}" for at in range(len(names)))])
    first = f"SELECT min(number) FROM {_RESULT} WHERE id <> '' GROUP BY id"
    db.execute(f"SELECT {wanted} FROM {_RESULT} WHERE number IN ({first}) ORDER BY id")
    with path.open("wb") as file:
        while batch := db.fetchmany(size):
            users += len(batch)
            file.write(_encoder.encode_lines(fields.of(batch)))
    return SegmentResult(users, rows, rows - refused - users, refused, first_refused)


def _finite(sql: str, kind: str) -> str:
    """JSON has no infinity."""
    return f"CASE WHEN isfinite({sql}) THEN {sql} END" if kind in ("DOUBLE", "FLOAT") else sql


def _counted(db: Connection, job: SegmentJob) -> tuple[int, int, str | None]:
    """Return how many rows there are, how many of them have no id, and the reason of the first of these."""
    [(rows, refused)] = db.execute(f"SELECT count(*), count(*) - count(nullif(id, '')) FROM {_RESULT}").fetchall()
    if rows > job.max_rows:
        raise SegmentError(f"the query finds over {job.max_rows:,} rows: add a WHERE or a LIMIT")
    if not refused:
        return rows, 0, None
    [(number, missing, kind)] = db.execute(
        f"SELECT number, id IS NULL, kind FROM {_RESULT} WHERE id IS NULL OR id = '' ORDER BY number LIMIT 1"
    ).fetchall()
    return rows, refused, f"row {number}: {printable(job.primary_key, 60)} is {bad_id_reason(missing, kind)}"


def _batch(db: Connection) -> int:
    """Return how many rows fit together in memory."""
    texts = [name for name, kind in column_types(db, _RESULT).items() if kind == "VARCHAR"]
    sizes = " + ".join(f"coalesce(strlen({name}), 0)" for name in texts)
    [(longest,)] = db.execute(f"SELECT coalesce(max({sizes}), 0) FROM {_RESULT}").fetchall()
    if longest > _LONGEST_ROW:
        raise SegmentError(f"a row of the query is over {_LONGEST_ROW // 1024} KiB long: select fewer columns")
    return max(1, min(ROWS, _TOGETHER // max(1, int(longest))))

"""The users in a campaign's segment, found by a SQL query over local tables. Blocking: run in a thread.

Each query runs in a child process, because only a kill stops DuckDB's parser: short texts keep the parser busy for
minutes, fill the memory, or overflow the stack. The child reads the tables that the query names into memory, closes
DuckDB off from all files, and runs the query, which can read nothing else and write nothing. The child finds its job in
a folder, and leaves answer and rows there. Only the child imports duckdb.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from pushsdk._audience import duckdb_reader as reader
from pushsdk._audience.distinct import ROWS, Row
from pushsdk._audience.source import printable
from pushsdk._audience.text_files import delimiter_of
from pushsdk._core.errors import ValidationError

_JSON = frozenset({".json", ".jsonl", ".ndjson"})
_SUFFIXES = _JSON | {".csv", ".tsv", ".parquet"}  # other files are no tables
_POLL = 0.05  # seconds between two calls of ``stopping``
_READ_BYTES = 256 * 1024  # read at a time
# -P: no module is imported from the current directory.
_COMMAND = (sys.executable, "-P", "-c", "from pushsdk.emulator.campaigns.segment import main; main()")
# In the child
_MEMORY = "512MB"
_DISK = "4GB"
_ADDRESS_SPACE = 2 * 1024**3  # bytes; DuckDB's memory limit excludes its parser and many functions
_MAX_DEPTH = 250
_GRACE = 5  # seconds for the process start
_MAX_ROW = 1024 * 1024  # bytes
_HEADER_BYTES = 64 * 1024
_MAX_NAMES = 20
_SETTINGS = {**reader.SETTINGS, "threads": 1, "memory_limit": _MEMORY, "max_temp_directory_size": _DISK}
_SETTINGS["max_expression_depth"] = _MAX_DEPTH
_NAME = "the query"
_VIEW, _RESULT = 'temp."segment/"', 'temp."result/"'  # no file, and so no table, has such a name
_BAD_FILE = "can't be read: damaged, or not of the type that its name says"
_TOO_LARGE = f"the query needs more than {_MEMORY} of memory and {_DISK} of disk: select fewer rows or columns"
_BAD_VALUE = "it fails on a value of a row: use TRY_CAST or TRY, or exclude such rows"


class SegmentError(ValueError):
    """The users in a segment can't be found; the text is one line with the fix, without row values."""


class Table(Struct, frozen=True):
    """A file that a query may name by ``name``, its stem; ``path`` is absolute and resolved."""

    name: str
    path: str
    suffix: str


class SegmentJob(Struct, frozen=True):
    """A query over tables; ``primary_key`` is the user id column in the result."""

    tables: list[Table]
    query: str
    primary_key: str
    max_rows: int = 10_000_000
    seconds: float = 60.0


class SegmentResult(Struct, frozen=True):
    """The counts for a query result: different ``users``, and all ``rows``.

    ``refused`` rows have no valid id; ``first_refused`` is the number of the first one, from 1, and the reason.
    """

    users: int
    rows: int
    duplicates: int
    refused: int
    first_refused: str | None


_encoder = msgspec.json.Encoder()
_answer = msgspec.json.Decoder(SegmentResult | str)  # a text is the error
_rows = msgspec.json.Decoder(Row)


def segment_available() -> bool:
    """Return True if DuckDB is installed."""
    return importlib.util.find_spec("duckdb") is not None


def read_rows(path: Path) -> Iterator[list[Row]]:
    """Yield batches of ``(user_id, fields)``, each user once.

    The fields are the other columns in the user's first row that are not NULL, as plain JSON.
    """
    with path.open("rb") as file:
        while lines := file.readlines(_READ_BYTES):
            yield [_rows.decode(line) for line in lines]


class Tables:
    """The CSV, TSV, Parquet and JSON lines files in a folder; a table's name is the file's stem.

    Each query reads the folder again. Raises `SegmentError` if the folder can't be read, two files share a name, or a
    path is not UTF-8.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self.find()

    def find(self) -> list[Table]:
        """Return the tables, sorted by name. Opens no file.

        Files in subfolders, hidden files and symbolic links out of the folder are not tables.
        """
        tables: dict[str, Table] = {}
        for path, real in self._files():
            if re.search("[\ud800-\udfff]", f"{path}{real}"):  # which JSON can't hold
                name = printable(ascii(path.name))
                raise SegmentError(f"the path of {name} is not UTF-8: rename the file or its folder")
            table = Table(path.stem, str(real), path.suffix.lower())
            if other := tables.get(table.name.lower()):  # DuckDB ignores case
                names = f"{printable(Path(other.path).name)} and {printable(path.name)}"
                raise SegmentError(f"{names} would both be the table {printable(table.name)}: rename one of them")
            tables[table.name.lower()] = table
        return list(tables.values())

    def _files(self) -> Iterator[tuple[Path, Path]]:
        """Yield each file that is a table, as named in the folder and resolved, sorted by name."""
        try:
            root = self._directory.resolve(strict=True)
            paths = sorted(path for path in root.iterdir() if path.suffix.lower() in _SUFFIXES)
        except OSError as error:
            folder = printable(str(self._directory))
            raise SegmentError(f"{folder} can't be read as a folder of tables: {error.strerror}") from None
        for path in paths:
            real = path.resolve()
            if not path.name.startswith(".") and real.is_relative_to(root) and real.is_file():
                yield path, real

    @contextmanager
    def run(
        self,
        query: str,
        primary_key: str,
        *,
        timeout: float = 60.0,
        max_rows: int = 10_000_000,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[SegmentResult, Iterator[list[Row]]]]:
        """Run a query; yields its counts, and its rows, which can be read within the ``with``. Raises `SegmentError`.

        ``query`` may be hostile; ``primary_key`` names the user id column. The child is killed after ``timeout``
        seconds, or as soon as ``stopping`` returns True.
        """
        if "\0" in query:  # which would end the text for the parser
            raise SegmentError("the query contains a NUL character: remove it")
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
            if isinstance(answer, str):
                raise SegmentError(answer)
            yield answer, read_rows(folder / "rows")


def _run_child(folder: Path, timeout: float, stopping: Callable[[], bool]) -> int:
    # Without this package's settings, which include the Api-Key.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUSHSDK_")}
    try:
        process = subprocess.Popen(  # noqa: S603 - our command
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
        while time.monotonic() < deadline:
            if stopping():
                raise SegmentError("the query was stopped")
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL)
        raise SegmentError(f"the query took over {timeout:g} s: make it cheaper, or give it more time")
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Run the job in the folder on the command line. The entry point of the child."""
    os.chdir(sys.argv[1])  # relative, so that no DuckDB setting reveals the folder
    folder = Path()
    job = msgspec.json.decode((folder / "job").read_bytes(), type=SegmentJob)
    _bound(job.seconds)
    answer: SegmentResult | str
    try:
        answer = run(job, folder)
    except SegmentError as error:
        answer = str(error)
    (folder / "answer").write_bytes(_encoder.encode(answer))


def _bound(seconds: float) -> None:
    """Limit the memory of this process, and its time in case the parent was killed."""
    sys.setrecursionlimit(100 * _MAX_DEPTH)  # the syntax tree
    with suppress(ImportError, OSError, ValueError, AttributeError):  # not supported everywhere
        import resource

        signal.alarm(int(seconds) + _GRACE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))


def run(job: SegmentJob, folder: Path) -> SegmentResult:
    """Write the rows into the folder, and return their counts. Raises `SegmentError`."""
    try:
        with reader.duckdb_module().connect(
            ":memory:", config={**_SETTINGS, "temp_directory": str(folder / "spill")}
        ) as db:
            for table in job.tables:
                # The name may occur in the query as an alias or a text: loading is harmless.
                name = re.escape(table.name.replace('"', '""').lower())
                if re.search(rf"(?<!\w){name}(?!\w)", job.query.lower()):
                    _load(db, table, job.primary_key)
            for setting in ("SET enable_external_access = false", "SET lock_configuration = true"):
                db.execute(setting)
            with reader.duckdb_errors(_NAME, unfit=_BAD_VALUE):
                reader.check_select(db, job.query)
                return _run_query(db, job, folder / "rows")
    except (MemoryError, RecursionError):
        raise SegmentError("the query is too large or too deep: make it simpler") from None
    except ValidationError as error:  # our text: DuckDB's may quote a row
        raise SegmentError(_worded(error, job.tables)) from None


def _worded(error: ValidationError, tables: Sequence[Table]) -> str:
    """Return the error text, with the tables if the query names another one."""
    cause = reader.duckdb_cause(error)
    if cause == "OutOfMemoryException":
        return _TOO_LARGE
    if cause != "CatalogException":
        return str(error)
    names = ", ".join(printable(table.name) for table in tables[:_MAX_NAMES]) or "none"
    return f"{error} The tables are {names}"


def _load(db: reader.Connection, table: Table, key: str) -> None:
    with reader.duckdb_errors(table.name, unfit=_BAD_FILE):
        source = _scan_sql(table)
        if table.suffix in _JSON:
            types = reader.column_types(db, source)
            # Texts stay texts, and an id column with a fraction in one row is checked row by row.
            types |= {name: "VARCHAR" for name, kind in types.items() if kind in ("UUID", "TIME")}
            types |= {key: "JSON"} if types.get(key) == "DOUBLE" else {}
            source = _scan_sql(table, types)
        db.execute(f"CREATE TABLE {reader.quoted(table.name)} AS SELECT * FROM {source}")


def _scan_sql(table: Table, columns: Mapping[str, str] | None = None) -> str:
    """Return the table function for a FROM. Without ``columns`` DuckDB guesses the types in a JSON file.

    Raises `SegmentError` if a CSV file can't be opened.
    """
    # DuckDB reads a path as a glob pattern; escaped, the pattern matches this file only.
    path = reader.literal(re.sub(r"([*?\[])", r"[\1]", table.path))
    if table.suffix == ".parquet":
        return f"read_parquet({path}, hive_partitioning = false)"
    if table.suffix in _JSON:
        # Impossible formats, so that a text that looks like a date stays a text.
        guess = "sample_size = -1, dateformat = '~', timestampformat = '~'"
        if columns is not None:
            guess = (
                "columns = {"
                + ", ".join(f"{reader.literal(name)}: {reader.literal(columns[name])}" for name in columns)
                + "}"
            )
        return f"read_json({path}, format = 'newline_delimited', hive_partitioning = false, {guess})"
    try:
        with open(table.path, "rb") as file:
            head = file.read(_HEADER_BYTES).decode(errors="replace").lstrip("\ufeff\r\n")
    except OSError as error:
        raise SegmentError(f"the table {printable(table.name)} can't be read: {error.strerror}") from None
    delimiter = reader.literal("\t" if table.suffix == ".tsv" else delimiter_of(head.partition("\n")[0]))
    return (
        f"read_csv({path}, all_varchar = true, header = true, delim = {delimiter}, quote = '\"', escape = '\"', "
        "comment = '', skip = 0, hive_partitioning = false)"
    )


def _run_query(db: reader.Connection, job: SegmentJob, path: Path) -> SegmentResult:
    """Run the query, and write each user with the other columns in the user's first row."""
    db.execute(f"CREATE TEMP VIEW {_VIEW} AS {job.query}")
    types = reader.column_types(db, _VIEW)
    names = [name for name in types if name != job.primary_key]
    id_sql = reader.id_expression(_NAME, job.primary_key, types, option="primaryKey ")
    fields = reader.ValueColumns(_NAME, types, names)
    columns = [reader.id_columns(id_sql, job.primary_key)]
    for at, (name, sql) in enumerate(zip(names, fields.sql, strict=True)):
        is_float = types[name] in ("DOUBLE", "FLOAT")  # JSON has no infinity
        columns.append(f"{f'CASE WHEN isfinite({sql}) THEN {sql} END' if is_float else sql} AS c{at}")
    limited = f"SELECT * FROM {_VIEW} LIMIT {job.max_rows + 1}"
    db.execute(f"CREATE TEMP TABLE {_RESULT} AS SELECT {', '.join(columns)} FROM ({limited})")
    [(rows, refused)] = db.execute(f"SELECT count(*), count(*) - count(nullif(id, '')) FROM {_RESULT}").fetchall()
    if rows > job.max_rows:
        raise SegmentError(f"the query returns over {job.max_rows:,} rows: add a WHERE or a LIMIT")
    first_refused = reader.first_bad_id(db, _RESULT, job.primary_key)
    wanted = ", ".join(["id", *(f"c{at}" for at in range(len(names)))])
    first = f"SELECT min(number) FROM {_RESULT} WHERE id <> '' GROUP BY id"
    db.execute(f"SELECT {wanted} FROM {_RESULT} WHERE number IN ({first}) ORDER BY id")
    users = _write_rows(db, fields, path)
    return SegmentResult(users, rows, rows - refused - users, refused, first_refused)


def _write_rows(db: reader.Connection, fields: reader.ValueColumns, path: Path) -> int:
    """Write the rows of the last query as JSON lines, and return their number."""
    written = 0
    with path.open("wb") as file:
        while batch := db.fetchmany(ROWS):
            written += len(batch)
            for row in fields.of(batch):
                line = _encoder.encode(row)
                if len(line) > _MAX_ROW:
                    raise SegmentError(f"a row of the query is over {_MAX_ROW // 1024} KiB long: select fewer columns")
                file.write(line + b"\n")
    return written

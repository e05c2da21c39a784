"""The users of a campaign's segment (section 2.2), found in local tables. Sync, for a thread; imports no DuckDB.

Each query runs in a child process (``segment_child``), because nothing stops DuckDB's parser but a kill: short texts
keep it busy for minutes, fill the memory, or overflow its stack.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from pushsdk._broadcast._source import plain
from pushsdk._broadcast.distinct import Row

__all__ = ["Answer", "Failed", "Found", "Job", "SegmentError", "SegmentRun", "Table", "Tables", "segment_available"]

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
_TOGETHER = 256 * 1024  # bytes of rows that are read at a time
# The package is imported by its name, wherever it lies: the current directory is not looked into (-P).
_COMMAND = (sys.executable, "-P", "-c", "from pushsdk.emulator.segment_child import main; main()")


class SegmentError(ValueError):
    """A segment can't be found; the text says in one line what to do, and holds no value of a row."""


class Table(Struct, frozen=True):
    """A file that a query may name: ``name`` is its stem, ``path`` is absolute, without symbolic links."""

    name: str
    path: str
    form: str


class Job(Struct, frozen=True):
    """A query over tables, keyed by their names in lower case, and the column of its result that holds the user ids."""

    tables: dict[str, Table]
    query: str
    primary_key: str
    max_rows: int = 10_000_000
    seconds: float = 60.0


class Found(Struct, frozen=True, tag="found"):
    """The size of a query's result: ``users`` are different ones, ``rows`` include duplicates and refused ones.

    ``refused`` rows have no id; of the first of them ``first_refused`` says its number, from 1, and the reason.
    """

    users: int
    rows: int
    duplicates: int
    refused: int
    first_refused: str | None


class Failed(Struct, frozen=True, tag="failed"):
    """The reason for no result."""

    error: str


Answer = Found | Failed
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

    def __init__(self, found: Found, rows: Path) -> None:
        self.found = found
        self._rows = rows

    def __iter__(self) -> Iterator[list[Row]]:
        with self._rows.open("rb") as file:
            while lines := file.readlines(_TOGETHER):
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
            folder = plain(str(self._directory))
            raise SegmentError(f"{folder} can't be read as a folder of tables: {error.strerror}") from None
        for path in paths:
            real = path.resolve()
            if path.name.startswith(".") or not real.is_relative_to(root) or not real.is_file():
                continue
            if not _is_unicode(f"{path}{real}"):
                raise SegmentError(f"the name of {plain(ascii(path.name))} is not UTF-8: rename the file")
            table = Table(path.stem, str(real), _SUFFIXES[path.suffix.lower()])
            if other := found.get(table.name.lower()):
                names = f"{plain(Path(other.path).name)} and {plain(path.name)}"
                raise SegmentError(f"{names} would both be the table {plain(table.name)}: rename one of them")
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
        job = Job(self.find(), query, primary_key, max_rows, timeout)
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
            if isinstance(answer, Failed):
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

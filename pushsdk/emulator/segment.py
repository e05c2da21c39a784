"""The users of a campaign's segment (section 2.2), found in local tables. Sync, for a thread; imports no DuckDB."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from msgspec import Struct

from pushsdk._broadcast.distinct import Row
from pushsdk.emulator.segment_frames import Counted, Done, Failed, Frame, Job, Rows, packed, read_frame
from pushsdk.emulator.segment_query import check_text
from pushsdk.emulator.tables import SegmentError, find_tables

__all__ = ["Child", "Found", "SegmentError", "SegmentRun", "Tables", "segment_available"]

# Between two looks at the time and at ``stopping``, in seconds.
_LOOK = 0.05
# For a process that has said all to end, in seconds.
_END = 5.0
# The package is imported by its name, wherever it lies: the current directory is not looked into (-P).
_COMMAND = (sys.executable, "-P", "-c", "from pushsdk.emulator.segment_child import main; main()")


class Child:
    """One job in a process of its own, from entering to leaving."""

    def __init__(
        self,
        job: Job,
        *,
        timeout: float,
        stopping: Callable[[], bool] = lambda: False,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._job = job
        self._timeout = timeout
        self._stopping = stopping
        self._folder = folder
        self._left = contextlib.ExitStack()
        # Set when it is killed: why.
        self._why: str | None = None
        # Set by frame: the last one was there.
        self._said_all = False
        # Until when the next frame has to be there. Set while one is waited for.
        self._deadline: float | None = None
        # Set by __enter__.
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Child:
        with contextlib.ExitStack() as left:
            try:
                folder = left.enter_context(tempfile.TemporaryDirectory(prefix="pushsdk-", dir=self._folder))
                self._process = process = subprocess.Popen(  # noqa: S603 - our own command
                    _COMMAND,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=_environment(folder),
                    # An interrupt of the terminal is for us; we end it.
                    start_new_session=True,
                )
            except OSError as error:
                raise SegmentError(f"no process can be started for the query: {error.strerror}") from None
            left.callback(self._end)
            over = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(over,), name="pushsdk-segment", daemon=True)
            watcher.start()
            left.callback(watcher.join)
            left.callback(over.set)
            given = cast(IO[bytes], process.stdin)
            with contextlib.suppress(OSError):  # it has died, which the missing frame tells
                given.write(packed(self._job))
                given.flush()
            self._left = left.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._left.close()

    def frame(self) -> Frame:
        """The next thing it says. Raises `SegmentError` for a failure, and where it is killed or dies."""
        self._deadline = time.monotonic() + self._timeout
        frame = read_frame(cast(IO[bytes], self._process.stdout))
        self._deadline = None
        self._said_all = isinstance(frame, Done | Failed)
        if isinstance(frame, Failed):
            raise SegmentError(frame.error)
        if frame is None:
            raise SegmentError(self._why or self._death())
        return frame

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_LOOK):
            deadline = self._deadline
            if self._stopping():
                self._why = "the query was stopped"
            elif deadline is not None and time.monotonic() > deadline:
                self._why = f"the query took over {self._timeout:g} s: make it cheaper, or give it more time"
            else:
                continue
            self._process.kill()
            return

    def _death(self) -> str:
        try:
            status = self._process.wait(_END)
        except subprocess.TimeoutExpired:  # it closed its output, and lives on
            status = 0
        told = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"the query brought down the process that ran it ({told}): make it simpler"

    def _end(self) -> None:
        process = self._process
        if self._said_all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END)
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # the job, where it was never taken
                cast(IO[bytes], pipe).close()
        process.wait()


def _environment(folder: str) -> dict[str, str]:
    """Ours without this package's own settings, among which is the key; its temporary files go into ``folder``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUSHSDK_")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path), **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)}


class Found(Struct, frozen=True, kw_only=True):
    """What a query came to."""

    users: int
    """Different ones."""
    rows: int
    """All: users, duplicates and refused."""
    duplicates: int
    """Rows whose user had been there before, in the order of the result."""
    refused: int
    """Rows without an id."""
    first_refused: str | None
    """Its number, from 1 in the order of the result, and the reason."""
    seconds: float


def segment_available() -> bool:
    """Whether DuckDB is installed, without which no query can be run."""
    return importlib.util.find_spec("duckdb") is not None


def _check_available() -> None:
    if not segment_available():
        raise SegmentError("segments are found by DuckDB, which is not installed: pip install 'pushsdk[audience]'")


class Tables:
    """The tables of a folder: its CSV, TSV, Parquet and JSON lines files, each named as its file without the ending.

    Looked for anew each time. Raises `SegmentError` where the folder can't be read or two files would be one table.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self.names()

    def names(self) -> list[str]:
        """Those there are now, sorted. No file is opened."""
        return sorted(table.name for table in find_tables(self._directory).values())

    def run(
        self,
        query: str,
        primary_key: str,
        *,
        timeout: float = 30.0,
        max_rows: int = 10_000_000,
        stopping: Callable[[], bool] = lambda: False,
        folder: str | os.PathLike[str] | None = None,
    ) -> SegmentRun:
        """The users that a query finds among the tables, to be used in a ``with`` statement.

        ``query`` is whatever came over the wire; ``primary_key`` names the column of the ids. ``timeout`` bounds the
        query, and then each wait for a batch, in seconds; ``stopping`` is asked some times a second, from another
        thread, whether to give up; ``folder`` is where a private folder, removed at the end, takes what does not
        fit into memory.
        """
        _check_available()
        check_text(query)
        if not primary_key:
            raise SegmentError("the segment's primaryKey is empty: name the column that holds the user ids")
        job = Job(find_tables(self._directory), query, primary_key, max_rows, timeout)
        return SegmentRun(Child(job, timeout=timeout, stopping=stopping, folder=folder))


class SegmentRun:
    """A query that is run when it is entered; iterated once, it gives the users sorted, in batches.

    ``for batch in run``, ``for user_id, fields in batch``: the fields are the other columns of the user's first row,
    as plain JSON, without those that are NULL. Raises `SegmentError` on entering for all that is wrong with the
    query, and while iterating where a value can't be written as JSON or the run is stopped.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._left = contextlib.ExitStack()
        # Set on entering.
        self._began = 0.0
        self._counted = Counted(0, 0, None)
        # Set at the end of the iteration.
        self._found: Found | None = None

    def __enter__(self) -> SegmentRun:
        self._began = time.monotonic()
        with contextlib.ExitStack() as left:
            left.enter_context(self._child)
            self._counted = cast(Counted, self._child.frame())
            self._left = left.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._left.close()

    @property
    def found(self) -> Found:
        """The result. Raises RuntimeError before the iteration has come to its end."""
        if self._found is None:
            raise RuntimeError("the run is not at its end")
        return self._found

    def __iter__(self) -> Iterator[list[Row]]:
        while isinstance(frame := self._child.frame(), Rows):
            yield frame.rows
        done, counted = cast(Done, frame), self._counted
        self._found = Found(
            users=done.users,
            rows=counted.rows,
            duplicates=done.duplicates,
            refused=counted.refused,
            first_refused=counted.first_refused,
            seconds=time.monotonic() - self._began,
        )

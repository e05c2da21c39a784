"""The users of a campaign's segment (section 2.2), found in local tables. Sync, for a thread; imports no DuckDB."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import cast

from msgspec import Struct

from pushsdk._broadcast.distinct import Row
from pushsdk.emulator.segment_frames import Counted, Done, Job, Rows
from pushsdk.emulator.segment_process import Child
from pushsdk.emulator.segment_query import check_text
from pushsdk.emulator.tables import SegmentError, find_tables

__all__ = ["Found", "SegmentError", "SegmentRun", "Tables", "segment_available"]


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

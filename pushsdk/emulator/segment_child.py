"""The process that a segment's query runs in: one job in, frames out, then it ends.

A process of its own, because DuckDB's parser can't be interrupted: short texts keep it busy for minutes, fill the
memory, or overflow its stack. What happens here, happens to nobody else. Imports duckdb, through the audience reader.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import msgspec

from pushsdk._broadcast._duck import Connection, cause_of, check_select, connection, explained
from pushsdk._broadcast._source import ROWS, plain
from pushsdk._broadcast._values import Fields, no_id, quoted, sql_of_id, sql_of_kind, types_of
from pushsdk._core.errors import ValidationError
from pushsdk.emulator.segment_frames import Counted, Done, Failed, Frame, Job, Rows, packed, read
from pushsdk.emulator.segment_query import tables_in
from pushsdk.emulator.tables import SegmentError, Table, literal, pattern, scan_sql

__all__ = ["ADDRESSES", "DEPTH", "frames", "main"]

MEMORY = "512MB"
DISK = "4GB"
# Bytes of addresses: DuckDB's own bound leaves out its parser, and much that its functions take.
ADDRESSES = 2 * 1024**3
DEPTH = 250
# Bytes of the largest row, and of those that are sent together.
LONGEST_ROW = 1024 * 1024
_TOGETHER = 8 * 1024 * 1024
# Seconds, for the start of the process.
_GRACE = 5
_NAME = "the query"
_RESULT = "temp.pushsdk_result"
_BAD_FILE = "can't be read: damaged, or not what the end of its name says"
_NO_ROOM = f"the query needs more than {MEMORY} of memory and {DISK} of disk: select fewer rows or columns"
_BAD_VALUE = "it fails on a value in some row: guard that with TRY_CAST or TRY, or leave such rows out"


# -- the process -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Do the job that comes over standard input, and end when that ends."""
    with os.fdopen(os.dup(0), "rb") as given, os.fdopen(os.dup(1), "wb") as out:
        # Whatever else prints something, it gets nowhere near the frames.
        os.dup2(2, 1)
        data = read(given)
        if data is None:
            return
        threading.Thread(target=_end_with_parent, daemon=True).start()
        job = msgspec.msgpack.decode(data, type=Job)
        _bound_memory()
        _bound_time(math.ceil(job.seconds))
        for frame in frames(job):
            _bound_time(None)
            out.write(packed(frame))
            out.flush()


def _end_with_parent(given: int = 0, end: Callable[[int], object] = os._exit) -> None:
    while os.read(given, 1):
        pass
    end(1)


def _bound_memory() -> None:
    sys.setrecursionlimit(100 * DEPTH)  # the syntax tree
    with contextlib.suppress(ImportError, OSError, ValueError):  # a system without such bounds
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def _bound_time(seconds: int | None) -> None:
    """Of the processor, from the start: for when the parser is busy and there is nobody any more to kill it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (most if seconds is None else seconds + _GRACE, most))


def frames(job: Job) -> Iterator[Frame]:
    """What the job gives, to its end; an error is the last frame."""
    try:
        with connection(*_settings(job.tables)) as made:
            yield from _found(made, job)
    except (MemoryError, RecursionError):
        yield Failed("the query is too large or too deep: make it simpler")
    except (SegmentError, ValidationError) as error:  # ours: no other one's text may be told
        yield Failed(_NO_ROOM if cause_of(error) == "OutOfMemoryException" else str(error))


def _settings(tables: Mapping[str, Table]) -> list[str]:
    # A path is compared as it is written: once as the file's, once as the pattern that names nothing but it.
    paths = [spelled for table in tables.values() for spelled in (table.path, pattern(table.path))]
    return [
        "SET threads = 1",
        f"SET memory_limit = '{MEMORY}'",
        f"SET max_temp_directory_size = '{DISK}'",
        f"SET max_expression_depth = {DEPTH}",
        f"SET allowed_paths = {literal(paths)}",
        "SET enable_external_access = false",
    ]


# -- the query -------------------------------------------------------------------------------------------------------


def _found(made: Connection, job: Job) -> Iterator[Frame]:
    with explained(_NAME, unfit=_BAD_VALUE):
        view = _open(made, job)
        types = types_of(made, view)
        names = [name for name in types if name != job.primary_key]
        id_sql = sql_of_id(_NAME, job.primary_key, types, option="primaryKey ")
        fields = Fields(_NAME, types, names)
        values = [
            f"{_finite(sql, types[name])} AS c{at}"
            for at, (name, sql) in enumerate(zip(names, fields.sql, strict=True))
        ]
        kind = sql_of_kind(id_sql, job.primary_key)
        wanted = ", ".join(["row_number() OVER () AS number", f"{kind} AS kind", f"{id_sql} AS id", *values])
        limited = f"SELECT * FROM {view} LIMIT {job.max_rows + 1}"
        made.execute(f"CREATE TEMP TABLE {_RESULT} AS SELECT {wanted} FROM ({limited})")
        yield _counted(made, job)
        order, size = _order(made), _batch(made)
        wanted = ", ".join(["id", *(f"c{at}" for at in range(len(names)))])
        made.execute(f"SELECT {wanted} FROM {_RESULT} WHERE id <> '' ORDER BY {order}, number")
        yield from _users(made, fields, size)


def _open(made: Connection, job: Job) -> str:
    """The query as a view, over those of the tables that it names. Its name."""
    check_select(made, job.query)
    [(text,)] = made.execute("SELECT json_serialize_sql(?)", [job.query]).fetchall()
    internal = {name.lower() for (name,) in made.execute("SELECT view_name FROM duckdb_views()").fetchall()}
    for table in tables_in(msgspec.json.decode(text), job.tables, internal=internal):
        with explained(table.name, unfit=_BAD_FILE):
            source = _source(made, table, job.primary_key)
            made.execute(f"CREATE VIEW {quoted(table.name)} AS SELECT * FROM {source}")
    view = "segment"
    while view in job.tables:
        view += "_"
    made.execute(f"CREATE TEMP VIEW {view} AS {job.query}")
    return view


def _finite(sql: str, kind: str) -> str:
    """JSON has no infinity."""
    return f"CASE WHEN isfinite({sql}) THEN {sql} END" if kind in ("DOUBLE", "FLOAT") else sql


def _source(made: Connection, table: Table, key: str) -> str:
    sql = scan_sql(table)
    if table.form != "json":
        return sql
    # What is a text in the file stays one, and a column of ids with a fraction in it is judged row by row.
    guessed = types_of(made, sql)
    written = {name: _as_written(kind, name == key) for name, kind in guessed.items()}
    return sql if written == guessed else scan_sql(table, written)


def _as_written(kind: str, is_key: bool) -> str:
    if kind in ("UUID", "TIME"):
        return "VARCHAR"
    return "JSON" if is_key and kind == "DOUBLE" else kind


def _counted(made: Connection, job: Job) -> Counted:
    [(rows, refused)] = made.execute(f"SELECT count(*), count(*) - count(nullif(id, '')) FROM {_RESULT}").fetchall()
    if rows > job.max_rows:
        raise SegmentError(f"the query finds over {job.max_rows:,} rows: add a WHERE or a LIMIT")
    first = None
    if refused:
        [(number, missing, kind)] = made.execute(
            f"SELECT number, id IS NULL, kind FROM {_RESULT} WHERE id IS NULL OR id = '' ORDER BY number LIMIT 1"
        ).fetchall()
        first = f"row {number}: {plain(job.primary_key, 60)} is {no_id(missing, kind)}"
    return Counted(rows, refused, first)


def _order(made: Connection) -> str:
    """What sorts the ids by their bytes: DuckDB 1 sorts wrongly where one holds a NUL or is not ASCII (measured)."""
    odd = "strlen(id) <> length(id) OR contains(id, chr(0))"
    [(number,)] = made.execute(f"SELECT count(*) FROM {_RESULT} WHERE {odd}").fetchall()
    return "hex(id)" if number else "id"


def _batch(made: Connection) -> int:
    """How many rows fit together in memory."""
    texts = [name for name, kind in types_of(made, _RESULT).items() if kind == "VARCHAR"]
    sizes = " + ".join(f"coalesce(strlen({name}), 0)" for name in texts)
    [(longest,)] = made.execute(f"SELECT coalesce(max({sizes}), 0) FROM {_RESULT}").fetchall()
    if longest > LONGEST_ROW:
        raise SegmentError(f"a row of the query is over {LONGEST_ROW // 1024} KiB long: select fewer columns")
    return max(1, min(ROWS, _TOGETHER // max(1, int(longest))))


def _users(made: Connection, fields: Fields, size: int) -> Iterator[Frame]:
    users = duplicates = 0
    last = None
    while rows := made.fetchmany(size):
        # Sorted by id, and by number within: the first of each is the one that counts.
        firsts = [row for before, row in itertools.pairwise([(last,), *rows]) if row[0] != before[0]]
        last = rows[-1][0]
        users += len(firsts)
        duplicates += len(rows) - len(firsts)
        if firsts:
            yield Rows(fields.of(firsts))
    yield Done(users, duplicates)

"""The work of the executors: cut a plan into chunks, send chunks. Pickled by the driver: plain data only, no key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk.spark._claims import has_sentinel
from pushsdk.spark._folder import RunFolder
from pushsdk.spark._preflight import PushOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EMPTY", "NULL", "ChunkPartition", "SendPartition", "chunk_schema", "cut"]

#: In place of a chunk's id: so many rows have no user id, or an empty one.
NULL, EMPTY = "null", "empty"


class ChunkPartition(msgspec.Struct, frozen=True):
    """Makes the chunks of one partition."""

    plan: str
    """The place of the plan: its name is that of no other."""
    max_users: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        _check_seen(Path(self.plan).is_dir())
        yield from cut(batches, max_users=self.max_users, prefix=f"{_place():05}-")


class SendPartition(msgspec.Struct, frozen=True):
    """Sends the chunks of one partition."""

    folder: str
    run: str
    message: Any
    custom_fields: Mapping[str, Any] | None
    personal: Literal["placeholders", "custom_fields"] | None
    sending: PushOptions

    def __repr__(self) -> str:
        return f"SendPartition({self.run!r})"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        from pushsdk.arrow import push_batches

        manifest = RunFolder(self.folder).manifest()
        _check_seen(manifest is not None and manifest.run == self.run)
        if not has_sentinel(self.sending.claims, self.run):
            raise ConfigurationError(
                "an executor does not see the claims that the driver made: claims= has to make a store that all share"
            )
        yield from push_batches(
            batches,
            self.message,
            run=self.run,
            custom_fields=self.custom_fields,
            personal=self.personal,
            **self.sending.options(_place()),
        )


def _place() -> int:
    """That of this task among those of its job; 0 outside of one."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def _check_seen(seen: bool) -> None:
    """Else each machine would have claims of its own."""
    if not seen:
        raise ConfigurationError(
            "an executor does not see run_dir as the driver does: it has to be on a file system that all of them share"
        )


def chunk_schema(*, personal: bool) -> pa.Schema:
    """A chunk: its id, its users, what each row fills, and how many rows of the source it stands for."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    columns = {
        "chunk_id": pa.string(),
        "user_ids": texts,
        **({"fields": texts} if personal else {}),
        "rows": pa.int64(),
    }
    return pa.schema(list(columns.items()))


def cut(batches: Iterable[pa.RecordBatch], *, max_users: int, prefix: str) -> Iterator[pa.RecordBatch]:
    """Cut the users of one partition into chunks; the ids of chunks begin with ``prefix``.

    In come the columns ``user_id``, ``rows`` and, where each row fills something, ``fields``; out go those of
    ``chunk_schema``. The last batch says how many rows had no id.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    waiting: list[pa.RecordBatch] = []
    held = number = nulls = empties = 0
    schema = chunk_schema(personal=False)
    for batch in batches:
        schema = chunk_schema(personal="fields" in batch.schema.names)
        ids = batch.column("user_id")
        is_empty = pc.fill_null(pc.equal(ids, pa.scalar("", ids.type)), False)
        nulls += pc.sum(batch.filter(pc.is_null(ids)).column("rows")).as_py() or 0
        empties += pc.sum(batch.filter(is_empty).column("rows")).as_py() or 0
        waiting.append(batch.filter(pc.and_not(pc.is_valid(ids), is_empty)))
        held += len(waiting[-1])
        if held >= max_users:
            table = pa.Table.from_batches(waiting).combine_chunks()
            whole = held // max_users
            yield _chunks(table.slice(0, whole * max_users), schema, max_users, prefix, number)
            number, held = number + whole, held - whole * max_users
            waiting = table.slice(whole * max_users).to_batches()
    if held:
        table = pa.Table.from_batches(waiting).combine_chunks()
        yield _chunks(table, schema, max_users, prefix, number)
    bad = [(name, rows) for name, rows in ((NULL, nulls), (EMPTY, empties)) if rows]
    if bad:
        told = [{"chunk_id": name, "user_ids": (), "fields": (), "rows": rows} for name, rows in bad]
        yield pa.RecordBatch.from_pylist(told, schema=schema)


def _chunks(table: pa.Table, schema: pa.Schema, max_users: int, prefix: str, first: int) -> pa.RecordBatch:
    """The rows of a table, so many to a chunk."""
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = range(0, len(table), max_users)
    offsets = pa.array([*starts, len(table)], pa.int32())
    texts = {"user_ids": "user_id", "fields": "fields"}
    made = {
        "chunk_id": pa.array([f"{prefix}{first + index:06}" for index in range(len(starts))]),
        "rows": pa.array([pc.sum(table.column("rows").slice(start, max_users)).as_py() for start in starts]),
    }
    for name in texts.keys() & set(schema.names):
        values = table.column(texts[name]).combine_chunks().cast(pa.string())
        made[name] = pa.ListArray.from_arrays(offsets, values)
    return pa.RecordBatch.from_arrays(
        [made[name].cast(schema.field(name).type) for name in schema.names], schema=schema
    )

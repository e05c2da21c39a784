"""The work in the executors: look around, cut a plan into chunks, send chunks. Pickled without the Api-Key."""

import os
import socket
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pushsdk._core.body import encode_user_ids
from pushsdk._core.damage import damage_of
from pushsdk._core.errors import ConfigurationError, MessageWarning
from pushsdk._core.outcome import Guarded
from pushsdk.spark._folder import RunFolder, has_sentinel
from pushsdk.spark._preflight import of_task
from pushsdk.spark._progress import counted

if TYPE_CHECKING:
    import pyarrow as pa

#: Ids for the pseudo-chunks that count rows without a user id, and with an empty one. Others count damaged ids.
NULL, EMPTY = "no user id (NULL)", "an empty user id"


# Seconds that a connection to the service may take.
_CONNECT = 10.0
_UNSHARED = "an executor does not see run_dir as this process does: it must be on a file system that all of them share"


def trouble(token: str, host: str, port: int, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Yield one row that says why this task could not send, for ``mapInArrow``. ``token`` is a file in run_dir."""
    import pyarrow as pa

    for _ in batches:
        pass
    problem = None if os.access(token, os.W_OK) else _UNSHARED
    try:
        socket.create_connection((host, port), _CONNECT).close()
    except OSError as error:
        why = error.strerror or type(error).__name__
        problem = problem or f"no executor can connect to {host}:{port} ({why})"
    yield pa.RecordBatch.from_pydict({"trouble": pa.array([problem], pa.string())})


class ChunkPartition(msgspec.Struct, frozen=True):
    """The function that makes the chunks in a partition, for ``mapInArrow``."""

    plan: str
    """The plan folder. Its name is unique to the run."""
    max_users: int

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        _check_shared(Path(self.plan).is_dir())
        yield from cut(batches, max_users=self.max_users, prefix=f"{_task_number():05}-")


class SendPartition(Guarded, msgspec.Struct, frozen=True):
    """The function that sends the chunks in a partition, for ``mapInArrow``."""

    folder: str
    run: str
    message: Any
    custom_fields: Mapping[str, Any] | None
    personal: Literal["placeholders", "custom_fields"] | None
    outcomes: str
    """The folder with this sending's outcomes."""
    options: dict[str, Any]
    """Arguments for ``push_batches``."""

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pushsdk.arrow import push_batches

        warnings.filterwarnings("ignore", "a user id", MessageWarning)  # the driver warns
        manifest = RunFolder(self.folder).manifest()
        _check_shared(manifest is not None and manifest.run == self.run)
        if not has_sentinel(self.options["claims"], self.run):
            raise ConfigurationError(
                "an executor does not see the claims that the driver made: claims= must make a store that all share"
            )
        number = _task_number()
        outcomes = push_batches(
            self._until_superseded(batches),
            self.message,
            run=self.run,
            custom_fields=self.custom_fields,
            personal=self.personal,
            **of_task(self.options, number),
        )
        yield from counted(outcomes, self.outcomes, number)

    def _until_superseded(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Yield the batches until another call sends this run: its driver may be gone, and Spark go on."""
        folder = RunFolder(self.folder)
        for batch in batches:
            # A host may not see the folder of this sending so far, as NFS keeps listings for seconds.
            last = folder.last_outcomes()
            if last is not None and last > Path(self.outcomes):
                raise ConfigurationError("another call of broadcast sends the rest of this run: this one ends")
            yield batch


def _task_number() -> int:
    """Return the number of this task in its job; 0 outside a job."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def _check_shared(is_shared: bool) -> None:
    """Raise ConfigurationError if run_dir is local to a machine: each machine would have its own claims."""
    if not is_shared:
        raise ConfigurationError(_UNSHARED)


def chunk_schema(*, personal: bool) -> "pa.Schema":
    """Return the columns of a chunk: its id, its users, their fields if ``personal``, and the number of source rows."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    fields = {"fields": texts} if personal else {}
    return pa.schema({"chunk_id": pa.string(), "user_ids": texts, **fields, "rows": pa.int64()})


def cut(batches: "Iterable[pa.RecordBatch]", *, max_users: int, prefix: str) -> "Iterator[pa.RecordBatch]":
    """Cut the users in a partition into chunks whose ids begin with ``prefix``.

    The input has the columns ``user_id``, ``rows`` and, if personal, ``fields``; the output has the ``chunk_schema``.
    The last batch counts the rows without an id, and the ids with each damage.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    waiting: list[pa.RecordBatch] = []
    damages = Counter[str]()
    users = number = nulls = empties = 0
    schema = chunk_schema(personal=False)
    for batch in batches:
        schema = chunk_schema(personal="fields" in batch.schema.names)
        ids = batch.column("user_id")
        is_empty = pc.fill_null(pc.equal(ids, pa.scalar("", ids.type)), False)
        nulls += pc.sum(batch.filter(pc.is_null(ids)).column("rows")).as_py() or 0
        empties += pc.sum(batch.filter(is_empty).column("rows")).as_py() or 0
        waiting.append(batch.filter(pc.and_not(pc.is_valid(ids), is_empty)))
        texts = waiting[-1].column("user_id").to_pylist()
        damages.update(damage_of(texts, encode_user_ids(texts)))
        users += len(texts)
        if users >= max_users:
            table = pa.Table.from_batches(waiting).combine_chunks()
            whole = users // max_users
            yield _chunks(table.slice(0, whole * max_users), schema, max_users, prefix, number)
            number, users = number + whole, users - whole * max_users
            waiting = table.slice(whole * max_users).to_batches()
    if users:
        table = pa.Table.from_batches(waiting).combine_chunks()
        yield _chunks(table, schema, max_users, prefix, number)
    bad = [(name, rows) for name, rows in ((NULL, nulls), (EMPTY, empties), *damages.items()) if rows]
    if bad:
        counts = [{"chunk_id": name, "user_ids": (), "fields": (), "rows": rows} for name, rows in bad]
        yield pa.RecordBatch.from_pylist(counts, schema=schema)


def _chunks(table: "pa.Table", schema: "pa.Schema", max_users: int, prefix: str, first: int) -> "pa.RecordBatch":
    """Return the rows in a table as chunks of ``max_users``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = range(0, len(table), max_users)
    offsets = pa.array([*starts, len(table)], pa.int32())
    texts = {"user_ids": "user_id", "fields": "fields"}
    columns = {
        "chunk_id": pa.array([f"{prefix}{first + index:06}" for index in range(len(starts))]),
        "rows": pa.array([pc.sum(table.column("rows").slice(start, max_users)).as_py() for start in starts]),
    }
    for name in texts.keys() & set(schema.names):
        values = table.column(texts[name]).combine_chunks().cast(pa.string())
        columns[name] = pa.ListArray.from_arrays(offsets, values)
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)

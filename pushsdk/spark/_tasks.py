"""The work in the executors: look around, cut a plan into chunks, send chunks. Pickled without the Api-Key."""

import itertools
import os
import socket
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pushsdk._core.body import encode_user_ids
from pushsdk._core.damage import damage_of
from pushsdk._core.errors import ConfigurationError, MessageWarning
from pushsdk._core.outcome import GuardedValue
from pushsdk.spark._folder import counted, has_sentinel

if TYPE_CHECKING:
    import pyarrow as pa

#: Ids for the pseudo-chunks that count rows without a user id, and with an empty one. Others count damaged ids.
NULL, EMPTY = "no user id (NULL)", "an empty user id"
#: The columns of ``chunk_schema``, for Spark.
CHUNKS = "chunk_id string, user_ids array<string>, fields array<string>, rows long"

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


def cut_partition(plan: Path, max_users: int, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Cut a partition into chunks, for ``mapInArrow``. ``plan`` is the plan folder, whose name is unique to the run."""
    # Else each machine would have its part of the plan.
    if not plan.is_dir():
        raise ConfigurationError(_UNSHARED)
    return cut(batches, max_users=max_users, prefix=f"{_task_number():05}-")


class SendPartition(GuardedValue, frozen=True):
    """The function that sends the chunks in a partition, for ``mapInArrow``."""

    outcomes: str
    """The folder with this sending's outcomes."""
    options: dict[str, Any]
    """Arguments for ``push_batches``."""

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pushsdk.arrow import push_batches

        warnings.filterwarnings("ignore", "a user id", MessageWarning)  # the driver warns
        if not has_sentinel(self.options["claims"], self.options["run"]):
            raise ConfigurationError(
                "an executor does not see the claims that the driver made: put run_dir on a file system that all "
                "executors share, or have claims= make a store that they share"
            )
        number = _task_number()
        outcomes = push_batches(self._until_superseded(batches), **of_task(self.options, number))
        yield from counted(outcomes, self.outcomes, number)

    def _until_superseded(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Yield the batches until another call sends this run: its driver may be gone, and Spark go on."""
        outcomes = Path(self.outcomes)
        later = outcomes.with_name(f"{int(outcomes.name) + 1:04}")
        for batch in batches:
            if later.exists():
                raise ConfigurationError("another call of broadcast sends the rest of this run: this one ends")
            yield batch


def of_task(options: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the options for the task with this number: its share of the rate."""
    return {**options, "rate": msgspec.structs.replace(options["rate"], index=number)}


def _task_number() -> int:
    """Return the number of this task in its job; 0 outside a job."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def chunk_schema() -> "pa.Schema":
    """Return a chunk's columns: its id, its users, their fields if personal, and the number of source rows."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    return pa.schema({"chunk_id": pa.string(), "user_ids": texts, "fields": texts, "rows": pa.int64()})


def cut(batches: "Iterable[pa.RecordBatch]", *, max_users: int, prefix: str) -> "Iterator[pa.RecordBatch]":
    """Cut the users in a partition into chunks whose ids begin with ``prefix``.

    The input has the columns ``user_id``, ``rows`` and, if personal, ``fields``; the output has the ``chunk_schema``.
    The last chunks count the rows without an id, and the ids with each damage.
    """
    import pyarrow as pa

    bad = Counter[str]()

    def users() -> Iterator[tuple[Any, ...]]:
        for batch in batches:
            for row in zip(*[column.to_pylist() for column in batch.columns], strict=True):
                if row[0]:
                    yield row
                else:
                    bad[NULL if row[0] is None else EMPTY] += row[1]

    def chunk(name: str, rows: int, ids: Sequence[str] = (), fields: Sequence[str] = ()) -> pa.RecordBatch:
        columns = {"chunk_id": name, "user_ids": ids, "fields": fields, "rows": rows}
        return pa.RecordBatch.from_pylist([columns], schema=chunk_schema())

    good = users()
    for number, rows in enumerate(iter(lambda: list(itertools.islice(good, max_users)), [])):
        ids, sizes, *fields = zip(*rows, strict=True)
        bad.update(damage_of(ids, encode_user_ids(ids)))
        yield chunk(f"{prefix}{number:06}", sum(sizes), ids, *fields)
    for name, size in bad.items():
        yield chunk(name, size)

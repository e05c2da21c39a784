"""``broadcast``: write the plan, seal it, send it in one job, count the outcomes."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from pushsdk._audience.source import printable
from pushsdk._core.errors import BroadcastError, ConfigurationError, PushError
from pushsdk._core.models import MobilePush
from pushsdk._core.outcome import Outcome
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._io.credentials import KeySource
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._version import __version__
from pushsdk.claims.store import ClaimStore
from pushsdk.options import SendingOptions
from pushsdk.spark._claims import has_sentinel, plant_sentinel
from pushsdk.spark._folder import OWN_CLAIMS, Manifest, RunFolder, SendingSummary, digest_of, mismatch, uri
from pushsdk.spark._freeze import check_columns, count, freeze, hashes, schema_of
from pushsdk.spark._preflight import (
    ROWS_PER_CHUNK,
    BroadcastSpec,
    check_spark,
    checked_claims,
    checked_options,
    session_of,
)
from pushsdk.spark._report import SparkReport, report_of
from pushsdk.spark._tasks import ChunkPartition, SendPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Chunks that go from Spark to Python at a time: with 1000 users each, some hundred kilobytes.
CHUNKS_AT_A_TIME = 16
# An error of pushsdk in the text of a failed job. The errors' texts hold no ids and no key.
_PUSHSDK_ERROR = re.compile(r"^(?:pushsdk\.)?((?:Configuration|Validation|ClaimStore|RunFile)Error): (.{1,500})$", re.M)
# The error of a Python without pushsdk or one of its dependencies.
_MISSING_MODULE = re.compile(
    r"^ModuleNotFoundError: No module named '(pushsdk|aiohttp|msgspec|pandas|pyarrow|tenacity)\b", re.M
)


def broadcast(
    df: DataFrame,
    message: MobilePush | Mapping[str, Any],
    run_dir: str | os.PathLike[str],
    *,
    primary_key: str = "user_id",
    custom_fields: Mapping[str, Any] | None = None,
    personal: Literal["placeholders", "custom_fields"] | None = None,
    fields: Sequence[str] | None = None,
    tasks: int | None = None,
    claims: Callable[[], ClaimStore] | None = None,
    base_url: str | None = None,
    api_key: KeySource | None = None,
    stop_policy: StopPolicy | None = None,
    **options: Unpack[SendingOptions],
) -> SparkReport:
    """Push a message to the users of a Spark DataFrame from its executors, to each user once.

    The distinct ids of the column ``primary_key`` (texts or whole numbers) are cut into chunks and written to
    ``run_dir`` as Parquet, in one evaluation of the frame. Then ``tasks`` tasks (default: Spark's parallelism) send the
    chunks; each chunk is claimed before the first byte of its request leaves, so a task that Spark repeats pushes
    nobody twice. An existing ``run_dir`` is resumed without evaluating the frame. Driver and executors must see
    ``run_dir`` under the same path; it holds user ids.

    With ``personal`` each row is a separate request: the columns ``fields`` (default: the columns that placeholders
    name) fill the placeholders or become the custom fields. ``claims`` makes another claim store, in each executor.
    ``base_url`` defaults to the driver's PUSHSDK_BASE_URL. ``api_key`` is a callable; by default executors read
    PUSHSDK_API_KEY. Both, ``proxy`` and ``headers`` are written into the job. All tasks share ``rate`` in equal
    parts and send their first chunks in turn. The other options apply to each task.

    Raises ValidationError, ConfigurationError or RunFileError before anything is sent, BroadcastError if the job
    fails: call again with the same arguments to resume; ``read_report`` tells the outcomes so far.
    """
    client = {"base_url": base_url, "api_key": api_key, "stop_policy": stop_policy, **options}
    spec = BroadcastSpec(message, custom_fields, personal, fields, primary_key)
    session, folder = session_of(df), RunFolder(run_dir)
    with folder.locked():
        return _broadcast(df, session, folder, spec, tasks, claims, client)


def _broadcast(
    df: DataFrame,
    session: SparkSession,
    folder: RunFolder,
    spec: BroadcastSpec,
    tasks: int | None,
    claims: Callable[[], ClaimStore] | None,
    client: dict[str, Any],
) -> SparkReport:
    make, store, claim_ttl = checked_claims(claims, folder.claims)
    check_spark(session, make)
    options = checked_options(claims=make, **client)
    fields = spec.checked_fields(df.columns)
    tasks = session.sparkContext.defaultParallelism if tasks is None else tasks
    if type(tasks) is not int or tasks < 1:
        raise ConfigurationError(f"tasks must be a whole number, 1 or more; got {tasks!r}")
    max_users = options.batching.max_users
    description = {
        "kind": spec.personal or "broadcast",
        "digest": digest_of(spec.message, spec.custom_fields, fields),
        "base_url": options.base_url,
        "primary_key": spec.primary_key,
        "claims": store,
        "claim_ttl": claim_ttl,
        "max_users": min(max_users, ROWS_PER_CHUNK) if spec.personal else max_users,
        "tasks": tasks,
    }
    manifest = folder.manifest() or _plan(df, session, folder, fields, make, description)
    problem = mismatch(manifest, description, claim_ttl=claim_ttl)
    if problem is not None:
        raise run_file_error(folder.path, problem)
    concluded = folder.concluded()
    if concluded is not None and concluded[1].is_final:
        return report_of(folder, manifest, *concluded)
    # The store would recreate a directory that is gone.
    if (store == OWN_CLAIMS and not folder.claims.is_dir()) or not has_sentinel(make, manifest.run):
        raise run_file_error(folder.path, "its claims are gone, or claims= makes another store: nothing is sent")
    sender = SendPartition(
        folder=str(folder.path),
        run=manifest.run,
        message=spec.message,
        custom_fields=spec.custom_fields,
        personal=spec.personal,
        options=options.divided(tasks, manifest.max_users),
    )
    return _send(session, folder, manifest, sender, tasks)


def _plan(
    df: DataFrame,
    session: SparkSession,
    folder: RunFolder,
    fields: Sequence[str],
    make: Callable[[], ClaimStore],
    description: Mapping[str, Any],
) -> Manifest:
    """Write the plan and seal it. Nothing is sent before this returns."""
    folder.check_unsealed()
    primary_key, run = description["primary_key"], secrets.token_hex(16)
    check_columns(df, primary_key, fields)
    plan = folder.new_plan(run)
    try:
        freeze(df, ChunkPartition(str(plan), description["max_users"]), primary_key=primary_key, fields=fields)
        counts = count(_own_session(session), folder, plan, primary_key=primary_key)
    except BaseException as error:
        folder.drop_plans()
        problem = _pushsdk_error(error)
        if problem is None or isinstance(error, PushError):
            raise  # an error of the frame
        raise run_file_error(folder.path, f"{problem}; nothing was sent") from error
    folder.new_claims()
    plant_sentinel(make, run)
    manifest = Manifest(run=run, created=time.time(), version=__version__, **counts, **description)
    folder.seal(manifest)
    return manifest


def _send(
    session: SparkSession, folder: RunFolder, manifest: Manifest, sender: SendPartition, tasks: int
) -> SparkReport:
    """Send the pending users of the plan in one job, and count the outcomes."""
    from pushsdk.arrow import outcome_schema, plan_schema

    session = _own_session(session)
    outcomes, started = folder.new_outcomes(), time.monotonic()
    plan = session.read.schema(schema_of(plan_schema(manifest.kind != "broadcast")))
    # Partitioned by the chunk's id: round-robin would give a repeated task other chunks.
    chunks = plan.parquet(uri(folder.plan(manifest.run))).repartition(tasks, "chunk_id")
    schema = schema_of(outcome_schema())
    try:
        # The only action on this frame: a second action would run the tasks again.
        chunks.mapInArrow(sender, schema).write.mode("append").parquet(uri(outcomes))
        seconds = time.monotonic() - started
        frame = session.read.schema(schema).parquet(uri(outcomes))
        summary = _summary(frame, outcomes, manifest, seconds=seconds, tasks=tasks)
    except PushError:
        raise
    except Exception as error:
        hint = "; pushsdk.spark.read_report(run_dir) tells the outcomes so far" if manifest.claims == OWN_CLAIMS else ""
        raise BroadcastError(
            f"{folder.path}: the job failed ({_pushsdk_error(error) or 'its cause says why'}): call broadcast with the "
            f"same arguments to send the rest, no user is pushed twice{hint}",
            outcome=Outcome.UNKNOWN,
        ) from error
    folder.conclude(outcomes, summary)
    return report_of(folder, manifest, outcomes, summary)


def _summary(frame: DataFrame, outcomes: Path, manifest: Manifest, *, seconds: float, tasks: int) -> SendingSummary:
    """Count the outcomes. Raises RunFileError unless they are of every planned user, each once."""
    rows = frame.groupBy("outcome", "reason").agg(*hashes()).collect()
    total, checksum = sum(row["users"] for row in rows), sum(int(row["checksum"]) for row in rows)
    if (total, str(checksum)) != (manifest.users, manifest.checksum):
        raise run_file_error(
            outcomes,
            f"the outcomes are of {total:,} users, the plan of {manifest.users:,}, and not each of them is there once: "
            "files are missing or are not ours; call broadcast with the same arguments to write the outcomes again",
            outcome=Outcome.UNKNOWN,
        )
    users = dict.fromkeys(Outcome, 0)
    for row in rows:
        users[Outcome(row["outcome"])] += row["users"]
    unsent = [row for row in rows if row["outcome"] == Outcome.NOT_SENT]
    stopped = max(unsent, key=lambda row: row["users"])["reason"] if unsent else None
    return SendingSummary.of(users, seconds=seconds, stopped=stopped, tasks=tasks)


def _own_session(session: SparkSession) -> SparkSession:
    """Return a new session with the settings that a broadcast needs."""
    own = session.newSession()
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(CHUNKS_AT_A_TIME))
    # A task that waits for the service is not idle.
    own.conf.set("spark.sql.execution.pyspark.udf.idleTimeoutSeconds", "0")
    # A file that can't be read must be an error, not an empty file.
    own.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    own.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
    return own


def _pushsdk_error(error: BaseException) -> str | None:
    """Return the text of pushsdk's error in the text of a failed job, None if there is none."""
    text = str(error)
    missing = _MISSING_MODULE.search(text)
    if missing is not None:
        return (
            f"the executors' Python has no {missing[1]}: install pushsdk[spark] there too, or point PYSPARK_PYTHON at "
            "a Python that has it (with a local master: at the Python of this process)"
        )
    errors = _PUSHSDK_ERROR.findall(text)
    return printable(errors[-1][1], 500) if errors else None

"""``broadcast``: freeze the plan, seal it, send it in one job, count what came of it."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from pushsdk._audience.source import printable
from pushsdk._core.errors import BroadcastError, PushError
from pushsdk._core.models import MobilePush
from pushsdk._core.outcome import Outcome
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._io.credentials import KeySource
from pushsdk._public import set_public_module
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
    checked_sending,
    session_of,
)
from pushsdk.spark._report import SparkReport, report_of
from pushsdk.spark._tasks import ChunkPartition, SendPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["broadcast"]

# Chunks that go from Spark to Python at a time: of 1000 users each, some hundred kilobytes.
CHUNKS_AT_A_TIME = 16
# Errors of ours in what Spark says of a task: their texts hold no ids and no key.
_OURS = re.compile(r"^(?:pushsdk\.\S+\.)?((?:Configuration|Validation|ClaimStore|RunFile)Error): (.{1,500})$", re.M)
# Of a Python that the package, or what it needs, is not installed in.
_MISSING = re.compile(
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
    """Push one message to the users of a DataFrame of Spark, each once, from its executors.

    First the plan: the distinct ids of the column ``primary_key`` (texts or whole numbers) are cut into chunks and
    written as Parquet to ``run_dir``, in one evaluation of the frame. Then ``tasks`` tasks (the parallelism of Spark)
    send it; each chunk is claimed before its first byte leaves. Whatever Spark starts again, nobody is pushed twice. A
    ``run_dir`` that exists is taken up where it ended, without evaluating the frame again. It is a directory that
    driver and executors see under the same path; it holds user ids.

    ``personal`` sends each row by itself: ``fields`` (columns; those that the placeholders name) fill the placeholders
    or are its custom fields. ``claims`` makes another claim store, in each executor. ``base_url`` defaults to
    PUSHSDK_BASE_URL here, ``api_key``, a callable, to PUSHSDK_API_KEY in the executors; both, ``proxy`` and
    ``headers`` travel with the job as they are. ``rate`` is that of all tasks together: each has an equal part, and
    their first chunks leave one after another. The rest is for each of them.

    Raises ValidationError, ConfigurationError or RunFileError before anything is sent, BroadcastError where the job
    failed: call again with the same arguments to take it up; ``read_report`` says what is known so far.
    """
    given = {"claims": claims, "base_url": base_url, "api_key": api_key, "stop_policy": stop_policy, **options}
    order = BroadcastSpec(message, custom_fields, personal, fields, primary_key, tasks)
    session, folder = session_of(df), RunFolder(run_dir)
    with folder.locked():
        return _broadcast(df, session, folder, order, given)


def _broadcast(
    df: DataFrame, session: SparkSession, folder: RunFolder, order: BroadcastSpec, given: Mapping[str, Any]
) -> SparkReport:
    make, store, claim_ttl = checked_claims(given["claims"], folder.claims)
    check_spark(session, make)
    sending = checked_sending(**{**given, "claims": make})
    names = order.checked_fields(df.columns)
    tasks = order.checked_tasks(session.sparkContext.defaultParallelism)
    wanted = {
        "kind": order.personal or "broadcast",
        "digest": digest_of(order.message, order.custom_fields, names),
        "base_url": sending.base_url,
        "primary_key": order.primary_key,
        "claims": store,
        "claim_ttl": claim_ttl,
    }
    manifest = folder.manifest()
    if manifest is None:
        max_users = sending.batching.max_users
        if order.personal:
            max_users = min(max_users, ROWS_PER_CHUNK)
        manifest = _plan(
            df, session, folder, fields=names, tasks=tasks, max_users=max_users, wanted=wanted, claims=make
        )
    why = mismatch(manifest, wanted, claim_ttl=claim_ttl)
    if why is not None:
        raise run_file_error(folder.path, why)
    concluded = folder.concluded()
    if concluded is not None and concluded[1].is_final:
        return report_of(folder, manifest, *concluded)
    # A directory that is gone would be made anew.
    if (store == OWN_CLAIMS and not folder.claims.is_dir()) or not has_sentinel(make, manifest.run):
        raise run_file_error(folder.path, "its claims are gone, or claims= makes another store: nothing is sent")
    sender = SendPartition(
        folder=str(folder.path),
        run=manifest.run,
        message=order.message,
        custom_fields=order.custom_fields,
        personal=order.personal,
        sending=sending.divided(tasks, manifest.max_users),
    )
    return send(session, folder, manifest, sender, tasks=tasks)


def _plan(
    df: DataFrame,
    session: SparkSession,
    folder: RunFolder,
    *,
    fields: Sequence[str],
    tasks: int,
    max_users: int,
    wanted: Mapping[str, Any],
    claims: Callable[[], ClaimStore],
) -> Manifest:
    """Freeze and seal. Nothing was sent before this returns."""
    folder.check_unsealed()
    primary_key, run = wanted["primary_key"], secrets.token_hex(16)
    check_columns(df, primary_key, fields)
    plan = folder.new_plan(run)
    try:
        freeze(df, ChunkPartition(str(plan), max_users), primary_key=primary_key, fields=fields)
        found = count(_own(session), folder, plan, primary_key=primary_key)
    except BaseException as error:
        folder.drop_plans()
        told = _ours(error)
        if told is None or isinstance(error, PushError):
            raise  # of the frame itself
        raise run_file_error(folder.path, f"{told}; nothing was sent") from error
    folder.new_claims()
    plant_sentinel(claims, run)
    manifest = Manifest(
        run=run,
        max_users=max_users,
        chunks=found.chunks,
        users=found.users,
        duplicates=found.rows - found.users,
        checksum=found.checksum,
        tasks=tasks,
        created=time.time(),
        version=__version__,
        **wanted,
    )
    folder.seal(manifest)
    return manifest


def send(
    session: SparkSession, folder: RunFolder, manifest: Manifest, sender: SendPartition, *, tasks: int
) -> SparkReport:
    """Send what is open of the plan, in one job, and count the outcomes."""
    from pushsdk.arrow import outcome_schema, plan_schema

    session = _own(session)
    outcomes, started = folder.new_outcomes(), time.monotonic()
    plan = session.read.schema(schema_of(plan_schema(manifest.kind != "broadcast")))
    # By the chunk's id: dealt out in turn, a task that is started again would get other chunks.
    chunks = plan.parquet(uri(folder.plan(manifest.run))).repartition(tasks, "chunk_id")
    told = schema_of(outcome_schema())
    try:
        # The one action. The frame goes to nobody else: a second one would ask for everything again.
        chunks.mapInArrow(sender, told).write.mode("append").parquet(uri(outcomes))
        seconds = time.monotonic() - started
        summary = _summary(session, outcomes, told, manifest, seconds=seconds, tasks=tasks)
    except PushError:
        raise
    except Exception as error:
        raise _failed(folder, manifest, _ours(error)) from error
    folder.conclude(outcomes, summary)
    return report_of(folder, manifest, outcomes, summary)


def _failed(folder: RunFolder, manifest: Manifest, why: str | None) -> BroadcastError:
    """What is told of a job of Spark's that failed, beside Spark's own words, which are its cause."""
    told = "; pushsdk.spark.read_report(run_dir) says what is known so far" if manifest.claims == OWN_CLAIMS else ""
    return BroadcastError(
        f"{folder.path}: the job failed ({why or 'its cause says why'}): call broadcast with the same arguments to "
        f"send the rest, nobody is pushed twice{told}",
        outcome=Outcome.UNKNOWN,
    )


def _summary(
    session: SparkSession, outcomes: Path, schema: Any, manifest: Manifest, *, seconds: float, tasks: int
) -> SendingSummary:
    """Count what was written. Raises RunFileError unless that is every planned user exactly once."""
    read = session.read.schema(schema).parquet(uri(outcomes))
    found = read.groupBy("outcome", "reason").agg(*hashes()).collect()
    users, checksum = sum(row["users"] for row in found), sum(int(row["checksum"]) for row in found)
    if (users, str(checksum)) != (manifest.users, manifest.checksum):
        raise run_file_error(
            outcomes,
            f"the outcomes are of {users:,} users, the plan of {manifest.users:,}, and not each of them is there once: "
            "files are missing or are not ours; call broadcast with the same arguments to have them written anew",
            outcome=Outcome.UNKNOWN,
        )
    counts = {outcome: sum(row["users"] for row in found if row["outcome"] == outcome) for outcome in Outcome}
    unsent = max(
        (row for row in found if row["outcome"] == Outcome.NOT_SENT), key=lambda row: row["users"], default=None
    )
    return SendingSummary(
        accepted=counts[Outcome.ACCEPTED],
        rejected=counts[Outcome.REJECTED],
        not_sent=counts[Outcome.NOT_SENT],
        unknown=counts[Outcome.UNKNOWN],
        seconds=seconds,
        stopped=None if unsent is None else unsent["reason"],
        tasks=tasks,
    )


def _own(session: SparkSession) -> SparkSession:
    """A session with the settings that are needed here, whatever those of the user's are."""
    own = session.newSession()
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(CHUNKS_AT_A_TIME))
    # A task that waits for the service is not idle.
    own.conf.set("spark.sql.execution.pyspark.udf.idleTimeoutSeconds", "0")
    # What can't be read must not pass for what is not there.
    own.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    own.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
    return own


def _ours(error: BaseException) -> str | None:
    """The error of ours in what Spark says of a failed job, if there is one."""
    told = str(error)
    missing = _MISSING.search(told)
    if missing is not None:
        return (
            f"the executors' Python has no {missing[1]}: install pushsdk[spark] there too, or point PYSPARK_PYTHON at "
            "one that has it (with a local master: at the Python of this process)"
        )
    found = _OURS.findall(told)
    return printable(found[-1][1], 500) if found else None


set_public_module(__name__, "pushsdk.spark")

"""``broadcast``: write the plan, seal it, send it in one job, count the outcomes."""

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from pushsdk._audience.source import printable
from pushsdk._core.address import host_and_port
from pushsdk._core.damage import warn_of_damage
from pushsdk._core.errors import ConfigurationError, PushError, ValidationError
from pushsdk._core.hints import check_options
from pushsdk._core.kinds import Count, check
from pushsdk._core.models import AnyMessage
from pushsdk._core.outcome import Outcome
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._io.credentials import KeySource
from pushsdk._io.file_names import AnyPath
from pushsdk._runs.progress import OnProgress
from pushsdk._runs.report import BroadcastError
from pushsdk._runs.run_file.file import run_file_error
from pushsdk.claims.store import ClaimStore
from pushsdk.options import SendingOptions
from pushsdk.spark import _preflight as preflight
from pushsdk.spark._folder import (
    OWN_CLAIMS,
    ClaimFactory,
    Manifest,
    RunFolder,
    SparkReport,
    has_sentinel,
    plant_sentinel,
    watched,
)
from pushsdk.spark._tasks import CHUNKS, EMPTY, NULL, SendPartition, cut_partition, trouble

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# ISO 8601; times with a zone are in UTC.
_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "true",
}
# Chunks that go from Spark to Python at a time: with 1000 users each, 16 are some hundred kilobytes.
_AT_A_TIME = "spark.sql.execution.arrow.maxRecordsPerBatch"
# A file that can't be read must be an error, not an empty file.
_WHOLE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
# Rows that Spark divides among as many tasks as it runs at a time.
_ROWS = 1 << 16
# The columns of ``pushsdk.arrow.outcome_schema``, for Spark.
_OUTCOMES = "user_id string, outcome string, status int, reason string"
# A pushsdk error in the text of a failed job. The error texts hold no ids and no key.
_PUSHSDK_ERROR = re.compile(r"^(?:pushsdk\.)?((?:Configuration|Validation|ClaimStore|RunFile)Error): (.{1,500})$", re.M)
# The error from a Python without pushsdk or one of its dependencies.
_MISSING_MODULE = re.compile(
    r"^ModuleNotFoundError: No module named '(pushsdk|aiohttp|msgspec|pandas|pyarrow|tenacity)\b", re.M
)


def broadcast(
    df: "DataFrame",
    message: AnyMessage,
    run_dir: AnyPath,
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
    on_progress: OnProgress | None = None,
    **options: Unpack[SendingOptions],
) -> SparkReport:
    """Push a message to the users in a Spark DataFrame from its executors, to each user once.

    The distinct ids in the column ``primary_key`` (texts or whole numbers) are cut into chunks and written to
    ``run_dir``, which driver and executors must see under the same path. Then ``tasks`` tasks (default: Spark's
    parallelism) send the chunks. An existing ``run_dir`` is resumed without evaluating the frame.

    With ``personal`` each row is a separate request: the columns ``fields`` (default: the columns that placeholders
    name) fill the placeholders or become the custom fields. ``claims`` makes another claim store, in each executor.
    ``api_key`` is a callable; by default executors read PUSHSDK_API_KEY. All tasks share ``rate`` in equal parts; the
    other options apply to each task. ``on_progress`` is called twice a second while the tasks send, in a thread here.

    Raises ValidationError, ConfigurationError or RunFileError before anything is sent, BroadcastError if the job
    fails: call again with the same arguments to resume; ``read_report`` tells the outcomes so far.
    """
    # A client's other options are for one process: they can't be pickled, or would be called in the executors.
    check_options("broadcast", options, SendingOptions.__optional_keys__)
    check("on_progress", on_progress, Callable[[Any], object] | None)
    session, folder = preflight.session_of(df), RunFolder(run_dir)
    with folder.locked():
        make, store, claim_ttl = preflight.checked_claims(claims, folder)
        preflight.check_spark(session, make)
        client = preflight.checked_options(
            base_url=base_url, claims=make, api_key=api_key, stop_policy=stop_policy, **options
        )
        names = preflight.checked_fields(message, personal, fields, df.columns)
        check("tasks", tasks, Count | None)
        max_users = client["batching"].max_users
        wanted = Manifest(
            run=secrets.token_hex(16),
            kind=personal or "broadcast",
            digest=preflight.content_digest(message, custom_fields, names),
            base_url=client["base_url"],
            primary_key=primary_key,
            claims=store,
            max_users=min(max_users, preflight.ROWS_PER_CHUNK) if personal else max_users,
            created=time.time(),
            claim_ttl=claim_ttl,
        )
        manifest = folder.manifest()
        if manifest is not None and (report := _finished(folder, manifest, wanted)) is not None:
            return report
        found = _look_around(session, folder, client)
        manifest = manifest or _plan(df, session, folder, names, make, wanted)
        _check_claims(folder, manifest, make)
        tasks = tasks or found
        sender = SendPartition(
            outcomes=str(folder.new_outcomes()),
            options={
                "message": message,
                "run": manifest.run,
                "custom_fields": custom_fields,
                "personal": personal,
                **preflight.divided(client, tasks, manifest.max_users),
            },
        )
        return _send(session, folder, manifest, sender, tasks, on_progress)


def _check_claims(folder: RunFolder, manifest: Manifest, make: ClaimFactory) -> None:
    """Raise RunFileError unless the store has the run's claims."""
    # The store would recreate a directory that is gone.
    is_gone = manifest.claims == OWN_CLAIMS and not folder.claims.is_dir()
    if is_gone or not has_sentinel(make, manifest.run):
        raise run_file_error(
            folder.path,
            "its claims are gone, or claims= makes another store, so nothing was sent: pass "
            "the claims= of the first call, or restore the claims folder",
        )


def _finished(folder: RunFolder, manifest: Manifest, wanted: Manifest) -> SparkReport | None:
    """Return the run's report, None if users are left. Raises RunFileError if it is another run than the wanted one."""
    if problem := preflight.mismatch(manifest, wanted):
        raise run_file_error(folder.path, problem)
    report = folder.concluded(manifest)
    return None if report is None or report.not_sent or report.unknown else report


def _look_around(session: "SparkSession", folder: RunFolder, client: Mapping[str, Any]) -> int:
    """Return how many tasks Spark runs at a time. Raises ConfigurationError if none could send."""
    address = host_and_port(client.get("proxy") or client["base_url"])
    with _explained(folder), NamedTemporaryFile(dir=folder.path) as token:
        look = partial(trouble, token.name, *address)
        troubles = [row["trouble"] for row in session.range(_ROWS).mapInArrow(look, "trouble string").collect()]
    if all(troubles):
        raise ConfigurationError(
            f"{troubles[0]}; nothing was sent. If Spark's functions have no network or no shared files, as in "
            "serverless compute, send from this process: client.broadcast(Audience.table(df.toArrow()), ...)"
        )
    return len(troubles)


@contextmanager
def _explained(folder: RunFolder) -> Iterator[None]:
    """Raise RunFileError for a pushsdk error in an executor. Others, such as the frame's, are raised unchanged."""
    try:
        yield
    except PushError:
        raise
    except Exception as error:
        problem = _pushsdk_error(error)
        if problem is None:
            raise
        raise run_file_error(folder.path, f"{problem}; nothing was sent") from error


def _plan(
    df: "DataFrame",
    session: "SparkSession",
    folder: RunFolder,
    fields: Sequence[str],
    make: ClaimFactory,
    wanted: Manifest,
) -> Manifest:
    """Write the plan and seal it. Nothing is sent before this returns."""
    folder.check_unsealed()
    preflight.check_columns(df, wanted.primary_key, fields)
    plan = folder.new_plan(wanted.run)
    try:
        with _explained(folder):
            _freeze(df, plan, wanted, fields)
            counts = count(session, folder, plan, primary_key=wanted.primary_key)
    except BaseException:
        folder.drop_plans()
        raise
    plant_sentinel(make, wanted.run)
    manifest = msgspec.structs.replace(wanted, **counts)
    folder.seal(manifest)
    return manifest


def _freeze(df: "DataFrame", plan: Path, wanted: Manifest, fields: Sequence[str]) -> None:
    """Write the plan. If several rows have the same id, any row counts."""
    import pyspark.sql.functions as sf

    columns = [_named(df, wanted.primary_key).cast("string").alias("user_id")]
    totals = [sf.count(sf.lit(1)).alias("rows")]
    if fields:
        row = sf.struct(*(_value(df, name).alias(name) for name in fields))
        columns.append(sf.to_json(row, _JSON).alias("fields"))
        totals.append(sf.first("fields").alias("fields"))
    # Rows without an id are a group, too, so they are counted in the same evaluation.
    users = df.select(*columns).groupBy("user_id").agg(*totals)
    chunks = users.mapInArrow(partial(cut_partition, plan, wanted.max_users), CHUNKS)
    chunks.write.mode("append").parquet(f"file://{plan}")


def count(session: "SparkSession", folder: RunFolder, plan: Path, *, primary_key: str) -> dict[str, Any]:
    """Return the counts of a written plan, for its manifest.

    Raises ValidationError if rows have no id, RunFileError if the plan is not whole.
    """
    if not any(plan.glob("*.parquet")):
        raise run_file_error(
            folder.path, "Spark's driver writes its files elsewhere: it must see run_dir under the same path, too"
        )
    import pyspark.sql.functions as sf

    frame = _read(session, CHUNKS, plan)
    bad = sf.when(sf.size("user_ids") == 0, sf.col("chunk_id"))
    totals = frame.groupBy(bad.alias("bad")).agg(
        sf.count(sf.lit(1)).alias("chunks"),
        sf.count_distinct("chunk_id").alias("ids"),
        sf.sum("rows").alias("rows"),
    )
    groups = {row["bad"]: row for row in totals.collect()}
    good = groups.pop(None, None)
    _check_ids({name: row["rows"] for name, row in groups.items()}, primary_key)
    if good is None:
        return {}
    users = frame.select(sf.explode("user_ids").alias("user_id")).agg(*_hashes()).collect()[0]
    if good["chunks"] != good["ids"]:
        raise run_file_error(folder.path, "its plan does not read as it was written: nothing was sent; try again")
    return {
        "users": users["users"],
        "duplicates": good["rows"] - users["users"],
        "checksum": str(users["checksum"]),
    }


def _check_ids(rows: Mapping[str, int], primary_key: str) -> None:
    """Raise ValidationError for rows without an id; warn about damaged ids."""
    missing = [f"{rows[name]:,} rows have {name}" for name in (NULL, EMPTY) if name in rows]
    if missing:
        raise ValidationError(
            f"{' and '.join(missing)} in {printable(primary_key, 60)!r}: nothing was sent; filter them out"
        )
    warn_of_damage(rows)


def _hashes() -> "list[Column]":
    """Return columns with the user id count, and the sum of the hashes, which is the same in any order."""
    import pyspark.sql.functions as sf

    hashed = sf.xxhash64("user_id").cast("decimal(38,0)")
    return [sf.count("user_id").alias("users"), sf.sum(hashed).alias("checksum")]


def _read(session: "SparkSession", columns: str, folder: Path) -> "DataFrame":
    # Whatever Spark's default file system is; Hadoop wants the path unquoted.
    return session.read.schema(columns).options(**_WHOLE).parquet(f"file://{folder}")


def _named(df: "DataFrame", name: str) -> "Column":
    """Return the column with exactly this name, whatever characters the name has."""
    return df["`" + name.replace("`", "``") + "`"]


def _value(df: "DataFrame", name: str) -> "Column":
    """Return a column as JSON takes it: decimals with all their digits, NaN as NULL."""
    import pyspark.sql.functions as sf

    column, kind = _named(df, name), df.schema[name].dataType.typeName()
    if kind == "decimal":
        return column.cast("string")
    return sf.when(~sf.isnan(column), column) if kind in ("float", "double") else column


def _send(
    session: "SparkSession",
    folder: RunFolder,
    manifest: Manifest,
    sender: SendPartition,
    tasks: int,
    on_progress: OnProgress | None,
) -> SparkReport:
    """Send to the pending users in the plan in one job, and count the outcomes."""
    outcomes, started = Path(sender.outcomes), time.monotonic()
    plan = _read(session, CHUNKS, folder.plan(manifest.run))
    # Partitioned by the chunk's id: round-robin would give a repeated task other chunks.
    chunks = plan.where("size(user_ids) > 0").repartition(tasks, "chunk_id")
    sent = chunks.mapInArrow(sender, _OUTCOMES)
    # Not in a new session, which would lack the packages that were added to this one.
    at_a_time = session.conf.get(_AT_A_TIME)
    session.conf.set(_AT_A_TIME, "16")
    watch = watched(on_progress, outcomes, manifest.users) if on_progress is not None else nullcontext()
    try:
        with watch:
            # The only action on this frame: a second action would run the tasks again.
            sent.write.mode("append").parquet(f"file://{outcomes}")
        seconds = time.monotonic() - started
        frame = _read(session, _OUTCOMES, outcomes)
        report = _report(frame, outcomes, manifest, seconds=seconds, tasks=tasks)
    except PushError:
        raise
    except Exception as error:
        hint = "; pushsdk.spark.read_report(run_dir) tells the outcomes so far" if manifest.claims == OWN_CLAIMS else ""
        raise BroadcastError(
            f"{folder.path}: the job failed ({_pushsdk_error(error) or 'its cause says why'}): call broadcast with the "
            f"same arguments to send the rest, no user is pushed twice{hint}",
            outcome=Outcome.UNKNOWN,
        ) from error
    finally:
        session.conf.set(_AT_A_TIME, at_a_time)
    folder.conclude(outcomes, report)
    return folder.completed(report, manifest, file=str(outcomes))


def _report(frame: "DataFrame", outcomes: Path, manifest: Manifest, *, seconds: float, tasks: int) -> SparkReport:
    """Count the outcomes. Raises RunFileError unless every planned user has exactly one."""
    rows = frame.groupBy("outcome", "reason").agg(*_hashes()).collect()
    users, checksum = Counter[str](), sum(int(row["checksum"]) for row in rows)
    for row in rows:
        users[row["outcome"].lower()] += row["users"]
    if (users.total(), str(checksum)) != (manifest.users, manifest.checksum):
        raise run_file_error(
            outcomes,
            f"the outcomes are of {users.total():,} users, the plan of {manifest.users:,}, and not each of them is "
            "there once: files are missing or are not ours; call broadcast with the same arguments to write the "
            "outcomes again",
            outcome=Outcome.UNKNOWN,
        )
    unsent = [row for row in rows if row["outcome"] == Outcome.NOT_SENT]
    stopped = max(unsent, key=lambda row: row["users"])["reason"] if unsent else None
    return SparkReport(**dict[str, Any](users), seconds=seconds, stopped=stopped, tasks=tasks)


def _pushsdk_error(error: BaseException) -> str | None:
    """Return the text of the pushsdk error that a failed job quotes, None if there is none."""
    text = str(error)
    missing = _MISSING_MODULE.search(text)
    if missing is not None:
        return (
            f"the executors' Python has no {missing[1]}: install pushsdk and its extra 'spark' there too, or "
            "point PYSPARK_PYTHON at a Python that has it (with a local master: at the Python of this process)"
        )
    errors = _PUSHSDK_ERROR.findall(text)
    return printable(errors[-1][1], 500) if errors else None

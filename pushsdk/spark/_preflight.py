"""What is looked at before anything happens: the arguments, the frame, and those settings of Spark that matter here."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from pushsdk._core.errors import ConfigurationError, ValidationError
from pushsdk._core.placeholders import placeholder_names
from pushsdk._core.policy import Batching, Rate, Share
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._core.wire import encode_message
from pushsdk.claims import ClaimStore, DirectoryClaims, MemoryClaims, SqliteClaims
from pushsdk.claims.store import MAX_CLAIM_TTL
from pushsdk.client import AsyncPushClient
from pushsdk.options import SendingOptions
from pushsdk.spark._folder import OWN_CLAIMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ROWS_PER_CHUNK",
    "BroadcastSpec",
    "PushOptions",
    "check_spark",
    "checked_claims",
    "checked_sending",
    "session_of",
]

logger = logging.getLogger("pushsdk")

# Spark's own default.
_REDACTED = "(?i)secret|password|token|access[.]?key"
_KEY_SETTING = "spark.executorEnv.PUSHSDK_API_KEY"
# Personalised: a request each, and one claim for all of them.
ROWS_PER_CHUNK = 100

# Seconds that claims are kept, at least: a job has to be over in half of them.
SHORTEST = 86400.0
# Seconds that a claim may take: a shared volume that many write to is slow at times, and nobody waits for one push.
PATIENCE = 30.0

ClaimFactory = Callable[[], ClaimStore]


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The keywords of ``push_batches`` in an executor, checked, plain and picklable. Holds no key."""

    base_url: str
    claims: ClaimFactory
    batching: Batching
    others: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"PushOptions({self.base_url!r})"

    def divided(self, tasks: int, max_users: int) -> PushOptions:
        """Return the keywords for one of ``tasks`` tasks, in chunks of ``max_users``: with its share of the rate."""
        others = self.others
        if (rate := others.get("rate")) is not None:
            given = {name: getattr(rate, name) for name in Rate.__struct_fields__}
            per: dict[str, Any] = {name: None if value is None else value / tasks for name, value in given.items()}
            others = {**others, "rate": Share(**per, of=tasks)}
        batching = msgspec.structs.replace(self.batching, max_users=max(max_users, self.batching.max_users))
        return msgspec.structs.replace(self, batching=batching, others=others)

    def options(self, place: int) -> dict[str, Any]:
        """Return them as a mapping, for the task with this place among the tasks."""
        others = self.others
        if isinstance(rate := others.get("rate"), Share):
            others = {**others, "rate": msgspec.structs.replace(rate, place=place)}
        return {**others, "base_url": self.base_url, "claims": self.claims, "batching": self.batching}


class BroadcastSpec(msgspec.Struct, frozen=True):
    """What is sent to whom, as it was given."""

    message: Any
    custom_fields: Mapping[str, Any] | None
    personal: Any
    fields: Any
    primary_key: Any
    tasks: Any

    def __repr__(self) -> str:
        return f"BroadcastSpec({self.personal!r})"

    def checked_fields(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that are sent along; none where it is one message for all. Raises ConfigurationError."""
        encode_message(self.message)
        personal, fields = self.personal, self.fields
        if personal not in (None, "placeholders", "custom_fields"):
            raise ConfigurationError('personal is "placeholders", "custom_fields" or None')
        if personal is None:
            if fields is not None:
                raise ConfigurationError("fields are for personal=: say what they fill")
            return ()
        if fields is None:
            named = placeholder_names(self.message)
            fields = [name for name in columns if name in named]
            if not fields:
                raise ConfigurationError(
                    "no placeholder of the message names a column: name those to send with fields="
                )
        listed = isinstance(fields, Sequence) and not isinstance(fields, str)
        if not listed or not all(isinstance(name, str) for name in fields):
            raise ConfigurationError("fields is a list of names of columns")
        if not fields or len(set(fields)) < len(fields):
            raise ConfigurationError("fields names at least one column, and each once")
        return tuple(fields)

    def checked_tasks(self, parallelism: int) -> int:
        """How many share the sending. Raises ConfigurationError."""
        tasks = parallelism if self.tasks is None else self.tasks
        if type(tasks) is not int or tasks < 1:
            raise ConfigurationError("tasks is a whole number, 1 or more")
        return tasks


def checked_sending(
    *,
    base_url: str | None,
    claims: ClaimFactory,
    api_key: object = None,
    stop_policy: object = None,
    **options: Unpack[SendingOptions],
) -> PushOptions:
    """Check the keywords of ``broadcast``: in an executor it would be late. Raises ConfigurationError, TypeError."""
    if isinstance(api_key, str):
        raise ConfigurationError(
            "api_key is a callable here, or None for PUSHSDK_API_KEY of each executor's environment: a text would be "
            "written into the job, which Spark keeps"
        )
    if api_key is not None and not callable(api_key):
        raise ConfigurationError("api_key is a callable that returns the key, or None")
    if stop_policy is not None and not isinstance(stop_policy, StopPolicy):
        raise ConfigurationError("stop_policy is a StopPolicy")
    # The others are for one process. They may not be pickled, or would be called in the executors.
    for name in options.keys() - SendingOptions.__optional_keys__:
        raise TypeError(f"broadcast() got an unexpected keyword argument {name!r}")
    settings = AsyncPushClient(base_url, "of-the-executors", **options)._engine.settings
    others = {**options, "api_key": api_key, "stop_policy": stop_policy}
    # A copy as a plain text: what is sealed is not pickled.
    return PushOptions(base_url="".join(settings.base_url), claims=claims, batching=settings.batching, others=others)


def checked_claims(given: object, folder: Path) -> tuple[ClaimFactory, str, float]:
    """What makes a claim store in each executor, which kind that is, and how long it keeps a claim."""
    if given is None:
        make = partial(DirectoryClaims, folder, claim_ttl=MAX_CLAIM_TTL, timeout=PATIENCE)
        return make, OWN_CLAIMS, MAX_CLAIM_TTL
    if not callable(given):
        raise ConfigurationError("claims is a function that makes a claim store: each executor makes its own")
    store = given()
    if not isinstance(store, ClaimStore):
        raise ConfigurationError("claims is a function that returns a claim store, as pushsdk.claims.RedisClaims")
    if isinstance(store, MemoryClaims):
        raise ConfigurationError("MemoryClaims ends with its process: Spark starts tasks again in another one")
    if store.claim_ttl < SHORTEST:
        raise ConfigurationError("claim_ttl is a day or more here: no claim may expire while the job goes on")
    return given, type(store).__qualname__, store.claim_ttl


def session_of(df: object) -> SparkSession:
    """The session of a frame. Raises ConfigurationError where it is none that can be sent from."""
    try:
        from pyspark.sql import DataFrame
    except ImportError:
        raise ConfigurationError("Spark is missing: pip install 'pushsdk[spark]'") from None
    if type(df).__module__.startswith("pyspark.sql.connect."):
        raise ConfigurationError(
            "the frame is of a Spark Connect session, whose driver is elsewhere: run this where the driver is, as with "
            "spark-submit"
        )
    if not isinstance(df, DataFrame):
        raise ValidationError("df is a DataFrame of Spark")
    if df.isStreaming:
        raise ValidationError("df is a stream: broadcast each batch of it, in a folder of its own, with foreachBatch")
    return df.sparkSession


def check_spark(session: SparkSession, claims: ClaimFactory) -> None:
    """Raises ConfigurationError where Spark is set up to do things twice at a time; warns where it gives up early."""
    settings = session.sparkContext.getConf()
    if (settings.get("spark.speculation") or "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation is on: Spark would start slow tasks twice. Set spark.speculation=false for this job"
        )
    redacted = settings.get("spark.redaction.regex") or _REDACTED
    if settings.get(_KEY_SETTING) is not None and not re.search(redacted, _KEY_SETTING):
        raise ConfigurationError(
            f"{_KEY_SETTING} is a setting that Spark shows in its pages and event logs: pass a callable as api_key, "
            "set the variable by other means (as spark.kubernetes.executor.secretKeyRef), or have "
            "spark.redaction.regex match it"
        )
    master = settings.get("spark.master") or ""
    if master.startswith("local[") or master == "local":
        return
    if (settings.get("spark.task.maxFailures") or "4") == "1":
        logger.warning("spark.task.maxFailures is 1: the first executor that is lost ends the broadcast; 4 is usual")
    if isinstance(claims(), SqliteClaims):
        raise ConfigurationError("SqliteClaims is for the processes of one machine: executors have several")

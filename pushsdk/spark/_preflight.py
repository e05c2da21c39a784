"""Checks before anything happens: the arguments, the frame, and the settings of Spark."""

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

logger = logging.getLogger("pushsdk")

# The default of Spark's setting spark.redaction.regex.
_REDACTED = "(?i)secret|password|token|access[.]?key"
_KEY_SETTING = "spark.executorEnv.PUSHSDK_API_KEY"
# Users of a personal chunk: each has a request, and all share one claim.
ROWS_PER_CHUNK = 100

# The least ``claim_ttl`` in seconds. A job has half of it.
MIN_CLAIM_TTL = 86400.0
# Seconds that a claim may take: a shared volume with many writers is slow at times.
CLAIM_TIMEOUT = 30.0

ClaimFactory = Callable[[], ClaimStore]


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of ``push_batches`` in an executor: checked and picklable, without the Api-Key."""

    base_url: str
    claims: ClaimFactory
    batching: Batching
    others: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"PushOptions({self.base_url!r})"

    def divided(self, tasks: int, max_users: int) -> PushOptions:
        """Return the options for ``tasks`` tasks and chunks of ``max_users``: each task has a share of the rate."""
        others = self.others
        if (rate := others.get("rate")) is not None:
            caps = {name: getattr(rate, name) for name in Rate.__struct_fields__}
            per: dict[str, Any] = {name: None if value is None else value / tasks for name, value in caps.items()}
            others = {**others, "rate": Share(**per, count=tasks)}
        batching = msgspec.structs.replace(self.batching, max_users=max(max_users, self.batching.max_users))
        return msgspec.structs.replace(self, batching=batching, others=others)

    def of_task(self, number: int) -> dict[str, Any]:
        """Return the arguments of the task with this number."""
        others = self.others
        if isinstance(rate := others.get("rate"), Share):
            others = {**others, "rate": msgspec.structs.replace(rate, index=number)}
        return {**others, "base_url": self.base_url, "claims": self.claims, "batching": self.batching}


class BroadcastSpec(msgspec.Struct, frozen=True):
    """The message of a broadcast and the columns that it needs, unchecked."""

    message: Any
    custom_fields: Mapping[str, Any] | None
    personal: Any
    fields: Any
    primary_key: Any

    def __repr__(self) -> str:
        return f"BroadcastSpec({self.personal!r})"

    def checked_fields(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that are sent; none if not ``personal``. Raises ConfigurationError, ValidationError."""
        encode_message(self.message)
        personal, fields = self.personal, self.fields
        if personal not in (None, "placeholders", "custom_fields"):
            raise ConfigurationError(f'personal must be "placeholders", "custom_fields" or None; got {personal!r}')
        if personal is None:
            if fields is not None:
                raise ConfigurationError("fields needs personal=, which says what the fields fill")
            return ()
        if fields is None:
            placeholders = placeholder_names(self.message)
            fields = [name for name in columns if name in placeholders]
            if not fields:
                raise ConfigurationError(
                    "no placeholder of the message names a column: name the columns to send with fields="
                )
        is_list = isinstance(fields, Sequence) and not isinstance(fields, str)
        if not is_list or not all(isinstance(name, str) for name in fields):
            raise ConfigurationError('fields must be a list of names of columns, for example ["first_name"]')
        if not fields or len(set(fields)) < len(fields):
            raise ConfigurationError("fields must name at least one column, and each once")
        return tuple(fields)


def checked_options(
    *,
    base_url: str | None,
    claims: ClaimFactory,
    api_key: object = None,
    stop_policy: object = None,
    **options: Unpack[SendingOptions],
) -> PushOptions:
    """Return the options of ``push_batches``, checked in the driver. Raises ConfigurationError, TypeError."""
    if isinstance(api_key, str):
        raise ConfigurationError(
            "api_key must be a callable here, or None for PUSHSDK_API_KEY of each executor's environment: a str would "
            "be written into the job, which Spark keeps"
        )
    if api_key is not None and not callable(api_key):
        raise ConfigurationError(f"api_key must be a callable or None; got {type(api_key).__name__}")
    if stop_policy is not None and not isinstance(stop_policy, StopPolicy):
        raise ConfigurationError(
            f"stop_policy must be a StopPolicy, for example StopPolicy(rejected=0.1); got {type(stop_policy).__name__}"
        )
    # The other options of a client are for one process: they can't be pickled, or would be called in the executors.
    for name in options.keys() - SendingOptions.__optional_keys__:
        raise TypeError(f"broadcast() got an unexpected keyword argument {name!r}")
    settings = AsyncPushClient(base_url, "of-the-executors", **options)._engine.settings
    others = {**options, "api_key": api_key, "stop_policy": stop_policy}
    # A copy as a plain text: what is sealed is not pickled.
    return PushOptions(base_url="".join(settings.base_url), claims=claims, batching=settings.batching, others=others)


def checked_claims(claims: object, folder: Path) -> tuple[ClaimFactory, str, float]:
    """Return the function that makes a claim store in each executor, the store's kind, and its ``claim_ttl``."""
    if claims is None:
        make = partial(DirectoryClaims, folder, claim_ttl=MAX_CLAIM_TTL, timeout=CLAIM_TIMEOUT)
        return make, OWN_CLAIMS, MAX_CLAIM_TTL
    if not callable(claims):
        got = type(claims).__name__
        raise ConfigurationError(f"claims must be a function that makes a claim store in each executor; got {got}")
    store = claims()
    if not isinstance(store, ClaimStore):
        got = type(store).__name__
        raise ConfigurationError(f"claims() must return a claim store, for example RedisClaims(...); got {got}")
    if isinstance(store, MemoryClaims):
        raise ConfigurationError("MemoryClaims ends with its process, and Spark repeats tasks in others: share a store")
    if store.claim_ttl < MIN_CLAIM_TTL:
        raise ConfigurationError("claim_ttl must be a day or more here: no claim may expire during the job")
    return claims, type(store).__qualname__, store.claim_ttl


def session_of(df: object) -> SparkSession:
    """Return the session of a frame. Raises ConfigurationError or ValidationError if it can't be broadcast."""
    try:
        from pyspark.sql import DataFrame
    except ImportError:
        raise ConfigurationError("Spark is missing: pip install 'pushsdk[spark]'") from None
    if type(df).__module__.startswith("pyspark.sql.connect."):
        raise ConfigurationError(
            "the frame belongs to a Spark Connect session, whose driver is in another process: run this in the driver, "
            "for example with spark-submit"
        )
    if not isinstance(df, DataFrame):
        raise ValidationError(f"df must be a DataFrame of Spark; got {type(df).__name__}")
    if df.isStreaming:
        raise ValidationError("df is a stream: broadcast each of its batches with foreachBatch, in separate folders")
    return df.sparkSession


def check_spark(session: SparkSession, claims: ClaimFactory) -> None:
    """Raise ConfigurationError if Spark would run tasks twice or show the Api-Key; warn if it would not retry tasks."""
    settings = session.sparkContext.getConf()
    if (settings.get("spark.speculation") or "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation is on: Spark would start slow tasks twice. Set spark.speculation=false for this job"
        )
    redacted = settings.get("spark.redaction.regex") or _REDACTED
    if settings.get(_KEY_SETTING) is not None and not re.search(redacted, _KEY_SETTING):
        raise ConfigurationError(
            f"{_KEY_SETTING} is shown in Spark's pages and event logs: pass a callable as api_key, set the variable by "
            "other means (such as spark.kubernetes.executor.secretKeyRef), or have spark.redaction.regex match it"
        )
    master = settings.get("spark.master") or ""
    if master.startswith("local[") or master == "local":
        return
    if (settings.get("spark.task.maxFailures") or "4") == "1":
        logger.warning("spark.task.maxFailures is 1: the first lost executor ends the broadcast; the default is 4")
    if isinstance(claims(), SqliteClaims):
        raise ConfigurationError("SqliteClaims is for processes of one machine: use a store that all executors share")

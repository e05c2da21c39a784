"""Checks before anything happens: the arguments, the frame, and the Spark settings."""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import msgspec

from pushsdk._audience.source import missing_column, printable
from pushsdk._core.errors import ConfigurationError, ValidationError
from pushsdk._core.kinds import Rule, check, must_be
from pushsdk._core.placeholders import placeholder_names
from pushsdk._core.policy import Rate, shared, warn_of_unused
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._core.wire import encode_custom_fields, encode_message
from pushsdk.claims import MemoryClaims, SqliteClaims
from pushsdk.claims.store import MAX_CLAIM_TTL, Store
from pushsdk.client import AsyncPushClient
from pushsdk.options import SendingOptions
from pushsdk.spark._folder import OWN_CLAIMS, ClaimFactory, Manifest, RunFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("pushsdk")

# The default for the Spark setting spark.redaction.regex.
_REDACTED = "(?i)secret|password|token|access[.]?key"
_KEY_SETTING = "spark.executorEnv.PUSHSDK_API_KEY"
# Users per personal chunk: each has a request, and all share one claim.
ROWS_PER_CHUNK = 100

# The least ``claim_ttl`` in seconds. A job has half of it.
MIN_CLAIM_TTL = 86400.0
_IDS = frozenset({"string", "byte", "short", "integer", "long"})
Columns = Annotated[
    Sequence[str],
    Rule(
        'a list of different names of columns, for example ["first_name"]',
        lambda names: 0 < len(set(names)) == len(names),
    ),
]
# Types whose values are sent; ``_run`` converts the last three.
_VALUES = _IDS | {
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "array",
    "struct",
    "map",
    "decimal",
    "float",
    "double",
}
# Manifest fields that may not differ, in error text words.
_FIXED = {
    "kind": "another kind (personal=)",
    "primary_key": "another primary_key",
    "base_url": "another base_url",
    "digest": "another message, custom_fields or fields",
    "claims": "another claim store",
}


def checked_fields(message: Any, personal: object, fields: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are sent; none if not ``personal``. Raises ConfigurationError, ValidationError."""
    encode_message(message)
    check("personal", personal, Literal["placeholders", "custom_fields"] | None)
    if personal is None:
        if fields is not None:
            raise ConfigurationError("fields needs personal=, which says what the fields fill")
        return ()
    if fields is None:
        placeholders = placeholder_names(message)
        fields = [name for name in columns if name in placeholders]
        if not fields:
            raise ConfigurationError("no placeholder of the message names a column: name columns to send with fields=")
    check("fields", fields, Columns)
    return tuple(fields)


def checked_options(
    *,
    base_url: str | None,
    claims: ClaimFactory,
    api_key: object = None,
    stop_policy: object = None,
    **options: Unpack[SendingOptions],
) -> dict[str, Any]:
    """Return the options for ``push_batches``, checked in the driver. Raises ConfigurationError, TypeError."""
    if api_key is not None and not callable(api_key):
        raise ConfigurationError(
            "api_key must be a callable here, or None for PUSHSDK_API_KEY of each executor's environment: a str would "
            "be written into the job, which Spark keeps"
        )
    check("stop_policy", stop_policy, StopPolicy | None)
    client = AsyncPushClient(base_url, "of-the-executors", **options)
    warn_of_unused(client._options.policy)
    settings = client._lifetime.settings
    return {
        **options,
        "base_url": "".join(settings.base_url),  # as a plain text: sealed values are not pickled
        "batching": settings.batching,
        "claims": claims,
        "api_key": api_key,
        "stop_policy": stop_policy,
    }


def divided(options: dict[str, Any], tasks: int, max_users: int) -> dict[str, Any]:
    """Return the options for ``tasks`` tasks and chunks of ``max_users``: each task has a share of the rate."""
    batching = options["batching"]
    batching = msgspec.structs.replace(batching, max_users=max(max_users, batching.max_users))
    return {**options, "batching": batching, "rate": shared(options.get("rate") or Rate(), tasks)}


def checked_claims(claims: object, folder: RunFolder) -> tuple[ClaimFactory, str, float]:
    """Return the function that makes a claim store in each executor, the store's kind, and its ``claim_ttl``."""
    if claims is None:
        return folder.own_claims(), OWN_CLAIMS, MAX_CLAIM_TTL
    if not callable(claims):
        raise must_be("claims", "a function that makes a claim store in each executor", claims)
    store = claims()
    check("claims()", store, Store)
    if isinstance(store, MemoryClaims):
        raise ConfigurationError("MemoryClaims ends with its process, and Spark repeats tasks in others: share a store")
    if store.claim_ttl < MIN_CLAIM_TTL:
        raise ConfigurationError("claim_ttl must be a day or more here: no claim may expire during the job")
    return claims, type(store).__qualname__, store.claim_ttl


def content_digest(message: Any, custom_fields: Mapping[str, Any] | None, fields: Sequence[str]) -> str:
    """Return a hash over the message, its custom fields and columns. Raises ValidationError if they can't be sent."""
    names = [name.encode(errors="surrogatepass") for name in fields]
    parts = (encode_message(message), encode_custom_fields(custom_fields), names)
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


def mismatch(manifest: Manifest, wanted: Manifest) -> str | None:
    """Return why the run can't be resumed for the ``wanted`` one, made now; None if it can."""
    for name, words in _FIXED.items():
        if getattr(manifest, name) != getattr(wanted, name):
            return f"the run is of {words}: repeat its arguments; another folder pushes to all again"
    age = wanted.created - manifest.created
    # The other half is for the sending: no claim may expire before its end.
    kept = min(wanted.claim_ttl, manifest.claim_ttl)
    if age > kept / 2:
        return (
            f"the run was planned {age / 86400:.1f} days ago, over half of the {kept / 86400:.1f} that its claims are "
            "kept. Nothing is sent: claims that expire would have users pushed twice. Plan a new run for the others"
        )
    return None


def session_of(df: object) -> "SparkSession":
    """Return the session of a frame. Raises ConfigurationError or ValidationError if it can't be broadcast."""
    try:
        from pyspark.sql import DataFrame
    except ImportError:
        raise ConfigurationError("Spark needs pyspark (the extra 'spark'): pip install 'pyspark[sql]'") from None
    if not isinstance(df, DataFrame):
        raise ValidationError(f"df must be a DataFrame of Spark; got {type(df).__name__}")
    if df.isStreaming:
        raise ValidationError("df is a stream: broadcast each of its batches with foreachBatch, in separate folders")
    return df.sparkSession


def check_columns(df: "DataFrame", primary_key: str, fields: Sequence[str]) -> None:
    """Raise ValidationError if a column is missing, there twice, or has a type that can't be sent."""
    for name in (primary_key, *fields):
        option = "primary_key=" if name == primary_key else "fields="
        if not isinstance(name, str) or name not in df.columns:
            raise missing_column("the frame", str(name), df.columns, option=option)
        if df.columns.count(name) > 1:
            raise ValidationError(f"the frame has several columns {printable(name, 60)!r}: rename all but one")
    _check_key(primary_key, df.schema[primary_key].dataType)
    for name in fields:
        kind = df.schema[name].dataType
        if kind.typeName() not in _VALUES:
            raise ValidationError(
                f"column {printable(name, 60)!r} is of type {printable(kind.simpleString(), 60)}, which "
                "JSON has no form for: leave it out, or cast it to a string"
            )


def _check_key(name: str, kind: Any) -> None:
    if kind.typeName() not in _IDS and not (kind.typeName() == "decimal" and kind.scale == 0):
        raise ValidationError(
            f"{printable(name, 60)!r} is of type {printable(kind.simpleString(), 60)}; user ids are texts or "
            "whole numbers: cast it to a string"
        )


def check_spark(session: "SparkSession", claims: ClaimFactory) -> None:
    """Raise ConfigurationError if Spark would run tasks twice or show the Api-Key; warn if it would not retry tasks."""
    # A running session takes any setting from a builder, without effect; a new session has Spark's.
    fresh = session.newSession() if hasattr(session, "newSession") else session
    # All at once: serverless compute refuses to tell some by name.
    settings = fresh.conf.getAll
    if settings.get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation is on: Spark would start slow tasks twice. Set spark.speculation=false for this job"
        )
    redacted = settings.get("spark.redaction.regex", _REDACTED)
    if _KEY_SETTING in settings and not re.search(redacted, _KEY_SETTING):
        raise ConfigurationError(
            f"{_KEY_SETTING} is shown in Spark's pages and event logs: pass a callable as api_key, set the variable by "
            "other means (such as spark.kubernetes.executor.secretKeyRef), or have spark.redaction.regex match it"
        )
    master = settings.get("spark.master", "")
    if master.startswith("local[") or master == "local":
        return
    if settings.get("spark.task.maxFailures", "4") == "1":
        logger.warning("spark.task.maxFailures is 1: the first lost executor ends the broadcast; the default is 4")
    if isinstance(claims(), SqliteClaims):
        raise ConfigurationError("SqliteClaims is for processes of one machine: use a store that all executors share")

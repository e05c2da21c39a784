"""Checks of what callers pass. Nothing is sent until all checks pass."""

import io
import itertools
import re
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from pushsdk._core import wire
from pushsdk._core.checks import fits, is_async
from pushsdk._core.errors import ValidationError, warn_caller
from pushsdk._core.kinds import must_be
from pushsdk._core.models import MobilePush
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._core.words import count, kind_of, kind_of_id

T = TypeVar("T")
# What str() makes of a missing value.
_MISSING_VALUES = ("None", "nan", "NaN", "null", "NULL", "undefined")
_VARIABLE = re.compile(r"\$?\{[A-Za-z_][\w.]*\}|^\$\w+$")
# An id that is no doubt one; and what the JSON of others has.
_is_plain = re.compile(
    rf"(?!(?:{'|'.join(_MISSING_VALUES)})$)[\w.@:+/=-]+(?<!\.csv)(?<!\.txt)(?<!\.parquet)(?<!\.0)"
).fullmatch
_MARKS = (b"\\", b";", b"{", b"$", b" ")  # single bytes, which are found much faster than two


def check_users(user_ids: object, max_users: int) -> tuple[tuple[str, ...], wire.EncodedIds, int]:
    """Return the distinct ids, the same encoded, and the number of duplicates.

    Raises ValidationError.
    """
    if isinstance(user_ids, str):
        encoded = wire.encode_user_id(user_ids)
        if not _is_plain(user_ids) and (doubt := _doubt(user_ids)):
            warn_caller(doubt)
        return (user_ids,), encoded, 0
    if not isinstance(user_ids, Iterable) or isinstance(user_ids, (Mapping, bytes, bytearray, memoryview)):
        got = kind_of(user_ids) if user_ids is None else kind_of_id(user_ids)
        got = "an async iterable: collect it first" if isinstance(user_ids, AsyncIterable) else got
        got += ": use broadcast" if hasattr(user_ids, "personalize") else ""
        is_message = isinstance(user_ids, MobilePush) or (
            isinstance(user_ids, Mapping) and not user_ids.keys().isdisjoint(MobilePush.__struct_encode_fields__)
        )
        got += ": the users come first, then the message" if is_message else ""
        got += ": pass the ids in it as a list" if isinstance(user_ids, Mapping) and not is_message else ""
        raise ValidationError(f"user_ids must be a str or an iterable of str; got {got}")
    refuse_containers("user_ids", user_ids)
    ids = tuple(itertools.islice(user_ids, max_users + 1))
    if not ids:
        raise ValidationError("user_ids must not be empty: name at least one user")
    if len(ids) > max_users:
        raise ValidationError(
            f"user_ids must have at most {count(max_users, 'id')} (Batching.max_users): "
            "send them in parts, or as a broadcast"
        )
    encoded = wire.encode_user_ids(ids)
    distinct = tuple(once := dict.fromkeys(ids))
    if len(distinct) < len(ids):
        encoded = wire.encode_user_ids(distinct)
    if doubt := doubt_of(once, encoded):
        warn_caller(doubt)
    return distinct, encoded, len(ids) - len(distinct)


def refuse_containers(name: str, items: object) -> None:
    """Raise ValidationError for an iterable whose items are not what its user means: a table, or a file."""
    if hasattr(items, "__dataframe__"):
        advice = "which iterates over its columns: pass one, for example df['user_id'].tolist()"
        raise ValidationError(f"{name}: got a {type(items).__name__}, {advice}")
    if isinstance(items, io.IOBase):
        raise ValidationError(f"{name}: got an open file: use broadcast(Audience.read('users.csv'), ...)")


def doubt_of(ids: Mapping[str, object], encoded: bytes) -> str | None:
    """Return the warning of the first id that is probably none. The look at the ``encoded`` ids is quick."""
    is_plain = encoded.count(b",") < len(ids) and not any(mark in encoded for mark in _MARKS)
    # A look for several bytes is slow: the name of a file is looked for only if it is the one id.
    is_plain = is_plain and not (b"." in encoded and (len(ids) == 1 or b'.0"' in encoded))
    if is_plain and not any(text in ids for text in _MISSING_VALUES):
        return None
    return next((doubt for text in ids if not _is_plain(text) and (doubt := _doubt(text))), None)


def _doubt(text: str) -> str | None:
    sent = "It is sent as it is"
    if text != text.strip():
        return f"a user id begins or ends with a space or a line end: strip it. {sent}"
    if text in _MISSING_VALUES:
        return f"a user id is {text!r}, the text of a missing value: leave such users out. {sent}"
    if text[0] == '"' == text[-1]:
        return f"a user id has quotation marks around it: leave them out. {sent}"
    if lacks_value(text):
        return f"a user id has the name of a variable for its value: is it unset, or an f missing? {sent}"
    if text.endswith((".csv", ".txt", ".parquet")):
        return f"a user id is the name of a file: for the ids in it, use broadcast(Audience.read(...), ...). {sent}"
    if re.fullmatch(r"\d+\.0", text):
        return f"a user id is a number with .0 at its end, as pandas makes of an int: read the column as str. {sent}"
    if any(separator in text for separator in ",;\t\n"):
        return f"a user id looks like several: pass each as an id of its own. {sent}"
    return None


def lacks_value(text: str) -> bool:
    """Return True for a text such as ``user-{i}`` or ``None``, whose value was not filled in."""
    return text in _MISSING_VALUES or _VARIABLE.search(text) is not None


_RULES = {
    bool: "True or False",
    Batching: "a Batching, for example Batching(linger=0.005)",
    Limits: "a Limits, for example Limits(in_flight=8)",
    Rate: "a Rate, for example Rate(users_per_second=100)",
    RetryPolicy: "a RetryPolicy, for example RetryPolicy.safe(max_attempts=3) or RetryPolicy.none()",
    StopPolicy: "a StopPolicy, for example StopPolicy(rejected=0.1)",
}


def check_setting(kind: type[T], name: str, setting: object, default: T) -> T:
    """Return the setting, or the default for None. Raises ConfigurationError unless it is of this kind."""
    if setting is None:
        return default
    if not isinstance(setting, kind):
        raise must_be(name, _RULES[kind], setting)
    return setting


def check_callback(name: str, callback: object, argument: str) -> None:
    """Raise ConfigurationError unless the callback is None, or a callable of one argument that is not async."""
    if callback is not None and not fits(callback, Callable[[Any], Any]):
        advice = ": nothing would await an async one" if is_async(callback) else ""
        raise must_be(name, f"a plain function that takes one {argument}{advice}", callback)


def check_timeout(timeout: object, default: Timeout) -> Timeout:
    """Return the timeout, or the default for None. A number is the total in seconds. Raises ConfigurationError."""
    if timeout is None:
        return default
    if isinstance(timeout, Timeout):
        return timeout
    if not isinstance(timeout, (int, float, timedelta)) or isinstance(timeout, bool):
        raise must_be(
            "timeout", "the total in seconds, or a Timeout, for example Timeout(total=30, connect=5)", timeout
        )
    return default.within(timeout)

"""Checks of what callers pass. Nothing is sent until all checks pass."""

import itertools
import math
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from pushsdk._core import wire
from pushsdk._core.checks import fits, is_async
from pushsdk._core.errors import ValidationError, must_be
from pushsdk._core.models import MobilePush
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._core.words import count, kind_of

T = TypeVar("T")
# What str() makes of a missing value.
_MISSING_VALUES = frozenset({"None", "nan", "NaN", "null", "undefined"})


def check_users(user_ids: object, max_users: int) -> tuple[tuple[str, ...], bytes, int]:
    """Return the distinct ids, the same as JSON without brackets, and the number of duplicates.

    Raises ValidationError.
    """
    if isinstance(user_ids, str):
        encoded = wire.encode_user_id(user_ids)
        if user_ids.strip() != user_ids:
            wire.warn_caller(wire.SPACE)
        if user_ids in _MISSING_VALUES:
            _warn_of_missing(user_ids)
        if "," in user_ids or "." in user_ids or user_ids[0] in "{$":
            _warn_of_several(user_ids)
        return (user_ids,), encoded, 0
    if not isinstance(user_ids, Iterable) or isinstance(user_ids, (Mapping, bytes, bytearray, memoryview)):
        got = kind_of(user_ids, "" if user_ids is None else "a str")
        got = "an async iterable: collect it first" if isinstance(user_ids, AsyncIterable) else got
        got += ": use broadcast" if hasattr(user_ids, "personalize") else ""
        got += ": the users come first, then the message" if isinstance(user_ids, (Mapping, MobilePush)) else ""
        raise ValidationError(f"user_ids must be a str or an iterable of str; got {got}")
    ids = tuple(itertools.islice(user_ids, max_users + 1))
    if not ids:
        raise ValidationError("user_ids must not be empty: name at least one user")
    if len(ids) > max_users:
        raise ValidationError(
            f"user_ids must have at most {count(max_users, 'id')} (Batching.max_users): "
            "send them in parts, or as a broadcast"
        )
    encoded = wire.encode_user_ids(ids)
    if wire.has_space(ids, encoded):
        wire.warn_caller(wire.SPACE)
    distinct = tuple(once := dict.fromkeys(ids))
    for text in sorted(_MISSING_VALUES & once.keys()):
        _warn_of_missing(text)
    if len(distinct) < len(ids):
        encoded = wire.encode_user_ids(distinct)
    return distinct, encoded[1:-1], len(ids) - len(distinct)


def _warn_of_several(text: str) -> None:
    # "{user.id}" or "$USER_ID"; an id such as "{3F25-04E0}" is none.
    unset = text[0] in "{$" and text.strip("${}").replace(".", "_").isidentifier()
    if unset or "," in text or text.endswith((".csv", ".txt", ".parquet")):
        wire.warn_caller(
            "user_ids is one id, and looks like several, a file, or a variable without its value: "
            "pass a list, use broadcast, or check for a missing f before the quotes"
        )


def _warn_of_missing(text: str) -> None:
    wire.warn_caller(f"a user id is {text!r}, the text of a missing value: leave such users out. It is sent as it is")


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
    if isinstance(timeout, timedelta):
        return default.within(timeout.total_seconds())
    if 2000 <= timeout < math.inf and timeout % 1000 == 0:
        wire.warn_caller(
            f"timeout={timeout:g} is in seconds, and looks like milliseconds; pass a timedelta if it is meant"
        )
    return default.within(timeout)

"""What callers pass, checked and made into what the rest works with. Nothing is sent before this has passed."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TypeVar

from pushsdk._core import wire
from pushsdk._core.errors import ConfigurationError, ValidationError
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.words import count

__all__ = ["check_policy", "check_setting", "check_timeout", "check_users"]


def check_users(user_ids: object, max_users: int) -> tuple[tuple[str, ...], bytes, int]:
    """The distinct ids, the same as JSON without brackets, and how many were repetitions."""
    if isinstance(user_ids, str):
        return (user_ids,), wire.encode_user_id(user_ids), 0
    if isinstance(user_ids, AsyncIterable):
        raise ValidationError("user_ids is an async iterable: collect the ids of one call into a list")
    if not isinstance(user_ids, Iterable) or isinstance(user_ids, (Mapping, bytes, bytearray, memoryview)):
        raise ValidationError(f"user_ids is a str or an iterable of str, not {type(user_ids).__name__}")
    given = tuple(itertools.islice(user_ids, max_users + 1))
    if not given:
        raise ValidationError("user_ids is empty: name at least one user")
    if len(given) > max_users:
        raise ValidationError(
            f"user_ids has more than {count(max_users, 'id')} (Batching.max_users): "
            "send them in parts, or as a broadcast"
        )
    encoded = wire.encode_user_ids(given)
    distinct = tuple(dict.fromkeys(given))
    if len(distinct) < len(given):
        encoded = wire.encode_user_ids(distinct)
    return distinct, encoded[1:-1], len(given) - len(distinct)


def check_policy(given: object, default: RetryPolicy) -> RetryPolicy:
    """The policy, or the default where none was given. Raises ConfigurationError for anything else."""
    if given is None:
        return default
    if not isinstance(given, RetryPolicy):
        raise ConfigurationError("retry is a RetryPolicy, as RetryPolicy.safe() or RetryPolicy.none()")
    return given


def check_timeout(given: object, default: Timeout) -> Timeout:
    """The timeout; a number is the total in seconds, the rest that of the default."""
    if given is None:
        return default
    if isinstance(given, Timeout):
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return Timeout(total=given, attempt=default.attempt, connect=default.connect)
    raise ConfigurationError("timeout is a Timeout, or the total in seconds")


T = TypeVar("T", Batching, Limits, Rate)


def check_setting(kind: type[T], name: str, given: object) -> T:
    """The setting, or that kind's defaults where none was given."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise ConfigurationError(f"{name} is a {kind.__name__}")
    return given

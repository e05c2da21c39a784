"""Checks for a call's users. Nothing is sent until all checks pass."""

import io
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from pushsdk._core.body import EncodedIds, encode_user_id, encode_user_ids
from pushsdk._core.damage import SIGNS, WORDS, damage_of, warn_of_damage
from pushsdk._core.errors import ValidationError
from pushsdk._core.kinds import check, must_be
from pushsdk._core.models import MobilePush
from pushsdk._core.policy import Timeout, TimeoutOrTotal
from pushsdk._core.words import count


def check_users(
    user_ids: object, max_users: int, note: Callable[[list[str]], object] = warn_of_damage
) -> tuple[tuple[str, ...], EncodedIds, int]:
    """Return the distinct ids, the same encoded, and the duplicate count.

    ``note`` gets the damage of each damaged id. Raises ValidationError.
    """
    if isinstance(user_ids, str):
        ids: tuple[str, ...] = (user_ids,)
    else:
        ids = ids_of(user_ids, max_users)
    if len(ids) == 1:
        encoded = encode_user_id(ids[0])
        if ids[0] in WORDS or 0 in encoded.translate(SIGNS):
            note(damage_of(ids, encoded))
        return ids, encoded, 0
    if not ids:
        raise ValidationError("user_ids must not be empty: name at least one user")
    if len(ids) > max_users:
        raise ValidationError(
            f"user_ids must have at most {count(max_users, 'id')} (Batching.max_users): "
            "send them in parts, or as a broadcast"
        )
    encoded = encode_user_ids(ids)
    distinct = tuple(dict.fromkeys(ids))
    if len(distinct) < len(ids):
        encoded = encode_user_ids(distinct)
    note(damage_of(distinct, encoded))
    return distinct, encoded, len(ids) - len(distinct)


def ids_of(user_ids: object, max_users: int) -> tuple[str, ...]:
    """Read the ids for one send: at most one more than ``max_users``, enough to reject them."""
    return tuple(itertools.islice(iterable("user_ids", user_ids, "a str or an iterable of str"), max_users + 1))


def _is_message(value: object) -> bool:
    names = MobilePush.__struct_encode_fields__
    return isinstance(value, MobilePush) or (isinstance(value, Mapping) and not value.keys().isdisjoint(names))


_NOT_ITEMS = (str, bytes, bytearray, memoryview, Mapping)
# Values that are not items, and the fix. A table and a file are iterables, but their items are not the ids.
_MISTAKES: tuple[tuple[Callable[[object], bool], str], ...] = (
    (_is_message, ": the users come first, then the message"),
    (lambda items: not isinstance(items, Iterable) or isinstance(items, _NOT_ITEMS), ""),
    (
        lambda items: hasattr(items, "__dataframe__"),
        ", which iterates over its columns: pass one, for example df['user_id'].tolist()",
    ),
    (lambda items: isinstance(items, io.IOBase), ", an open file: use broadcast(Audience.read('users.csv'), ...)"),
)


def iterable(name: str, items: object, rule: str) -> Iterable[Any]:
    """Return the items. Raises ValidationError, with this rule, unless they are an iterable as their user means it."""
    if isinstance(items, (list, tuple)):
        return items
    for is_mistake, fix in _MISTAKES:
        if is_mistake(items):
            raise ValidationError(f"{must_be(name, rule, items)}{fix}")
    return items  # type: ignore[return-value] # checked above


def check_timeout(timeout: Any, default: Timeout) -> Timeout:
    """Return the timeout, or the default for None. A number is the total in seconds. Raises ConfigurationError."""
    if timeout is None:
        return default
    check("timeout", timeout, TimeoutOrTotal)
    return timeout if isinstance(timeout, Timeout) else replace(default, total=timeout)

"""Checks for a call's users. Nothing is sent until all checks pass."""

import io
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pushsdk._core.body import EncodedIds, encode_user_id, encode_user_ids
from pushsdk._core.errors import ValidationError, warn_caller
from pushsdk._core.kinds import check, must_be
from pushsdk._core.models import MobilePush
from pushsdk._core.policy import Timeout, TimeoutOrTotal
from pushsdk._core.words import count

# How str() shows a missing value.
_MISSING = ("None", "nan", "NaN", "null", "NULL", "undefined")
_LACKS_VALUE = rf"{'|'.join(_MISSING)}|.*\$?\{{[A-Za-z_][\w.]*\}}.*|\$\w+"
# The first pattern that matches an id tells why it is probably not one. The text may quote the id.
_DOUBTS = tuple(
    (re.compile(pattern, re.DOTALL), text)
    for pattern, text in (
        (r"\s.*|.*\s", "begins or ends with a space or a line end: strip it"),
        ("|".join(_MISSING), "is {!r}, the text of a missing value: leave such users out"),
        ('"(?:.*")?', "has quotation marks around it: leave them out"),
        (_LACKS_VALUE, "has the name of a variable for its value: is it unset, or an f missing?"),
        (
            r".*\.(?:csv|txt|parquet)",
            "is the name of a file: broadcast reads the ids in a file",
        ),
        (r"\d+\.0", "is a number with .0 at its end, as pandas makes of an int: read the column as str"),
        (r".*[,;\t\n].*", "looks like several: pass each as a separate id"),
    )
)
# An id that no pattern matches. And the others' single bytes in JSON: they are found much faster than patterns.
_is_plain = re.compile(
    rf"(?!(?:{'|'.join(_MISSING)})$)[\w.@:+/=-]+(?<!\.csv)(?<!\.txt)(?<!\.parquet)(?<!\.0)"
).fullmatch
_MARKS = (b"\\", b";", b"{", b"$", b" ")


def check_users(user_ids: object, max_users: int) -> tuple[tuple[str, ...], EncodedIds, int]:
    """Return the distinct ids, the same encoded, and the duplicate count.

    Raises ValidationError.
    """
    if isinstance(user_ids, str):
        encoded = encode_user_id(user_ids)
        # Without a call for nearly every id.
        if not _is_plain(user_ids) and (doubt := _doubt(user_ids)):
            warn_of_doubt(doubt)
        return (user_ids,), encoded, 0
    ids = tuple(itertools.islice(iterable("user_ids", user_ids, "a str or an iterable of str"), max_users + 1))
    if not ids:
        raise ValidationError("user_ids must not be empty: name at least one user")
    if len(ids) > max_users:
        raise ValidationError(
            f"user_ids must have at most {count(max_users, 'id')} (Batching.max_users): "
            "send them in parts, or as a broadcast"
        )
    encoded = encode_user_ids(ids)
    distinct = tuple(once := dict.fromkeys(ids))
    if len(distinct) < len(ids):
        encoded = encode_user_ids(distinct)
    if doubt := doubt_of(once, encoded):
        warn_of_doubt(doubt)
    return distinct, encoded, len(ids) - len(distinct)


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


def warn_of_doubt(doubt: str) -> None:
    """Warn about an id that is sent although it is probably none."""
    warn_caller(f"{doubt}. It is sent as it is")


def doubt_of(ids: Mapping[str, object], encoded: bytes) -> str | None:
    """Return the doubt about the first id that is probably none. ``encoded`` is their JSON."""
    return next(filter(None, map(_doubt, ids)), None) if _may_have_doubts(ids, encoded) else None


def _may_have_doubts(ids: Mapping[str, object], encoded: bytes) -> bool:
    """Return False if every id is plain. This is quick: 0.2 us for an id."""
    if not ids.keys().isdisjoint(_MISSING) or any(mark in encoded for mark in _MARKS):
        return True
    # A look for several bytes is slow: a file name is looked for only if it is the one id.
    has_end = b"." in encoded and (len(ids) == 1 or b'.0"' in encoded)
    return has_end or encoded.count(b",") >= len(ids)


def _doubt(user_id: str) -> str | None:
    if _is_plain(user_id):
        return None
    texts = (text.format(user_id) for pattern, text in _DOUBTS if pattern.fullmatch(user_id))
    text = next(texts, None)
    return text and f"a user id {text}"


lacks_value = re.compile(_LACKS_VALUE, re.DOTALL).fullmatch
"""Match a text such as ``user-{i}`` or ``None``, whose value was not filled in."""


def check_timeout(timeout: Any, default: Timeout) -> Timeout:
    """Return the timeout, or the default for None. A number is the total in seconds. Raises ConfigurationError."""
    if timeout is None:
        return default
    check("timeout", timeout, TimeoutOrTotal)
    return timeout if isinstance(timeout, Timeout) else default.within(timeout)

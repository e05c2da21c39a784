"""A push request's body: encoded user ids, around which a message and custom fields are put as they are."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NewType, cast

import msgspec

from pushsdk._core.paths import Path, unicode_text, value_error
from pushsdk._core.words import kind_of

EncodedIds = NewType("EncodedIds", bytes)
"""User ids as JSON texts with commas between them, without the brackets: such ids are cut and joined as they are."""

_encode = msgspec.json.Encoder().encode
_encode_one: Callable[[str], EncodedIds] = cast(Any, _encode)
_decode = msgspec.json.Decoder(list[str]).decode
#: Join encoded ids.
join_ids: Callable[[Iterable[EncodedIds]], EncodedIds] = cast(Any, b",".join)


def encode_user_id(user_id: str) -> EncodedIds:
    """Return one encoded id. Raises ValidationError like ``encode_user_ids``."""
    if type(user_id) is str and user_id:
        try:
            return _encode_one(user_id)
        except UnicodeEncodeError:
            pass
    return encode_user_ids((user_id,))


def encode_user_ids(user_ids: Sequence[str], name: str = "user_ids", first: int = 0) -> EncodedIds:
    """Return the encoded ids in the given order, which are those from ``first`` on in the argument ``name``.

    Raises ValidationError naming ``user_ids[3]``, never the id, unless every id is a non-empty str.
    """
    if isinstance(user_ids, (list, tuple)) and are_texts(user_ids):
        try:
            return encode_texts(user_ids)
        except UnicodeEncodeError:
            pass
    if isinstance(user_ids, (str, bytes, bytearray, memoryview)) or not isinstance(user_ids, Sequence):
        raise value_error((name,), f"expected a sequence of str, got {kind_of(user_ids)}")
    return encode_texts([_user_id(user_id, (name, i)) for i, user_id in enumerate(user_ids, first)])


def encode_texts(ids: Sequence[str]) -> EncodedIds:
    """Return the encoded ids, which were checked before."""
    return EncodedIds(_encode(ids)[1:-1])


def are_texts(user_ids: Sequence[object]) -> bool:
    """Return True if every value is a non-empty str, which may still hold a lone surrogate."""
    # Exact types: a str enum may be encoded differently from its text. A set of types takes twice as long.
    return [*map(type, user_ids)].count(str) == len(user_ids) and all(user_ids)


def decode_user_ids(ids: EncodedIds) -> list[str]:
    """Return the ids as texts."""
    return _decode(b"[%b]" % ids)


# Values that are not ids, and the fix: numbers and UUIDs, requests, rows.
_FIXES: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda value: isinstance(value, bool), ""),
    (lambda value: hasattr(value, "__index__") or type(value).__name__ == "UUID", ": pass str(id)"),
    (lambda value: hasattr(value, "user_ids") or (isinstance(value, dict) and "message" in value), ": use send_each"),
    (lambda value: hasattr(value, "keys") or isinstance(value, (list, tuple)), ": pass row[0] or row['user_id']"),
)


def _user_id(user_id: object, path: Path) -> str:
    if not isinstance(user_id, str):
        fix = next((fix for is_such, fix in _FIXES if is_such(user_id)), "")
        raise value_error(path, f"expected a str, got {kind_of(user_id)}{fix}")
    if not user_id:
        raise value_error(path, "the user id is empty")
    return unicode_text(user_id, path)


def push_body(ids: EncodedIds, message: bytes, custom_fields: bytes | None) -> bytes:
    """Return a push request's body from its encoded parts, without further checks."""
    if custom_fields is None:
        return b"".join((b'{"userIds":[', ids, b'],"message":', message, b"}"))
    return b'{"userIds":[%b],"message":%b,"customFields":%b}' % (ids, message, custom_fields)

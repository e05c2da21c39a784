"""Encoding and validation of request bodies; decoding of a created campaign.

Pure functions, except for one bounded cache of validations. A ValidationError names a JSON path and never shows a
value: values are user ids and texts.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, NewType, cast

import msgspec

from pushsdk._core.errors import ValidationError, warn_caller
from pushsdk._core.lint import CHILDREN, RULES, SHOWN, problems
from pushsdk._core.models import UNSET, CampaignCreated, CampaignRequest, MobilePush, Model, Path, show_path, typed
from pushsdk._core.placeholders import TEXTS, placeholder_names
from pushsdk._core.words import WAYS, kind_of, kind_of_id, near_word

_MAX_DEPTH = 100  # msgspec's encoder and decoder, and the parsers of most servers, recurse
_SHOWN_DEPTH = 5  # levels shown of a path that is too deep
_MAX_KNOWN = 1024
_MAX_KNOWN_BYTES = 16 * 1024

_MESSAGE: Path = ("message",)
_USER_IDS: Path = ("user_ids",)
_CUSTOM_FIELDS: Path = ("custom_fields",)
_FLAT_FIELDS = frozenset(MobilePush.__struct_encode_fields__) - CHILDREN[MobilePush].keys()
# The mistakes that cause a warning. The other rules are for ``lint``: what they find may be meant.
_WARNED = (
    "near-name",
    "near-value",
    "relative-image",
    "negative-number",
    "no-platform",
    "no-text",
    "malformed-placeholder",
    "no-segment",
    "no-message",
    "language-code",
)
_WARNED_RULES = tuple(rule for rule in RULES if rule.code in _WARNED)

EncodedIds = NewType("EncodedIds", bytes)
"""User ids as JSON texts with commas between them, without the brackets: such ids are cut and joined as they are."""

_encode = msgspec.json.Encoder().encode
_encode_one: Callable[[str], EncodedIds] = cast(Any, _encode)
_decode_ids = msgspec.json.Decoder(list[str]).decode
#: Join encoded ids.
join_ids: Callable[[Iterable[EncodedIds]], EncodedIds] = cast(Any, b",".join)
_decode_message = msgspec.json.Decoder(MobilePush).decode
_decode = msgspec.json.Decoder().decode
_ENCODING_FAILED = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

# Validated bytes, and the message that a strict decoder reads from them.
#
# Bytes alone prove nothing: Decimal("1"), b"i" or {1: "a"} encode like a valid text or key. So the message must also
# *equal* its decoded bytes. No value that msgspec converts does: a Decimal, UUID, datetime, bytes or plain enum never
# equals its str, an int key never the str key, a set never the list; and values that are equal in Python (True and 1,
# 1.0 and 1) differ in bytes. The cached message shares nothing with the caller's message, so later changes there have
# no effect. Look-up and comparison run in C: 0.3 us on top of 0.25 us for encoding 350 bytes; checking in Python
# takes 9 us.
_known: dict[bytes, MobilePush] = {}

# The latest entry. Concurrent sends mostly have the same message: its bytes are then hashed once, and shared.
_latest: tuple[bytes, MobilePush] = (b"", MobilePush())


def encode_message(message: MobilePush | Mapping[str, Any], *, warn: bool = True) -> bytes:
    """Return the JSON of a message.

    A mapping is sent unchanged, with fields unknown to this version, if it is strict JSON and the known fields have the
    types of ``MobilePush``. Warns of names and values that are nearly known ones, of malformed placeholders, and of a
    message without a platform or a text, unless ``warn`` is False. Raises ValidationError naming a path below
    ``$.message``.
    """
    if type(message) is not MobilePush:
        return _encode_dict(message) or _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    try:
        data = _encode(message)
        latest, meant = _latest
        if data == latest:
            data = latest
        else:
            meant = _known.get(data) or _decode_message(data)
    except _ENCODING_FAILED:
        return _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    if meant != message:
        # The check in Python finds the path of an error, and accepts a tuple for a list.
        return _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    if data is not latest:
        _remember(data, meant, warn=warn)
    return data


def _encode_dict(message: object) -> bytes | None:
    """Return the JSON of a simple dict, 3 us faster than by the check in Python; None if that is necessary."""
    if type(message) is not dict or not message.keys() <= _FLAT_FIELDS:
        return None
    try:
        data = _encode(message)
        # As above: only JSON's own types equal what a decoder reads. The check warns of a doubtful message.
        return None if _is_doubtful(_decode_message(data)) or _decode(data) != message else data
    except _ENCODING_FAILED:
        return None


def _remember(data: bytes, meant: MobilePush, *, warn: bool) -> None:
    global _latest
    if data not in _known:
        if warn and _is_doubtful(meant):
            _warn(meant, MobilePush, _MESSAGE, MobilePush)
        if len(data) <= _MAX_KNOWN_BYTES:
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            _known[data] = meant
    _latest = (data, meant)


def encode_content(
    message: MobilePush | Mapping[str, Any], fields: Mapping[str, Any] | None, *, warn: bool = True
) -> tuple[bytes, bytes | None]:
    """Return the JSON of message and custom fields. Warns of a placeholder whose name is nearly that of a field."""
    encoded, custom = encode_message(message, warn=warn), encode_custom_fields(fields)
    if warn and fields and b"{{" in encoded:
        warn_of_placeholders(_names_in(encoded), fields, "custom_fields has")
    return encoded, custom


def encode_custom_fields(fields: Mapping[str, Any] | None) -> bytes | None:
    """Return the JSON of the custom fields, or None for None, which is not the same as ``{}``.

    Accepts any strict JSON object, null included. Raises ValidationError naming a path below ``custom_fields``.
    """
    if fields is None:
        return None
    if not isinstance(fields, Mapping):
        raise _error(_CUSTOM_FIELDS, f"expected a mapping, got {kind_of(fields)}")
    return _encode(_plain(fields, _CUSTOM_FIELDS))


@lru_cache(maxsize=16)
def _names_in(message: bytes) -> frozenset[str]:
    return placeholder_names(_decode_message(message))


def encode_user_id(user_id: str) -> EncodedIds:
    """Return one encoded id. Raises ValidationError like ``encode_user_ids``."""
    if type(user_id) is str and user_id:
        try:
            return _encode_one(user_id)
        except UnicodeEncodeError:
            pass
    return encode_user_ids((user_id,))


def encode_user_ids(user_ids: Sequence[str]) -> EncodedIds:
    """Return the encoded ids in the given order.

    Raises ValidationError naming ``user_ids[3]``, never the id, unless every id is a non-empty str.
    """
    # Exact types: a str enum may be encoded differently from its text.
    if isinstance(user_ids, (list, tuple)) and {*map(type, user_ids)} == {str} and all(user_ids):
        try:
            return EncodedIds(_encode(user_ids)[1:-1])
        except UnicodeEncodeError:
            pass
    if isinstance(user_ids, (str, bytes, bytearray, memoryview)) or not isinstance(user_ids, Sequence):
        raise _error(_USER_IDS, f"expected a sequence of str, got {kind_of(user_ids)}")
    return EncodedIds(_encode([_user_id(user_id, (*_USER_IDS, i)) for i, user_id in enumerate(user_ids)])[1:-1])


def decode_user_ids(ids: EncodedIds) -> list[str]:
    """Return the ids as texts."""
    return _decode_ids(b"[%b]" % ids)


def _user_id(user_id: object, path: Path) -> str:
    if not isinstance(user_id, str):
        raise _error(path, f"expected a str, got {kind_of_id(user_id)}")
    if not user_id:
        raise _error(path, "the user id is empty")
    return _text(user_id, path)


def push_body(ids: EncodedIds, message: bytes, custom_fields: bytes | None) -> bytes:
    """Return the body of a push request from its encoded parts, without further checks."""
    if custom_fields is None:
        return b'{"userIds":[%b],"message":%b}' % (ids, message)
    return b'{"userIds":[%b],"message":%b,"customFields":%b}' % (ids, message, custom_fields)


def encode_campaign(request: CampaignRequest | Mapping[str, Any]) -> bytes:
    """Return the body of a request that creates a campaign.

    Accepts a mapping like ``encode_message``. Raises ValidationError naming a path.
    """
    return _encode_checked(request, CampaignRequest, ())


def is_collapsible(message: bytes) -> bool:
    """Return True if this encoded message has a ``collapseId``, so a second push may replace the first."""
    return _decode_message(message).collapse_id not in (UNSET, "")


def external_id(request: CampaignRequest | Mapping[str, Any]) -> str | None:
    """Return the ``externalId`` of the campaign, or None if missing, empty or not a str."""
    value = request.external_id if isinstance(request, CampaignRequest) else request.get("externalId")
    return value if isinstance(value, str) and value else None


def decode_campaign_created(body: bytes) -> CampaignCreated | None:
    """Return the decoded response to a created campaign; None without a readable uuid. Unknown fields are ignored."""
    # Deep nesting and bad UTF-8 raise no MsgspecError.
    with suppress(msgspec.MsgspecError, RecursionError, ValueError):
        created = msgspec.json.decode(body, type=CampaignCreated)
        return created if created.uuid else None
    return None


def _encode_checked(value: object, model: type[Model], path: Path, *, warn: bool = True) -> bytes:
    """Return the JSON of the value. Raises ValidationError unless known fields have the types of the model."""
    if not isinstance(value, (model, dict, Mapping)):
        name = "message" if model is MobilePush else "request"
        example = ', for example MobilePush(title={"en": "Hello"}, ios_enabled=True)' if model is MobilePush else ""
        rule = f"must be a {model.__name__} or a mapping{example}"
        raise ValidationError(f"{name} {rule}; got {kind_of(value)}{_instead(value)}")
    plain: dict[str, Any] = _plain(value, path)
    if path == _MESSAGE and isinstance(plain.get("message"), dict):
        raise _error(path, 'expected a message, got a request around one: pass only the value of "message"')
    if model is CampaignRequest and "message" not in plain and plain.keys() & TEXTS:
        raise _error(path, 'expected a campaign, got a message: put it under "message"')
    known, data = typed(plain, type(value) if isinstance(value, model) else model, path), _encode(plain)
    # 0.3 us for most messages; the comparison takes 1 to 3 us, and finds unknown fields of nested objects.
    has_unknown = not plain.keys() <= _FLAT_FIELDS and msgspec.to_builtins(known) != plain
    if warn and (has_unknown or not isinstance(known, MobilePush) or _is_doubtful(known)):
        _warn(plain, model, path, type(value))
    return data


def _instead(value: object) -> str:
    """Return what to pass instead of a message or a campaign, from the kind of value that was passed."""
    if isinstance(value, (list, tuple, set)):
        one = any(isinstance(item, (Model, Mapping)) for item in value)
        return ": pass one message; for several use send_each" if one else ": the users come first, then the message"
    if isinstance(value, (str, bytes)) and value.strip()[:1] in ("{", b"{"):
        return ": pass json.loads(value)"
    uses = {"MobilePush": "put it into a CampaignRequest(message=...)", "CampaignRequest": "use create_campaign"}
    use = uses.get(type(value).__name__, "use send_each([request])" if type(value).__name__ == "PushRequest" else "")
    return use and f": {use}"


def _is_doubtful(message: MobilePush) -> bool:
    """Return True if a rule of ``_WARNED_RULES`` may find something. Quick: each message of a run may be another."""
    if message.ios_enabled is not True and message.android_enabled is not True:
        return True
    title, body = message.title, message.body
    if not (title or body):
        return True
    for texts in (title, body, message.subtitle):
        if texts:
            for language, text in texts.items():
                if "{" in text or not text.strip() or (len(language) > 3 and language[2] not in "-_"):
                    return True
    values = _values(message)
    if values == _USUAL:
        return False
    *shown, ttl, badge, image, icon, media = values
    is_relative = any(url and ":" not in url for url in (image, icon, media))
    return is_relative or (ttl or 0) < 0 or (badge or 0) < 0 or _has_near_value(tuple(shown))


_values = attrgetter(
    *("type", "action", "priority", "media_type", "interruption_level", "relevance_score"),  # the order of SHOWN
    *("ttl", "badge_count", "big_image_url", "large_icon_url", "rich_media_url"),
)
_USUAL = _values(MobilePush())


@lru_cache(maxsize=256)
def _has_near_value(values: tuple[object, ...]) -> bool:
    names = [name for model, name in SHOWN if model is MobilePush]
    fields = {name: value for name, value in zip(names, values, strict=True) if value is not UNSET}
    return any(problem.code == "near-value" for problem in problems(fields, MobilePush, (), RULES))


def _warn(subject: object, model: type[Model], path: Path, given: type) -> None:
    found = list(problems(subject, model, path, _WARNED_RULES))
    has_near_name = "near-name" in [problem.code for problem in found]
    for problem in found:
        if problem.code == "no-text" and has_near_name:
            continue  # the text may be in the other field
        where, text = problem.path, problem.message
        if issubclass(given, Model):  # whose fields have the names of Python, but not those of a dict in it
            where, text = _in_python(where), text if problem.code == "near-name" else _in_python(text)
        stop = "" if text.endswith("?") else "."
        warn_caller(f"{where}: {text}{stop} It is sent as it is")


def _in_python(text: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", text)


def warn_of_placeholders(names: Iterable[str], fields: Collection[str], what: str, others: str = "") -> None:
    """Warn of the placeholders that none of the fields fills, but one nearly does. ``what`` names the fields' place.

    With ``others``, the text that lists the fields, warn also of a placeholder that is near to none.
    """
    for name in sorted({*names}.difference(fields)):
        near = near_word(name, fields)
        if near or others:
            advice = f", did you mean {near!r}?" if near else f"{others}."
            warn_caller(f"{what} no {name!r} for the placeholder{advice} It is sent with the fallback")


def _plain(value: object, path: Path) -> Any:
    """Return the value in exactly the types that JSON round-trips. Raises ValidationError for other types.

    Subclasses of str, int and float become plain. msgspec would encode the rejected values as something else.
    """
    if isinstance(value, str):
        return _text(value, path)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise _error(path, "the integer does not fit 64 bits")
        return int.__int__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _error(path, "NaN and infinity are not JSON")
        return float.__float__(value)
    if not isinstance(value, (dict, list, tuple, Model, Mapping)):
        rule = "JSON" if path[:1] == _CUSTOM_FIELDS else "an int"
        way = WAYS.get((rule, type(value).__name__), "a text or a number instead")
        raise _error(path, f"{kind_of(value)} is not JSON: pass {way}")
    if len(path) >= _MAX_DEPTH:
        raise _error(path[:_SHOWN_DEPTH], f"nested more than {_MAX_DEPTH} levels deep, or the value contains itself")
    if isinstance(value, Model):
        return _model(value, path)
    if isinstance(value, (dict, Mapping)):  # a dict is recognized at once
        return {_key(key, path): _plain(item, (*path, key)) for key, item in value.items()}
    return [_plain(item, (*path, i)) for i, item in enumerate(value)]


def _model(value: Model, path: Path) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, wire_name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        field = getattr(value, name)
        if field is None:
            raise _error((*path, wire_name), "None can't be sent; leave the field out")
        if field is not UNSET:
            plain[wire_name] = _plain(field, (*path, wire_name))
    return plain


def _text(value: str, path: Path) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _error(path, "the text holds a lone surrogate, which is not Unicode") from None
    return str.__str__(value)


def _key(key: object, path: Path) -> str:
    if not isinstance(key, str):
        raise _error(path, f"a key is {kind_of(key)}, and must be a str")
    return _text(key, path)


def _error(path: Path, text: str) -> ValidationError:
    where = show_path(path)
    error = ValidationError(f"{where[2:] if path[:1] in (_USER_IDS, _CUSTOM_FIELDS) else where}: {text}")
    error.__suppress_context__ = True  # msgspec's error, which names another type
    return error

"""Encoding and validation of messages, custom fields and campaigns; decoding a created campaign.

Pure functions, except that they remember the latest message, and which messages they have warned of. A ValidationError
names a JSON path and never shows a value: values are user ids and texts.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from pushsdk._core.errors import Advice, ValidationError, warn_caller
from pushsdk._core.lint import CHILDREN, is_plain, problems
from pushsdk._core.models import UNSET, CampaignCreated, CampaignRequest, MobilePush, Model
from pushsdk._core.paths import Path, value_error
from pushsdk._core.placeholders import TEXTS, placeholder_names
from pushsdk._core.values import MAX_DEPTH, plain, typed
from pushsdk._core.words import kind_of, near_word

_MAX_KEPT = 1024
_MAX_KEPT_BYTES = 16 * 1024

_MESSAGE: Path = ("message",)
_CUSTOM_FIELDS: Path = ("custom_fields",)
_FLAT_FIELDS = frozenset(MobilePush.__struct_encode_fields__) - CHILDREN[MobilePush].keys()

_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(MobilePush).decode
_decode = msgspec.json.Decoder().decode
_has_long_number = re.compile(rb"[0-9]{19}").search  # perhaps with more than 64 bits
_ENCODING_FAILED = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

# The latest validated bytes, the value that a strict decoder reads from them, and the message that they came from.
# Concurrent sends mostly have the same message: its bytes are then hashed once, and shared.
#
# Bytes alone prove nothing: Decimal("1"), b"i" or {1: "a"} encode like a valid text or key. So a message must also
# *equal* its decoded bytes. No value that msgspec converts does: a Decimal, UUID, datetime, bytes or plain enum never
# equals its str, an int key never the str key, a set never the list; and values that are equal in Python (True and 1,
# 1.0 and 1) differ in bytes. The decoded value shares nothing with the caller's message, so later changes there have
# no effect. Decoding and comparison run in C: 1 us; checking in Python takes 9 us.
_latest: tuple[bytes, object, object] = (b"", None, None)


def encode_message(message: MobilePush | Mapping[str, Any], warn: bool = True) -> bytes:
    """Return a message's JSON.

    A mapping is sent unchanged, with fields unknown to this version, if it is strict JSON and the known fields have the
    types of ``MobilePush``. Unless ``warn`` is False, warns about a message without a platform or a text, a malformed
    placeholder, and a name or value that looks like a typo. Raises ValidationError naming a path below
    ``$.message``.
    """
    global _latest
    kind, (latest, meant, source) = type(message), _latest
    try:
        data = _encode(message)
        is_latest = data == latest
        if is_latest and message is source:
            return latest
        if not is_latest or type(meant) is not kind:
            model = _decode_message(data)
            meant = model if kind is MobilePush else _read(data, kind)
        is_exact = meant == message
    except _ENCODING_FAILED:
        is_exact = False
    if not is_exact:
        # The check in Python finds the path of an error, and accepts a tuple for a list.
        return _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    if is_latest:
        return latest
    if warn and not is_plain(data if kind is MobilePush else _encode(model)):
        # A large message is not kept.
        warn_once = _warn_once if len(data) <= _MAX_KEPT_BYTES else _warn_once.__wrapped__
        warn_once(data, kind)
    _latest = (data, meant, message)
    return data


def _read(data: bytes, kind: type) -> object:
    """Return the JSON of a dict whose fields have no parts; None if the check in Python has to decide."""
    is_flat = kind is dict and (fields := _decode(data)).keys() <= _FLAT_FIELDS
    return fields if is_flat else None


@lru_cache(_MAX_KEPT)
def _warn_once(data: bytes, kind: type) -> None:
    """Warn about a message of this class, unless that was done before."""
    _warn(_decode(data), MobilePush, _MESSAGE, kind)


def _encode_exact(value: object) -> bytes | None:
    """Return the JSON for a value with JSON's types; None if the check in Python has to decide."""
    try:
        data = _encode(value)
        is_exact = _decode(data) == value
    except _ENCODING_FAILED:
        return None
    is_flat = data.count(b"[") + data.count(b"{") < MAX_DEPTH
    return data if is_exact and is_flat and not _has_long_number(data) else None


def encode_content(
    message: MobilePush | Mapping[str, Any], fields: Mapping[str, Any] | None, *, warn: bool = True
) -> tuple[bytes, bytes | None]:
    """Return the JSON for message and custom fields. Warns about a placeholder whose name is nearly a field's name."""
    encoded, custom = encode_message(message, warn=warn), encode_custom_fields(fields)
    # ``in`` would raise and drop an error in CPython.
    if warn and fields and encoded.find(b"{{") >= 0:
        warn_of_placeholders(_names_in(encoded), fields, "custom_fields has")
    return encoded, custom


def encode_custom_fields(fields: Mapping[str, Any] | None) -> bytes | None:
    """Return the custom fields' JSON, or None for None, which is not the same as ``{}``.

    Accepts any strict JSON object, null included. Raises ValidationError naming a path below ``custom_fields``.
    """
    if fields is None:
        return None
    if not isinstance(fields, Mapping):
        raise value_error(_CUSTOM_FIELDS, f"expected a mapping, got {kind_of(fields)}")
    return _encode_exact(fields) or _encode(plain(fields, _CUSTOM_FIELDS))


@lru_cache(maxsize=16)
def _names_in(message: bytes) -> frozenset[str]:
    return placeholder_names(_decode_message(message))


def encode_campaign(request: CampaignRequest | Mapping[str, Any]) -> bytes:
    """Return the body for a request that creates a campaign.

    Accepts a mapping like ``encode_message``. Raises ValidationError naming a path.
    """
    return _encode_checked(request, CampaignRequest, ())


def is_collapsible(message: bytes) -> bool:
    """Return True if this encoded message has a ``collapseId``, so a second push may replace the first."""
    return _decode_message(message).collapse_id not in (UNSET, "")


def external_id(request: CampaignRequest | Mapping[str, Any]) -> str | None:
    """Return the campaign's ``externalId``, or None if missing, empty or not a str."""
    value = request.external_id if isinstance(request, CampaignRequest) else request.get("externalId")
    return value if isinstance(value, str) and value else None


def decode_campaign_created(body: bytes) -> CampaignCreated | None:
    """Return the decoded response to a created campaign; None without a readable uuid. Unknown fields are ignored."""
    # Deep nesting and bad UTF-8 raise no MsgspecError.
    with suppress(msgspec.MsgspecError, RecursionError, ValueError):
        created = msgspec.json.decode(body, type=CampaignCreated)
        return created if created.uuid else None
    return None


# The rule for a message or a campaign; the mistake that a mapping may be, and the words for it.
_SUBJECTS: Mapping[type[Model], tuple[str, Callable[[Mapping[str, Any]], bool], str]] = {
    MobilePush: (
        'message must be a MobilePush or a mapping, for example MobilePush(title={"en": "Hello"}, ios_enabled=True)',
        lambda fields: isinstance(fields.get("message"), dict),
        'expected a message, got a request around one: pass only the value of "message"',
    ),
    CampaignRequest: (
        "request must be a CampaignRequest or a mapping",
        lambda fields: "message" not in fields and not fields.keys().isdisjoint(TEXTS),
        'expected a campaign, got a message: put it under "message"',
    ),
}


def _encode_checked(value: object, model: type[Model], path: Path, *, warn: bool = True) -> bytes:
    """Return the value's JSON. Raises ValidationError unless known fields have the model's types."""
    rule, is_misplaced, problem = _SUBJECTS[model]
    if not isinstance(value, (model, dict, Mapping)):
        raise ValidationError(f"{rule}; got {kind_of(value)}")
    fields: dict[str, Any] = plain(value, path)
    if is_misplaced(fields):
        raise value_error(path, problem)
    typed(fields, type(value) if isinstance(value, model) else model, path)
    if warn:
        _warn(fields, model, path, type(value))
    return _encode(fields)


def _warn(fields: Mapping[str, Any], model: type[Model], path: Path, given: type) -> None:
    found = problems(fields, model, path, only_warned=True)
    for problem in found:
        if problem.code == "no-text" and any(other.code == "near-name" for other in found):
            continue  # the text may be in the other field
        where, text = problem.path, problem.message
        if issubclass(given, Model):  # whose fields have the names of Python, but not those of a dict in it
            where, text = _in_python(where), text if problem.code == "near-name" else _in_python(text)
        stop = "" if text.endswith("?") else "."
        warn_caller(f"{where}: {text}{stop} It is sent as it is")


def _in_python(text: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", text)


def warn_of_placeholders(names: Iterable[str], fields: Collection[str], what: str, others: str = "") -> None:
    """Warn about placeholders that match no field but look like a typo of one. ``what`` names the fields' place.

    With ``others``, the text that lists the fields, warn also of a placeholder that is near to none.
    """
    for name in sorted({*names}.difference(fields)):
        near = near_word(name, fields)
        if near or others:
            advice = f", did you mean {near!r}?" if near else f"{others}."
            warn_caller(Advice(f"{what} no {name!r} for the placeholder{advice}", "{fallback}"))

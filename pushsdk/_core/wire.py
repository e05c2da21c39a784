"""Encoding and validation of messages, custom fields and campaigns; decoding a created campaign.

Pure functions, except for one bounded validation cache. A ValidationError names a JSON path and never shows a
value: values are user ids and texts.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from pushsdk._core.errors import ValidationError, warn_caller
from pushsdk._core.lint import CHILDREN, problems
from pushsdk._core.models import UNSET, CampaignCreated, CampaignRequest, MobilePush, Model
from pushsdk._core.paths import Path, value_error
from pushsdk._core.placeholders import TEXTS, placeholder_names
from pushsdk._core.values import MAX_DEPTH, plain, typed
from pushsdk._core.words import kind_of, near_word

_MAX_KNOWN = 1024
_MAX_KNOWN_BYTES = 16 * 1024

_MESSAGE: Path = ("message",)
_CUSTOM_FIELDS: Path = ("custom_fields",)
_FLAT_FIELDS = frozenset(MobilePush.__struct_encode_fields__) - CHILDREN[MobilePush].keys()

_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(MobilePush).decode
_decode = msgspec.json.Decoder().decode
_has_long_number = re.compile(rb"[0-9]{19}").search  # perhaps with more than 64 bits
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
    """Return a message's JSON.

    A mapping is sent unchanged, with fields unknown to this version, if it is strict JSON and the known fields have the
    types of ``MobilePush``. Unless ``warn`` is False, warns about a message without a platform or a text, a malformed
    placeholder, and a name or value that looks like a typo. Raises ValidationError naming a path below
    ``$.message``.
    """
    global _latest
    if type(message) is not MobilePush:
        return _encode_other(message, warn=warn)
    latest, meant = _latest
    try:
        data = _encode(message)
        if data != latest:
            meant = _known.get(data) or _decode_message(data)
    except _ENCODING_FAILED:
        return _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    if meant != message:
        # The check in Python finds the path of an error, and accepts a tuple for a list.
        return _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    if data == latest:
        return latest
    if data not in _known:
        if warn:
            _warn(msgspec.to_builtins(meant), MobilePush, _MESSAGE, MobilePush)
        _remember(data, meant)
    _latest = (data, meant)
    return data


def _encode_other(message: object, *, warn: bool) -> bytes:
    """Return the JSON for a mapping, or for a subclass. A dict with fields without parts is encoded faster."""
    if type(message) is not dict or not message.keys() <= _FLAT_FIELDS:
        return _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    try:
        data = _encode(message)
        is_exact = _decode(data) == message  # as above: only JSON's types equal what a decoder reads
        meant = _known.get(data) or _decode_message(data)
    except _ENCODING_FAILED:
        is_exact = False
    if not is_exact:
        return _encode_checked(message, MobilePush, _MESSAGE, warn=warn)
    if data not in _known:
        if warn:
            _warn(message, MobilePush, _MESSAGE, dict)
        _remember(data, meant)
    return data


def _encode_exact(value: object) -> bytes | None:
    """Return the JSON for a value with JSON's types; None if the check in Python has to decide."""
    try:
        data = _encode(value)
        is_exact = _decode(data) == value
    except _ENCODING_FAILED:
        return None
    is_flat = data.count(b"[") + data.count(b"{") < MAX_DEPTH
    return data if is_exact and is_flat and not _has_long_number(data) else None


def _remember(data: bytes, meant: MobilePush) -> None:
    """Keep a message that the linter has seen."""
    if len(data) <= _MAX_KNOWN_BYTES:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[data] = meant


def encode_content(
    message: MobilePush | Mapping[str, Any], fields: Mapping[str, Any] | None, *, warn: bool = True
) -> tuple[bytes, bytes | None]:
    """Return the JSON for message and custom fields. Warns about a placeholder whose name is nearly a field's name."""
    encoded = encode_message(message, warn=warn)
    custom = None if fields is None else encode_custom_fields(fields)
    if warn and fields and b"{{" in encoded:
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


class _Subject(msgspec.Struct, frozen=True):
    """The words for a message or a campaign, and for a mapping that is taken for one."""

    rule: str
    is_misplaced: Callable[[Mapping[str, Any]], bool]
    problem: str


_SUBJECTS: Mapping[type[Model], _Subject] = {
    MobilePush: _Subject(
        'message must be a MobilePush or a mapping, for example MobilePush(title={"en": "Hello"}, ios_enabled=True)',
        lambda fields: isinstance(fields.get("message"), dict),
        'expected a message, got a request around one: pass only the value of "message"',
    ),
    CampaignRequest: _Subject(
        "request must be a CampaignRequest or a mapping",
        lambda fields: "message" not in fields and not fields.keys().isdisjoint(TEXTS),
        'expected a campaign, got a message: put it under "message"',
    ),
}


def _encode_checked(value: object, model: type[Model], path: Path, *, warn: bool = True) -> bytes:
    """Return the value's JSON. Raises ValidationError unless known fields have the model's types."""
    subject = _SUBJECTS[model]
    if not isinstance(value, (model, dict, Mapping)):
        raise ValidationError(f"{subject.rule}; got {kind_of(value)}")
    fields: dict[str, Any] = plain(value, path)
    if subject.is_misplaced(fields):
        raise value_error(path, subject.problem)
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
            warn_caller(f"{what} no {name!r} for the placeholder{advice} It is sent with the fallback")

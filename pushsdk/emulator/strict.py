"""The checks of ``ServiceLimits(strict=True)``, on top of the shapes: likely mistakes that a service may ignore.

Refused are unknown fields, values other than the one that the interface document shows for an enumeration, and missing
fields without which a push or a campaign makes no sense. The document does not name required fields: ``_NEEDED`` is
simulated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from pushsdk.emulator import shapes
from pushsdk.emulator.shapes import LARGE, Unreadable, read_campaign, read_json, read_push, weight

_MAX_NAME = 40  # difflib is quadratic

CHILDREN: Mapping[type[Struct], Mapping[str, type[Struct]]] = {
    shapes.PushBody: {"message": shapes.Message},
    shapes.CampaignBody: {"segment": shapes.SegmentShape, "schedule": shapes.ScheduleShape, "message": shapes.Message},
    shapes.Message: {"androidActionButtons": shapes.Button, "actionCategory": shapes.Category},
    shapes.Category: {"actionComponents": shapes.Component},
}

SHOWN: Mapping[type[Struct], Mapping[str, str]] = {
    shapes.ScheduleShape: {"type": "START_NOW"},
    shapes.Message: {
        "type": "MOBILE_PUSH",
        "action": "DEFAULT",
        "priority": "NORMAL",
        "mediaType": "IMAGE",
        "interruptionLevel": "PASSIVE",
        "relevanceScore": "SCORE_MAX",
    },
    shapes.Button: {"clickAction": "DEEP_LINKING"},
    shapes.Category: {"type": "PREDEFINED_CATEGORY"},
    shapes.Component: {"clickAction": "DEEP_LINKING"},
}


class _BodyObject(Struct, frozen=True):
    """An object of the body, with its path and its shape."""

    path: str
    shape: type[Struct]
    fields: Mapping[str, Any]


def check_push(body: bytes) -> None:
    """Raise `Unreadable` for a push send request that strict refuses; the text contains the path, never a value."""
    root = _only_known_fields(body, shapes.PushBody)
    read_push(body)
    _only_what_is_shown(root)


def check_campaign(body: bytes) -> None:
    """Raise `Unreadable` for a campaign create request that strict refuses, as `check_push` does."""
    root = _only_known_fields(body, shapes.CampaignBody)
    read_campaign(body)
    _only_what_is_shown(root)


def _only_known_fields(body: bytes, shape: type[Struct]) -> _BodyObject:
    """Return the root of the body. Runs before types are checked: `userIDs` is unknown, not a missing `userIds`."""
    if len(body) > LARGE and weight(body) > LARGE:
        raise Unreadable(f"over {LARGE} bytes beside the users, which is more than devices accept - at `$`")
    value = read_json(body)
    root = _BodyObject("$", shape, value if isinstance(value, dict) else {})
    for obj in _objects(root):
        known = obj.shape.__struct_encode_fields__
        for name in obj.fields:
            if name not in known:
                raise Unreadable(f"unknown field{_hint(name, known)} - at `{obj.path}`")
    return root


def _only_what_is_shown(root: _BodyObject) -> None:
    for obj in _objects(root):
        for name, shown in SHOWN.get(obj.shape, {}).items():
            if obj.fields.get(name, shown) != shown:
                raise Unreadable(f"unknown value, the interface shows only {shown} - at `{obj.path}.{name}`")
        for shape, field, advice, *special in _NEEDED:
            if obj.shape is shape and not (special[0](obj.fields) if special else obj.fields.get(field)):
                raise Unreadable(f"missing {field}: {advice} - at `{obj.path}`")


def _objects(obj: _BodyObject) -> Iterator[_BodyObject]:
    """Yield the object and its documented descendants."""
    yield obj
    for name, shape in CHILDREN.get(obj.shape, {}).items():
        value = obj.fields.get(name)
        if isinstance(value, dict):
            yield from _objects(_BodyObject(f"{obj.path}.{name}", shape, value))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _objects(_BodyObject(f"{obj.path}.{name}[{index}]", shape, item))


def _hint(name: str, known: tuple[str, ...]) -> str:
    """Return the field's name and a similar known name; nothing if the name may be a text or an id instead."""
    if not re.fullmatch(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{_MAX_NAME - 1}}}", name):
        return ""
    folded = {_folded(field): field for field in known}
    near = difflib.get_close_matches(_folded(name), folded, n=1, cutoff=0.7)
    return f" `{name}` - did you mean {folded[near[0]]}?" if near else f" `{name}` - leave it out"


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _has_text(message: Mapping[str, Any]) -> bool:
    texts = [*message.get("title", {}).values(), *message.get("body", {}).values()]
    return any(text.strip() for text in texts) or message.get("contentAvailable") is True


def _has_platform(message: Mapping[str, Any]) -> bool:
    return message.get("iosEnabled") is True or message.get("androidEnabled") is True


# Shape, required field, advice, and a check if a field alone is not enough.
_NEEDED: tuple[tuple[type[Struct], str, str, *tuple[Callable[[Mapping[str, Any]], bool], ...]], ...] = (
    # userIds and message of a push are required by shapes.
    (shapes.CampaignBody, "name", "give the campaign a name"),
    (shapes.CampaignBody, "segment", "select the users with a query and a primaryKey"),
    (shapes.CampaignBody, "schedule", "give it a type, for example START_NOW"),
    (shapes.CampaignBody, "message", "give the campaign a message"),
    (shapes.SegmentShape, "query", "write a SELECT that finds the users"),
    (shapes.SegmentShape, "primaryKey", "name the column of the query that holds the user ids"),
    (shapes.ScheduleShape, "type", "give it a type, for example START_NOW"),
    (shapes.Message, "type", "give it a type, for example MOBILE_PUSH"),
    (shapes.Message, "title or body", "give it a text, or set contentAvailable for a silent push", _has_text),
    (shapes.Message, "iosEnabled or androidEnabled", "set at least one to true", _has_platform),
)

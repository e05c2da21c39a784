"""What strict refuses on top of the shapes: all that the interface does not show, and what nobody can have meant.

Unknown fields (nearly always a slip, and silently ignored by many a service), values of enumerated fields other than
the one shown (sections 2.3, 2.5-2.8), and the absence of what a push or a campaign makes no sense without. Which
fields are required is not shown (2.10): the rows of ``_NEEDED`` are simulated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from pushsdk.emulator import shapes
from pushsdk.emulator.shapes import LARGE, Unreadable, read_campaign, read_json, read_push, weight

__all__ = ["check_campaign", "check_push"]

_LONGEST = 40  # of any field's name; difflib is quadratic

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
    """An object of the body, where it stands, and what it should be."""

    path: str
    shape: type[Struct]
    fields: Mapping[str, Any]


def check_push(body: bytes) -> None:
    """Raise `Unreadable` for a push send request that strict refuses; its text names the path, never a value."""
    root = _only_known_fields(body, shapes.PushBody)
    read_push(body)
    _only_what_is_shown(root)


def check_campaign(body: bytes) -> None:
    """Raise `Unreadable` for a campaign create request that strict refuses, as `check_push` does."""
    root = _only_known_fields(body, shapes.CampaignBody)
    read_campaign(body)
    _only_what_is_shown(root)


def _only_known_fields(body: bytes, shape: type[Struct]) -> _BodyObject:
    """The body's root. Before the types are looked at: `userIDs` is told as itself, not as a lack of `userIds`."""
    if len(body) > LARGE and weight(body) > LARGE:
        raise Unreadable(f"over {LARGE} bytes beside the users: no device takes so much - at `$`")
    value = read_json(body)
    root = _BodyObject("$", shape, value if isinstance(value, dict) else {})
    for node in _nodes(root):
        known = node.shape.__struct_encode_fields__
        for name in node.fields:
            if name not in known:
                raise Unreadable(f"unknown field{_called(name, known)} - at `{node.path}`")
    return root


def _only_what_is_shown(root: _BodyObject) -> None:
    for node in _nodes(root):
        for name, shown in SHOWN.get(node.shape, {}).items():
            if node.fields.get(name, shown) != shown:
                raise Unreadable(f"unknown value, the interface shows only {shown} - at `{node.path}.{name}`")
        for shape, field, advice, *special in _NEEDED:
            if node.shape is shape and not (special[0](node.fields) if special else node.fields.get(field)):
                raise Unreadable(f"missing {field}: {advice} - at `{node.path}`")


def _nodes(node: _BodyObject) -> Iterator[_BodyObject]:
    """The node and those below it, as deep as the shapes go, whatever the body holds."""
    yield node
    for name, shape in CHILDREN.get(node.shape, {}).items():
        value = node.fields.get(name)
        if isinstance(value, dict):
            yield from _nodes(_BodyObject(f"{node.path}.{name}", shape, value))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _nodes(_BodyObject(f"{node.path}.{name}[{index}]", shape, item))


def _called(name: str, known: tuple[str, ...]) -> str:
    """The name, where it can be one and is not text or an id gone astray, and what it may be a slip of."""
    if not re.fullmatch(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{_LONGEST - 1}}}", name):
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


# An object of this shape needs the field, or what the function looks for; the advice says what to do.
_NEEDED: tuple[tuple[type[Struct], str, str, *tuple[Callable[[Mapping[str, Any]], bool], ...]], ...] = (
    # userIds and message of a push: shapes requires them already.
    (shapes.CampaignBody, "name", "give the campaign a name"),
    (shapes.CampaignBody, "segment", "say with a query and a primaryKey who gets it"),
    (shapes.CampaignBody, "schedule", "say with a type when it starts, as START_NOW"),
    (shapes.CampaignBody, "message", "a campaign sends one"),
    (shapes.SegmentShape, "query", "it selects the audience"),
    (shapes.SegmentShape, "primaryKey", "it names the column of the query that holds the user"),
    (shapes.ScheduleShape, "type", "say when it starts, as START_NOW"),
    (shapes.Message, "type", "say what it is, as MOBILE_PUSH"),
    (shapes.Message, "title or body", "give it a text, or set contentAvailable for a silent push", _has_text),
    (shapes.Message, "iosEnabled or androidEnabled", "set at least one to true", _has_platform),
)

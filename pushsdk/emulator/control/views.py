"""What the control API answers, as values: the shapes that its OpenAPI document shows, and how they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from pushsdk._core.lint import lint
from pushsdk._core.placeholders import find_placeholders
from pushsdk.emulator.faults import PRESETS, Rules
from pushsdk.emulator.phones import Notification, Platform, PushView, notifications
from pushsdk.emulator.shapes import LARGE, weight
from pushsdk.emulator.snippets import curl, python
from pushsdk.emulator.store.records import Campaign, Delivered, RequestSummary, UserCount

T = TypeVar("T")

__all__ = [
    "Advice",
    "CampaignView",
    "DeleteResult",
    "FaultList",
    "PresetView",
    "Recipient",
    "RequestPage",
    "RequestView",
    "UserPage",
    "UserView",
    "WaitResult",
    "campaign_view",
    "faults",
    "presets",
    "request_view",
    "user_view",
]

_PLATFORMS: tuple[Platform, ...] = ("ios", "android")
_SHOWN_USERS = 1000
_SHOWN_PLACEHOLDERS = 200
_LONGEST = 1 << 20  # bytes of a body that is told as a command and as a program: 16 MB of them took seconds
_TOO_LONG = "# This request is too long to be copied from here.\n"


class RequestPage(Struct, frozen=True):
    """Requests, the newest first; ``next`` is what ``before`` is for the rest, null at the end."""

    requests: Sequence[RequestSummary]
    next: int | None


class Advice(Struct, frozen=True):
    """What lint says of a body: where, which rule of it, and what to do."""

    path: str
    code: str
    message: str


class RequestView(RequestSummary, frozen=True, kw_only=True):
    """One request whole: its ``body`` decoded, null where it is no JSON, and the ``text`` as it came.

    Of one that is over 64 KiB beside its users only the beginning of the ``text`` is shown, and ``lint`` says so.
    """

    body: Any
    text: str
    user_ids: Sequence[str]
    lint: Sequence[Advice]
    placeholders: Sequence[str]
    curl: str
    python: str


class UserView(Struct, frozen=True, kw_only=True):
    """What one user got: pushes ``accepted`` in all, those of them that are kept, and what the devices show."""

    user_id: str
    accepted: int
    campaigns: int
    pushes: Sequence[PushView]
    devices: Mapping[str, Sequence[Notification]]


class UserPage(Struct, frozen=True):
    """Users by their id; ``next`` is what ``after`` is for the rest, null at the end."""

    users: Sequence[UserCount]
    next: str | None


class Recipient(Struct, frozen=True):
    """Who gets a campaign, and the row that fills the placeholders."""

    user_id: str
    fields: Mapping[str, Any]


class CampaignView(Struct, frozen=True, kw_only=True):
    """A campaign: when it starts and how that was read, and what became of its segment."""

    uuid: str
    id: int
    time: float
    name: str | None
    external_id: str | None
    state: str
    start: float | None
    reading: str
    started: float | None
    finished: float | None
    users: int | None
    error: str | None
    segment: Any
    recipients: Sequence[Recipient] = ()


class FaultList(Struct, frozen=True):
    """The rules of an inbox in the order they are tried, and the seed of their draws.

    Each rule as it was given, with its name, whether it is ``enabled``, and its ``hits``.
    """

    faults: Sequence[Mapping[str, Any]]
    seed: int


class PresetView(Struct, frozen=True):
    """A named list of rules, what it is about, and what each of them does, by its name."""

    name: str
    about: str
    faults: Sequence[Mapping[str, Any]]
    explained: Mapping[str, str]


class WaitResult(Struct, frozen=True):
    """Whether there were enough in time, how many there are, the newest of them, and whether a reset came between."""

    matched: bool
    count: int
    requests: Sequence[RequestSummary]
    reset: bool = False


class DeleteResult(Struct, frozen=True):
    """How many requests went from the list. The counts per user are kept."""

    deleted: int
    counts: Literal["kept"] = "kept"


def request_view(request: RequestSummary, body: bytes) -> RequestView:
    """A request with its body, and what can be said of it."""
    large = len(body) > LARGE and weight(body) > LARGE
    value: Any = None if large else _decoded(body, object)
    sent = value if isinstance(value, dict) else {}
    user_ids = sent.get("userIds")
    endpoint = request.endpoint or "push"
    return RequestView(
        **{**msgspec.structs.asdict(request), "body": _shown(body, value)},
        text=(body[:LARGE] if large else body).decode("utf-8", "replace"),
        user_ids=[str(user_id) for user_id in user_ids[:_SHOWN_USERS]] if isinstance(user_ids, list) else [],
        lint=[_too_large(body)] if large else [Advice(each.path, each.code, each.message) for each in lint(sent)],
        placeholders=_placeholders(sent.get("message")),
        curl=_TOO_LONG if large or len(body) > _LONGEST else curl(endpoint, body),
        python=_TOO_LONG if large or len(body) > _LONGEST else python(endpoint, body),
    )


def user_view(user_id: str, accepted: int, got: Sequence[Delivered], now: float) -> UserView:
    """Return the pushes that a user got, and how the devices show them now. Large messages are not shown."""
    pushes = [_push_view(each, _sent(each.body) if weight(each.body) <= LARGE else _BodyContent()) for each in got]
    sent = [push for push in pushes if push.message is not None]  # a campaign may have none, and shows nothing then
    return UserView(
        user_id=user_id,
        accepted=accepted,
        campaigns=sum(push.campaign is not None for push in pushes),
        pushes=pushes,
        devices={platform: notifications(sent, user_id=user_id, now=now, platform=platform) for platform in _PLATFORMS},
    )


def campaign_view(campaign: Campaign, recipients: Sequence[tuple[str, Mapping[str, Any]]] = ()) -> CampaignView:
    """A campaign with the first who get it."""
    state = msgspec.structs.asdict(campaign)
    body = state.pop("body")
    return CampaignView(
        **state,
        segment=_sent(body).segment if len(body) <= LARGE else None,
        recipients=[Recipient(user_id, fields) for user_id, fields in recipients],
    )


def faults(rules: Rules) -> FaultList:
    """The rules with their hits."""
    hits, enabled = rules.hits(), rules.enabled()
    return FaultList(
        [
            {**_given(fault), "name": name, "enabled": enabled[name], "hits": hits[name]}
            for name, fault in zip(hits, rules.faults, strict=True)
        ],
        rules.seed,
    )


def presets() -> list[PresetView]:
    """The named lists of rules there are."""
    return [
        PresetView(name, preset.about, [_given(fault) for fault in preset.faults], preset.explained)
        for name, preset in PRESETS.items()
    ]


def _given(fault: Struct) -> Any:
    """A rule as it would be written: what was left out is left out."""
    return {name: value for name, value in msgspec.to_builtins(fault).items() if value not in (None, {}, "")}


class _BodyContent(Struct, frozen=True, rename="camel"):
    """What a body says that was accepted; the rest, its users above all, is skipped."""

    message: dict[str, Any] | None = None
    custom_fields: dict[str, Any] | None = None
    segment: Any = None


def _sent(body: bytes) -> _BodyContent:
    # Fields that the interface does not have may hold what can't be decoded: they were skipped on the way in, too.
    return _decoded(body, _BodyContent) or _BodyContent()


def _push_view(each: Delivered, sent: _BodyContent) -> PushView:
    return PushView(
        id=each.id,
        time=each.time,
        times=each.times,
        campaign=each.campaign,
        message=sent.message,
        custom_fields=each.fields if each.campaign is not None else sent.custom_fields,
    )


def _too_large(body: bytes) -> Advice:
    advice = f"{len(body):,} bytes, over {LARGE:,} of them beside the users: it is shown raw, cut, and unchecked"
    return Advice("$", "large", advice)


def _decoded(body: bytes, kind: type[T]) -> T | None:
    """The body as this kind, or None where it is none."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        return None


def _shown(body: bytes, value: Any) -> Any:
    """The JSON of a body as it came, but for users over those shown. It is not encoded anew: that bounds its depth."""
    if isinstance(value, dict) and isinstance(user_ids := value.get("userIds"), list) and len(user_ids) > _SHOWN_USERS:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return {**fields, "userIds": user_ids[:_SHOWN_USERS]}
    return None if value is None else msgspec.Raw(body)


def _placeholders(message: Any) -> list[str]:
    fields = message if isinstance(message, dict) else {}
    languages = [given for name in ("title", "subtitle", "body") if isinstance(given := fields.get(name), dict)]
    texts = [text for given in languages for text in given.values() if isinstance(text, str)]
    names = dict.fromkeys(each.name for text in texts for each in find_placeholders(text))
    return list(names)[:_SHOWN_PLACEHOLDERS]

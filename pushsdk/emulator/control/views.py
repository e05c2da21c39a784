"""The response bodies of the control API, and the functions that build them from stored values."""

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

_PLATFORMS: tuple[Platform, ...] = ("ios", "android")
_MAX_USERS = 1000
_MAX_PLACEHOLDERS = 200
_MAX_SNIPPET = 1 << 20  # bytes of a body that is shown as a command and a program: 16 MB took seconds
_TOO_LONG = "# This request is too long to be copied from here.\n"


class RequestPage(Struct, frozen=True):
    """Requests, newest first; ``next`` is ``before`` of the next page, null at the end."""

    requests: Sequence[RequestSummary]
    next: int | None


class Advice(Struct, frozen=True):
    """A finding of lint: the path in the body, the code of the rule, the advice."""

    path: str
    code: str
    message: str


class RequestView(RequestSummary, frozen=True, kw_only=True):
    """One request: ``body`` is the JSON, null if invalid; ``text`` is the raw body.

    If the body has over 64 KiB beside its users, ``text`` is cut, and ``lint`` contains an advice about that.
    """

    body: Any
    text: str
    user_ids: Sequence[str]
    lint: Sequence[Advice]
    placeholders: Sequence[str]
    curl: str
    python: str


class UserView(Struct, frozen=True, kw_only=True):
    """The pushes of one user: the number ever ``accepted``, the stored ones, and the notifications on each device."""

    user_id: str
    accepted: int
    campaigns: int
    pushes: Sequence[PushView]
    devices: Mapping[str, Sequence[Notification]]


class UserPage(Struct, frozen=True):
    """Users sorted by id; ``next`` is ``after`` of the next page, null at the end."""

    users: Sequence[UserCount]
    next: str | None


class Recipient(Struct, frozen=True):
    """A user of a campaign, and the row of the segment that fills the placeholders."""

    user_id: str
    fields: Mapping[str, Any]


class CampaignView(Struct, frozen=True, kw_only=True):
    """A campaign: its schedule, its segment and the result; see `Campaign`."""

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
    """The rules of an inbox in the order they are tried, each with ``name``, ``enabled`` and ``hits``."""

    faults: Sequence[Mapping[str, Any]]
    seed: int


class PresetView(Struct, frozen=True):
    """A named list of rules, its subject, and an explanation of each rule by name."""

    name: str
    about: str
    faults: Sequence[Mapping[str, Any]]
    explained: Mapping[str, str]


class WaitResult(Struct, frozen=True):
    """The result of a wait: ``matched`` is True if there were enough requests in time; ``requests`` are the newest."""

    matched: bool
    count: int
    requests: Sequence[RequestSummary]
    reset: bool = False


class DeleteResult(Struct, frozen=True):
    """The number of deleted requests. The counts per user are kept."""

    deleted: int
    counts: Literal["kept"] = "kept"


def request_view(request: RequestSummary, body: bytes) -> RequestView:
    """Return a request with its body, lint, placeholders and snippets."""
    large = len(body) > LARGE and weight(body) > LARGE
    value: Any = None if large else _decoded(body, object)
    fields = value if isinstance(value, dict) else {}
    user_ids = fields.get("userIds")
    endpoint = request.endpoint or "push"
    return RequestView(
        **{**msgspec.structs.asdict(request), "body": _without_surplus_users(body, value)},
        text=(body[:LARGE] if large else body).decode("utf-8", "replace"),
        user_ids=[str(user_id) for user_id in user_ids[:_MAX_USERS]] if isinstance(user_ids, list) else [],
        lint=[_too_large(body)] if large else [Advice(hint.path, hint.code, hint.message) for hint in lint(fields)],
        placeholders=_placeholders(fields.get("message")),
        curl=_TOO_LONG if large or len(body) > _MAX_SNIPPET else curl(endpoint, body),
        python=_TOO_LONG if large or len(body) > _MAX_SNIPPET else python(endpoint, body),
    )


def user_view(user_id: str, accepted: int, delivered: Sequence[Delivered], now: float) -> UserView:
    """Return the pushes of a user, and the notifications on the devices now. Large messages are left out."""
    pushes = [_push_view(push) for push in delivered]
    shown = [push for push in pushes if push.message is not None]  # a campaign may have no message
    return UserView(
        user_id=user_id,
        accepted=accepted,
        campaigns=sum(push.campaign is not None for push in pushes),
        pushes=pushes,
        devices={name: notifications(shown, user_id=user_id, now=now, platform=name) for name in _PLATFORMS},
    )


def campaign_view(campaign: Campaign, recipients: Sequence[tuple[str, Mapping[str, Any]]] = ()) -> CampaignView:
    """Return a campaign with a page of its recipients."""
    state = msgspec.structs.asdict(campaign)
    body = state.pop("body")
    return CampaignView(
        **state,
        segment=_content(body).segment if len(body) <= LARGE else None,
        recipients=[Recipient(user_id, fields) for user_id, fields in recipients],
    )


def faults(rules: Rules) -> FaultList:
    """Return the rules with their hits."""
    hits, enabled = rules.hits(), rules.enabled()
    return FaultList(
        [
            {**_arguments(fault), "name": name, "enabled": enabled[name], "hits": hits[name]}
            for name, fault in zip(hits, rules.faults, strict=True)
        ],
        rules.seed,
    )


def presets() -> list[PresetView]:
    """Return all presets."""
    return [
        PresetView(name, preset.about, [_arguments(fault) for fault in preset.faults], preset.explained)
        for name, preset in PRESETS.items()
    ]


def _arguments(fault: Struct) -> Any:
    """Return a rule as JSON that `load_faults` reads, without defaults."""
    return {name: value for name, value in msgspec.to_builtins(fault).items() if value not in (None, {}, "")}


class _BodyContent(Struct, frozen=True, rename="camel"):
    """The shown fields of an accepted body. Users are skipped, because there may be many."""

    message: dict[str, Any] | None = None
    custom_fields: dict[str, Any] | None = None
    segment: Any = None


def _content(body: bytes) -> _BodyContent:
    # An undocumented field may hold what can't be decoded; the service ignored the field, too.
    return _decoded(body, _BodyContent) or _BodyContent()


def _push_view(push: Delivered) -> PushView:
    content = _content(push.body) if weight(push.body) <= LARGE else _BodyContent()
    return PushView(
        id=push.id,
        time=push.time,
        times=push.times,
        campaign=push.campaign,
        message=content.message,
        custom_fields=push.fields if push.campaign is not None else content.custom_fields,
    )


def _too_large(body: bytes) -> Advice:
    advice = f"{len(body):,} bytes, over {LARGE:,} of them beside the users: shown raw, cut, and unchecked"
    return Advice("$", "large", advice)


def _decoded(body: bytes, kind: type[T]) -> T | None:
    """Decode the body; return None if that fails."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        return None


def _without_surplus_users(body: bytes, value: Any) -> Any:
    """Return the JSON of a body without users beyond those shown. Raw JSON is embedded, which bounds the depth."""
    if isinstance(value, dict) and isinstance(user_ids := value.get("userIds"), list) and len(user_ids) > _MAX_USERS:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return {**fields, "userIds": user_ids[:_MAX_USERS]}
    return None if value is None else msgspec.Raw(body)


def _placeholders(message: Any) -> list[str]:
    fields = message if isinstance(message, dict) else {}
    languages = [texts for name in ("title", "subtitle", "body") if isinstance(texts := fields.get(name), dict)]
    texts = [text for translations in languages for text in translations.values() if isinstance(text, str)]
    names = dict.fromkeys(placeholder.name for text in texts for placeholder in find_placeholders(text))
    return list(names)[:_MAX_PLACEHOLDERS]

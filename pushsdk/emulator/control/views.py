"""The response bodies in the control API, and the functions that build them from stored values."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from pushsdk._core.lint import Problem, lint
from pushsdk.emulator.faults import Rules
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.phones import Notification, Platform, PushView, notifications
from pushsdk.emulator.shapes import LARGE, READERS, is_large
from pushsdk.emulator.snippets import curl
from pushsdk.emulator.store.records import Delivered, RequestSummary, UserCount

T = TypeVar("T")

_PLATFORMS: tuple[Platform, ...] = ("ios", "android")
_MAX_USERS = 1000


class RequestPage(Struct, frozen=True):
    """Requests, newest first; ``next`` is ``before`` for the next page, null at the end."""

    requests: Sequence[RequestSummary]
    next: int | None


class RequestView(RequestSummary, frozen=True, kw_only=True):
    """One request: ``body`` is the JSON, null if invalid; ``text`` is the raw body.

    ``curl`` is empty for a body that is long, or not JSON. If the body has over 64 KiB beside its users, ``text`` is
    cut, and ``lint`` contains an advice about that.
    """

    body: Any
    text: str
    user_ids: Sequence[str]
    lint: Sequence[Problem]
    curl: str = ""


class LintResult(Struct, frozen=True):
    """The advice on a request, and the ``error`` that the service would refuse the request with."""

    error: str | None
    lint: Sequence[Problem]


class SendResult(Struct, frozen=True):
    """The service's response to a request that the page sent; ``status`` is null if a fault left it without one.

    ``id`` is the stored request's id, 0 if the request could not be stored.
    """

    id: int
    status: int | None
    accepted: bool
    body: str


class UserView(Struct, frozen=True, kw_only=True):
    """The pushes to one user: the number ever ``accepted``, the stored ones, and the notifications on each device."""

    user_id: str
    accepted: int
    pushes: Sequence[PushView]
    devices: Mapping[str, Sequence[Notification]]


class UserPage(Struct, frozen=True):
    """Users sorted as people count, u2 before u10; ``next`` is ``after`` for the next page, null at the end."""

    users: Sequence[UserCount]
    next: str | None


class FaultList(Struct, frozen=True):
    """The rules in an inbox in the order they are tried, each with ``name`` and ``hits``."""

    faults: Sequence[Mapping[str, Any]]
    seed: int


class DeleteResult(Struct, frozen=True):
    """The number of deleted requests. The counts per user are kept."""

    deleted: int


def request_view(request: RequestSummary, body: bytes) -> RequestView:
    """Return a request with its body, lint and curl command."""
    summary = msgspec.structs.asdict(request)
    del summary["body"]  # of the preview
    if is_large(body):
        text = body[:LARGE].decode("utf-8", "replace")
        advice = [_too_large(body)]
        return RequestView(**summary, body=None, text=text, user_ids=(), lint=advice)
    value: Any = _decoded(body, object)
    fields = value if isinstance(value, dict) else {}
    user_ids = fields.get("userIds")
    if not isinstance(user_ids, list):
        user_ids = []
    # Raw JSON is embedded, which bounds the depth.
    shown: Any = None if value is None else msgspec.Raw(body)
    if len(user_ids) > _MAX_USERS:
        user_ids = user_ids[:_MAX_USERS]
        shown = {**msgspec.json.decode(body, type=dict[str, msgspec.Raw]), "userIds": user_ids}
    text = body.decode("utf-8", "replace")
    return RequestView(
        **summary,
        body=shown,
        text=text,
        user_ids=[str(user_id) for user_id in user_ids],
        lint=lint(fields),
        curl="" if value is None else curl(request.endpoint, text),
    )


def lint_result(endpoint: str, fields: Mapping[str, Any]) -> LintResult:
    """Check a request that is not sent yet."""
    body, error = msgspec.json.encode(fields), None
    if is_large(body):
        return LintResult(None, [_too_large(body)])
    try:
        READERS[endpoint](body)
    except Refused as refused:
        error = refused.error
    return LintResult(error, lint(fields))


def export_row(request: RequestSummary, body: bytes) -> dict[str, Any]:
    """Return a request for a download; ``body`` is JSON, or a text if the body is not JSON."""
    is_json = _decoded(body, object) is not None
    shown = msgspec.Raw(b" ".join(body.splitlines())) if is_json else body.decode("utf-8", "replace")
    return {**msgspec.structs.asdict(request), "body": shown}


def user_view(user_id: str, accepted: int, delivered: Sequence[Delivered], now: float) -> UserView:
    """Return the pushes to a user, and the notifications on the devices now. Large messages are left out."""
    pushes = []
    for push in delivered:
        # An undocumented field may hold values that can't be decoded; the service ignored the field, too.
        content = (None if is_large(push.body) else _decoded(push.body, _BodyContent)) or _BodyContent()
        pushes.append(PushView(push.id, push.time, push.times, content.message, content.custom_fields))
    shown = [push for push in pushes if push.message is not None]
    return UserView(
        user_id=user_id,
        accepted=accepted,
        pushes=pushes,
        devices={name: notifications(shown, now=now, platform=name) for name in _PLATFORMS},
    )


def faults(rules: Rules) -> FaultList:
    """Return the rules with their hits."""
    views = [{**msgspec.to_builtins(rule.fault), "name": name, "hits": rule.hits} for name, rule in rules.rules.items()]
    return FaultList(views, rules.seed)


class _BodyContent(Struct, frozen=True, rename="camel"):
    """The fields shown from an accepted body. Users are skipped, because there may be many."""

    message: dict[str, Any] | None = None
    custom_fields: dict[str, Any] | None = None


def _too_large(body: bytes) -> Problem:
    advice = f"{len(body):,} bytes, over {LARGE:,} of them beside the users: shown raw, cut, and unchecked"
    return Problem(path="$", code="large", message=advice)


def _decoded(body: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        return None

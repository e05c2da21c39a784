"""The notifications that a user's devices show, sans-IO: one for each push and platform.

The interface document describes messages, but no devices. docs/emulator.md lists the assumptions; each notification
lists the assumptions that it depends on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from pushsdk._core.lint import PLATFORM
from pushsdk._core.models import MobilePush
from pushsdk.emulator.store.records import Redacted

Platform = Literal["ios", "android"]
NotificationState = Literal["enqueued", "delivered", "replaced", "expired"]
_NEVER = float("inf")
# Fields for one platform only.
_ONLY = {name: switch.removesuffix("Enabled") for name, switch in PLATFORM.items()}
_ONLY |= {"largeIconUrl": "android", "smallIconResourceId": "android", "actionCategory": "ios"}
# The assumption behind a field.
_ASSUMPTIONS = {
    "collapseId": "the next push with this collapseId replaces it",
    "ttl": "ttl is in seconds, the push is shown until then",
    "badgeCount": "the last badgeCount wins",
}


class PushView(Redacted, frozen=True):
    """A push as one user got it, ``times`` in one request.

    ``time`` is in seconds since the epoch; ``custom_fields`` fill the placeholders.
    """

    id: int
    time: float
    times: int
    message: Any
    custom_fields: Any


class Notification(Redacted, frozen=True, kw_only=True):
    """A push as one device shows it.

    ``push`` is the push id. ``message`` has the documented fields that apply to this platform; ``fields`` fill
    the placeholders. A ``silent`` push wakes the app and shows nothing. ``simulated`` lists the assumptions.
    """

    push: int
    time: float
    state: NotificationState
    silent: bool
    message: dict[str, Any]
    fields: dict[str, Any]
    simulated: tuple[str, ...]


def notifications(pushes: Sequence[PushView], *, now: float, platform: Platform) -> list[Notification]:
    """Return the notifications of one user's pushes on one platform, oldest first, as of ``now``.

    Raises ValueError for a message with invalid fields, which the emulator never accepts.
    """
    shown = []
    replaced: dict[str | None, float] = {}  # by collapseId: the time when the next push has this collapseId
    for push in reversed(pushes):
        message = _message_on(platform, push.message)
        if message is None:
            continue
        silent = message.get("contentAvailable") is True and not _has_text(message)
        collapse_id = message.get("collapseId") or None
        notification = Notification(
            push=push.id,
            time=push.time,
            state=_state(push.time, message.get("ttl", _NEVER), replaced.get(collapse_id, _NEVER), now),
            silent=silent,
            message=message,
            fields=push.custom_fields or {},
            simulated=_assumptions(message, silent=silent),
        )
        shown.append(notification)
        if collapse_id is not None:
            replaced[collapse_id] = push.time
    return shown[::-1]


def _message_on(platform: Platform, sent: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the documented fields that apply to the platform; None if the message is not for the platform."""
    documented = msgspec.to_builtins(msgspec.convert(sent, MobilePush))
    if documented.get(f"{platform}Enabled") is not True:
        return None
    return {name: value for name, value in documented.items() if name in sent and _ONLY.get(name, platform) == platform}


def _has_text(message: Mapping[str, Any]) -> bool:
    return any(text.strip() for name in ("title", "subtitle", "body") for text in message.get(name, {}).values())


def _assumptions(message: Mapping[str, Any], *, silent: bool) -> tuple[str, ...]:
    assumptions = [text for name, text in _ASSUMPTIONS.items() if name in message]
    if silent:
        assumptions.append("it is silent: contentAvailable, and no text")
    return ("the device is always online", *assumptions)


def _state(sent: float, ttl: float, replaced: float, now: float) -> NotificationState:
    if sent > now:
        return "enqueued"
    if sent + ttl <= min(now, replaced):
        return "expired"
    return "replaced" if replaced <= now else "delivered"

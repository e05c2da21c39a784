"""What a user's device shows of what was sent, sans-IO: a notification for each push on each platform.

The interface says what a message holds (sections 2.5-2.8), and nothing of what a device makes of it (section 3).
What follows is simulated, and each notification names what of it concerns it:

- devices are always online: a push is delivered as soon as it was enqueued;
- a flag of a platform that is left out counts as false;
- a later push with the same collapseId replaces the notification of an earlier one;
- ttl is in seconds, and a notification is shown until it has passed;
- a field that names no platform counts on both, but for the icons, which iOS does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from pushsdk.emulator.shapes import Message
from pushsdk.emulator.store.records import Preview, RequestRecord

__all__ = ["Notification", "Platform", "PushView", "describe", "notifications"]

_LISTED = 300  # characters of a text in a list
_LANGUAGES = 50

Platform: TypeAlias = Literal["ios", "android"]
State: TypeAlias = Literal["enqueued", "delivered", "replaced", "expired"]
_NEVER = float("inf")
_LONGEST = 10**12  # seconds of a ttl; a longer one is no float
# The fields that only one platform has.
_ONLY: Mapping[str, Platform] = {
    "androidActionUrl": "android",
    "androidChannel": "android",
    "androidActionButtons": "android",
    "largeIconUrl": "android",
    "smallIconResourceId": "android",
    "iosActionUrl": "ios",
    "interruptionLevel": "ios",
    "relevanceScore": "ios",
    "actionCategory": "ios",
}
# What is made up of a field that the message has.
_MADE_UP = {
    "collapseId": "the next push with this collapseId replaces it",
    "ttl": "ttl is in seconds, it is shown until it has passed",
    "badgeCount": "the last badgeCount wins",
}


def describe(entry: RequestRecord, message: Message | None) -> None:
    """Fill the entry's card and its searched texts, of all languages."""
    if message is None:
        return
    title, subtitle, body = _texts(message.title), _texts(message.subtitle), _texts(message.body)
    entry.title = "\n".join(title.values()).casefold()
    entry.text = "\n".join((*subtitle.values(), *body.values())).casefold()
    entry.card = Preview(
        title=_cut(title),
        body=_cut(body),
        languages=tuple(dict.fromkeys((*title, *subtitle, *body)))[:_LANGUAGES],
        # What the service makes of a flag that is left out is not shown (2.10). Here, as for lint, it is off.
        platforms=tuple(
            platform
            for platform, enabled in (("ios", message.ios_enabled), ("android", message.android_enabled))
            if enabled is True
        ),
        collapse_id=None if message.collapse_id is UNSET else message.collapse_id[:_LISTED],
        first_user=entry.user_ids[0] if entry.user_ids else None,
    )


def _texts(texts: dict[str, str] | UnsetType) -> dict[str, str]:
    return {} if texts is UNSET else texts


def _cut(texts: dict[str, str]) -> dict[str, str]:
    return {language: text[:_LISTED] for language, text in list(texts.items())[:_LANGUAGES]}


class _Quiet(Struct, frozen=True, kw_only=True):
    """Base of what holds texts and ids, which must not reach a log: its repr is its name."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class PushView(_Quiet, frozen=True, kw_only=True):
    """A push as one user got it, ``times`` in one request; of a campaign if ``campaign`` is its uuid.

    ``time`` is in seconds since the epoch; ``custom_fields`` fill the placeholders, of a campaign the user's row."""

    id: int
    time: float
    times: int
    campaign: str | None
    message: Any
    custom_fields: Any


class Notification(_Quiet, frozen=True, kw_only=True):
    """A push as one device shows it.

    ``push`` is the id of the push. ``message`` has the documented fields that concern this platform, under their
    names in the interface; ``fields`` fill the placeholders in its texts. A ``silent`` push wakes the app and shows
    nothing. ``simulated`` lists what the emulator made up.
    """

    push: int
    user_id: str
    time: float
    platform: Platform
    state: State
    silent: bool
    campaign: str | None
    message: dict[str, Any]
    fields: dict[str, Any]
    simulated: tuple[str, ...]


def notifications(pushes: Iterable[PushView], *, user_id: str, now: float, platform: Platform) -> list[Notification]:
    """Return what the user's devices of this platform show of these pushes, all of this user, oldest first.

    Raises ValueError for a message that is not as the shapes have it, which the emulator never accepts.
    """
    # The message as the shapes have it: only documented fields, and only those that are there.
    read = [(sent, msgspec.to_builtins(msgspec.convert(sent.message, Message))) for sent in pushes]
    enabled = [(sent, known) for sent, known in read if known.get(f"{platform}Enabled") is True]
    return [
        _notification(sent, known, user_id, platform, _state(sent, known, replaced, now))
        for (sent, known), replaced in zip(enabled, _replaced(enabled), strict=True)
    ]


def _replaced(pushes: Sequence[tuple[PushView, dict[str, Any]]]) -> list[float]:
    """Return of each push when the next one with its collapseId is delivered; infinity if there is none."""
    later: dict[str, float] = {}
    moments = []
    for sent, known in reversed(pushes):
        collapse_id = known.get("collapseId")
        moments.append(later.get(collapse_id, _NEVER) if collapse_id else _NEVER)
        if collapse_id:
            later[collapse_id] = sent.time
    return moments[::-1]


def _state(sent: PushView, known: Mapping[str, Any], replaced: float, now: float) -> State:
    if sent.time > now:
        return "enqueued"
    ttl = known.get("ttl")
    expires = _NEVER if ttl is None else sent.time + max(-_LONGEST, min(ttl, _LONGEST))
    if expires <= min(now, replaced):
        return "expired"
    return "replaced" if replaced <= now else "delivered"


def _notification(
    sent: PushView, known: Mapping[str, Any], user_id: str, platform: Platform, state: State
) -> Notification:
    message = {name: value for name, value in known.items() if _ONLY.get(name, platform) == platform}
    texts = [text for name in ("title", "subtitle", "body") for text in message.get(name, {}).values()]
    silent = message.get("contentAvailable") is True and not any(text.strip() for text in texts)
    return Notification(
        push=sent.id,
        user_id=user_id,
        time=sent.time,
        platform=platform,
        state=state,
        silent=silent,
        campaign=sent.campaign,
        message=message,
        fields=sent.custom_fields or {},
        simulated=(
            "the device is always online",
            *(made_up for name, made_up in _MADE_UP.items() if name in message),
            *(["it is silent: contentAvailable, and no text"] if silent else []),
        ),
    )

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

from pushsdk.emulator.records import Card, Entry
from pushsdk.emulator.shapes import Message

__all__ = [
    "Button",
    "Media",
    "Notification",
    "Platform",
    "PushView",
    "describe",
    "notifications",
]

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


def describe(entry: Entry, message: Message | None) -> None:
    """Fill the entry's card and its searched texts, of all languages."""
    if message is None:
        return
    title, subtitle, body = _texts(message.title), _texts(message.subtitle), _texts(message.body)
    entry.title = "\n".join(title.values()).casefold()
    entry.text = "\n".join((*subtitle.values(), *body.values())).casefold()
    entry.card = Card(
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


class Media(_Quiet, frozen=True, kw_only=True):
    """Rich media, and of which kind it is said to be."""

    url: str | None
    type: str | None


class Button(_Quiet, frozen=True, kw_only=True):
    """A button: of androidActionButtons with a ``label``, or an action of the actionCategory with an ``id``."""

    label: str | None = None
    id: str | None = None
    url: str | None = None
    click_action: str | None = None
    key_vals: dict[str, str] = {}
    webview: bool | None = None


class Notification(_Quiet, frozen=True, kw_only=True):
    """What one device shows of one push. None is a field that the message leaves out.

    ``push`` is the id of what was sent. Texts are maps of language to text with their placeholders in them, which
    ``fields`` fill. ``silent`` is one that wakes the app and shows nothing. ``extras`` are the fields of the message
    that show nowhere else here, by their names in it: those of the other platform, and unknown ones. ``simulated``
    says what of it the emulator made up.
    """

    push: int
    user_id: str
    time: float
    platform: Platform
    state: State
    silent: bool
    campaign: str | None
    type: str | None = None
    title: dict[str, str] = {}
    subtitle: dict[str, str] = {}
    body: dict[str, str] = {}
    fields: dict[str, Any]
    collapse_id: str | None = None
    ttl: int | None = None
    action: str | None = None
    url: str | None
    key_vals: dict[str, str] = {}
    big_image: str | None = None
    large_icon: str | None = None
    small_icon: str | None = None
    channel: str | None = None
    priority: str | None = None
    buttons: tuple[Button, ...]
    category: dict[str, str]
    sound: str | None = None
    media: Media | None
    interruption_level: str | None = None
    badge: int | None = None
    relevance_score: str | None = None
    content_available: bool | None = None
    extras: dict[str, Any]
    simulated: tuple[str, ...]


# By the field of a notification or a button: the message's field that it shows.
_SHOWN = {
    **{name: name for name in ("type", "title", "subtitle", "body", "ttl", "action", "priority")},
    "collapse_id": "collapseId",
    "key_vals": "keyVals",
    "big_image": "bigImageUrl",
    "large_icon": "largeIconUrl",
    "small_icon": "smallIconResourceId",
    "channel": "androidChannel",
    "sound": "soundFileName",
    "interruption_level": "interruptionLevel",
    "badge": "badgeCount",
    "relevance_score": "relevanceScore",
    "content_available": "contentAvailable",
}
_BUTTON = {
    "label": "label",
    "id": "actionId",
    "url": "url",
    "click_action": "clickAction",
    "key_vals": "keyVals",
    "webview": "useWebview",
}


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
    category = dict(message.get("actionCategory", {}))
    buttons = [*message.get("androidActionButtons", ()), *category.pop("actionComponents", ())]
    url, kind = message.get("richMediaUrl"), message.get("mediaType")
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
        fields=sent.custom_fields or {},
        url=message.get(f"{platform}ActionUrl"),
        buttons=tuple(Button(**_renamed(each, _BUTTON)) for each in buttons),
        category=category,
        media=None if url is None and kind is None else Media(url=url, type=kind),
        extras={name: value for name, value in sent.message.items() if name not in message},
        simulated=(
            "the device is always online",
            *(made_up for name, made_up in _MADE_UP.items() if name in message),
            *(["it is silent: contentAvailable, and no text"] if silent else []),
        ),
        **_renamed(message, _SHOWN),
    )


def _renamed(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: value[key] for name, key in names.items() if key in value}

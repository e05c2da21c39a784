"""What a user's device shows of what was sent, sans-IO: a notification for each push on each platform.

The interface says what a message holds (sections 2.5-2.8), and nothing of what a device makes of it (section 3).
What follows is simulated, and each notification names what of it concerns it:

- devices are always online: a push is delivered as soon as it was enqueued, ``delay`` seconds after it came;
- a flag of a platform that is left out counts as false;
- a later push with the same collapseId replaces the notification of an earlier one;
- ttl is in seconds, and a notification is shown until it has passed;
- a field that names no platform counts on both, but for the icons, which iOS does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from pushsdk._core.placeholders import find_placeholders
from pushsdk.emulator.records import Card, Entry
from pushsdk.emulator.shapes import Message, TextMap

__all__ = [
    "Button",
    "Media",
    "Notification",
    "Piece",
    "Platform",
    "Sent",
    "badge",
    "describe",
    "notifications",
    "plain",
    "rendered",
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
Value = TypeVar("Value")


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


class Sent(_Quiet, frozen=True, kw_only=True):
    """A push or a campaign as one user got it: when, what, and what fills its placeholders.

    ``time`` in seconds since the epoch; ``message`` as it was sent, and as the shapes have it; ``campaign`` its uuid.
    """

    id: int
    time: float
    message: dict[str, Any]
    fields: dict[str, Any] | None = None
    campaign: str | None = None


class Piece(_Quiet, frozen=True, kw_only=True):
    """A part of a rendered text: as it was written, or what stands for the placeholder ``name``."""

    text: str
    kind: Literal["text", "value", "fallback"]
    name: str | None = None


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

    ``push`` is the id of what was sent. Texts are maps of language to text with their placeholders in them: see
    `rendered` and ``fields``. ``silent`` is one that wakes the app and shows nothing. ``extras`` are the fields of the
    message that show nowhere else here, by their names in it: those of the other platform, and unknown ones.
    ``simulated`` says what of it the emulator made up.
    """

    push: int
    user_id: str
    time: float
    platform: Platform
    state: State
    silent: bool
    campaign: str | None
    type: str | None
    title: dict[str, str]
    subtitle: dict[str, str]
    body: dict[str, str]
    fields: dict[str, Any]
    collapse_id: str | None
    ttl: int | None
    action: str | None
    url: str | None
    key_vals: dict[str, str]
    big_image: str | None
    large_icon: str | None
    small_icon: str | None
    channel: str | None
    priority: str | None
    buttons: tuple[Button, ...]
    category: dict[str, str]
    sound: str | None
    media: Media | None
    interruption_level: str | None
    badge: int | None
    relevance_score: str | None
    content_available: bool | None
    extras: dict[str, Any]
    simulated: tuple[str, ...]


class _Push(Struct, frozen=True):
    """What was sent, read: its message for this platform, when it is delivered, when it expires."""

    sent: Sent
    message: Message
    delivered: float
    expires: float


def notifications(
    pushes: Iterable[Sent], *, user_id: str, now: float, platform: Platform, delay: float = 0.0
) -> list[Notification]:
    """What the user's devices of this platform show of these pushes, which are all of this user, oldest first.

    Raises ValueError for a message that is not as the shapes have it, which the emulator never accepts.
    """
    read = [
        _Push(sent, message, sent.time + delay, _expires(sent, message))
        for sent in pushes
        if _enabled(message := msgspec.convert(sent.message, Message), platform)
    ]
    replaced = _replaced(read)
    return [
        _notification(push, user_id, platform, _state(push, replacement, now))
        for push, replacement in zip(read, replaced, strict=True)
    ]


def badge(shown: Sequence[Notification]) -> int | None:
    """The number on the app's icon: the last badgeCount that was delivered wins."""
    counts = [each.badge for each in shown if each.badge is not None and each.state != "enqueued"]
    return counts[-1] if counts else None


def rendered(text: str, fields: Mapping[str, Any] | None) -> list[Piece]:
    """The text in pieces, its placeholders filled from the fields, or by their fallbacks."""
    pieces, end = [], 0
    for each in find_placeholders(text):
        if each.start > end:
            pieces.append(Piece(text=text[end : each.start], kind="text"))
        value = (fields or {}).get(each.name)
        if value is None:
            pieces.append(Piece(text=each.fallback, kind="fallback", name=each.name))
        else:
            pieces.append(Piece(text=str(value), kind="value", name=each.name))
        end = each.end
    if end < len(text):
        pieces.append(Piece(text=text[end:], kind="text"))
    return pieces


def plain(text: str, fields: Mapping[str, Any] | None) -> str:
    """The text as the user sees it."""
    return "".join(piece.text for piece in rendered(text, fields))


def _enabled(message: Message, platform: Platform) -> bool:
    return (message.ios_enabled if platform == "ios" else message.android_enabled) is True


def _expires(sent: Sent, message: Message) -> float:
    return _NEVER if message.ttl is UNSET else sent.time + max(-_LONGEST, min(message.ttl, _LONGEST))


def _replaced(pushes: list[_Push]) -> list[float]:
    """For each push, when the next one with its collapseId is delivered; infinity where there is none."""
    later: dict[str, float] = {}
    moments = []
    for push in reversed(pushes):
        collapse_id = _or_none(push.message.collapse_id)
        moments.append(later.get(collapse_id, _NEVER) if collapse_id else _NEVER)
        if collapse_id:
            later[collapse_id] = push.delivered
    return moments[::-1]


def _state(push: _Push, replaced: float, now: float) -> State:
    if push.delivered > now:
        return "enqueued"
    if push.expires <= min(now, replaced):
        return "expired"
    return "replaced" if replaced <= now else "delivered"


def _notification(push: _Push, user_id: str, platform: Platform, state: State) -> Notification:
    sent = push.sent
    extras = {name: value for name, value in sent.message.items() if _is_extra(name, platform)}
    message = msgspec.convert({name: value for name, value in sent.message.items() if name not in extras}, Message)
    return Notification(
        push=sent.id,
        user_id=user_id,
        time=sent.time,
        platform=platform,
        state=state,
        silent=_is_silent(message),
        campaign=sent.campaign,
        type=_or_none(message.type),
        title=_map(message.title),
        subtitle=_map(message.subtitle),
        body=_map(message.body),
        fields=sent.fields or {},
        collapse_id=_or_none(message.collapse_id),
        ttl=_or_none(message.ttl),
        action=_or_none(message.action),
        url=_or_none(message.ios_action_url if platform == "ios" else message.android_action_url),
        key_vals=_map(message.key_vals),
        big_image=_or_none(message.big_image_url),
        large_icon=_or_none(message.large_icon_url),
        small_icon=_or_none(message.small_icon_resource_id),
        channel=_or_none(message.android_channel),
        priority=_or_none(message.priority),
        buttons=_buttons(message),
        category=_category(message),
        sound=_or_none(message.sound_file_name),
        media=_media(message),
        interruption_level=_or_none(message.interruption_level),
        badge=_or_none(message.badge_count),
        relevance_score=_or_none(message.relevance_score),
        content_available=_or_none(message.content_available),
        extras=extras,
        simulated=_simulated(message),
    )


def _is_extra(name: str, platform: Platform) -> bool:
    return name not in Message.__struct_encode_fields__ or _ONLY.get(name, platform) != platform


def _is_silent(message: Message) -> bool:
    texts = [*_map(message.title).values(), *_map(message.subtitle).values(), *_map(message.body).values()]
    return message.content_available is True and not any(text.strip() for text in texts)


def _simulated(message: Message) -> tuple[str, ...]:
    has = msgspec.to_builtins(message)
    return (
        "the device is always online",
        *(made_up for name, made_up in _MADE_UP.items() if name in has),
        *(["it is silent: contentAvailable, and no text"] if _is_silent(message) else []),
    )


def _media(message: Message) -> Media | None:
    url, kind = _or_none(message.rich_media_url), _or_none(message.media_type)
    return None if url is None and kind is None else Media(url=url, type=kind)


def _category(message: Message) -> dict[str, str]:
    category = _or_none(message.action_category)
    named = {} if category is None else {"type": category.type, "name": category.name}
    return {name: value for name, value in named.items() if value is not UNSET}


def _buttons(message: Message) -> tuple[Button, ...]:
    """Those of the platform: the message has no fields of the other one."""
    category = _or_none(message.action_category)
    return (
        *(
            Button(
                label=_or_none(each.label),
                url=_or_none(each.url),
                click_action=_or_none(each.click_action),
                key_vals=_map(each.key_vals),
            )
            for each in _or_none(message.android_action_buttons) or ()
        ),
        *(
            Button(
                id=_or_none(each.action_id),
                url=_or_none(each.url),
                click_action=_or_none(each.click_action),
                key_vals=_map(each.key_vals),
                webview=_or_none(each.use_webview),
            )
            for each in (category and _or_none(category.action_components)) or ()
        ),
    )


def _or_none(value: Value | UnsetType) -> Value | None:
    return None if value is UNSET else value


def _map(texts: TextMap) -> dict[str, str]:
    return {} if texts is UNSET else texts

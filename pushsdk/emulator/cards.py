"""What a list shows of a request, and what is searched in it: taken from the message once, when it comes."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from pushsdk.emulator.records import Card, Entry
from pushsdk.emulator.shapes import Message

__all__ = ["describe"]

_LONGEST = 300  # characters of a text in a list
_LANGUAGES = 50


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
        collapse_id=None if message.collapse_id is UNSET else message.collapse_id[:_LONGEST],
        first_user=entry.user_ids[0] if entry.user_ids else None,
    )


def _texts(texts: dict[str, str] | UnsetType) -> dict[str, str]:
    return {} if texts is UNSET else texts


def _cut(texts: dict[str, str]) -> dict[str, str]:
    return {language: text[:_LONGEST] for language, text in list(texts.items())[:_LANGUAGES]}

"""What was accepted, as a test looks at it: texts with their placeholders filled. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from pushsdk._core.placeholders import render

__all__ = ["SentPush", "sent_push"]


class SentPush(Struct, frozen=True, kw_only=True):
    """One accepted push, or a campaign where ``campaign`` is its uuid, with its texts as a user sees them.

    ``message`` and ``custom_fields`` are as they were sent. ``title``, ``subtitle`` and ``body`` are maps of language
    to text, with their placeholders filled: from the custom fields, or from the user's row of the campaign's segment.
    ``time`` is in seconds since the epoch.
    """

    id: int
    time: float
    user_ids: tuple[str, ...]
    message: dict[str, Any]
    custom_fields: dict[str, Any] | None
    campaign: str | None
    title: dict[str, str]
    subtitle: dict[str, str]
    body: dict[str, str]


class _Body(Struct, rename="camel"):
    """What a push and a campaign have in common."""

    user_ids: tuple[str, ...] = ()
    message: dict[str, Any] = {}
    custom_fields: dict[str, Any] | None = None


def sent_push(
    number: int, moment: float, body: bytes, *, campaign: str | None = None, fields: Mapping[str, Any] | None = None
) -> SentPush:
    """The accepted body, with the ``fields`` of the user where a campaign has some."""
    sent = msgspec.json.decode(body, type=_Body)
    values = fields or sent.custom_fields or {}
    title, subtitle, text = (
        {language: render(words, values) for language, words in sent.message.get(part, {}).items()}
        for part in ("title", "subtitle", "body")
    )
    return SentPush(
        id=number,
        time=moment,
        user_ids=sent.user_ids,
        message=sent.message,
        custom_fields=sent.custom_fields,
        campaign=campaign,
        title=title,
        subtitle=subtitle,
        body=text,
    )

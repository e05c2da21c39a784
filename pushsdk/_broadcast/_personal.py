"""The placeholders of a message, found once and filled for many users."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pushsdk._core.models import MobilePush
from pushsdk._core.placeholders import find_placeholders

__all__ = ["Fill"]

# The texts that may hold placeholders (section 2.5).
_TEXTS = ("title", "subtitle", "body")

_Slot = tuple[str, str]
"""A name, and its fallback."""


class _Text(msgspec.Struct, frozen=True):
    """A text with placeholders: a %-format, and which of the values go into it."""

    language: str
    format: str
    pick: Callable[[list[str]], Any]


class Fill:
    """A message whose texts are filled in on our side. What fills them equals ``placeholders.render``."""

    def __init__(self, message: MobilePush | Mapping[str, Any]) -> None:
        self._message = message
        # Each placeholder once, whatever the number of texts that it is in.
        self._slots: dict[_Slot, int] = {}
        # By field: all of its texts, and those that have to be filled.
        self._fields: list[tuple[str, dict[str, str], list[_Text]]] = []
        for field in _TEXTS:
            texts = getattr(message, field) if isinstance(message, MobilePush) else message.get(field)
            if isinstance(texts, Mapping):
                found = [text for language in texts if (text := self._compiled(language, texts[language]))]
                if found:
                    self._fields.append((field, dict(texts), found))
        self.names = frozenset(name for name, _ in self._slots)
        """Of the columns that its placeholders ask for."""

    def __call__(self, row: Mapping[str, Any]) -> MobilePush | Mapping[str, Any]:
        """The message as a user with these columns sees it."""
        if not self._fields:
            return self._message
        values = [fallback if (value := row.get(name)) is None else str(value) for name, fallback in self._slots]
        filled = {}
        for field, texts, found in self._fields:
            filled[field] = texts = texts.copy()
            for text in found:
                texts[text.language] = text.format % text.pick(values)
        if isinstance(self._message, MobilePush):
            return msgspec.structs.replace(self._message, **filled)
        return {**self._message, **filled}

    def _compiled(self, language: str, text: str) -> _Text | None:
        """None where there is nothing to fill."""
        found = find_placeholders(text)
        if not found:
            return None
        starts, ends = [each.start for each in found], [each.end for each in found]
        literals = [text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)]
        slots = [self._slots.setdefault((each.name, each.fallback), len(self._slots)) for each in found]
        # One index picks the text itself, several a tuple: a %-format takes both.
        return _Text(language, "%s".join(each.replace("%", "%%") for each in literals), operator.itemgetter(*slots))

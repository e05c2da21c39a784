"""Personalization placeholders, ``{{ first_name | 'there' }}`` (section 2.5): make, find and fill them.

Texts in, texts out. What a placeholder may not look like is said here; whether a message is well made, in ``lint``.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from pushsdk._core.errors import ValidationError
from pushsdk._core.models import MobilePush
from pushsdk._public import set_public_module

__all__ = [
    "TEXTS",
    "Placeholder",
    "fill",
    "find_placeholders",
    "has_malformed_placeholder",
    "placeholder",
    "placeholder_names",
    "render",
]

TEXTS = ("title", "subtitle", "body")
"""The fields of a message whose texts may hold placeholders (section 2.5)."""

# No part can run past the next "{{", so however hostile the text, each of its characters is looked at a bounded
# number of times. The interface shows no escape, hence no quote, "{{" or "}}" in a part.
_PLACEHOLDER = re.compile(r"\{\{\s*+([^\s{}|'][^{}|'\r\n]*+)\|\s*+'((?:[^'{}]|\{(?!\{)|\}(?!\}))*+)'\s*+\}\}")


class Placeholder(msgspec.Struct, frozen=True, kw_only=True):
    """A placeholder in a text: ``text[start:end]`` is the whole of it, ``fallback`` what stands in for no value."""

    name: str
    fallback: str
    start: int
    end: int


def placeholder(name: str, fallback: str) -> str:
    """The placeholder of a field: ``placeholder("first_name", "there")`` is ``{{ first_name | 'there' }}``.

    Raises ``ValidationError`` for what could not be read back: ``'``, ``{{`` or ``}}`` in either part, and an
    empty name, or one with ``|``, a brace, a line break or space around it. Source: section 2.5.
    """
    if not isinstance(name, str) or not isinstance(fallback, str):
        raise ValidationError("a placeholder is made of a name and a fallback, both str")
    made = f"{{{{ {name} | '{fallback}' }}}}"
    found = _PLACEHOLDER.fullmatch(made)
    if not found or (found[1].rstrip(), found[2]) != (name, fallback):
        raise ValidationError(
            "a placeholder can't be made of this: no ', {{ or }} in either part, and a name that is not empty and "
            "holds no |, brace, line break or space around it"
        )
    return made


def find_placeholders(text: str) -> list[Placeholder]:
    """The placeholders of a text, in order; what only looks like one is passed over."""
    return [
        Placeholder(name=match[1].rstrip(), fallback=match[2], start=match.start(), end=match.end())
        for match in _PLACEHOLDER.finditer(text)
    ]


def render(text: str, fields: Mapping[str, Any]) -> str:
    """The text as a user with these fields sees it.

    A missing field, or None, gives the fallback; any other value its ``str``. What can't be parsed stays as it is.
    """

    def value_of(match: re.Match[str]) -> str:
        value = fields.get(match[1].rstrip())
        return match[2] if value is None else str(value)

    return _PLACEHOLDER.sub(value_of, text)


def placeholder_names(message: MobilePush | Mapping[str, Any]) -> frozenset[str]:
    """Return the names in the placeholders of a message."""
    texts = itertools.chain.from_iterable(each.values() for each in _texts_of(message).values())
    return frozenset(each.name for text in texts for each in find_placeholders(text))


def fill(message: MobilePush | Mapping[str, Any], fields: Mapping[str, Any]) -> MobilePush | Mapping[str, Any]:
    """Return the message as a user with these fields sees it."""
    filled = {
        name: {language: render(text, fields) for language, text in texts.items()}
        for name, texts in _texts_of(message).items()
    }
    if isinstance(message, MobilePush):
        return msgspec.structs.replace(message, **filled)
    return {**message, **filled}


def _texts_of(message: MobilePush | Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return the texts of a message that has any, by field and language."""
    values = ((name, message.get(name) if isinstance(message, Mapping) else getattr(message, name)) for name in TEXTS)
    return {name: texts for name, texts in values if isinstance(texts, Mapping)}


def has_malformed_placeholder(text: str) -> bool:
    """Whether ``{{`` or ``}}`` is left over once the placeholders are taken out: a user would see it as it is."""
    rest = _PLACEHOLDER.sub("\0", text)
    return "{{" in rest or "}}" in rest


set_public_module(__name__)

"""Personalization placeholders, ``{{ first_name | 'there' }}``: make, find and fill them."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from pushsdk._core.errors import ValidationError
from pushsdk._core.models import MobilePush
from pushsdk._core.words import kind_of

TEXTS = ("title", "subtitle", "body")
"""The message fields whose texts may contain placeholders."""

# No group matches beyond the next "{{", so matching time is linear for hostile texts too. The interface document has
# no escape, hence no quote, "{{" or "}}" within a name or a fallback.
_PLACEHOLDER = r"\{\{\s*+([^\s{}|'][^{}|'\r\n]*+)\|\s*+'((?:[^'{}]|\{(?!\{)|\}(?!\}))*+)'\s*+\}\}"

# What users would see of a malformed placeholder: two braces, or a name in single braces, as an f-string leaves.
_MALFORMED = (
    (r"\{\{\s*+([^\W\d]\w*+)\s*+\}\}", r"a placeholder needs a fallback, such as {{ \1 | 'there' }}"),
    (r"\{\{|\}\}", "a placeholder is not of the form {{ field_name | 'fallback' }}"),
    (
        r"\{\s*[^\W\d]\w*\s*(?:\||\})",
        (
            "a placeholder has two braces, {{ field_name | 'fallback' }}: in an f-string write "
            "{placeholder('field_name', 'fallback')}"
        ),
    ),
)


class Placeholder(msgspec.Struct, frozen=True, kw_only=True):
    """A placeholder in a text, at ``text[start:end]``. ``fallback`` replaces a missing value."""

    name: str
    fallback: str
    start: int
    end: int


def placeholder(name: str, fallback: str) -> str:
    """Return a field's placeholder: ``placeholder("first_name", "there")`` is ``{{ first_name | 'there' }}``.

    Raises ValidationError for ``'``, ``{{`` or ``}}`` in either part, and for a name that is empty or has ``|``, a
    brace, a line break or space around it.
    """
    if not isinstance(name, str) or not isinstance(fallback, str):
        raise ValidationError("name and fallback of a placeholder must both be str")
    text = f"{{{{ {name} | '{fallback}' }}}}"
    match = re.fullmatch(_PLACEHOLDER, text)
    if not match or (match[1].rstrip(), match[2]) != (name, fallback):
        if "'" in fallback:
            raise ValidationError("the fallback of a placeholder can't hold a ': use \u2019, the typographic one")
        raise ValidationError(
            "a placeholder can't be made of this: no ', {{ or }} in either part, and a name that is not empty and "
            "holds no |, brace, line break or space around it"
        )
    return text


def find_placeholders(text: str) -> list[Placeholder]:
    """Return a text's placeholders, in order; malformed ones are skipped. Raises ValidationError unless a str."""
    if not isinstance(text, str):
        raise ValidationError(f"text must be a str, such as one language of a title; got {kind_of(text)}")
    return [
        Placeholder(name=match[1].rstrip(), fallback=match[2], start=match.start(), end=match.end())
        for match in re.finditer(_PLACEHOLDER, text)
    ]


def render(text: str, fields: Mapping[str, Any]) -> str:
    """Return the text as a user with these fields sees it.

    A missing field, None or NaN gives the fallback. A number has no exponent and no ``.0``, and a bool is ``true`` or
    ``false``. Malformed placeholders stay unchanged. Raises ValidationError unless the text is a str and the fields are
    a mapping, and for a list or an object that a placeholder names.
    """
    if not isinstance(text, str) or not isinstance(fields, Mapping):
        raise ValidationError(f"render takes a text and a mapping of fields; got {kind_of(text)} and {kind_of(fields)}")

    def value_of(match: re.Match[str]) -> str:
        name = match[1].rstrip()
        value = fields.get(name)
        is_missing = value is None or (isinstance(value, float) and math.isnan(value))
        return match[2] if is_missing else _written(name, value)

    return re.sub(_PLACEHOLDER, value_of, text)


def _written(name: str, value: Any) -> str:
    """Return the value as a person writes it."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        raise ValidationError(f"the placeholder {name!r} takes a text or a number; its field is {kind_of(value)}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (float, Decimal)) and math.isfinite(value):
        return format(Decimal(str(value)), "f").removesuffix(".0")
    return str(value)


def placeholder_names(message: MobilePush | Mapping[str, Any]) -> frozenset[str]:
    """Return the names in a message's placeholders."""
    texts = itertools.chain.from_iterable(languages.values() for languages in _texts_of(message).values())
    return frozenset(found.name for text in texts for found in find_placeholders(text))


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
    """Return a message's texts, if any, by field and language."""
    values = ((name, message.get(name) if isinstance(message, Mapping) else getattr(message, name)) for name in TEXTS)
    return {name: texts for name, texts in values if isinstance(texts, Mapping)}


def malformed_placeholder(text: str) -> str | None:
    """Return the fault in the braces outside placeholders, which users would see; None if there is none."""
    rest = re.sub(_PLACEHOLDER, "\0", text)
    for pattern, advice in _MALFORMED:
        if match := re.search(pattern, rest):
            return match.expand(advice)
    return None

"""Secrets: texts such as the Api-Key, as an object that tracebacks, logs and crash reporters can't read."""

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import msgspec

SHORTEST_MASKED = 6
"""Characters. A shorter key is not masked: it is no secret, and would blank out half the text."""
# Characters at a cut end that may begin a key: one tells nothing, and often ends a text.
_LEAST_BEGINNING = 2
# Encodings around encodings, such as JSON with HTML in it, that are looked into.
_DEPTH = 2
# A character as JSON or a program, a URL, or HTML may write it, by its first character. Compiled when needed.
_ESCAPES = {
    lead: partial(re.compile, re.escape(lead) + rest, re.IGNORECASE | re.DOTALL)
    for lead, rest in {
        "\\": r"(?:(?:u00|x)([0-9a-f]{2})|[^ux])",
        "%": r"([0-9a-f]{2})",
        "&": r"(?:#\d{1,9}|#x[0-9a-f]{1,9}|[a-z]{2,20});?",
    }.items()
}
_has_escape = re.compile(r"[\\%&\0]").search
# Most backslashes before a character, or NULs as in UTF-16.
_SKIPPED = 8
# The beginning of an escape, which may end within an escape.
_is_begun = re.compile(r"(?:[\\%&\0][\\%&#\w\0]{0,24})?").fullmatch
_TEXTS = (str, bytes, bytearray, list, tuple, dict)


class _Hidden:
    """A value in a closure: crash reporters walk ``__dict__`` and ``__slots__``, but not closures."""

    __slots__ = ("forms", "reveal")

    def __init__(self, value: Any) -> None:
        self.reveal: Callable[[], Any] = lambda: value
        self.forms: Callable[[], dict[str, str]] | None = None  # set by the first masking, and as hidden

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden) and bool(self.reveal() == other.reveal())

    def __hash__(self) -> int:
        return hash(str(self.reveal()))


# A Struct keeps its hash, so a send looks its batch up by the Api-Key without a Python call.
class Secret(msgspec.Struct, frozen=True, cache_hash=True):
    """A text that is not a str, so that code which collects texts does not collect it. Equal if the texts are."""

    _hidden: _Hidden

    @classmethod
    def of(cls, value: object) -> "Secret":
        """Return the value, most often a text, as a secret. A secret is returned unchanged."""
        return value if isinstance(value, Secret) else cls(_Hidden(value))

    def reveal(self) -> Any:
        """Return the value. Call this where the value is written, and keep it out of local variables."""
        return self._hidden.reveal()

    def __repr__(self) -> str:
        return "***"

    __copy__ = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Api-Key is not pickled: give each process its own, by PUSHSDK_API_KEY or a callable")


def sealed(value: Any) -> Any:
    """Return a text, or plain data that may hold one, as a Secret. Other values, such as a callable, are unchanged."""
    return Secret.of(value) if isinstance(value, _TEXTS) else value


def mask(secret: Secret | None, text: str, *, is_cut: bool = False) -> str:
    """Return the text with ``***`` for the secret, also as hex digits or in base64, however each character is escaped.

    ``is_cut``: the text may end within the secret.
    """
    forms, parts, end = _forms_of(secret._hidden) if secret else {}, list[str](), 0
    if not (is_cut or _has_escape(text) or any(form in text for form in forms)):
        return text
    for start, last in sorted(_spans(forms, text, is_cut)):
        if last > max(start, end):
            parts += text[end:start], "***"
            end = last
    return "".join(parts) + text[end:]


def _forms_of(hidden: _Hidden) -> dict[str, str]:
    """Return the forms, which are kept with the secret and end with it."""
    if hidden.forms is None:
        forms = _forms(hidden.reveal())
        hidden.forms = lambda: forms  # a cache for each secret would triple the cost of one
    return hidden.forms()


def _forms(plain: str) -> dict[str, str]:
    """Return the secret, its hex digits, and the characters for it in any base64 text; nothing if it is too short.

    Each with a pattern for its first character, which may be escaped if all are.
    """
    if len(plain) < SHORTEST_MASKED:
        return {}
    data = plain.encode()
    codes = [data.hex(), data.hex().upper()]
    for before, first in enumerate((0, 2, 3)):
        last = (before + len(data)) * 4 // 3
        codes += [encode(bytes(before) + data)[first:last].decode() for encode in (b64encode, urlsafe_b64encode)]
    starts = {code: re.escape(code[0]) for code in codes}
    return {**starts, plain: rf"[%&{re.escape(plain[0])}]|[\\\0](?![\\\0])"}


def _spans(forms: Mapping[str, str], text: str, is_cut: bool) -> Iterator[tuple[int, int]]:
    """Yield where a form begins, and where it ends, or the same place again."""
    for layer, places in _layers(text):
        for form, first in forms.items():
            for start in map(re.Match.start, re.finditer(first, layer)):
                yield places[start], places[_end_of(form, layer, start, is_cut)]


def _layers(text: str) -> list[tuple[str, list[int]]]:
    """Return the text, and what it encodes once or twice, as JSON, a URL or HTML; with each character's place."""
    layers = new = [(text, list(range(len(text) + 1)))]
    for _ in range(_DEPTH):
        new = [_decoded(*layer, lead) for layer in new for lead in _ESCAPES if lead in layer[0]]
        layers += new
    return layers


def _end_of(form: str, text: str, start: int, is_cut: bool) -> int:
    """Return where the secret that starts here ends, or the start."""
    ends, cut = {start}, start
    for number, char in enumerate(form):
        if is_cut and number >= _LEAST_BEGINNING and any(_is_begun(text, at) for at in ends):
            cut = len(text)
        ends = {end for at in ends for read, end in _readings(text, at) if read == char}
        if not ends:
            return cut
    return max(ends)


def _readings(text: str, start: int) -> Iterator[tuple[str, int]]:
    """Yield the characters that the text may mean at this place, each with its end."""
    for at in range(start, start + _SKIPPED + 1):
        char = text[at : at + 1]
        yield char, at + 1
        if char in _ESCAPES and (escape := _ESCAPES[char]().match(text, at)):
            yield _meaning(escape), escape.end()
        if char not in ("\\", "\0"):
            break


def _meaning(escape: re.Match[str]) -> str:
    from html import unescape  # loads 2,000 names, which few processes need

    return chr(int(escape[1], 16)) if escape.lastindex else unescape(escape[0].removeprefix("\\"))


def _decoded(text: str, places: list[int], lead: str) -> tuple[str, list[int]]:
    """Return the text without the escapes that begin with ``lead``, and each character's place."""
    parts, kept, end = list[str](), list[int](), 0
    for escape in _ESCAPES[lead]().finditer(text):
        meaning, start = _meaning(escape), escape.start()
        parts += text[end:start], meaning
        kept += places[end : start + len(meaning)]
        end = escape.end()
    return "".join(parts) + text[end:], kept + places[end:]

"""Secrets: texts such as the Api-Key, as an object that tracebacks, logs and crash reporters can't read."""

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import msgspec

SHORTEST_MASKED = 6
"""Characters. A shorter key is not masked: it is no secret, and would blank out half the text."""
# A character as JSON or a program, a URL, or HTML may write it. Patterns are compiled when needed.
_ESCAPE = r"(?i)(?:\\(?:u00|x)|%)([0-9a-f]{2})|\\([^\0])|&#?\w{1,20};"
# The beginning for an escape at the end; and one whose end is within another begun escape, for which "%" stands.
_BEGUN = r"(?<![\\%&])[\\%&]+#?\w{0,20}\Z"
_BEGUN_WITHIN = r"(?<![\\%&])[\\%&]+#?\w{0,20}%?\Z"
# Decoding steps: more than there are escapes within escapes, such as HTML in JSON in a URL.
_STEPS = 8
_TEXTS = (str, bytes, bytearray, list, tuple, Mapping)


class _Hidden:
    """A value in a closure: crash reporters walk ``__dict__`` and ``__slots__``, but not closures."""

    __slots__ = ("reveal",)

    def __init__(self, value: Any) -> None:
        if isinstance(value, str):
            value = str.__str__(value)  # a member of an Enum may show another text than it is
        self.reveal: Callable[[], Any] = lambda: value

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


def seal_options(options: Any) -> None:
    """Seal the client options that may hold a secret: tracebacks may show local variables."""
    for name in options.keys() & {"proxy", "claims", "headers"}:
        options[name] = sealed(options[name])


def masker(secret: Secret) -> Callable[..., str]:
    """Return a function that hides the secret in a text: as it is, as hex digits, in base64, in upper or lower case.

    A text that holds the secret escaped is withheld as a whole.
    """
    forms = _forms(secret.reveal())
    # A form may begin with another: the longest first.
    find = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))) or "(?!)", re.IGNORECASE)

    def mask(text: str, *, is_cut: bool = False) -> str:
        """Return the text with ``***`` for the secret. ``is_cut``: the text may end within it."""
        text = find.sub("***", text)
        cut = forms if is_cut else ()
        # The end is masked by itself: most texts are whole, and it may look like a cut key by chance.
        rest = text[: len(text) - _begun(text, cut)]
        if any(find.search(read) or _begun(read, cut) for read in _readings(rest, is_cut=is_cut)):
            return "***"
        return text if rest == text else f"{rest}***"

    return mask


def _forms(plain: str) -> set[str]:
    """Return, in lower case: the secret, how it reads, its hex digits, and the characters for it in any base64 text.

    Nothing if it is too short. If the secret holds escapes, such as ``%41``, nested escapes around it may hide it.
    """
    if len(plain) < SHORTEST_MASKED:
        return set()
    data = plain.encode()
    # Text after the key may be taken for the end of an escape that its last characters begin.
    rest = plain.rstrip("\\%&")
    part = rest if len(rest) >= SHORTEST_MASKED else plain
    forms = {data.hex(), part, *_readings(part)}
    for before, first in enumerate((0, 2, 3)):
        last = (before + len(data)) * 4 // 3
        forms.update(encode(bytes(before) + data)[first:last].decode() for encode in (b64encode, urlsafe_b64encode))
    return {form.lower() for form in forms if form}  # a key may read as nothing


def _begun(text: str, forms: Iterable[str]) -> int:
    """Return how many characters at the end begin a form: two or more, as one tells nothing.

    One is enough before an escape that is begun, which may tell the next. That escape is counted, too.
    """
    ends = {re.sub(_BEGUN, "", text): 1, text: 2}
    return max(
        (
            len(text) - len(end) + length
            for end, least in ends.items()
            for form in forms
            for length in range(least, len(form) + 1)
            if end[-length:].lower() == form[:length]
        ),
        default=0,
    )


def _readings(text: str, *, is_cut: bool = False) -> set[str]:
    """Return the text as it reads in JSON, a URL or HTML, and as that reads. NULs are left out, as in UTF-16.

    ``is_cut``: the end may be within an escape within an escape. Each reading is also returned with ``%`` for an escape
    that is begun there, and read again.
    """
    ways: list[tuple[str, Any]] = [(_ESCAPE, _meaning), (_BEGUN_WITHIN, "%")][: 1 + is_cut]
    seen = texts = {text}
    for _ in range(_STEPS):
        texts = {re.sub(*way, each).replace("\0", "") for way in ways for each in texts} - seen
        seen = seen | texts
    return seen - {text}


def _meaning(escape: re.Match[str]) -> str:
    from html import unescape  # loads 2,000 names, which few processes need

    return chr(int(escape[1], 16)) if escape[1] else escape[2] or unescape(escape[0])

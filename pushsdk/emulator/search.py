"""The search line of the inbox: ``user:u1 title:"black friday" lang:de status:429 is:accepted words``, and its SQL.

| term | finds requests |
|---|---|
| ``user:ID`` | to this user; it is done by the store, which has an index of them |
| ``title:TEXT``, ``body:TEXT`` | with it in a title, or in another of their texts |
| ``lang:CODE`` | with texts in this language; ``de`` is ``de-AT`` too |
| ``campaign:NAME`` | that created the campaign with this uuid, or with this in its name |
| ``status:429``, ``status:4xx``, ``status:none`` | with this answer, or with none |
| ``is:accepted`` | the service took |
| ``is:refused`` | it did not take, by itself |
| ``is:failed`` | a fault kept from its true answer, or from any |
| ``is:push``, ``is:campaign`` | of this kind |
| anything else | with it in any text |

All terms must hold; of several statuses, kinds or fates one is enough. Quotes hold words together, and within them
``\\"`` and ``\\\\`` are a quote and a backslash. What can't be read as a term is a word, a term without a value is
nothing yet: any line is a search.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

__all__ = ["Search", "condition", "folded", "parse"]

_LONGEST = 2_000  # characters of a line that are read; SQLite bounds the length of a pattern
_MOST = 50  # terms of a line that are read; SQLite bounds the depth of an expression

# Possessive: however hostile the line, each of its characters is looked at a bounded number of times.
_TERM = re.compile(r'(?:([A-Za-z]++):)?+(?:"((?:[^"\\]|\\.?+)*+)"?+|(\S*+))', re.DOTALL)
_STATUS = re.compile(r"([1-9][0-9]{2})|([1-9])xx")

_FATES = {
    "accepted": "requests.accepted = 1",
    "refused": "(requests.accepted = 0 AND requests.fault IS NULL AND requests.status IS NOT NULL)",
    # A delay is a fault too, and does no harm by itself.
    "failed": (
        "(requests.status IS NULL"
        " OR (requests.fault IS NOT NULL AND NOT (requests.accepted = 1 AND requests.status < 400)))"
    ),
}
_TEXTS = {"user": "users", "title": "titles", "body": "bodies", "campaign": "campaigns"}
_KINDS = {"push": "push", "campaign": "campaigns"}

_TITLE = r"requests.title LIKE ? ESCAPE '\'"
_BODY = r"requests.text LIKE ? ESCAPE '\'"
_LANGUAGE = "(" + " OR ".join([r"requests.langs LIKE ? ESCAPE '\'"] * 3) + ")"
_CAMPAIGN = (
    "EXISTS (SELECT 1 FROM campaigns WHERE campaigns.request = requests.id"
    r" AND (campaigns.uuid = ? OR campaigns.name LIKE ? ESCAPE '\'))"
)


class Search(Struct, frozen=True, kw_only=True):
    """What a line asks for. ``users`` are for the store, the rest is in `condition`.

    ``statuses`` are spans, first and last; None is no answer. ``partial``: something of the line was left out, a term
    without a value or what is over the bounds, so that more is found than was asked for. Nothing to delete by.
    """

    users: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    campaigns: tuple[str, ...] = ()
    statuses: tuple[tuple[int, int] | None, ...] = ()
    fates: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    partial: bool = False

    def __repr__(self) -> str:
        return f"Search({', '.join(name for name in self.__struct_fields__ if getattr(self, name))})"


def parse(line: str) -> Search:
    """Read a search line; every line can be read. What is over 2,000 characters or 50 terms is left out."""
    # Half a character, as a broken address bar sends, is none that SQLite takes.
    read = line[:_LONGEST].encode("utf-8", "replace").decode()
    terms = (match for match in _TERM.finditer(read) if match[0])
    found: dict[str, list[Any]] = {}
    partial = len(line) > _LONGEST
    for field, value in map(_read, islice(terms, _MOST)):
        if value == "":
            partial = True
        else:
            found.setdefault(field, []).append(value)
    partial = partial or next(terms, None) is not None
    return Search(**{field: tuple(values) for field, values in found.items()}, partial=partial)


def _read(match: re.Match[str]) -> tuple[str, object]:
    """The field of the search that a term belongs to, and its value there, empty where it has none yet."""
    prefix, quoted, plain = match.groups()
    value = plain if quoted is None else re.sub(r'\\(["\\])', r"\1", quoted)
    kind, low = (prefix or "").lower(), value.lower()
    if kind in _TEXTS:
        return _TEXTS[kind], value
    if kind in ("status", "is") and not value:
        return "words", ""
    if kind == "lang":
        return "languages", folded(value)
    if kind == "is" and low in _FATES:
        return "fates", low
    if kind == "is" and low in _KINDS:
        return "kinds", low
    if kind == "status" and low == "none":
        return "statuses", None
    if kind == "status" and (status := _STATUS.fullmatch(low)):
        first = int(status[1] or f"{status[2]}00")
        return "statuses", (first, first if status[1] else first + 99)
    return "words", value if prefix is None else f"{prefix}:{value}"


def folded(text: str) -> str:
    """The text as it is compared: without case, and without NUL, at which SQLite's LIKE ends a text.

    What the store keeps to be searched, ``title`` and ``text``, is folded too: LIKE alone knows case in ASCII only.
    """
    return text.casefold().replace("\0", "\ufffd")


def condition(search: Search) -> tuple[str, list[str | int]]:
    """The SQL condition over the table ``requests`` and its parameters; an empty one holds always.

    ``langs`` is expected as ``" de en "``. The users are left out.
    """
    parts: list[tuple[str, Sequence[str | int]]] = [
        *((_TITLE, [_like(text)]) for text in search.titles),
        *((_BODY, [_like(text)]) for text in search.bodies),
        *((f"({_TITLE} OR {_BODY})", [_like(text)] * 2) for text in search.words),
        *((_LANGUAGE, _languages(code)) for code in search.languages),
        *((_CAMPAIGN, [text.lower(), f"%{_escaped(text.replace(chr(0), chr(0xFFFD)))}%"]) for text in search.campaigns),
    ]
    if search.statuses:
        spans = [span for span in search.statuses if span is not None]
        given = ["requests.status BETWEEN ? AND ?"] * len(spans)
        none = ["requests.status IS NULL"] if None in search.statuses else []
        parts.append((_any([*given, *none]), [bound for span in spans for bound in span]))
    if search.fates:
        parts.append((_any([_FATES[fate] for fate in search.fates]), []))
    if search.kinds:
        parts.append((_any(["requests.endpoint = ?"] * len(search.kinds)), [_KINDS[kind] for kind in search.kinds]))
    return " AND ".join(part for part, _ in parts), [value for _, values in parts for value in values]


def _any(parts: list[str]) -> str:
    return f"({' OR '.join(parts)})"


def _like(text: str) -> str:
    return f"%{_escaped(folded(text))}%"


def _languages(code: str) -> list[str]:
    escaped = _escaped(code)
    return [f"% {escaped} %", f"% {escaped}-%", rf"% {escaped}\_%"]


def _escaped(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)

"""The search line of the inbox: ``user:u1 title:"black friday" lang:de status:429 is:accepted words``, and its SQL.

| term | finds requests |
|---|---|
| ``user:ID`` | to this user |
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

from msgspec import Struct

__all__ = ["Search", "folded", "parse"]

_LONGEST = 2_000  # characters of a line that are read; SQLite bounds the length of a pattern
_MOST = 50  # terms of a line that are read; SQLite bounds the depth of an expression

# Possessive: however hostile the line, each of its characters is looked at a bounded number of times.
_TERM = re.compile(r'(?:([A-Za-z]++):)?+(?:"((?:[^"\\]|\\.?+)*+)"?+|(\S*+))', re.DOTALL)
_STATUS = re.compile(r"([1-9][0-9]{2})|([1-9])xx")
_PREFIXES = {"user", "title", "body", "lang", "campaign", "status", "is"}

_IS = {
    "accepted": "requests.accepted = 1",
    "refused": "(requests.accepted = 0 AND requests.fault IS NULL AND requests.status IS NOT NULL)",
    # A delay is a fault too, and does no harm by itself.
    "failed": (
        "(requests.status IS NULL"
        " OR (requests.fault IS NOT NULL AND NOT (requests.accepted = 1 AND requests.status < 400)))"
    ),
    "push": "requests.endpoint = 'push'",
    "campaign": "requests.endpoint = 'campaigns'",
}

_TITLE = r"requests.title LIKE ? ESCAPE '\'"
_BODY = r"requests.text LIKE ? ESCAPE '\'"
_LANGUAGE = " OR ".join([r"requests.langs LIKE ? ESCAPE '\'"] * 3)  # the column is like " de en "
_CAMPAIGN = (
    "EXISTS (SELECT 1 FROM campaigns WHERE campaigns.request = requests.id"
    r" AND (campaigns.uuid = ? OR campaigns.name LIKE ? ESCAPE '\'))"
)


class Search(Struct, frozen=True, kw_only=True):
    """A search line, read: an SQL condition over the table ``requests`` with its values, empty for all requests.

    ``users`` are for the store, which has an index of them. ``partial``: something of the line was left out, a term
    without a value or one beyond the bounds, so that more is found than was asked for: never delete by such a search.
    ``names_fate``: the line says whether accepted, refused or failed requests are meant.
    """

    condition: str = ""
    values: tuple[str | int, ...] = ()
    users: tuple[str, ...] = ()
    partial: bool = False
    names_fate: bool = False

    def __repr__(self) -> str:
        return "Search(...)"


def parse(line: str) -> Search:
    """Read a search line; every line can be read. What is over 2,000 characters or 50 terms is left out."""
    # Half a character, as a broken address bar sends, is none that SQLite takes.
    text = line[:_LONGEST].encode("utf-8", "replace").decode()
    terms = [match for match in _TERM.finditer(text) if match[0]]
    partial = len(line) > _LONGEST or len(terms) > _MOST
    users: list[str] = []
    groups: dict[object, list[tuple[str, list[str | int]]]] = {}  # alternatives, by what they are about
    for match in terms[:_MOST]:
        prefix, value = _split(match)
        if not value and (prefix == "" or prefix in _PREFIXES):
            partial = True
        elif prefix == "user":
            users.append(value)
        else:
            group, sql, values = _condition(prefix, value, match)
            groups.setdefault(group, []).append((sql, values))
    return Search(
        condition=" AND ".join(f"({' OR '.join(sql for sql, _ in group)})" for group in groups.values()),
        values=tuple(value for group in groups.values() for _, values in group for value in values),
        users=tuple(users),
        partial=partial,
        names_fate="fate" in groups,
    )


def _split(match: re.Match[str]) -> tuple[str, str]:
    """Return the prefix of a term in lower case, and its value."""
    prefix, quoted, plain = match.groups()
    return (prefix or "").lower(), plain if quoted is None else re.sub(r'\\(["\\])', r"\1", quoted)


def _condition(prefix: str, value: str, term: re.Match[str]) -> tuple[object, str, list[str | int]]:
    """Return the condition of a term with its values, and what it is about: of equal ones, one has to hold."""
    low = value.lower()
    if prefix in ("title", "body"):
        return term, _TITLE if prefix == "title" else _BODY, [_like(value)]
    if prefix == "lang":
        escaped = _escaped(folded(value))
        return term, _LANGUAGE, [f"% {escaped} %", f"% {escaped}-%", rf"% {escaped}\_%"]
    if prefix == "campaign":
        return term, _CAMPAIGN, [low, f"%{_escaped(value.replace(chr(0), chr(0xFFFD)))}%"]
    if prefix == "is" and low in _IS:
        return "kind" if low in ("push", "campaign") else "fate", _IS[low], []
    if prefix == "status" and low == "none":
        return "status", "requests.status IS NULL", []
    if prefix == "status" and (status := _STATUS.fullmatch(low)):
        first = int(status[1] or f"{status[2]}00")
        return "status", "requests.status BETWEEN ? AND ?", [first, first if status[1] else first + 99]
    word = value if term[1] is None else f"{term[1]}:{value}"
    return term, f"{_TITLE} OR {_BODY}", [_like(word)] * 2


def folded(text: str) -> str:
    """Return the text as it is compared: without case, and without NUL, at which SQLite's LIKE ends a text.

    What the store keeps to be searched, ``title`` and ``text``, is folded too: LIKE alone knows case in ASCII only.
    """
    return text.casefold().replace("\0", "\ufffd")


def _like(text: str) -> str:
    return f"%{_escaped(folded(text))}%"


def _escaped(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)

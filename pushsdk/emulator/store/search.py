"""The search line of the inbox: ``user:u1 title:"black friday" lang:de status:429 is:accepted words``, and its SQL.

The terms are in docs/emulator.md. All must hold; of several statuses, endpoints or ``is:`` results one is enough.
Quotes join words; within quotes ``\\"`` and ``\\\\`` are a quote and a backslash. Every line is a search: an unknown
term counts as a word, a term without a value is ignored.
"""

import json
import re
from pathlib import Path

from msgspec import Struct

_MAX_LINE = 2_000  # characters of a line
_MAX_TERMS = 50  # SQLite bounds the depth of an expression

# Possessive quantifiers: a hostile line can't cause backtracking.
_TERM = re.compile(r'(?:([A-Za-z]++):)?+(?:"((?:[^"\\]|\\.?+)*+)"?+|(\S*+))', re.DOTALL)
STATUS = re.compile(r"([1-9][0-9]{2})|([1-9])xx")
PREFIXES = {"user", "title", "body", "lang", "group", "campaign", "status", "is"}

# A delay is a fault too, but the client gets the true response: such a request has not failed.
# The texts are stored case-folded, the languages like " de en ".
_SQL: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("search.json").read_text())
IS, _TEXTS, _TERMS = _SQL["is"], _SQL["texts"], _SQL["terms"]


class Search(Struct, frozen=True, kw_only=True):
    """A parsed search line: an SQL condition over the table ``requests`` with its values, empty for all requests.

    ``users`` are looked up in the store's index. ``partial`` is True if a part of the line was ignored (a term without
    a value, or more than the bounds allow), so the search finds too much: never delete by such a search.
    ``names_fate`` is True if the line has an ``is:accepted``, ``is:refused``, ``is:failed`` or a status.
    """

    condition: str = ""
    values: tuple[str | int, ...] = ()
    users: tuple[str, ...] = ()
    partial: bool = False
    names_fate: bool = False

    def __repr__(self) -> str:
        return "Search(...)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []


def parse(line: str) -> Search:
    """Parse a search line. Characters beyond 2,000 and terms beyond 50 are ignored."""
    # SQLite refuses lone surrogates, which a broken address bar can send.
    text = line[:_MAX_LINE].encode("utf-8", "replace").decode()
    terms = [match for match in _TERM.finditer(text) if match[0]]
    partial = len(line) > _MAX_LINE or len(terms) > _MAX_TERMS
    users: list[str] = []
    groups: dict[object, list[tuple[str, list[str | int]]]] = {}  # alternatives by subject
    for match in terms[:_MAX_TERMS]:
        prefix, value = (match[1] or "").lower(), match[3]
        if match[2] is not None:
            value = re.sub(r'\\(["\\])', r"\1", match[2])
        if not value and (prefix == "" or prefix in PREFIXES):
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
        names_fate=not groups.keys().isdisjoint(("fate", "status")),
    )


def _condition(prefix: str, value: str, term: re.Match[str]) -> tuple[object, str, list[str | int]]:
    """Return the subject of a term, its condition and the values; terms with the same subject are alternatives."""
    low, folded = value.lower(), value.casefold()
    if prefix in _TEXTS:
        return term, _TEXTS[prefix], [folded]
    if prefix == "lang":
        return term, _TERMS["lang"], [f" {folded}{end}" for end in " -_"]
    if prefix == "group" and value.isdecimal():
        return term, 'requests."group" = CAST(? AS INTEGER)', [value]
    if prefix == "campaign":
        return term, _TERMS["campaign"], [low, value]
    if prefix == "is" and low in IS:
        return "kind" if low in ("push", "campaign") else "fate", IS[low], []
    if prefix == "status" and low == "none":
        return "status", "requests.status IS NULL", []
    if prefix == "status" and (status := STATUS.fullmatch(low)):
        first = int(status[1] or f"{status[2]}00")
        return "status", "requests.status BETWEEN ? AND ?", [first, first if status[1] else first + 99]
    word = folded if term[1] is None else f"{term[1]}:{value}".casefold()
    return term, " OR ".join(_TEXTS.values()), [word] * 2

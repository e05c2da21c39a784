"""The inbox's search line: ``user:u1 title:"black friday" lang:de status:429 is:accepted words``, and its SQL.

The terms are in docs/emulator.md. All must hold; from several statuses, endpoints or ``is:`` results one is enough.
Quotes join words; within quotes ``\\"`` and ``\\\\`` are a quote and a backslash. Every line is a search: an unknown
term counts as a word, a term without a value is ignored: each text contains it. Only an id can be empty, ``user:""``.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from msgspec import Struct

from pushsdk._texts import text_beside
from pushsdk.emulator.store.records import Redacted, user_key

_MAX_TERMS = 50  # SQLite bounds the expression depth

# Possessive quantifiers: a hostile line can't cause backtracking.
_TERM = re.compile(r'(?:([A-Za-z]++):)?+(?:"((?:[^"\\]|\\.?+)*+)"?+|(\S*+))', re.DOTALL)
_STATUS = re.compile(r"([1-9][0-9]{2})|([1-9])xx")

# A delay is a fault too, but the client gets the true response: such a request has not failed.
# The texts are stored case-folded, the languages like " de en ". A request that was not accepted may be no JSON.
_SQL: dict[str, dict[str, str]] = json.loads(text_beside(__name__, "search.json"))
_IS, _WORD, _TERMS = _SQL["is"], _SQL["word"], _SQL["terms"]


class Search(Redacted, frozen=True, kw_only=True):
    """A parsed search line: an SQL condition over the table ``requests`` with its values, empty for all requests.

    ``partial`` is True if part of the line was ignored (a term without a value, or more than the bounds allow), so the
    search finds too much: never delete by such a search.
    ``names_fate`` is True if the line has an ``is:accepted``, ``is:refused``, ``is:failed`` or a status.
    ``misread`` is the first term that counts as a word for its value, or whose quote is not closed.
    """

    condition: str = ""
    values: tuple[str | int, ...] = ()
    partial: bool = False
    names_fate: bool = False
    misread: str = ""


def parse(line: str) -> Search:
    """Parse a search line. Terms beyond 50 are ignored."""
    # SQLite refuses lone surrogates, which a broken address bar can send.
    terms = list(filter(itemgetter(0), _TERM.finditer(line.encode("utf-8", "replace").decode())))
    partial = len(terms) > _MAX_TERMS
    groups: dict[object, list[_Condition]] = {}  # alternatives by subject
    misread = ""
    for term in terms[:_MAX_TERMS]:
        condition, is_misread = _read(term)
        if condition is None:
            partial = True
            continue
        groups.setdefault(condition.subject or term, []).append(condition)
        if is_misread and not misread:
            misread = term[0]
    names_fate = not groups.keys().isdisjoint(("fate", "status"))
    sql, values = _joined(groups.values())
    return Search(condition=sql, values=values, partial=partial, names_fate=names_fate, misread=misread)


class _Condition(Struct, frozen=True):
    """The condition for a term and its values; the conditions with the same subject are alternatives."""

    sql: str
    values: Sequence[str | int] = ()
    subject: str | None = None


def _read(term: re.Match[str]) -> tuple[_Condition | None, bool]:
    """Return a term's condition, None without a value; and True if the term is misread, see `Search`."""
    prefix, value = term.groups("")[0], _value(term)
    reader = _READERS.get(prefix.lower())
    if reader and not value and term[0].lower() != 'user:""':
        return None, False
    condition = reader and reader(value)
    is_unclosed = term.end() == term.end(2)
    return condition or _word(f"{prefix}:{value}"), is_unclosed or (reader is not None and not condition)


def _joined(groups: Iterable[Sequence[_Condition]]) -> tuple[str, tuple[str | int, ...]]:
    """Return a condition that needs one from each group, and its values."""
    sql, values = [], list[str | int]()
    for group in groups:
        sql.append(f"({' OR '.join(condition.sql for condition in group)})")
        values += [value for condition in group for value in condition.values]
    return " AND ".join(sql), tuple(values)


def _value(term: re.Match[str]) -> str:
    return term[3] if term[2] is None else re.sub(r'\\(["\\])', r"\1", term[2])


def _word(word: str) -> _Condition:
    return _Condition(" OR ".join(_WORD.values()), [*[word.casefold()] * 2, *user_key(word), word])


def _group(value: str) -> _Condition | None:
    return _Condition('requests."group" = CAST(? AS INTEGER)', [value]) if value.isdecimal() else None


def _is(value: str) -> _Condition | None:
    name = value.lower()
    subject = "kind" if name in ("push", "campaign") else "fate"
    return _Condition(_IS[name], subject=subject) if name in _IS else None


def _status(value: str) -> _Condition | None:
    if value.lower() == "none":
        return _Condition("requests.status IS NULL", subject="status")
    if (status := _STATUS.fullmatch(value.lower())) is None:
        return None
    lowest = int(status[1] or f"{status[2]}00")
    return _Condition("requests.status BETWEEN ? AND ?", [lowest, lowest if status[1] else lowest + 99], "status")


# The condition for a term by its prefix; for another prefix, or with None, the whole term is a word.
_READERS: dict[str, Callable[[str], _Condition | None]] = {
    "": _word,
    "title": lambda value: _Condition(_WORD["title"], [value.casefold()]),
    "body": lambda value: _Condition(_WORD["body"], [value.casefold()]),
    "lang": lambda value: _Condition(_TERMS["lang"], [f" {value.casefold()}{end}" for end in " -_"]),
    "campaign": lambda value: _Condition(_TERMS["campaign"], [value.lower()]),
    "user": lambda value: _Condition(_WORD["user"], [*user_key(value), value]),
    "group": _group,
    "is": _is,
    "status": _status,
}

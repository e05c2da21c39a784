"""The search in the user guide, for ``pushsdk docs --search`` and the emulator's page.

A query is a list of terms: words that name the subject, and keys in ``synonyms.json``. Texts and terms are
compared in lower case, without plural and tense. Imports nothing but the standard library.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from pushsdk import docs

SYNONYMS: dict[str, list[str]] = json.loads(Path(__file__).with_name("synonyms.json").read_text(encoding="utf-8"))
# Question words that do not name the subject.
_FILLER = re.compile(
    "an?|and|are|can|do|does|for|from|how|i|in|is|it|mean|my|of|on|or|the|to|use|what|when|which|why|with"
)
_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])|[\W_]+")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|e|s)$")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"^- |\*\*|!?\[([^]]*)\]\([^)]*\)")  # list item, bold, image and link syntax
_PASSAGE = re.compile(r"\n\s*\n|\n(?=[-|]|\d+\.)")  # between paragraphs, list items and table rows
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=\W?[A-Z])")

# A term's score in each part; a part that repeats the term counts up to _MOST times.
_IN_HEADING, _IN_TITLE, _IN_PROSE, _IN_CODE = 8, 3, 1, 0.3
_MOST = 3
_LONGEST = 40  # characters whose beginnings are tried
_PHRASE = _EXACT = 2  # factors for all words in the query's order, and for a heading that is the query, in this case
# Factors for the pages that name everything, and for those about the inside.
_LAST = {"index": 0.3, "reference": 0.3, "contributing": 0.3, "design": 0.5}


class Result(NamedTuple):
    """A section: its page, heading and best sentence."""

    page: str
    heading: str
    text: str


def search(query: str) -> list[Result]:
    """Return the sections with all terms in the query, or else with most terms, best first.

    A term stands for all words that begin with it, ``env`` for environment, and for two words: ``healthcheck`` for
    health check. If no page has it, its beginning counts: ``idempotent`` finds idempotency. A term in a heading weighs
    more than one in the text, and code least.
    """
    sections = [*_sections()]
    terms, phrase = _terms(query, "\n".join(chain.from_iterable(map(attrgetter("plain"), sections))))
    ranked = []
    for page, heading, prose, code, parts in sections:
        scores = [_score(term, *parts) for term in terms]
        score = sum(scores) * (_PHRASE if any(map(phrase.search, parts[::2])) else 1)
        score *= _EXACT if heading == query else _LAST.get(page, 1)
        ranked.append((sum(map(bool, scores)), score, page, heading, prose, code))
    ranked.sort(key=lambda row: row[:2], reverse=True)
    best = (row[2:] for row in ranked if row[0] == ranked[0][0] > 0)
    return [Result(page, heading, _sentence(prose, code, terms)) for page, heading, prose, code in best]


def _plain(text: str) -> str:
    """Return the words in a text without plural and tense, in lower case, between single spaces."""
    words = _WORD_END.sub(" ", text).lower().split()
    return " ".join(_ENDING.sub("", re.sub("ie[sd]$", "y", word)) for word in words)


def _pattern(*texts: str) -> re.Pattern[str]:
    """Return a pattern for the words that begin with one of these texts, with or without spaces."""
    plain = (" ?".join(_plain(text).replace(" ", "")) for text in texts)
    return re.compile(rf"\b(?:{'|'.join(plain)})")


def _terms(query: str, guide: str) -> tuple[list[re.Pattern[str]], re.Pattern[str]]:
    """Return a pattern for each term in a query with its synonyms, and one for all its words in this order."""
    words = [word for word in re.findall(r"[^\W_]+", query) if not _FILLER.fullmatch(word.lower())]
    rest = phrase = _plain(" ".join(words) or query)
    terms = []
    for key in sorted(SYNONYMS, key=len, reverse=True):
        plain = _plain(key)
        if f" {plain} " in f" {rest} ":
            terms.append(_pattern(key, *SYNONYMS[key]))
            rest = f" {rest} ".replace(f" {plain} ", " ").strip()
    return [*terms, *(_pattern(_beginning(word, guide)) for word in rest.split())], _pattern(phrase)


def _beginning(word: str, guide: str) -> str:
    """Return the longest beginning of a word, at least half, that the guide has; else the word."""
    lengths = range(min(len(word), _LONGEST), max(3, len(word) // 2 - 1), -1)
    return next((word[:length] for length in lengths if _pattern(word[:length]).search(guide)), word)


class _Section(NamedTuple):
    page: str
    heading: str
    prose: str
    code: str
    #: The heading, title, prose and code in plain words.
    plain: list[str]


def _sections() -> Iterator[_Section]:
    for name in docs.names():
        # A comment in a code block is not a heading.
        parts = _HEADING.split(_CODE.sub(lambda code: code[0].replace("\n#", "\n #"), docs.read(name)))
        for heading, section in zip(parts[1::2], parts[2::2], strict=True):
            prose, code = _CODE.sub("", section), "\n".join(_CODE.findall(section))
            plain = [*map(_plain, (heading, f"{parts[1]} {name}", prose, code))]
            yield _Section(name, heading, prose, code, plain)


def _score(term: re.Pattern[str], heading: str, title: str, prose: str, code: str) -> float:
    # A short heading is about the term, a long one mentions the term.
    in_heading = _IN_HEADING * bool(term.search(heading)) / math.sqrt(len(heading.split()))
    in_prose, in_code = (min(_MOST, len(term.findall(text))) for text in (prose, code))
    in_text = _IN_PROSE * in_prose + _IN_CODE * in_code
    return in_heading + in_text + _IN_TITLE * bool((in_heading or in_text) and term.search(title))


def _sentence(prose: str, code: str, terms: Sequence[re.Pattern[str]]) -> str:
    """Return the sentence, table row or code line with most terms, as plain text."""
    sentences = [sentence for passage in _PASSAGE.split(prose) for sentence in _SENTENCE.split(passage.strip())]
    lines = [*filter(None, sentences), *code.splitlines()[1:]] or [""]
    best = max(lines, key=lambda line: sum(bool(term.search(_plain(line))) for term in terms))
    return _MARKUP.sub(r"\1", " ".join(best.strip("| ").replace(" | ", ": ").split()))

"""The user guide: the pages beside this file, for the command ``pushsdk docs`` and the emulator's page.

Imports nothing but the standard library.
"""

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"^- |\[([^]]*)\]\([^)]*\)")  # list item and link syntax
_PASSAGE = re.compile(r"\n\s*\n|\n(?=[-|]|\d+\.)")  # between paragraphs, list items and table rows
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=\W?[A-Z])")
# Question words that do not name the subject.
_FILLER = re.compile("an?|and|are|can|do|does|for|how|i|in|is|it|mean|my|of|on|or|the|to|what|when|why|with")


def names() -> list[str]:
    """Return all page names, in index order."""
    return list(dict.fromkeys([*re.findall(r"\(([\w-]+)\.md", read("index")), "index"]))


def read(name: str) -> str:
    """Return the Markdown of a page. Raises KeyError for an unknown page."""
    # The name may come from a URL: only file names in the folder are opened.
    path = {path.stem: path for path in FOLDER.glob("*.md")}[name]
    return path.read_text(encoding="utf-8")


def summary(page: str) -> str:
    """Return the first sentence below the page title."""
    return re.split(r"(?<=\.)\s", " ".join(page.split("\n\n")[1].split()))[0]


def search(query: str) -> list[tuple[str, str, str]]:
    """Return the page, heading and best sentence for each section with all words in the query, best first.

    A word stands for all that begin with it: ``env`` for environment, ``healthcheck`` for health check. Titles come
    before headings, paragraphs and whole sections, and the reference last. Code counts only if no text has the words.
    """
    found = sorted(_matches(query), key=lambda result: result[0])
    return [result[1:] for result in found if result[0][0] == found[0][0][0]]


def _patterns(query: str) -> list[re.Pattern[str]]:
    """Return a pattern for each word in the query that names the subject, or else for each word."""
    words = re.findall(r"[^\W_]+", query.lower())
    patterns = []
    for word in [word for word in words if not _FILLER.fullmatch(word)] or words:
        stem = re.sub(r"(?<=\w{3})(ies|y|s)$", "", word)
        first, rest = f"[{stem[0].upper()}{stem[0]}]", "[ _-]?".join(stem[1:])
        patterns.append(re.compile(rf"{first}(?:(?<![^\W_].)|(?<=[a-z][A-Z]))[ _-]?(?i:{rest})"))
    return patterns


def _sections() -> Iterator[tuple[str, str, str, str]]:
    """Yield the page, page title, heading and text for each section."""
    for name in names():
        # A comment in a code block is not a heading.
        parts = _HEADING.split(_CODE.sub(lambda code: code[0].replace("\n#", "\n #"), read(name)))
        for heading, section in zip(parts[1::2], parts[2::2], strict=True):
            yield name, parts[1], heading, section


def _matches(query: str) -> Iterator[tuple[tuple[bool, bool, int, int], str, str, str]]:
    """Yield the sort key, page, heading and best sentence for each section with all words in the query."""
    patterns = _patterns(query)

    def hits(text: str) -> int:
        return sum(pattern.search(text) is not None for pattern in patterns)

    for name, title, heading, section in _sections():
        prose = _CODE.sub("", section).strip()
        passage = max(_PASSAGE.split(prose), key=hits)
        asked = heading.lower().rstrip("?") == query.lower().rstrip("?")
        subject = heading if asked or heading == title else ""
        texts = subject, heading, passage, f"{heading} {prose}", section
        complete = [hits(text) == len(patterns) for text in texts]
        if True in complete:
            rank = complete.index(True)
            in_code = rank == len(texts) - 1
            sentence = max(section.splitlines() if in_code else _SENTENCE.split(passage), key=hits)
            order = in_code, name == "reference" and not asked, rank, -hits(name)
            yield order, name, heading, _MARKUP.sub(r"\1", " ".join(sentence.split()))

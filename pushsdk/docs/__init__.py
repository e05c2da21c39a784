"""The user guide: the pages beside this file, for the command ``pushsdk docs`` and the emulator's page.

Imports nothing but the standard library.
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
_SPACES = str.maketrans("-_", "  ")


def names() -> list[str]:
    """Return the names of all pages, in the order of the index."""
    pages = sorted(path.stem for path in FOLDER.glob("*.md"))
    linked = re.findall(r"\(([\w-]+)\.md", read("index"))
    return list(dict.fromkeys(name for name in [*linked, *pages] if name in pages))


def read(name: str) -> str:
    """Return the Markdown of a page. Raises KeyError if no page has this name."""
    # The name may come from a URL: only names of files in the folder are opened.
    path = {path.stem: path for path in FOLDER.glob("*.md")}[name]
    return path.read_text(encoding="utf-8")


def summary(page: str) -> str:
    """Return the first sentence below the title of a page."""
    return re.split(r"(?<=\.)\s", " ".join(page.split("\n\n")[1].split()))[0]


def search(text: str) -> list[tuple[str, str, str]]:
    """Return the page, heading and text of each line that contains all words, in any case; headings first."""
    words = text.lower().translate(_SPACES).split()
    lines = []
    for name in names():
        heading, fenced = "", False
        for line in read(name).splitlines():
            fenced ^= line.startswith("```")
            if line.startswith("#") and not fenced:
                heading = line.lstrip("# ")
            if all(word in line.lower().translate(_SPACES) for word in words):
                lines.append((name, heading, line.strip()))
    # The text of a heading's own line is the heading.
    return sorted(lines, key=lambda line: line[2].lstrip("# ") != line[1])

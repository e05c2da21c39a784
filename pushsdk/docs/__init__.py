"""The user guide: the pages beside this file, for the command ``pushsdk docs`` and the emulator's page.

Imports nothing but the standard library.
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent


_INDEX_LINE = re.compile(r"^## (.+)|^(\w.*):$|^- \[(.+?)\]\(([\w-]+)\.md", re.MULTILINE)


def groups() -> dict[str, list[tuple[str, str]]]:
    """Return the pages in each group of the index: names and titles."""
    found: dict[str, list[tuple[str, str]]] = {}
    group = ""
    for heading, subject, title, name in _INDEX_LINE.findall(read("index")):
        if name:
            found.setdefault(group, []).append((name, title))
        else:
            group = heading or subject
    return found


def names() -> list[str]:
    """Return all page names, in index order."""
    return [*(name for pages in groups().values() for name, _ in pages), "index"]


def read(name: str) -> str:
    """Return the Markdown of a page. Raises KeyError for an unknown page."""
    # The name may come from a URL: only file names in the folder are opened.
    path = {path.stem: path for path in FOLDER.glob("*.md")}[name]
    return path.read_text(encoding="utf-8")


def anchor(heading: str) -> str:
    """Return the name that links have for a heading."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def sections(page: str) -> dict[str, str]:
    """Return the sections by anchor, each with the sections in it."""
    found = re.findall(r"(?ms)^(?=((##+) ([^\n]+)\n.*?\n(?=\n(?!\2#)##|\Z)))", page)
    by_anchor: dict[str, str] = {}
    for text, _, heading in found:
        by_anchor.setdefault(anchor(heading), text)
    return by_anchor


def summary(page: str) -> str:
    """Return the first sentence below the page title."""
    return re.split(r"(?<=\.)\s", " ".join(page.split("\n\n")[1].split()))[0]

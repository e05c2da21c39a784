"""The user guide: the pages beside this file, for the command ``pushsdk docs`` and the emulator's page.

Imports nothing but the standard library.
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent


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

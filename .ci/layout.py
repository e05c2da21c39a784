"""The clone holds what it should, and nothing in it speaks of the machine it was written on. Run in its top folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

TOP = {"CHANGELOG.md", "README.md", "benchmarks", "pushsdk", "pyproject.toml", "tests"}
# Somebody's folders, by how they begin on Linux, macOS and Windows.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|root|Users|work|tmp/\w+)/|[A-Z]:\\Users\\")
IGNORED = [line.strip().rstrip("/") for line in Path(".gitignore").read_text().splitlines() if line.strip()]


def is_ignored(path: Path) -> bool:
    return path.name == ".git" or any(fnmatch(each, rule) for each in (path.name, str(path)) for rule in IGNORED)


def files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if not is_ignored(path):
            yield from files(path) if path.is_dir() else [path]


def complaints() -> Iterator[str]:
    top = {path.name for path in Path().iterdir() if not path.name.startswith(".") and not is_ignored(path)}
    yield from (f"{name}: does not belong at the top" for name in sorted(top - TOP))
    yield from (f"{name}: is missing" for name in sorted(TOP - top))
    for path in sorted(files(Path())):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if MACHINE_PATHS.search(line):
                yield f"{path}:{number}: speaks of a path on somebody's machine"


sys.exit("\n".join(complaints()) or 0)

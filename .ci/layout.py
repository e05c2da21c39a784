"""Check that the top folder has the expected entries and that no file mentions a path of a developer's machine.

Run in the top folder of the clone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

TOP = {"CHANGELOG.md", "README.md", "benchmarks", "pushsdk", "pyproject.toml", "tests"}
# Beginnings of home and work folders on Linux, macOS and Windows.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|root|Users|work|tmp/\w+)/|[A-Z]:\\Users\\")
IGNORED = [line.strip().rstrip("/") for line in Path(".gitignore").read_text().splitlines() if line.strip()]


def is_ignored(path: Path) -> bool:
    return path.name == ".git" or any(fnmatch(name, rule) for name in (path.name, str(path)) for rule in IGNORED)


def files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if not is_ignored(path):
            yield from files(path) if path.is_dir() else [path]


def problems() -> Iterator[str]:
    top = {path.name for path in Path().iterdir() if not path.name.startswith(".") and not is_ignored(path)}
    yield from (f"{name}: not expected in the top folder" for name in sorted(top - TOP))
    yield from (f"{name}: missing" for name in sorted(TOP - top))
    for path in sorted(files(Path())):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if MACHINE_PATHS.search(line):
                yield f"{path}:{number}: mentions a path of a developer's machine"


sys.exit("\n".join(problems()) or 0)

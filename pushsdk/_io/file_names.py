"""The names of files and folders that callers pass."""

import os

from pushsdk._core.kinds import must_be

AnyPath = str | os.PathLike[str]


def check_path(name: str, path: object, example: str) -> str:
    """Return the path as text. Raises ConfigurationError unless it is a str or an os.PathLike, and not empty."""
    if not path or not isinstance(path, (str, os.PathLike)):
        raise must_be(name, f"a path, for example {example!r}", path)
    return os.fsdecode(path)

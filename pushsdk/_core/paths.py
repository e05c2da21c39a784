"""Paths in the values to send, and the errors about the values there.

A ValidationError names a path and never shows a value: values are user ids and texts.
"""

import re

from pushsdk._core.errors import ValidationError

# Roots that are arguments or an option, not body parts.
_ARGUMENTS = frozenset({"user_ids", "users", "--user", "custom_fields"})

Path = tuple[str | int, ...]
"""A path in a resource: keys and indexes from the root."""


def show_path(path: Path) -> str:
    """Return the path as text, such as ``$.message.androidActionButtons[0].url``.

    A key that can't be a field name or a language code is shown as ``[...]``: it may be a user id.
    """
    is_name = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]{0,40}").fullmatch
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" if is_name(part) else "[...]" for part in path)
    return "$" + "".join(parts)


def value_error(path: Path, words: str) -> ValidationError:
    """Return the error for the value at this path."""
    where = show_path(path)
    error = ValidationError(f"{where[2:] if path[:1] and path[0] in _ARGUMENTS else where}: {words}")
    error.__suppress_context__ = True  # msgspec's error, which names another type
    return error


def unicode_text(value: str, path: Path) -> str:
    """Return the value as an exact str. Raises ValidationError if it is not Unicode."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise value_error(path, "the text holds a lone surrogate, which is not Unicode") from None
    return str.__str__(value)

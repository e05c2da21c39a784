"""What commands print: lines of text and JSON in which no id, file, setting or answer steers a terminal.

Loads nothing large. Every line of a command goes through `say` or `warn`, every drawn text through `visible`.
"""

from __future__ import annotations

import sys
import unicodedata
from typing import TextIO

__all__ = ["escaped", "print_json", "say", "visible", "warn"]

# By Unicode category: controls with the line end, format characters (those that turn the direction, zero-width ones,
# tags), lone surrogates, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Emoji, Persian and the scripts of India need the two joiners, which only change how their neighbors are drawn.
_JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def visible(text: str) -> str:
    """Return the text as one line, with U+FFFD in place of each character that is not drawn."""
    return text if text.isprintable() else "".join("\ufffd" if _is_unsafe(char) else char for char in text)


def escaped(json: str) -> str:
    r"""Return a JSON text with the same data, in which each such character is written as ``\uXXXX``."""
    return json if json.isprintable() else "".join(_escape(char) if _is_unsafe(char) else char for char in json)


def say(text: str) -> None:
    """Print one line to stdout."""
    sys.stdout.write(f"{visible(text)}\n")


def warn(text: str) -> None:
    """Print one line to stderr."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def print_json(data: object, file: TextIO | None = None) -> None:
    """Print one line of JSON, to stdout if no file is given."""
    import msgspec  # only now: the start of the command line needs none

    (file or sys.stdout).write(escaped(msgspec.json.encode(data).decode()) + "\n")


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in _UNSAFE and char not in _JOINERS


def _escape(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

"""The terminal: lines of text and JSON in which no id, file, setting or answer steers it, and a question.

Loads nothing large. Every line of a command goes through `say` or `warn`, every drawn text through `visible`.
"""

from __future__ import annotations

import sys
import unicodedata
from typing import TextIO

from pushsdk.cli.exit import CommandError, Exit, usage

__all__ = ["ask", "escaped", "print_json", "say", "visible", "warn"]

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


def ask(question: str, *, yes: bool, nothing: str) -> None:
    """Ask on stderr whether to go on, and read the answer from stdin; with ``yes`` it is not asked.

    Raises a usage error if there is no terminal; ends with exit code 1 and the text ``nothing`` on any other answer.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise usage(f"{question} There is no terminal to ask on: add --yes. {nothing.capitalize()}.")
    sys.stderr.write(f"{visible(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(nothing, Exit.INCOMPLETE)


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in _UNSAFE and char not in _JOINERS


def _escape(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

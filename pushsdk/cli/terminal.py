"""Text for terminals: lines and JSON in which no outside text steers the terminal, durations, and questions.

Every line of a command goes through `say` or `warn`, and rich draws only text that passed `visible`. Every command
loads this module, so it imports nothing large.
"""

import codecs
import sys
import unicodedata
from typing import TextIO

from pushsdk.cli.exit import CommandError, Exit, usage_error

# Unicode categories: controls and line ends, format characters (text direction, zero width, tags), lone surrogates,
# line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Emoji, Persian and Indic scripts need the two joiners, which change only how their neighbors are drawn.
_JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def visible(text: str) -> str:
    """Return the text as one line, with U+FFFD for each unsafe character."""
    return text if text.isprintable() else "".join("\ufffd" if _is_unsafe(char) else char for char in text)


def escaped(json: str, file: TextIO | None = None) -> str:
    r"""Return a JSON text with the same data, which is UTF-8 in any locale: each unsafe character is ``\uXXXX``.

    If the stream, by default stdout, is not UTF-8, only ASCII is safe.
    """
    if not _is_utf8(file or sys.stdout):
        json = "".join(char if char.isascii() else _escape(char) for char in json)
    return json if json.isprintable() else "".join(_escape(char) if _is_unsafe(char) else char for char in json)


def say(text: str) -> None:
    """Print one line to stdout."""
    sys.stdout.write(f"{visible(text)}\n")


def warn(text: str) -> None:
    """Print one line to stderr."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def print_json(data: object, file: TextIO | None = None) -> None:
    """Print one JSON line, by default to stdout."""
    import msgspec  # imported late: --help does not need it

    (file or sys.stdout).write(escaped(msgspec.json.encode(data).decode(), file) + "\n")


def duration(seconds: float) -> str:
    """Return seconds as ``0:05``, ``12:34`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ask(question: str, *, declined: str) -> None:
    """Ask a yes-or-no question on the terminal.

    Raises a usage error without a terminal, and an error with exit code 1 and the text ``declined`` on any answer but
    yes.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise usage_error(f"{question} Can't ask without a terminal: pass --yes. {declined.capitalize()}.")
    sys.stderr.write(f"{visible(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(declined, Exit.INCOMPLETE)


def _is_utf8(file: TextIO) -> bool:
    return codecs.lookup(file.encoding or "utf-8").name == "utf-8"


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in _UNSAFE and char not in _JOINERS


def _escape(char: str) -> str:
    return "\\u" + char.encode("utf-16-be").hex(" ", 2).replace(" ", "\\u")

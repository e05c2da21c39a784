"""Text files as numbered lines, and what is refused in them. Nothing of a line ever gets into an error's text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from pushsdk._broadcast._source import plain
from pushsdk._core.errors import ValidationError

__all__ = ["LONGEST", "Lines", "bad_line", "lines_of", "unreadable"]

BLOCK = 1 << 18
LONGEST = 64 * 1024

Lines = tuple[int, list[str]]
"""The number of the first line, from 1, and the lines without their ends (a carriage return may be left)."""


def bad_line(name: str, number: int, text: str) -> ValidationError:
    """What is wrong with a line, in the words that all formats share."""
    return ValidationError(f"{plain(name)}, line {number}: {text}")


def unreadable(name: str, error: OSError) -> ValidationError:
    """What the system says against a file."""
    return ValidationError(f"{plain(name)} can't be read: {error.strerror or type(error).__name__}")


def lines_of(file: IO[bytes], name: str, *, longest: int = LONGEST) -> Iterator[Lines]:
    """The lines of a stream of bytes, some thousands at a time. A byte order mark at its start is dropped.

    Raises ValidationError with the number of a line that is no UTF-8, holds a NUL, or is over ``longest`` bytes.
    """
    number, rest = 1, b""
    for block in _blocks(file, name):
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            lines = _decoded(rest + whole, name, number, longest)
            yield number, lines
            number += len(lines)
            rest = tail
        else:
            rest += block
        if len(rest) > longest:
            raise _too_long(name, number, longest)
    if rest:
        yield number, _decoded(rest, name, number, longest)


def _blocks(file: IO[bytes], name: str) -> Iterator[bytes]:
    while True:
        try:
            block: Any = file.read(BLOCK)
        except OSError as error:
            raise unreadable(name, error) from None
        if not block:
            return
        if not isinstance(block, bytes):
            raise ValidationError(f"{plain(name)} gives {type(block).__name__}: open it in binary mode")
        yield block


def _decoded(data: bytes, name: str, number: int, longest: int) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise bad_line(name, number + data.count(b"\n", 0, error.start), "not UTF-8") from None
    if number == 1:
        text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise bad_line(
            name, number + text.count("\n", 0, text.index("\0")), "holds a NUL character: is the file UTF-8 text?"
        )
    lines = text.split("\n")
    if 4 * max(map(len, lines)) > longest:  # a character is at most four bytes
        for at, line in enumerate(lines, number):
            if len(line.encode()) > longest:
                raise _too_long(name, at, longest)
    return lines


def _too_long(name: str, number: int, longest: int) -> ValidationError:
    return bad_line(name, number, f"longer than {longest // 1024} KiB: is this the right file?")

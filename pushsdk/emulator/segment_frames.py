"""What goes between the emulator and the process of a query: one job there, frames back. Pure."""

from __future__ import annotations

import struct
from typing import IO, TypeAlias

import msgspec
from msgspec import Struct

from pushsdk._broadcast.distinct import Row
from pushsdk.emulator.tables import Table

__all__ = ["Counted", "Done", "Failed", "Frame", "Job", "Rows", "packed", "read", "read_frame"]


class Job(Struct, frozen=True):
    """A query over tables, and the column of its result that holds the user ids."""

    tables: dict[str, Table]
    query: str
    primary_key: str
    max_rows: int
    seconds: float = 0
    """Until the first frame."""


class Counted(Struct, frozen=True, tag="counted"):
    """The query has been run: this many rows it found, refused ones among them."""

    rows: int
    refused: int
    first_refused: str | None


class Rows(Struct, frozen=True, tag="rows"):
    """Some of the users, sorted, each once."""

    rows: list[Row]


class Done(Struct, frozen=True, tag="done"):
    """There are no more."""

    users: int
    duplicates: int


class Failed(Struct, frozen=True, tag="failed"):
    """There is no result, or no more of it."""

    error: str


Frame: TypeAlias = Counted | Rows | Done | Failed
_encode = msgspec.msgpack.Encoder().encode
_frame = msgspec.msgpack.Decoder(Frame)
_LENGTH = struct.Struct(">Q")


def packed(value: Job | Frame) -> bytes:
    """As it goes over a pipe: its length, and itself."""
    data = _encode(value)
    return _LENGTH.pack(len(data)) + data


def read(file: IO[bytes]) -> bytes | None:
    """What ``packed`` gave, without its length; None where it does not come whole."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = file.read(length)
    return data if len(data) == length else None


def read_frame(file: IO[bytes]) -> Frame | None:
    """The next frame; None where it does not come whole."""
    data = read(file)
    return None if data is None else _frame.decode(data)

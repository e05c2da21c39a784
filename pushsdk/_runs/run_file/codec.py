"""The rows of a run file: from values to checksummed bytes, and back. Pure.

What comes back is what went in, or `Damaged` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, TypeVar
from zlib import crc32

import msgspec

from pushsdk._audience.chunks import Chunk
from pushsdk._runs.plan import Event, Header, StopReason

__all__ = [
    "Damaged",
    "LogEntry",
    "Meta",
    "Seal",
    "digested",
    "log_row",
    "meta_row",
    "pack",
    "read_entry",
    "read_meta",
    "read_sizes",
    "unpack",
]

# Small chunks share a row of about so many bytes: a row each would make planning and opening slower.
PACK = 16 * 1024

T = TypeVar("T")

LogEntry = Sequence[Event] | StopReason | None
"""What one row of the log holds: the events of a commit, or why a process ended the run (None: it did not)."""

#: Number of its first chunk, users of each chunk, what each sends, checksum.
PlanRow = tuple[int, bytes, bytes, int]
#: Number from 1, entry, checksum that goes on from the row before.
LogRow = tuple[int, bytes, int]


class Damaged(Exception):
    """This is not what was written."""


class Seal(msgspec.Struct, frozen=True, array_like=True):
    """The plan is complete, and this is what it is."""

    chunks: int
    users: int
    duplicates: int
    digest: bytes
    """Over the checksums of its rows."""


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """What the run is about."""

    header: Header
    seal: Seal | None


_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(Meta).decode
_decode_sizes = msgspec.msgpack.Decoder(list[Annotated[int, msgspec.Meta(ge=1, le=2**32)]]).decode
# Per chunk: ids, message, custom fields.
_decode_bodies = msgspec.msgpack.Decoder(list[tuple[bytes, bytes | None, bytes | None]]).decode
_decode_entry = msgspec.msgpack.Decoder(list[Event] | StopReason | None).decode


def meta_row(meta: Meta) -> tuple[bytes, int]:
    """As data and checksum."""
    data = _encode(meta)
    return data, crc32(data)


def read_meta(row: Sequence[object]) -> tuple[Meta, int]:
    """The other way."""
    match row:
        case (bytes(data), int(crc)) if crc == crc32(data):
            return _decoded(_decode_meta, data), crc
    raise Damaged


def pack(chunks: Iterable[Chunk], first: int) -> Iterator[PlanRow]:
    """The rows for chunks from number ``first`` on."""
    waiting: list[Chunk] = []
    room = PACK
    for chunk in chunks:
        size = len(chunk.ids) + len(chunk.message or b"") + len(chunk.custom_fields or b"")
        if waiting and size > room:
            yield _plan_row(waiting, first)
            first += len(waiting)
            waiting, room = [], PACK
        waiting.append(chunk)
        room -= size
    if waiting:
        yield _plan_row(waiting, first)


def _plan_row(chunks: Sequence[Chunk], first: int) -> PlanRow:
    sizes = _encode([chunk.users for chunk in chunks])
    bodies = _encode([(chunk.ids, chunk.message, chunk.custom_fields) for chunk in chunks])
    return first, sizes, bodies, _plan_crc(first, sizes, bodies)


def _plan_crc(first: int, sizes: bytes, bodies: bytes) -> int:
    return crc32(bodies, crc32(sizes, first))


def digested(row: PlanRow) -> bytes:
    """What the plan's digest takes in of a row."""
    return b"%d," % row[3]


def read_sizes(row: PlanRow, first: int) -> list[int]:
    """Of the row that has to begin with chunk number ``first`` only the users of each: opening needs no more."""
    sizes, _ = _checked(row)
    if row[0] != first:
        raise Damaged
    return sizes


def unpack(row: PlanRow) -> tuple[int, list[Chunk]]:
    """The number of the first chunk, and the chunks."""
    sizes, bodies = _checked(row)
    return row[0], [Chunk(users, *body) for users, body in zip(sizes, _decoded(_decode_bodies, bodies), strict=True)]


def _checked(row: Sequence[object]) -> tuple[list[int], bytes]:
    match row:
        case (int(first), bytes(sizes), bytes(bodies), int(crc)) if crc == _plan_crc(first, sizes, bodies):
            return _decoded(_decode_sizes, sizes), bodies
    raise Damaged


def log_row(entry: LogEntry, seq: int, crc: int) -> LogRow:
    """The row number ``seq`` after one with checksum ``crc``."""
    data = _encode(entry)
    return seq, data, crc32(data, crc)


def read_entry(row: Sequence[object], seq: int, crc: int) -> tuple[LogEntry, int]:
    """Of the row that has to be number ``seq`` after one with checksum ``crc``: the entry, and its own checksum."""
    match row:
        case (number, bytes(data), int(own)) if number == seq and own == crc32(data, crc):
            return _decoded(_decode_entry, data), own
    raise Damaged


def _decoded(decode: Callable[[bytes], T], data: bytes) -> T:
    # Whole by its checksum, so this is the work of another hand, or of another version.
    try:
        return decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Damaged from None

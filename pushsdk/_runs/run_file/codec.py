"""The codec of a run file's rows: values to checksummed bytes, and back. Pure.

Decoding returns the encoded value or raises ``Damaged``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, TypeVar
from zlib import crc32

import msgspec

from pushsdk._audience.chunks import Chunk
from pushsdk._runs.plan import Event, Header, StopReason

# Bytes per row, about. Small chunks share a row: one row per chunk makes planning and opening slower.
PACK = 16 * 1024

T = TypeVar("T")

LogEntry = Sequence[Event] | StopReason | None
"""One row of the log: the events of a commit, or the reason of an early end (None: the run is complete)."""

#: Number of the first chunk, users per chunk, bodies, checksum.
PlanRow = tuple[int, bytes, bytes, int]
#: Number from 1, entry, checksum that continues the checksum of the row before.
LogRow = tuple[int, bytes, int]


class Damaged(Exception):
    """The bytes are not the bytes that were written."""


class Seal(msgspec.Struct, frozen=True, array_like=True):
    """The summary of a complete plan."""

    chunks: int
    users: int
    duplicates: int
    digest: bytes
    """SHA-256 over the checksums of the plan's rows."""


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """The header, and the seal once the plan is complete."""

    header: Header
    seal: Seal | None


_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(Meta).decode
_decode_sizes = msgspec.msgpack.Decoder(list[Annotated[int, msgspec.Meta(ge=1, le=2**32)]]).decode
# Per chunk: ids, message, custom fields.
_decode_bodies = msgspec.msgpack.Decoder(list[tuple[bytes, bytes | None, bytes | None]]).decode
_decode_entry = msgspec.msgpack.Decoder(list[Event] | StopReason | None).decode


def meta_row(meta: Meta) -> tuple[bytes, int]:
    """Return data and checksum."""
    data = _encode(meta)
    return data, crc32(data)


def read_meta(row: Sequence[object]) -> tuple[Meta, int]:
    """Return the meta data and the checksum of a row."""
    match row:
        case (bytes(data), int(crc)) if crc == crc32(data):
            return _decoded(_decode_meta, data), crc
    raise Damaged


def pack(chunks: Iterable[Chunk], first: int) -> Iterator[PlanRow]:
    """Yield the rows for these chunks. ``first`` is the number of the first chunk."""
    packed: list[Chunk] = []
    room = PACK
    for chunk in chunks:
        size = len(chunk.ids) + len(chunk.message or b"") + len(chunk.custom_fields or b"")
        if packed and size > room:
            yield _plan_row(packed, first)
            first += len(packed)
            packed, room = [], PACK
        packed.append(chunk)
        room -= size
    if packed:
        yield _plan_row(packed, first)


def _plan_row(chunks: Sequence[Chunk], first: int) -> PlanRow:
    sizes = _encode([chunk.users for chunk in chunks])
    bodies = _encode([(chunk.ids, chunk.message, chunk.custom_fields) for chunk in chunks])
    return first, sizes, bodies, _plan_crc(first, sizes, bodies)


def _plan_crc(first: int, sizes: bytes, bodies: bytes) -> int:
    return crc32(bodies, crc32(sizes, first))


def digested(row: PlanRow) -> bytes:
    """Return a row's contribution to the plan's digest."""
    return b"%d," % row[3]


def read_sizes(row: PlanRow, first: int) -> list[int]:
    """Return the users per chunk of the row that must begin with chunk number ``first``. Opening needs no bodies."""
    sizes, _ = _checked(row)
    if row[0] != first:
        raise Damaged
    return sizes


def unpack(row: PlanRow) -> tuple[int, list[Chunk]]:
    """Return the number of the first chunk, and the chunks."""
    sizes, bodies = _checked(row)
    return row[0], [Chunk(users, *body) for users, body in zip(sizes, _decoded(_decode_bodies, bodies), strict=True)]


def _checked(row: Sequence[object]) -> tuple[list[int], bytes]:
    match row:
        case (int(first), bytes(sizes), bytes(bodies), int(crc)) if crc == _plan_crc(first, sizes, bodies):
            return _decoded(_decode_sizes, sizes), bodies
    raise Damaged


def log_row(entry: LogEntry, seq: int, crc: int) -> LogRow:
    """Return row number ``seq``. ``crc`` is the checksum of the row before."""
    data = _encode(entry)
    return seq, data, crc32(data, crc)


def read_entry(row: Sequence[object], seq: int, crc: int) -> tuple[LogEntry, int]:
    """Return entry and checksum of the row that must be number ``seq``. ``crc`` is the checksum of the row before."""
    match row:
        case (number, bytes(data), int(own)) if number == seq and own == crc32(data, crc):
            return _decoded(_decode_entry, data), own
    raise Damaged


def _decoded(decode: Callable[[bytes], T], data: bytes) -> T:
    # The checksum is right, so another program or version wrote this row.
    try:
        return decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Damaged from None

"""Chunks: the users of one request each. Readers of audiences make them, plans of runs store them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from pushsdk._core import wire
from pushsdk._core.batching import FRAME
from pushsdk._core.models import PushRequest


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One request of a plan. Its boundaries never change."""

    users: int
    ids: bytes
    """The user ids as JSON texts joined by commas, without brackets: the bytes on the wire."""
    message: bytes | None = None
    """Set only in a run of kind "each"; None is the message of the run's header."""
    custom_fields: bytes | None = None

    def __repr__(self) -> str:
        return f"Chunk(users={self.users}, bytes={len(self.ids)})"

    def user_ids(self) -> list[str]:
        """Return the ids, decoded."""
        return _decode_ids(b"[" + self.ids + b"]")


_decode_ids = msgspec.json.Decoder(list[str]).decode


class _AudienceSource(Protocol):
    @property
    def source(self) -> str:
        """Description of the audience: another description is another audience."""
        ...

    @property
    def duplicates(self) -> int:
        """Number of rows left out because their id was in an earlier row; known when the reading has ended."""
        ...


@runtime_checkable
class ChunkSource(_AudienceSource, Protocol):
    """Users that are read as chunks, faster than one by one: an ``Audience``. Read in a thread."""

    def chunks(self, *, fixed: int, max_users: int, max_bytes: int, distinct: bool) -> Iterator[Sequence[Chunk]]:
        """Yield the chunks in groups; ``fixed`` is the bytes of a request's body that are not ids."""
        ...


@runtime_checkable
class RequestSource(_AudienceSource, Protocol):
    """Requests that are read in batches: a personalized ``Audience``. Read in a thread."""

    def batches(self) -> Iterator[Sequence[PushRequest]]:
        """Yield the requests in batches."""
        ...


def chunks_of(user_ids: Sequence[str], *, fixed: int, max_users: int, max_bytes: int) -> Iterator[Chunk]:
    """Cut ids into chunks within the bounds; ``fixed`` is the bytes of a request's body that are not ids.

    An id that alone exceeds ``max_bytes`` gets its own chunk. Raises ``ValidationError`` that names ``$.userIds[i]``
    for a value that is not a user id.
    """
    # If the message takes more than half of the bytes, fewer users would not make the request small enough.
    room = max_bytes - fixed - FRAME if fixed * 2 <= max_bytes else None
    for start in range(0, len(user_ids), max_users):
        users = user_ids[start : start + max_users]
        yield from _bisected(users, wire.encode_user_ids(users)[1:-1], room)


def _bisected(users: Sequence[str], ids: bytes, room: int | None) -> Iterator[Chunk]:
    if room is None or len(ids) <= room or len(users) == 1:
        yield Chunk(len(users), ids)
        return
    middle = len(users) // 2
    for half in (users[:middle], users[middle:]):
        yield from _bisected(half, wire.encode_user_ids(half)[1:-1], room)

"""Chunks: the users of one request each, as readers of audiences and plans of runs share them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from pushsdk._core import wire
from pushsdk._core.batching import FRAME
from pushsdk._core.models import PushRequest

__all__ = ["Chunk", "ChunkSource", "RequestSource", "chunks_of"]


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One request of the plan. Its boundaries never move again."""

    users: int
    ids: bytes
    """The user ids as JSON texts joined by commas, without brackets: as they go over the wire."""
    message: bytes | None = None
    """Only in a run of kind "each"; None is the header's."""
    custom_fields: bytes | None = None

    def __repr__(self) -> str:
        return f"Chunk(users={self.users}, bytes={len(self.ids)})"

    def user_ids(self) -> list[str]:
        """The ids, decoded."""
        return _decode_ids(b"[" + self.ids + b"]")


_decode_ids = msgspec.json.Decoder(list[str]).decode


@runtime_checkable
class ChunkSource(Protocol):
    """Users that come as chunks by themselves, quicker than one by one: an ``Audience``. Read in a thread."""

    @property
    def source(self) -> str:
        """Words that name where the ids come from: another text is another audience."""
        ...

    @property
    def duplicates(self) -> int:
        """How many ids were left out because they came again; known once ``chunks`` has come to its end."""
        ...

    def chunks(self, *, fixed: int, max_users: int, max_bytes: int, distinct: bool) -> Iterator[Sequence[Chunk]]:
        """The chunks, some at a time; ``fixed`` is the bytes of a request's body that are not ids."""
        ...


@runtime_checkable
class RequestSource(Protocol):
    """Requests that come in batches: a personalized ``Audience``. Read in a thread."""

    @property
    def source(self) -> str:
        """As a ``ChunkSource``'s."""
        ...

    @property
    def duplicates(self) -> int:
        """As a ``ChunkSource``'s, once ``batches`` has come to its end."""
        ...

    def batches(self) -> Iterator[Sequence[PushRequest]]:
        """The requests, some at a time."""
        ...


def chunks_of(user_ids: Sequence[str], *, fixed: int, max_users: int, max_bytes: int) -> Iterator[Chunk]:
    """Cut ids into chunks within the bounds; ``fixed`` is the bytes of a request's body that are not ids.

    An id that alone is over ``max_bytes`` travels alone and is not refused for that; where the message is over half of
    it the bytes are not bounded. Raises
    ``ValidationError`` naming ``$.userIds[i]`` for what is no user id.
    """
    # Where the message is most of it, fewer users don't make a request small enough (as after a 413).
    room = max_bytes - fixed - FRAME if fixed * 2 <= max_bytes else None
    for start in range(0, len(user_ids), max_users):
        users = user_ids[start : start + max_users]
        yield from _within(users, wire.encode_user_ids(users)[1:-1], room)


def _within(users: Sequence[str], ids: bytes, room: int | None) -> Iterator[Chunk]:
    if room is None or len(ids) <= room or len(users) == 1:
        yield Chunk(len(users), ids)
        return
    middle = len(users) // 2
    for half in (users[:middle], users[middle:]):
        yield from _within(half, wire.encode_user_ids(half)[1:-1], room)

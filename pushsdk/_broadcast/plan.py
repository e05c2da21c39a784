"""The plan of a run and the events that its journal is made of. Values only: who stores and who sends is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from pushsdk._core import wire
from pushsdk._core.batching import FRAME
from pushsdk._core.models import PushRequest
from pushsdk._core.user_states import UserStatus

__all__ = [
    "Chunk",
    "ChunkSource",
    "Ending",
    "Event",
    "Header",
    "Piece",
    "RequestSource",
    "StoppedBy",
    "chunks_of",
]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is about. Stored with the plan, and compared when the run is taken up again; holds no key."""

    kind: Literal["broadcast", "each"]
    base_url: str
    message: bytes | None = None
    """As JSON; None where each chunk has its own."""
    custom_fields: bytes | None = None
    source: str = ""
    """Words that name where the user ids came from."""
    max_users: int
    max_bytes: int
    dedupe: bool = True
    policy: dict[str, Any] = {}
    """What was asked about repeats, as plain JSON, for people."""
    created: float = 0.0
    """Seconds since the epoch."""
    version: str = ""
    """Of the package that planned it."""

    def __repr__(self) -> str:
        return f"Header({self.kind!r}, {self.base_url!r}, source={self.source!r})"


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
    def repeated(self) -> int:
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
    def repeated(self) -> int:
        """As a ``ChunkSource``'s, once ``batches`` has come to its end."""
        ...

    def batches(self) -> Iterator[Sequence[PushRequest]]:
        """The requests, some at a time."""
        ...


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The users ``start`` to ``stop`` - 1 of the plan, who are all in chunk number ``chunk``; counted from 0."""

    chunk: int
    start: int
    stop: int

    @property
    def users(self) -> int:
        """How many."""
        return self.stop - self.start


StoppedBy = Literal["brake", "refused", "failure", "limit", "asked", "closed"]
"""Why a run ended before its end: the brake; the Api-Key was refused (401, 403); a failure that no other request would
escape, as of a certificate; ``limit``; ``stop``, or Ctrl-C; the client was closed."""


class Ending(msgspec.Struct, frozen=True):
    """That a run was ended before its end."""

    by: StoppedBy
    reason: str
    """In words."""


Event = tuple[int, int, UserStatus]
"""One change in the log: from this moment the users ``start`` to ``stop`` - 1 of the plan have this status."""


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
